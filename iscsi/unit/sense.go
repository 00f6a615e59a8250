package unit

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Sense is the reason for CHECK CONDITION (SPC-4 §4.5). The zero Sense is no reason:
// the command succeeded.
type Sense struct {
	Key  scsi.Key
	Code scsi.Code

	Info    uint64 // the field INFORMATION
	HasInfo bool   // INFORMATION is valid

	// Field is the sense-key specific field pointer (SPC-4 §4.5.2.4.2): 1 plus the
	// number of the wrong octet. 0: no pointer.
	Field   uint16
	InParam bool // the wrong octet is one of the parameter list, not of the CDB

	// Progress is the sense-key specific progress indication (SPC-4 §4.5.2.4.4) in 65536ths.
	Progress    uint16
	HasProgress bool
}

// The sense keys that units use.
const (
	NoSense        = scsi.NoSense
	NotReady       = scsi.NotReady
	MediumError    = scsi.MediumError
	HardwareError  = scsi.HardwareError
	IllegalRequest = scsi.IllegalRequest
	UnitAttention  = scsi.UnitAttention
	DataProtect    = scsi.DataProtect
	AbortedCommand = scsi.AbortedCommand
	Miscompare     = scsi.Miscompare
)

// failed reports whether s is a reason for CHECK CONDITION.
func (s Sense) failed() bool { return s.Key != NoSense }

// badField is the sense of a CDB whose octet number n has a value that the unit does
// not take.
func badField(n int) Sense {
	return Sense{Key: IllegalRequest, Code: scsi.InvalidFieldInCDB, Field: uint16(n) + 1}
}

// badParameter is the sense of a parameter list whose octet number n has a value that
// the unit does not take.
func badParameter(n int) Sense {
	return Sense{Key: IllegalRequest, Code: scsi.InvalidFieldInParameterList, Field: uint16(n) + 1, InParam: true}
}

// SenseLength is the length in octets of the sense data that AppendSense appends, in
// the fixed format. In the descriptor format the length is at most SenseLength+10.
const SenseLength = 18

// appendFixed appends sense data in the fixed format (SPC-4 §4.5.3).
func (s Sense) appendFixed(b []byte) []byte {
	var d [SenseLength]byte
	d[0], d[2], d[7] = 0x70, byte(s.Key), SenseLength-8
	if s.HasInfo && s.Info <= 0xffffffff {
		d[0] |= 0x80
		binary.BigEndian.PutUint32(d[3:], uint32(s.Info))
	}
	binary.BigEndian.PutUint16(d[12:], uint16(s.Code))
	s.putField(d[15:])
	return append(b, d[:]...)
}

// appendDescriptor appends sense data in the descriptor format (SPC-4 §4.5.2).
func (s Sense) appendDescriptor(b []byte) []byte {
	at := len(b)
	b = append(b, 0x72, byte(s.Key), byte(s.Code>>8), byte(s.Code), 0, 0, 0, 0)
	if s.HasInfo {
		b = append(b, 0x00, 0x0a, 0x80, 0)
		b = binary.BigEndian.AppendUint64(b, s.Info)
	}
	if s.Field != 0 || s.HasProgress {
		b = append(b, 0x02, 0x06, 0, 0, 0, 0, 0, 0)
		s.putField(b[len(b)-4:])
	}
	b[at+7] = byte(len(b) - at - 8)
	return b
}

// putField writes the field pointer or the progress to three octets.
func (s Sense) putField(b []byte) {
	switch {
	case s.HasProgress:
		b[0] = 0x80
		binary.BigEndian.PutUint16(b[1:], s.Progress)
	case s.Field != 0:
		b[0] = 0x80
		if !s.InParam {
			b[0] |= 0x40
		}
		binary.BigEndian.PutUint16(b[1:], s.Field-1)
	}
}
