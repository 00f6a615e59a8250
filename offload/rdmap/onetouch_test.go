package rdmap

import (
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// once registers a region of 100 octets and of one touch.
func (s *script) once() (uint32, []byte) {
	s.Helper()
	mem := fresh(100)
	return uint32(s.register(tpt.Region{PD: s.pd, Memory: mem, Rights: every, OneTouch: true})), mem
}

// entry demands the state of an entry.
func (s *script) entry(stag uint32, valid, touched bool) {
	s.Helper()
	i, _ := s.table.Entry(tpt.STag(stag).Index())
	if i.Valid != valid || i.Touched != touched {
		s.Fatalf("the entry is valid: %v, touched: %v; want %v, %v", i.Valid, i.Touched, valid, touched)
	}
}

// TestOneTouchInOrder: FIG. 18B, third case of US 7,299,266: the last segment is in
// order. It is placed, and the entry is invalid.
func TestOneTouchInOrder(t *testing.T) {
	s := begun(t)
	stag, mem := s.once()
	s.gets(write(stag, 0, []byte("abc")))
	s.entry(stag, false, false)
	s.silent()
	s.untouched(mem, 0, []byte("abc"))
	second := write(stag, 10, []byte("def"))
	s.gets(second)
	s.hasTerminated(writeCode(tpt.BadSTag), second)
	s.untouched(mem, 0, []byte("abc"))
}

// TestOneTouchNotLast: FIG. 18B, first case: the Last flag is not set. The segment is
// placed, in order or not, and the entry is as before.
func TestOneTouchNotLast(t *testing.T) {
	s := begun(t)
	stag, mem := s.once()
	s.gets(tagged(wire.OpWrite, false, stag, 0, []byte("abc")))
	w := tagged(wire.OpWrite, false, stag, 6, []byte("ghi"))
	s.skips(tagged(wire.OpWrite, false, stag, 3, []byte("def")), w)
	s.entry(stag, true, false)
	s.early(3)
	s.untouched(mem, 0, []byte("abc"), 6, []byte("ghi"))
}

// TestNoOneTouch: FIG. 18B, second case: the entry is not of one touch.
func TestNoOneTouch(t *testing.T) {
	s := begun(t)
	s.gets(write(uint32(s.all), regionStart, []byte("abc")), write(uint32(s.all), regionStart+3, []byte("def")))
	s.entry(uint32(s.all), true, false)
	s.silent()
}

// TestOneTouchOutOfOrder: FIG. 18B, fourth case: the last segment is within the window
// and out of order. It is placed, the entry is touched, and has the position. When the
// stream reaches the position, the entry is invalid.
func TestOneTouchOutOfOrder(t *testing.T) {
	s := begun(t)
	stag, mem := s.once()
	hole := tagged(wire.OpWrite, false, stag, 0, []byte("abc"))
	last := write(stag, 3, []byte("def"))
	s.skips(hole, last)
	s.entry(stag, true, true)
	if i, _ := s.table.Entry(tpt.STag(stag).Index()); i.Sequence != qpNumber<<32|uint64(s.st.at+uint32(len(hole)+len(last))) {
		t.Errorf("the stored position is %#x", i.Sequence)
	}
	s.untouched(mem, 3, []byte("def"))
	s.skips(hole, last) // the octets arrive again, which is not a second message
	s.gets(hole)
	s.entry(stag, true, true)
	s.gets(last)
	s.entry(stag, false, false)
	s.silent()
	s.untouched(mem, 0, []byte("abcdef"))
	second := write(stag, 10, []byte("xyz"))
	s.gets(second)
	s.hasTerminated(writeCode(tpt.BadSTag), second)
}

// TestOneTouchTwice: FIG. 18B, "touched": a second message to a touched entry, in order
// or not, makes the entry invalid and ends the connection. It is not placed.
func TestOneTouchTwice(t *testing.T) {
	for _, inOrder := range []bool{true, false} {
		s := begun(t)
		stag, mem := s.once()
		second, first, third := write(stag, 20, []byte("xyz")), write(stag, 0, []byte("abc")), write(stag, 40, []byte("late"))
		s.skips(second, first)
		s.entry(stag, true, true)
		if inOrder {
			s.gets(second)
		} else {
			hole := write(uint32(s.all), regionStart, make([]byte, 3)) // as long as second
			second = third
			s.skips(slices.Concat(hole, first), third)
			s.gets(hole, first, third)
		}
		s.entry(stag, false, false)
		s.hasTerminated(writeCode(tpt.BadSTag), second)
		s.untouched(mem, 0, []byte("abc"))
	}
}

// TestOneTouchOfTwoQPs: two connections use one entry. The second one to use it is
// refused, and ends.
func TestOneTouchOfTwoQPs(t *testing.T) {
	a := begun(t)
	b := open(t, aligned, func(set *setup) { set.beside = a })
	b.gets(write(0, 0, nil))
	mem := fresh(100)
	stag := uint32(a.register(tpt.Region{PD: b.pd, Memory: mem, Rights: every, OneTouch: true}))
	b.gets(write(stag, 0, []byte("abc")))
	a.entry(stag, false, false)
	b.silent()
	w := write(stag, 10, []byte("def"))
	b.gets(w)
	b.hasTerminated(writeCode(tpt.BadSTag), w)
	a.untouched(mem, 0, []byte("abc"))
}

// opensRead returns a script with an entry of one touch, and posts Reads of 6 octets to
// offset 0 of that entry. The work requests have the numbers from 1 on.
func opensRead(t *testing.T, reads int) (s *script, stag uint32, mem []byte) {
	s = begun(t, withDepths(4, 4))
	stag, mem = s.once()
	for i := range reads {
		s.posts(work.SendWR{ID: uint64(i + 1), Op: work.WRRead, Flags: work.Signaled, SGL: []work.SGE{{LKey: tpt.STag(stag), Length: 6}}, RKey: peerSTag})
	}
	s.st.out = nil
	return s, stag, mem
}

// TestReadOneTouchInOrder: FIG. 18B, third case, for a Read Response: the last segment is
// in order. It is placed, the Read completes, and the entry is invalid. A segment in front
// of the last one does not count.
func TestReadOneTouchInOrder(t *testing.T) {
	s, stag, mem := opensRead(t, 1)
	s.gets(tagged(wire.OpReadResponse, false, stag, 0, []byte("abc")))
	s.entry(stag, true, false)
	s.gets(response(stag, 3, []byte("def")))
	s.entry(stag, false, false)
	s.completes(read(1, 6))
	s.untouched(mem, 0, []byte("abcdef"))
	s.silent()
}

// TestReadOneTouchOutOfOrder: FIG. 18B, fourth case, for a Read Response: the last segment
// is within the window and out of order. (The stream never shows a segment outside of the
// window: TestAheadOutsideTheWindow of package tcp.) It is placed, and the entry is touched. A retransmission of the segment
// is no second message. When the stream reaches the segment, the entry is invalid.
func TestReadOneTouchOutOfOrder(t *testing.T) {
	s, stag, mem := opensRead(t, 1)
	hole, last := tagged(wire.OpReadResponse, false, stag, 0, []byte("abc")), response(stag, 3, []byte("def"))
	s.skips(hole, last)
	s.entry(stag, true, true)
	s.untouched(mem, 3, []byte("def"))
	s.skips(hole, last)
	s.gets(hole)
	s.entry(stag, true, true)
	s.gets(last)
	s.entry(stag, false, false)
	s.completes(read(1, 6))
	s.untouched(mem, 0, []byte("abcdef"))
	s.early(3)
}

// TestReadOneTouchTwice: FIG. 18B, "touched", for a Read Response: the Response is the
// second message. The entry is invalid, the Read fails for a reason at this end, and the
// connection ends. The first message is a Response or a Write, in order or not.
func TestReadOneTouchTwice(t *testing.T) {
	for name, c := range map[string]struct {
		reads int
		first func(stag uint32) []byte
		early bool
	}{
		"Response":     {2, func(stag uint32) []byte { return response(stag, 0, []byte("abcdef")) }, false},
		"Write":        {1, func(stag uint32) []byte { return write(stag, 0, []byte("abcdef")) }, false},
		"Write, early": {1, func(stag uint32) []byte { return write(stag, 0, []byte("abcdef")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, stag, mem := opensRead(t, c.reads)
			first, second := c.first(stag), response(stag, 0, []byte("uvwxyz"))
			if c.early {
				s.skips(second, first)
				s.entry(stag, true, true)
				s.gets(second)
			} else {
				s.gets(first, second)
			}
			s.entry(stag, false, false)
			s.untouched(mem, 0, []byte("abcdef"))
			id := uint64(c.reads)
			want := []work.Completion{failed(id, work.WCRead, work.LocalProtErr)}
			if c.reads == 2 {
				want = []work.Completion{read(1, 6), failed(2, work.WCRead, work.LocalProtErr)}
			}
			s.completes(want...)
			s.hasTerminated(ddpCode(ddp.LocalFault))
		})
	}
}

// TestReadOneTouchNotAwaited: a Response behind a hole that the Read did not ask for does
// not touch the entry: its Last flag is wrong, or an atomic operation has the sink.
func TestReadOneTouchNotAwaited(t *testing.T) {
	s, stag, mem := opensRead(t, 1)
	s.skips(make([]byte, 40), response(stag, 0, []byte("abc")))
	s.skips(make([]byte, 40), tagged(wire.OpReadResponse, false, stag, 3, []byte("def")))
	s.entry(stag, true, false)
	s.untouched(mem)

	s = begun(t, func(set *setup) { set.agree.RFC7306 = true })
	stag, mem = s.once()
	s.posts(work.SendWR{Op: work.WRFetchAdd, SGL: []work.SGE{{LKey: tpt.STag(stag), Length: 8}}, RKey: peerSTag})
	s.skips(make([]byte, 40), response(stag, 0, []byte("abcdefgh")))
	s.entry(stag, true, false)
	s.untouched(mem)
}
