package ddp

import (
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// Fault is the reason for refusing a segment.
type Fault uint8

const (
	OK    Fault = iota
	Short       // the ULPDU ends within its header; MPA reports this fault

	LocalFault // a local buffer cannot be used

	BadSTag // first of the faults of tagged segments
	OutOfBounds
	WrongStream
	Wrap
	TaggedVersion

	BadQueue // first of the faults of untagged segments
	NoBuffer
	BadMSN
	BadMO
	TooLong
	UntaggedVersion
)

// codes lists the error codes of DDP (RFC 5041 §7). The high octet is the error type,
// and the low octet is the error code.
var codes = [...]struct {
	code uint16
	name string
}{
	OK:              {0, "no fault"},
	Short:           {0, "shorter than its header"},
	LocalFault:      {0x000, "local catastrophic error"},
	BadSTag:         {0x100, "invalid STag"},
	OutOfBounds:     {0x101, "base or bounds violation"},
	WrongStream:     {0x102, "STag not associated with the stream"},
	Wrap:            {0x103, "tagged offset wraps"},
	TaggedVersion:   {0x104, "invalid DDP version"},
	BadQueue:        {0x201, "invalid queue number"},
	NoBuffer:        {0x202, "no buffer for the message"},
	BadMSN:          {0x203, "message sequence number out of range"},
	BadMO:           {0x204, "invalid message offset"},
	TooLong:         {0x205, "message longer than its buffer"},
	UntaggedVersion: {0x206, "invalid DDP version"},
}

// Code returns the error type and the error code that a Terminate carries for f (RFC
// 5041 §7). Short has no code of DDP. Code returns the MPA code 2/0/03 for Short.
func (f Fault) Code() (errType, code uint8) {
	c := codes[f].code
	return uint8(c >> 8), uint8(c)
}

func (f Fault) String() string {
	if int(f) < len(codes) {
		return codes[f].name
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Tagged returns the fault of a tagged segment that the table refuses with f. DDP has
// no code for a missing right. The caller must handle tpt.NoRight itself.
func Tagged(f tpt.Fault) Fault {
	switch f {
	case tpt.OK:
		return OK
	case tpt.WrongPD:
		return WrongStream
	case tpt.Wrap:
		return Wrap
	case tpt.OutOfBounds:
		return OutOfBounds
	}
	return BadSTag
}
