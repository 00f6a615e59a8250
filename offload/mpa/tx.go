package mpa

import "github.com/stag-rdma/stag/offload/wire"

// Emitter is the part of a stream.Stream that a Framer needs.
type Emitter interface {
	// Emit queues n octets and returns the memory to write them to, or nil if there
	// is no room now.
	Emit(n int) []byte
}

// Framer makes the FPDUs of one direction of a connection. Only the goroutine that runs
// the connection may use it.
type Framer struct {
	crc, markers bool

	// phase is the distance in octets of the next octet from the start of the last
	// Marker. 0 means that the next octet begins a Marker. phase is used only with
	// Markers.
	phase int

	fpdu []byte // memory of the whole FPDU, between Begin and End
	// sum is the CRC of the first summed octets of fpdu, between Begin and End.
	sum    uint32
	summed int

	plain []byte // length, ULPDU, padding and CRC at the end of fpdu, between Begin and End
}

// NewFramer returns a Framer at the beginning of full operation. Only the Request or
// Reply has been sent. markers is true if the peer asked for Markers.
func NewFramer(crc, markers bool) *Framer { return &Framer{crc: crc, markers: markers} }

// MaxULPDU returns the length of the longest ULPDU whose FPDU fits into maxEmit octets,
// wherever Markers fall (MULPDU, RFC 5044 §4.5 and appendix A). MaxULPDU returns 0 if
// nothing fits.
//
// The MULPDU of RFC 5044 §4.5 is never below 128 octets. MaxULPDU departs from that
// rule: if 128 octets do not fit, it returns as many as fit.
func (f *Framer) MaxULPDU(maxEmit int) int {
	n := maxEmit - wire.FPDUHeadLen - wire.CRCLen - maxEmit%4
	if f.markers {
		n -= (maxEmit + wire.MarkerSpacing - 1) / wire.MarkerSpacing * wire.MarkerLen
	}
	return min(max(n, 0), wire.MaxULPDU)
}

// Begin emits an FPDU with a ULPDU of n octets, at most MaxULPDU, and returns
// the memory for the ULPDU. The caller must fill the memory and call End before it
// does anything else with the Framer or the stream. If there is no room now, Begin
// returns nil and changes nothing.
func (f *Framer) Begin(s Emitter, n int) []byte {
	plain := wire.FPDULen(n)
	total := plain + f.markersIn(plain)*wire.MarkerLen
	b := s.Emit(total)
	if b == nil {
		return nil
	}
	// The caller builds the FPDU at the end of its memory. End moves the FPDU forward
	// and inserts the Markers, so that End needs no other memory.
	f.fpdu, f.plain = b, b[total-plain:]
	f.sum, f.summed = 0, 0
	f.plain[0], f.plain[1] = byte(n>>8), byte(n)
	clear(f.plain[wire.FPDUHeadLen+n:])
	return f.plain[wire.FPDUHeadLen : wire.FPDUHeadLen+n : wire.FPDUHeadLen+n]
}

// Put appends octets to b, which begins with the memory that Begin has returned, and is as long
// as what has been written there. It reads and writes each octet once, also for the CRC.
func (f *Framer) Put(b, octets []byte) []byte {
	if !f.crc || f.markers {
		return append(b, octets...)
	}
	at := wire.FPDUHeadLen + len(b)
	f.sum = wire.UpdateCRC32C(f.sum, f.fpdu[f.summed:at])
	f.sum = wire.CopyCRC32C(f.sum, f.fpdu[at:len(f.fpdu)-wire.CRCLen], octets)
	f.summed = at + len(octets)
	return b[:len(b)+len(octets)]
}

// End finishes the FPDU that Begin began.
func (f *Framer) End() {
	if f.markers {
		f.mark()
	}
	if covered := len(f.fpdu) - wire.CRCLen; f.crc {
		wire.PutCRC32C(f.fpdu[covered:], wire.UpdateCRC32C(f.sum, f.fpdu[f.summed:covered]))
	}
	f.fpdu, f.plain = nil, nil
}

// markersIn returns how many Markers an FPDU gets that begins at the current position.
// plain is the length of the FPDU in octets without Markers. A Marker directly behind
// the end belongs to the next FPDU (RFC 5044 §4.3).
func (f *Framer) markersIn(plain int) int {
	rest := plain - f.untilMarker()
	if !f.markers || rest <= 0 {
		return 0
	}
	const between = wire.MarkerSpacing - wire.MarkerLen
	return (rest + between - 1) / between
}

// untilMarker returns how many octets come before the next Marker.
func (f *Framer) untilMarker() int {
	if f.phase == 0 {
		return 0
	}
	return wire.MarkerSpacing - f.phase
}

// mark moves the parts of the FPDU forward to their places. mark writes the Markers
// between the parts.
func (f *Framer) mark() {
	dst, src := f.fpdu, f.plain
	begun := 0 // octets of fpdu before the length field, once the length field has been moved
	for len(src) > 0 {
		if f.phase == 0 {
			at := len(f.fpdu) - len(dst)
			if len(src) == len(f.plain) {
				begun = wire.MarkerLen // this Marker is directly in front of the length field
				at = begun
			}
			wire.PutMarker(dst, at-begun)
			dst = dst[wire.MarkerLen:]
			f.phase = wire.MarkerLen
		}
		n := min(f.untilMarker(), len(src))
		copy(dst, src[:n])
		dst, src = dst[n:], src[n:]
		f.phase = (f.phase + n) % wire.MarkerSpacing
	}
}
