package login

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// Digest is an algorithm for header digests or data digests.
type Digest uint8

const (
	NoDigest Digest = noDigest
	CRC32C   Digest = crc32c
)

// TaskReporting is how a target reports tasks that a task management function ends (RFC
// 7143 §13.23).
type TaskReporting uint8

const (
	RFC3720       TaskReporting = 0
	ResponseFence TaskReporting = 1
	FastAbort     TaskReporting = 2
)

// Wishes are the operational parameters that an end wants. The peer's wishes and the
// result function of each key decide what both get. Lengths are in octets. The zero value
// is a good choice for both roles.
type Wishes struct {
	// The digests in order of preference. Empty means no digest. A list without NoDigest
	// demands a digest.
	HeaderDigest, DataDigest []Digest

	MaxRecvDataSegmentLength uint32 // that this end declares, 512 to 2^24-1; 0 means 262144
	MaxConnections           uint32 // 1 to 65535; 0 means 1
	RequireR2T               bool   // InitialR2T=Yes: no unsolicited Data-Out
	NoImmediateData          bool   // ImmediateData=No: no data in the PDU of a command
	MaxBurstLength           uint32 // 512 to 2^24-1; 0 means 262144
	FirstBurstLength         uint32 // 512 to MaxBurstLength; 0 means 65536, or MaxBurstLength if that is less
	MaxOutstandingR2T        uint32 // 1 to 65535; 0 means 1
	AnyPDUOrder              bool   // DataPDUInOrder=No
	AnySequenceOrder         bool   // DataSequenceInOrder=No
	ErrorRecoveryLevel       uint32 // 0 to 2
	Time2Wait                uint32 // DefaultTime2Wait in seconds, 0 to 3600; the greater of both ends is in force
	Time2Retain              uint32 // DefaultTime2Retain in seconds, 0 to 3600; the lesser is in force
	TaskReporting            []TaskReporting
	ProtocolLevel            uint32 // iSCSIProtocolLevel, 1 or 2 (RFC 7144); 0 means 1

	// The connection is iSER's (RFC 7145). Each length is that of a data segment which the
	// end of this name takes; 0 means 8192.
	RDMA                                  bool
	InitiatorRecvLength, TargetRecvLength uint32

	// UnexpectedPDUs is how many PDUs outside of the command window this end takes at a time
	// (MaxOutstandingUnexpectedPDUs, RFC 7145 §6.7). 0: any number. A target
	// tells it to an initiator that has declared a number of its own.
	UnexpectedPDUs uint32
}

// wishes are Wishes in the form of the table: a number for each key, and for a list the
// places of the options in order of preference.
type wishes struct {
	value [keys]uint32
	lists [keys][]uint8
	rdma  bool
}

// fill converts w, and reports every mistake in it.
func (w *Wishes) fill() (f wishes, err error) {
	f.rdma = w.RDMA
	for k, v := range w.numbers() {
		f.value[k] = v
		if r := &table[k]; r.kind != boolean && (v < r.min || v > r.max) {
			err = errors.Join(err, fmt.Errorf("iscsi login: %s is %d: it must be %d to %d", r.name, v, r.min, r.max))
		}
	}
	if first, most := f.value[keyFirstBurstLength], f.value[keyMaxBurstLength]; first > most {
		err = errors.Join(err, fmt.Errorf("iscsi login: FirstBurstLength %d exceeds MaxBurstLength %d", first, most))
	}
	f.lists[keyHeaderDigest], err = preferences(keyHeaderDigest, w.HeaderDigest, err)
	f.lists[keyDataDigest], err = preferences(keyDataDigest, w.DataDigest, err)
	f.lists[keyTaskReporting], err = preferences(keyTaskReporting, w.TaskReporting, err)
	return f, err
}

// numbers has the wish for each number and boolean, with the defaults filled in.
func (w *Wishes) numbers() map[key]uint32 {
	burst := or(w.MaxBurstLength, table[keyMaxBurstLength].initial)
	return map[key]uint32{
		keyMaxRecvDataSegmentLength:       or(w.MaxRecvDataSegmentLength, 262144),
		keyMaxConnections:                 or(w.MaxConnections, 1),
		keyInitialR2T:                     bit(w.RequireR2T),
		keyImmediateData:                  bit(!w.NoImmediateData),
		keyMaxBurstLength:                 burst,
		keyFirstBurstLength:               or(w.FirstBurstLength, min(burst, table[keyFirstBurstLength].initial)),
		keyMaxOutstandingR2T:              or(w.MaxOutstandingR2T, 1),
		keyDataPDUInOrder:                 bit(!w.AnyPDUOrder),
		keyDataSequenceInOrder:            bit(!w.AnySequenceOrder),
		keyErrorRecoveryLevel:             w.ErrorRecoveryLevel,
		keyDefaultTime2Wait:               w.Time2Wait,
		keyDefaultTime2Retain:             w.Time2Retain,
		keyProtocolLevel:                  or(w.ProtocolLevel, 1),
		keyRDMAExtensions:                 bit(w.RDMA),
		keyInitiatorRecvDataSegmentLength: or(w.InitiatorRecvLength, DefaultMaxRecvDataSegmentLength),
		keyTargetRecvDataSegmentLength:    or(w.TargetRecvLength, DefaultMaxRecvDataSegmentLength),
		keyMaxOutstandingUnexpectedPDUs:   w.UnexpectedPDUs,
		keyMaxAHSLength:                   table[keyMaxAHSLength].initial,
	}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func or(n, def uint32) uint32 {
	if n == 0 {
		return def
	}
	return n
}

// preferences converts a list of options. An empty list has the initial value only.
func preferences[T ~uint8](k key, list []T, err error) ([]uint8, error) {
	r := &table[k]
	places := make([]uint8, 0, len(list)+1)
	for _, o := range list {
		if int(o) >= len(r.options) {
			err = errors.Join(err, fmt.Errorf("iscsi login: %s has no option %d", r.name, o))
		}
		places = append(places, uint8(o))
	}
	if len(places) == 0 {
		places = append(places, uint8(r.initial))
	}
	return places, err
}

// Params is the result of a login: the parameters that both ends have agreed on, and the
// numbers with which the full feature phase begins. Lengths are in octets.
type Params struct {
	Discovery                     bool
	InitiatorName, InitiatorAlias string
	TargetName, TargetAlias       string
	PortalGroupTag                uint16
	ISID                          pdu.ISID
	TSIH, CID                     uint16
	User                          string // that the initiator proved by CHAP; empty without CHAP
	PeerUser                      string // that the target proved by CHAP; empty without mutual CHAP

	Digests                      pdu.Digests
	MaxSendLength, MaxRecvLength int // greatest data segment that this end may send, and that it takes

	InitialR2T, ImmediateData           bool
	FirstBurstLength, MaxBurstLength    uint32
	MaxOutstandingR2T, MaxConnections   uint32
	DataPDUInOrder, DataSequenceInOrder bool
	ErrorRecoveryLevel                  uint8
	ProtocolLevel                       uint8
	TaskReporting                       TaskReporting
	Time2Wait, Time2Retain              uint16 // seconds
	RDMA                                bool   // RDMAExtensions=Yes

	// CmdSN is the number of the first command that is not immediate. The initiator may
	// send up to MaxCmdSN. StatSN is the number of the next status.
	CmdSN, MaxCmdSN, StatSN seq.Num
}

// params converts the values of the table.
func (n *negotiation) params(p *Params) {
	v := &n.value
	p.Digests = pdu.Digests{Header: v[keyHeaderDigest] == crc32c, Data: v[keyDataDigest] == crc32c}
	p.MaxSendLength = int(v[keyMaxRecvDataSegmentLength])
	p.MaxRecvLength = DefaultMaxRecvDataSegmentLength
	if n.said.has(keyMaxRecvDataSegmentLength) {
		p.MaxRecvLength = int(n.wish.value[keyMaxRecvDataSegmentLength])
	}
	p.InitialR2T, p.ImmediateData = v[keyInitialR2T] != 0, v[keyImmediateData] != 0
	p.FirstBurstLength, p.MaxBurstLength = v[keyFirstBurstLength], v[keyMaxBurstLength]
	p.MaxOutstandingR2T, p.MaxConnections = v[keyMaxOutstandingR2T], v[keyMaxConnections]
	p.DataPDUInOrder, p.DataSequenceInOrder = v[keyDataPDUInOrder] != 0, v[keyDataSequenceInOrder] != 0
	p.ErrorRecoveryLevel, p.ProtocolLevel = uint8(v[keyErrorRecoveryLevel]), uint8(v[keyProtocolLevel])
	p.TaskReporting = TaskReporting(v[keyTaskReporting])
	p.Time2Wait, p.Time2Retain = uint16(v[keyDefaultTime2Wait]), uint16(v[keyDefaultTime2Retain])
	p.RDMA = v[keyRDMAExtensions] != 0
	if p.RDMA {
		p.lengthsOfRDMA(n)
	}
	if p.ErrorRecoveryLevel > 0 && p.DataSequenceInOrder { // RFC 7143 §13.19
		p.MaxOutstandingR2T = 1
	}
}

// lengthsOfRDMA replaces MaxRecvDataSegmentLength by the two keys of RFC 7145 §6.2, §6.3.
func (p *Params) lengthsOfRDMA(n *negotiation) {
	toTarget, toInitiator := int(n.value[keyTargetRecvDataSegmentLength]), int(n.value[keyInitiatorRecvDataSegmentLength])
	p.MaxSendLength, p.MaxRecvLength = toTarget, toInitiator
	if n.role == target {
		p.MaxSendLength, p.MaxRecvLength = toInitiator, toTarget
	}
}
