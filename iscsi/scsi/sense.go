package scsi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sense is the reason for CHECK CONDITION (SPC-4 §4.5).
type Sense struct {
	Key  Key
	Code Code

	Info     uint64 // INFORMATION, for a disk mostly an LBA
	HasInfo  bool   // INFORMATION is valid
	Specific uint64 // COMMAND-SPECIFIC INFORMATION

	// Field is 1 plus the number of the wrong octet (the sense-key specific field
	// pointer, SPC-4 §4.5.2.4.2). 0: no pointer.
	Field   uint16
	InParam bool // the wrong octet is one of the parameter list, not of the CDB

	// Progress is how much of an operation is done, in parts of 65536 (SPC-4
	// §4.5.2.4.4).
	Progress    uint16
	HasProgress bool

	Deferred bool // the error is of an earlier command
}

// Key is a sense key, four bits (SPC-4 table 41).
type Key uint8

const (
	NoSense        Key = 0x0
	RecoveredError Key = 0x1
	NotReady       Key = 0x2
	MediumError    Key = 0x3
	HardwareError  Key = 0x4
	IllegalRequest Key = 0x5
	UnitAttention  Key = 0x6
	DataProtect    Key = 0x7
	BlankCheck     Key = 0x8
	VendorSpecific Key = 0x9
	CopyAborted    Key = 0xa
	AbortedCommand Key = 0xb
	VolumeOverflow Key = 0xd
	Miscompare     Key = 0xe
	Completed      Key = 0xf
)

var keys = [16]string{
	"NO SENSE", "RECOVERED ERROR", "NOT READY", "MEDIUM ERROR", "HARDWARE ERROR", "ILLEGAL REQUEST", "UNIT ATTENTION", "DATA PROTECT",
	"BLANK CHECK", "VENDOR SPECIFIC", "COPY ABORTED", "ABORTED COMMAND", "", "VOLUME OVERFLOW", "MISCOMPARE", "COMPLETED",
}

func (k Key) String() string {
	if int(k) < len(keys) && keys[k] != "" {
		return keys[k]
	}
	return fmt.Sprintf("sense key %#x", uint8(k))
}

// The response codes and the offsets of both formats of sense data (SPC-4 §4.5.2, §4.5.3).
const (
	fixedCurrent       = 0x70
	descriptorCurrent  = 0x72
	responseMask       = 0x7f
	deferredBit        = 0x01 // 71h and 73h
	validBit           = 0x80
	keyMask            = 0x0f
	fixedKey           = 2
	fixedInfo          = 3
	fixedMore          = 7 // ADDITIONAL SENSE LENGTH, in both formats
	fixedSpecific      = 8
	fixedCode          = 12
	fixedKeySpecific   = 15
	descriptorKey      = 1
	descriptorCode     = 2
	senseHeadLen       = 8
	fieldInCDB         = 0x40
	descInfo           = 0x00
	descSpecific       = 0x01
	descKeySpecific    = 0x02
	wideDescriptorLen  = 12
	smallDescriptorLen = 8

	// FixedSenseLen is the length of sense data in the fixed format in octets.
	FixedSenseLen = 18
	// MaxSenseLen is the greatest length of sense data in octets (SPC-4 §4.5.1).
	MaxSenseLen = 252
)

// ErrSense is the error for octets that are no sense data.
var ErrSense = errors.New("scsi: sense data without a response code of 70h to 73h, or shorter than 8 octets")

// ParseSense reads sense data of the fixed or the descriptor format.
func ParseSense(b []byte) (s Sense, err error) {
	if len(b) < senseHeadLen {
		return Sense{}, ErrSense
	}
	b = b[:min(len(b), senseHeadLen+int(b[fixedMore]))]
	code := b[0] & responseMask
	s.Deferred = code&deferredBit != 0
	switch code &^ deferredBit {
	case fixedCurrent:
		s.parseFixed(b)
	case descriptorCurrent:
		s.parseDescriptors(b)
	default:
		return Sense{}, ErrSense
	}
	return s, nil
}

// parseFixed reads as many fields as b has. Octets that are not there are 0.
func (s *Sense) parseFixed(b []byte) {
	var d [FixedSenseLen]byte
	copy(d[:], b)
	s.Key, s.Code = Key(d[fixedKey]&keyMask), Code(binary.BigEndian.Uint16(d[fixedCode:]))
	s.Specific = uint64(binary.BigEndian.Uint32(d[fixedSpecific:]))
	if d[0]&validBit != 0 {
		s.Info, s.HasInfo = uint64(binary.BigEndian.Uint32(d[fixedInfo:])), true
	}
	s.parseKeySpecific(d[fixedKeySpecific:])
}

func (s *Sense) parseDescriptors(b []byte) {
	s.Key, s.Code = Key(b[descriptorKey]&keyMask), Code(binary.BigEndian.Uint16(b[descriptorCode:]))
	for d := b[senseHeadLen:]; len(d) >= 2; {
		n := 2 + int(d[1])
		if n > len(d) {
			return
		}
		s.parseDescriptor(d[:n])
		d = d[n:]
	}
}

func (s *Sense) parseDescriptor(d []byte) {
	switch {
	case d[0] == descInfo && len(d) >= wideDescriptorLen:
		if d[2]&validBit != 0 {
			s.Info, s.HasInfo = binary.BigEndian.Uint64(d[4:]), true
		}
	case d[0] == descSpecific && len(d) >= wideDescriptorLen:
		s.Specific = binary.BigEndian.Uint64(d[4:])
	case d[0] == descKeySpecific && len(d) >= smallDescriptorLen:
		s.parseKeySpecific(d[4:])
	}
}

// parseKeySpecific reads the three octets whose meaning depends on the sense key.
func (s *Sense) parseKeySpecific(b []byte) {
	if b[0]&validBit == 0 {
		return
	}
	n := binary.BigEndian.Uint16(b[1:])
	switch s.Key {
	case IllegalRequest:
		s.Field, s.InParam = min(n, 1<<16-2)+1, b[0]&fieldInCDB == 0
	case NoSense, NotReady:
		s.Progress, s.HasProgress = n, true
	}
}

// AppendFixed appends sense data in the fixed format, FixedSenseLen octets. The format
// has no place for an INFORMATION of more than 32 bits, which then is not valid.
func (s Sense) AppendFixed(b []byte) []byte {
	var d [FixedSenseLen]byte
	d[0], d[fixedKey], d[fixedMore] = s.response(fixedCurrent), uint8(s.Key), FixedSenseLen-senseHeadLen
	if s.HasInfo && s.Info < 1<<32 {
		d[0] |= validBit
		binary.BigEndian.PutUint32(d[fixedInfo:], uint32(s.Info))
	}
	if s.Specific < 1<<32 {
		binary.BigEndian.PutUint32(d[fixedSpecific:], uint32(s.Specific))
	}
	binary.BigEndian.PutUint16(d[fixedCode:], uint16(s.Code))
	s.putKeySpecific(d[fixedKeySpecific:])
	return append(b, d[:]...)
}

// AppendDescriptor appends sense data in the descriptor format.
func (s Sense) AppendDescriptor(b []byte) []byte {
	at := len(b)
	b = append(b, s.response(descriptorCurrent), uint8(s.Key), uint8(s.Code>>8), uint8(s.Code), 0, 0, 0, 0)
	if s.HasInfo {
		b = binary.BigEndian.AppendUint64(append(b, descInfo, wideDescriptorLen-2, validBit, 0), s.Info)
	}
	if s.Specific != 0 {
		b = binary.BigEndian.AppendUint64(append(b, descSpecific, wideDescriptorLen-2, 0, 0), s.Specific)
	}
	if s.Field != 0 || s.HasProgress {
		b = append(b, descKeySpecific, smallDescriptorLen-2, 0, 0, 0, 0, 0, 0)
		s.putKeySpecific(b[len(b)-4:])
	}
	b[at+fixedMore] = uint8(len(b) - at - senseHeadLen)
	return b
}

func (s Sense) response(code uint8) uint8 {
	if s.Deferred {
		return code | deferredBit
	}
	return code
}

func (s Sense) putKeySpecific(b []byte) {
	switch {
	case s.Field != 0:
		b[0] = validBit
		if !s.InParam {
			b[0] |= fieldInCDB
		}
		binary.BigEndian.PutUint16(b[1:], s.Field-1)
	case s.HasProgress:
		b[0] = validBit
		binary.BigEndian.PutUint16(b[1:], s.Progress)
	}
}

// String returns the sense key and the code, and the wrong octet if there is a pointer.
func (s Sense) String() string {
	text := s.Key.String() + ", " + s.Code.String()
	switch {
	case s.Field != 0 && s.InParam:
		text += fmt.Sprintf(", octet %d of the parameter list", s.Field-1)
	case s.Field != 0:
		text += fmt.Sprintf(", octet %d of the CDB", s.Field-1)
	}
	if s.Deferred {
		text += ", of an earlier command"
	}
	return text
}
