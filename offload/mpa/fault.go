package mpa

// Fault is an error in the received stream of FPDUs. A Terminate reports it with
// layer 2, type 0 (RFC 5044 §8).
type Fault uint8

const (
	OK        Fault = iota
	BadCRC          // the CRC is wrong
	BadMarker       // a Marker does not point at its FPDU
	BadLength       // ULPDU_Length is too short for any DDP header
)

// MPA error codes in Terminates, layer 2 and type 0 (RFC 5044 §8, RFC 6581 §8).
const (
	CodeCRC             = 2
	CodeMarker          = 3 // Markers and lengths contradict each other
	CodeInsufficientIRD = 6
	CodeNoRTR           = 7
)

var faults = [...]struct {
	name string
	code uint8
}{
	OK:        {"ok", 0},
	BadCRC:    {"bad CRC", CodeCRC},
	BadMarker: {"misplaced Marker", CodeMarker},
	BadLength: {"FPDU too short", CodeMarker},
}

// Code returns the error code on the wire. Code returns 0 for OK.
func (f Fault) Code() uint8 { return faults[f].code }

func (f Fault) String() string { return faults[f].name }
