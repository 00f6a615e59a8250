package mpa_test

import (
	"math/rand/v2"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
)

// feed is the receiving side of a stream: views that a test lays out.
type feed struct {
	stream.Stream // none: what is not below panics
	views         [][]byte
	spoil         bool // overwrite what is consumed, as its memory would be
}

func (f *feed) Views(dst [][]byte) int { return copy(dst, f.views) }

func (f *feed) Consume(n int) {
	for n > 0 {
		part := min(n, len(f.views[0]))
		if f.spoil {
			for i := range part {
				f.views[0][i] = 0xdb
			}
		}
		if f.views[0] = f.views[0][part:]; len(f.views[0]) == 0 {
			f.views = f.views[1:]
		}
		n -= part
	}
}

// arrive adds octets in a view of their own, in memory of their own.
func (f *feed) arrive(b []byte) {
	if len(b) > 0 {
		f.views = append(f.views, append([]byte(nil), b...))
	}
}

// sink is the sending side: it keeps what is emitted.
type sink struct {
	bytes []byte
	lens  []int
	full  bool
}

func (s *sink) Emit(n int) []byte {
	if s.full {
		return nil
	}
	s.lens = append(s.lens, n)
	at := len(s.bytes)
	for range n { // dirty, as frames are
		s.bytes = append(s.bytes, 0xcc)
	}
	return s.bytes[at : at+n : at+n]
}

// frame sends ulpdu as one FPDU.
func frame(f *mpa.Framer, s mpa.Emitter, ulpdu []byte) bool {
	b := f.Begin(s, len(ulpdu))
	if b == nil {
		return false
	}
	copy(b, ulpdu)
	f.End()
	return true
}

// drain takes every FPDU that there is. The ULPDUs are copies.
func drain(d *mpa.Deframer, s *feed) (ulpdus [][]byte, f mpa.Fault) {
	for {
		u, f := d.Next(s)
		if u == nil {
			return ulpdus, f
		}
		ulpdus = append(ulpdus, append([]byte(nil), u...))
		d.Done(s)
	}
}

// deframe gives a new Deframer the pieces, one after the other.
func deframe(crc, markers bool, pieces ...[]byte) (ulpdus [][]byte, f mpa.Fault, partial bool) {
	d, s := mpa.NewDeframer(crc, markers), &feed{spoil: true}
	for _, p := range pieces {
		s.arrive(p)
		var more [][]byte
		more, f = drain(d, s)
		ulpdus = append(ulpdus, more...)
	}
	return ulpdus, f, d.Partial(s)
}

// octetwise is b cut between all its octets.
func octetwise(b []byte) (pieces [][]byte) {
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	return pieces
}

// random is b cut at random into pieces of up to most octets.
func random(r *rand.Rand, b []byte, most int) (pieces [][]byte) {
	for len(b) > 0 {
		n := min(1+r.IntN(most), len(b))
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}
