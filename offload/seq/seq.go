// Package seq implements TCP sequence arithmetic (RFC 9293 §3.4), which the CmdSN and the
// StatSN of iSCSI use too (RFC 7143 §4.2.2.1). Sequence numbers modulo 2^32 and distances
// between them are two types, so that the compiler refuses to mix them.
package seq

// Num is a sequence or acknowledgement number.
type Num uint32

// Len is a distance in sequence space. Len counts the octets, and one for a SYN or FIN.
type Len uint32

// Add returns the number n octets after a.
func (a Num) Add(n Len) Num { return a + Num(n) }

// Back returns the number n octets before a.
func (a Num) Back(n Len) Num { return a - Num(n) }

// Before reports whether a < b. All comparisons are valid only if the two numbers are
// less than 2^31 apart.
func (a Num) Before(b Num) bool { return int32(a-b) < 0 }

// After reports whether a > b.
func (a Num) After(b Num) bool { return int32(a-b) > 0 }

// AtOrBefore reports whether a <= b.
func (a Num) AtOrBefore(b Num) bool { return int32(a-b) <= 0 }

// AtOrAfter reports whether a >= b.
func (a Num) AtOrAfter(b Num) bool { return int32(a-b) >= 0 }

// Until returns the distance from a forward to b. If b is before a, the result is
// the distance modulo 2^32.
func (a Num) Until(b Num) Len { return Len(b - a) }

// Within reports whether a lies in the half-open range [from, from+n).
func (a Num) Within(from Num, n Len) bool { return Len(a-from) < n }

// Later returns the later of two numbers, which must be less than 2^31 apart.
func Later(a, b Num) Num {
	if a.Before(b) {
		return b
	}
	return a
}

// Earlier returns the earlier of two numbers, which must be less than 2^31 apart.
func Earlier(a, b Num) Num {
	if b.Before(a) {
		return b
	}
	return a
}
