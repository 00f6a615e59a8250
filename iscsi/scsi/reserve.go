package scsi

import "encoding/binary"

// PersistInAction is a service action of PERSISTENT RESERVE IN (SPC-4 §6.15.1).
type PersistInAction uint8

const (
	ReadKeys           PersistInAction = 0
	ReadReservation    PersistInAction = 1
	ReportCapabilities PersistInAction = 2
	ReadFullStatus     PersistInAction = 3
)

// PersistOutAction is a service action of PERSISTENT RESERVE OUT (SPC-4 §6.16.2).
type PersistOutAction uint8

const (
	Register          PersistOutAction = 0
	Reserve           PersistOutAction = 1
	Release           PersistOutAction = 2
	Clear             PersistOutAction = 3
	Preempt           PersistOutAction = 4
	PreemptAndAbort   PersistOutAction = 5
	RegisterAndIgnore PersistOutAction = 6
)

// ReservationType is the type of a persistent reservation, of scope LU_SCOPE (SPC-4
// §6.15.3.4).
type ReservationType uint8

const (
	WriteExclusive            ReservationType = 1
	ExclusiveAccess           ReservationType = 3
	WriteExclusiveRegistrants ReservationType = 5
	ExclusiveRegistrants      ReservationType = 6
	WriteExclusiveAll         ReservationType = 7
	ExclusiveAll              ReservationType = 8
	reservationTypeMask                       = 0x0f
)

// PersistOutLen is the length of the parameter list of PERSISTENT RESERVE OUT in octets.
const PersistOutLen = 24

// PersistOut is the parameter list of PERSISTENT RESERVE OUT (SPC-4 §6.16.3).
type PersistOut struct {
	Key      uint64 // RESERVATION KEY: the key that the initiator has registered
	NewKey   uint64 // SERVICE ACTION RESERVATION KEY: the key to register or to preempt
	KeepsPR  bool   // APTPL: registrations outlive a loss of power
	AllPorts bool   // ALL_TG_PT: the registration is for all ports of the target
}

// Append appends the parameter list.
func (p PersistOut) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, p.Key)
	b = binary.BigEndian.AppendUint64(b, p.NewKey)
	var flags uint8
	if p.KeepsPR {
		flags |= 0x01
	}
	if p.AllPorts {
		flags |= 0x04
	}
	return append(b, 0, 0, 0, 0, flags, 0, 0, 0)
}

const persistHeadLen = 8

// ParseKeys reads the data of ReadKeys (SPC-4 §6.15.2). generation changes with each
// registration.
func ParseKeys(b []byte) (generation uint32, keys []uint64, err error) {
	generation, b, err = persistIn(b)
	for ; len(b) >= 8; b = b[8:] {
		keys = append(keys, binary.BigEndian.Uint64(b))
	}
	return generation, keys, err
}

// Reservation is the persistent reservation of a unit.
type Reservation struct {
	Generation uint32
	Held       bool // there is one; Key and Type are valid
	Key        uint64
	Type       ReservationType
}

// ParseReservation reads the data of ReadReservation (SPC-4 §6.15.3).
func ParseReservation(b []byte) (r Reservation, err error) {
	const descriptor = 16
	r.Generation, b, err = persistIn(b)
	if err == nil && len(b) >= descriptor {
		r.Held, r.Key, r.Type = true, binary.BigEndian.Uint64(b), ReservationType(b[13]&reservationTypeMask)
	}
	return r, err
}

// persistIn splits the data of PERSISTENT RESERVE IN.
func persistIn(b []byte) (generation uint32, rest []byte, err error) {
	if len(b) < persistHeadLen {
		return 0, nil, short("PERSISTENT RESERVE IN data", len(b), persistHeadLen)
	}
	n := uint64(binary.BigEndian.Uint32(b[4:]))
	rest = b[persistHeadLen:]
	return binary.BigEndian.Uint32(b), rest[:min(n, uint64(len(rest)))], nil
}
