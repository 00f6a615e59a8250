package unit

import "encoding/binary"

// Sense is the reason for CHECK CONDITION (SPC-4 §4.5). The zero Sense is no reason:
// the command succeeded.
type Sense struct {
	Key  byte
	Code Code

	Info    uint64 // the field INFORMATION
	HasInfo bool   // INFORMATION is valid

	// Field is the sense-key specific field pointer (SPC-4 §4.5.2.4.2): 1 plus the
	// number of the wrong octet. 0: no pointer.
	Field   uint16
	InParam bool // the wrong octet is one of the parameter list, not of the CDB
}

// Sense keys (SPC-4 table 41).
const (
	NoSense        = 0x0
	NotReady       = 0x2
	MediumError    = 0x3
	HardwareError  = 0x4
	IllegalRequest = 0x5
	UnitAttention  = 0x6
	DataProtect    = 0x7
	AbortedCommand = 0xb
	Miscompare     = 0xe
)

// Code is an additional sense code and its qualifier (SPC-4 annex F.2).
type Code uint16

// Additional sense codes.
const (
	NotReadyCauseNotReportable    Code = 0x0400
	SanitizeInProgress            Code = 0x041b
	SanitizeFailed                Code = 0x3103
	WriteError                    Code = 0x0c00
	InvalidFieldInInformationUnit Code = 0x0e03
	UnrecoveredReadError          Code = 0x1100
	ParameterListLengthError      Code = 0x1a00
	MiscompareDuringVerify        Code = 0x1d00
	InvalidOperationCode          Code = 0x2000
	LBAOutOfRange                 Code = 0x2100
	InvalidFieldInCDB             Code = 0x2400
	LogicalUnitNotSupported       Code = 0x2500
	InvalidFieldInParameterList   Code = 0x2600
	InvalidReleaseOfReservation   Code = 0x2604
	WriteProtected                Code = 0x2700
	SoftwareWriteProtected        Code = 0x2702
	MediumMayHaveChanged          Code = 0x2800
	PowerOn                       Code = 0x2900
	DeviceReset                   Code = 0x2903
	NexusLoss                     Code = 0x2907
	ModeParametersChanged         Code = 0x2a01
	ReservationsPreempted         Code = 0x2a03
	ReservationsReleased          Code = 0x2a04
	RegistrationsPreempted        Code = 0x2a05
	CommandsClearedByAnother      Code = 0x2f00
	SavingNotSupported            Code = 0x3900
	MediumNotPresent              Code = 0x3a00
	ReportedLUNsChanged           Code = 0x3f0e
	InternalTargetFailure         Code = 0x4400
	RemovalPrevented              Code = 0x5302
	InsufficientRegistrations     Code = 0x5504
)

// failed reports whether s is a reason for CHECK CONDITION.
func (s Sense) failed() bool { return s.Key != NoSense }

// badField is the sense of a CDB whose octet number n has a value that the unit does
// not take.
func badField(n int) Sense {
	return Sense{Key: IllegalRequest, Code: InvalidFieldInCDB, Field: uint16(n) + 1}
}

// badParameter is the sense of a parameter list whose octet number n has a value that
// the unit does not take.
func badParameter(n int) Sense {
	return Sense{Key: IllegalRequest, Code: InvalidFieldInParameterList, Field: uint16(n) + 1, InParam: true}
}

// SenseLength is the length in octets of the sense data that AppendSense appends, in
// the fixed format. In the descriptor format the length is at most SenseLength+10.
const SenseLength = 18

// appendFixed appends sense data in the fixed format (SPC-4 §4.5.3).
func (s Sense) appendFixed(b []byte) []byte {
	var d [SenseLength]byte
	d[0], d[2], d[7] = 0x70, s.Key, SenseLength-8
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
	b = append(b, 0x72, s.Key, byte(s.Code>>8), byte(s.Code), 0, 0, 0, 0)
	if s.HasInfo {
		b = append(b, 0x00, 0x0a, 0x80, 0)
		b = binary.BigEndian.AppendUint64(b, s.Info)
	}
	if s.Field != 0 {
		b = append(b, 0x02, 0x06, 0, 0, 0, 0, 0, 0)
		s.putField(b[len(b)-4:])
	}
	b[at+7] = byte(len(b) - at - 8)
	return b
}

// putField writes the field pointer to three octets.
func (s Sense) putField(b []byte) {
	if s.Field == 0 {
		return
	}
	b[0] = 0x80
	if !s.InParam {
		b[0] |= 0x40
	}
	binary.BigEndian.PutUint16(b[1:], s.Field-1)
}
