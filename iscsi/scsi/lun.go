package scsi

import "fmt"

// LUN is a logical unit number: 8 octets, of which each pair is a level (SAM-5 §4.7.3).
// The value has the octets in network order.
type LUN uint64

// The addressing methods of the first level, two bits (SAM-5 table 15), and the LUNs that
// the methods hold.
const (
	methodShift      = 62
	methodPeripheral = 0
	methodFlat       = 1
	methodExtended   = 3

	firstLevelShift = 48
	peripheralMask  = 0xff
	flatMask        = 0x3fff

	// MaxLUN is the greatest number that LUNOf encodes.
	MaxLUN = flatMask
)

// LUNOf returns the encoding of unit n, at most MaxLUN: peripheral device addressing
// below 256 (SAM-5 §4.7.7.2), and flat space addressing from 256 on (§4.7.7.3).
func LUNOf(n uint16) LUN {
	l := LUN(n&flatMask) << firstLevelShift
	if n > peripheralMask {
		l |= methodFlat << methodShift
	}
	return l
}

// Number returns the number of the unit. ok is false for a LUN of more than one level, of
// a bus other than 0, and of another addressing method.
func (l LUN) Number() (n uint16, ok bool) {
	if l<<(64-firstLevelShift) != 0 {
		return 0, false
	}
	n = uint16(l>>firstLevelShift) & flatMask
	switch l >> methodShift {
	case methodPeripheral:
		return n, n <= peripheralMask
	case methodFlat:
		return n, true
	}
	return 0, false
}

// WellKnown reports whether l is a well known logical unit, such as that of REPORT LUNS
// (SAM-5 §4.7.7.5.1).
func (l LUN) WellKnown() bool {
	const lengthAndMethod, wellKnown = 0x3f, 0x01
	return l>>methodShift == methodExtended && l>>56&lengthAndMethod == wellKnown
}

// String returns the number of the unit, or all octets.
func (l LUN) String() string {
	if n, ok := l.Number(); ok {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("0x%016x", uint64(l))
}
