package scsi

import "fmt"

// Status is a SCSI status code (SAM-5 §5.3.1).
type Status uint8

const (
	Good                Status = 0x00
	CheckCondition      Status = 0x02
	ConditionMet        Status = 0x04
	Busy                Status = 0x08
	ReservationConflict Status = 0x18
	TaskSetFull         Status = 0x28
	ACAActive           Status = 0x30
	TaskAborted         Status = 0x40
)

var statuses = map[Status]string{
	Good: "GOOD", CheckCondition: "CHECK CONDITION", ConditionMet: "CONDITION MET", Busy: "BUSY",
	ReservationConflict: "RESERVATION CONFLICT", TaskSetFull: "TASK SET FULL", ACAActive: "ACA ACTIVE", TaskAborted: "TASK ABORTED",
}

func (s Status) String() string {
	if name := statuses[s]; name != "" {
		return name
	}
	return fmt.Sprintf("status %#02x", uint8(s))
}

// Ended reports whether the command has done its work: its status is GOOD, or CONDITION
// MET as the answer of PRE-FETCH.
func (s Status) Ended() bool { return s == Good || s == ConditionMet }
