package rdmap

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// aligned makes the ends agree on aligned FPDUs.
func aligned(s *setup) { s.agree.Extensions = wire.ExtAlignedFPDUs }

// begun opens a QP for which the peer's first FPDU has arrived. Octets are numbered so
// that the numbers wrap soon.
func begun(t testing.TB, changes ...change) *script {
	t.Helper()
	s := open(t, append([]change{aligned}, changes...)...)
	s.st.at = 0xffffff80
	s.gets(write(0, 0, nil))
	return s
}

// skips delivers a segment behind a hole. The octets of hole are missing.
func (s *script) skips(hole []byte, segment ...[]byte) {
	s.Helper()
	s.st.behind = append(s.st.behind, stream.Run{
		Octets: slices.Concat(segment...), Position: s.st.at + uint32(len(hole)), Whole: true,
	})
	s.step()
}

// early demands the number of octets that were placed out of order.
func (s *script) early(want int) {
	s.Helper()
	if got := s.q.Stats().OutOfOrderOctetsIn; got != uint64(want) {
		s.Fatalf("%d octets were placed out of order, want %d", got, want)
	}
}

// TestWriteBehindAHole: a Write is placed at once and not copied again, and everything
// is delivered in order (RFC 5041 §5.3).
func TestWriteBehindAHole(t *testing.T) {
	for _, heap := range []change{inHeap, func(*setup) {}} {
		s := begun(t, heap)
		s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 10)}}, work.RecvWR{ID: 2, SGL: []work.SGE{s.at(20, 10)}})
		hole := send(1, []byte("first"))
		w1, w2 := tagged(wire.OpWrite, false, uint32(s.all), regionStart+100, []byte("abc")), write(uint32(s.all), regionStart+103, []byte("de"))
		last := send(2, []byte("last"))
		s.skips(hole, w1, w2, last)
		s.silent()
		s.early(5)
		s.untouched(s.mem, 100, []byte("abcde"))
		copy(s.mem[100:], "ABCDE") // a second copy would overwrite this
		s.gets(hole, w1, w2, last)
		s.completes(received(1, 5), received(2, 4))
		s.untouched(s.mem, 0, []byte("first"), 20, []byte("last"), 100, []byte("ABCDE"))
		if st := s.q.Stats(); st.WritesIn != 2 || st.WriteOctetsIn != 5 || st.FPDUsIn != 5 {
			t.Errorf("counted %+v", st)
		}
		s.early(5)
		s.is(RTS)
	}
}

// TestNotBehindAHole: nothing is placed early in these cases (RFC 5044 §5, §7): the stream
// has neither Markers nor the promise; it has no CRC; the peer's first FPDU has not come;
// the stream hides segments; the run begins in the middle of a segment.
func TestNotBehindAHole(t *testing.T) {
	none := func(s *setup) { s.agree.Extensions = wire.ExtRFC7306 }
	for name, c := range map[string]func() *script{
		"not agreed": func() *script { return begun(t, none) },
		"no CRC":     func() *script { return begun(t, noCRC) },
		"first FPDU": func() *script { return open(t, aligned) },
		"RTR":        func() *script { return open(t, aligned, asResponder, withRTR(mpa.RTRWrite)) },
	} {
		s := c()
		s.skips([]byte("a hole"), write(uint32(s.all), regionStart, []byte("abc")))
		if s.early(0); !bytes.Equal(s.mem, fresh(regionLen)) {
			t.Errorf("%s: memory was written", name)
		}
	}
	s := begun(t)
	s.st.behind = []stream.Run{{Octets: write(uint32(s.all), regionStart, []byte("abc")), Position: s.st.at + 4}}
	s.step()
	s.untouched(s.mem)
	s.q.Receive(s.now, struct{ stream.Stream }{s.st}) // a stream that hides segments
	s.silent()
}

// TestOthersBehindAHole: only Writes and Read Responses that are allowed now are placed
// early. The receiver decides about the rest when the hole is filled.
func TestOthersBehindAHole(t *testing.T) {
	s := begun(t)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 10)}})
	readOnly, mem := s.region(100, s.pd, tpt.RemoteRead)
	foreign, theirs := s.region(100, s.other, every)
	hole := write(uint32(s.all), regionStart, nil)
	for _, segment := range [][]byte{
		send(1, []byte("abc")),
		readRequest(1, uint32(s.all), regionStart, 10, uint32(s.all), regionStart),
		write(uint32(readOnly), 0, []byte("abc")),
		write(uint32(foreign), 0, []byte("abc")),
		write(uint32(s.all), regionStart+regionLen-2, []byte("abc")),
		response(uint32(s.all), regionStart, []byte("abc")),
		write(uint32(s.all), regionStart, nil),
		terminateFPDU(OpUnexpected),
		fpdu([]byte{0x81, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
		bytes.Repeat([]byte{0}, 40),
	} {
		s.skips(hole, segment)
		s.silent()
	}
	s.early(0)
	s.untouched(s.mem)
	s.untouched(mem)
	s.untouched(theirs)
}

// TestReadResponseBehindAHole: a Response is placed early into the sink of any Read that
// waits for one, and the Read completes when the stream reaches it.
func TestReadResponseBehindAHole(t *testing.T) {
	s := begun(t)
	s.posts(
		work.SendWR{ID: 1, Op: work.WRRead, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 6)}, RKey: 1, RemoteAddr: 5},
		work.SendWR{ID: 2, Op: work.WRRead, Flags: work.Signaled, SGL: []work.SGE{s.at(100, 3)}, RKey: 1, RemoteAddr: 9},
	)
	s.st.out = nil
	stag := uint32(s.all)
	r1, r2 := tagged(wire.OpReadResponse, false, stag, regionStart, []byte("abc")), response(stag, regionStart+3, []byte("def"))
	r3 := response(stag, regionStart+100, []byte("xyz"))
	s.skips(r1, r2, r3)
	s.silent()
	s.early(6)
	s.untouched(s.mem, 3, []byte("def"), 100, []byte("xyz"))
	s.skips(r1, slices.Concat(r2, r3), response(stag, regionStart+101, []byte("xyz"))) // beyond the sink
	s.early(6)
	s.gets(r1, r2)
	s.completes(read(1, 6))
	s.gets(r3)
	s.completes(read(2, 3))
	s.untouched(s.mem, 0, []byte("abcdef"), 100, []byte("xyz"))
}

// TestPlacedOnce: the stream drops octets behind a hole and receives them again, in other
// segments and in part. They are placed once.
func TestPlacedOnce(t *testing.T) {
	s := begun(t)
	stag := uint32(s.all)
	hole := write(stag, regionStart, []byte("hole"))
	w1, w2, w3 := write(stag, regionStart+10, []byte("one")), write(stag, regionStart+20, []byte("two")), write(stag, regionStart+30, []byte("three"))
	s.skips(hole, w1, w2[:9])
	s.early(3)
	s.skips(slices.Concat(hole, w1), w2, w3)
	s.early(3 + 3 + 5)
	s.skips(hole, w1, w2, w3)
	s.skips(slices.Concat(hole, w1), w2)
	s.early(3 + 3 + 5)
	copy(s.mem[10:], "ONE") // a second copy would overwrite this
	all := slices.Concat(hole, w1, w2, w3)
	for len(all) > 0 { // in order, cut elsewhere
		n := min(17, len(all))
		s.gets(all[:n])
		all = all[n:]
	}
	s.silent()
	s.untouched(s.mem, 0, []byte("hole"), 10, []byte("ONE"), 20, []byte("two"), 30, []byte("three"))
	if st := s.q.Stats(); st.WritesIn != 5 || len(s.q.in.ahead.early) != 0 {
		t.Errorf("counted %+v, %d segments are left", st, len(s.q.in.ahead.early))
	}
}

// TestOverwrittenBehindAHole: after all messages, memory is as if all had been placed in
// order, also if they write to the same octets, through whichever STag.
func TestOverwrittenBehindAHole(t *testing.T) {
	for name, c := range map[string]struct {
		first  func(s *script, alias uint32) []byte
		change change
	}{
		"Write":                   {func(s *script, _ uint32) []byte { return write(uint32(s.all), regionStart+8, []byte("first")) }, nil},
		"Write through an alias":  {func(_ *script, alias uint32) []byte { return write(alias, 8, []byte("first")) }, nil},
		"Send":                    {func(*script, uint32) []byte { return send(1, []byte("first")) }, nil},
		"memory of several parts": {func(s *script, _ uint32) []byte { return write(uint32(s.all), regionStart+8, []byte("first")) }, inPieces(2)},
	} {
		s := begun(t, func(set *setup) {
			if c.change != nil {
				c.change(set)
			}
		})
		alias := uint32(s.register(tpt.Region{PD: s.pd, Memory: s.mem, Rights: every}))
		s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(8, 10)}})
		first := c.first(s, alias)
		second := write(uint32(s.all), regionStart+10, []byte("second"))
		third := write(alias, 13, []byte("third"))
		s.skips(slices.Concat(first, second), third)
		s.skips(first, second) // overwrites a part of the third message
		s.early(11)
		s.gets(first, second, third)
		if want := "fisecthird"; string(s.mem[8:18]) != want {
			t.Errorf("%s: memory has %q, want %q", name, s.mem[8:18], want)
		}
		s.is(RTS)
	}
}

// TestInvalidatedBeforeDelivery: an earlier message makes the STag of a placed segment
// invalid. The segment is refused as if it had arrived in order (RFC 5041 §7).
func TestInvalidatedBeforeDelivery(t *testing.T) {
	s := begun(t)
	stag, mem := s.region(100, s.pd, every)
	s.receives(work.RecvWR{ID: 1})
	hole := untagged(wire.OpSendInvalidate, true, uint32(stag), 0, 1, 0, nil)
	w := write(uint32(stag), 0, []byte("abc"))
	s.skips(hole, w)
	s.early(3)
	s.gets(hole)
	s.turn()
	s.completes(work.Completion{ID: 1, Op: work.WCRecv, Invalidated: stag})
	s.skips([]byte("nothing"), write(uint32(stag), 50, []byte("later")))
	s.early(3)
	s.gets(w)
	s.hasTerminated(writeCode(tpt.BadSTag), w)
	s.untouched(mem, 0, []byte("abc"))
}

// TestEndsBeforeDelivery: a reset, or a Terminate in the hole, ends the connection
// before placed segments are delivered. They complete nothing, and nothing behind the
// end is placed.
func TestEndsBeforeDelivery(t *testing.T) {
	for _, reset := range []bool{true, false} {
		s := begun(t)
		s.receives(work.RecvWR{ID: 1})
		hole := terminateFPDU(OpUnexpected)
		w := write(uint32(s.all), regionStart, []byte("abc"))
		s.skips(hole, w, send(1, nil))
		s.early(3)
		if reset {
			s.fault(stream.ErrReset)
			s.is(Errored)
		} else {
			s.gets(hole, w, send(1, nil))
			s.is(Terminate)
			s.skips([]byte("a hole"), write(uint32(s.all), regionStart+10, []byte("def")))
		}
		s.completes(flushed(1, work.WCRecv))
		s.early(3)
		s.untouched(s.mem, 0, []byte("abc"))
	}
}

// TestContradiction: the stream has another FPDU where one was placed, or none that ends
// there. The peer has broken its promise, and the connection ends.
func TestContradiction(t *testing.T) {
	for name, in := range map[string]func(s *script, w []byte) [][]byte{
		"other octets": func(s *script, w []byte) [][]byte { return [][]byte{write(uint32(s.all), regionStart, []byte("abd"))} },
		"other lengths": func(s *script, w []byte) [][]byte {
			return [][]byte{write(uint32(s.all), regionStart, make([]byte, 30))}
		},
		"shorter, ahead": func(s *script, w []byte) [][]byte { return [][]byte{write(0, 0, nil), write(0, 0, nil)} },
	} {
		s := begun(t)
		hole := write(uint32(s.all), regionStart+500, []byte("hole"))
		w := write(uint32(s.all), regionStart, []byte("abc"))
		s.skips(hole, w)
		s.early(3)
		s.gets(append([][]byte{hole}, in(s, w)...)...)
		if s.is(Terminate); s.q.Cause().Code != MarkerError {
			t.Errorf("%s: cause is %+v", name, s.q.Cause())
		}
	}
}

// TestMarkersBehindAHole: with Markers, a segment behind a hole is placed without any
// extension, wherever it begins.
func TestMarkersBehindAHole(t *testing.T) {
	s := open(t, func(set *setup) { set.agree.ReceiveMarkers = true })
	fr, out := mpa.NewFramer(true, true), &pipe{emss: 9000, room: -1}
	var ends []int
	for _, f := range [][]byte{
		write(0, 0, nil), write(uint32(s.all), regionStart, pattern(1, 700)),
		write(uint32(s.all), regionStart+1000, pattern(2, 700)), write(uint32(s.all), regionStart+2000, pattern(3, 700)),
	} {
		u := ulpduOf(f)
		copy(fr.Begin(out, len(u)), u)
		fr.End()
		ends = append(ends, len(slices.Concat(out.out...)))
	}
	all := slices.Concat(out.out...)
	s.gets(all[:ends[0]])
	s.st.behind = []stream.Run{{Octets: all[ends[0]+100:], Position: s.st.at + 100}}
	s.step()
	s.early(1400)
	s.untouched(s.mem, 1000, pattern(2, 700), 2000, pattern(3, 700))
	s.gets(all[ends[0]:])
	s.silent()
	s.untouched(s.mem, 0, pattern(1, 700), 1000, pattern(2, 700), 2000, pattern(3, 700))
}

// TestPromise: an end that has agreed on aligned FPDUs tells the stream, whether it
// receives or sends first.
func TestPromise(t *testing.T) {
	for _, agreed := range []bool{true, false} {
		s := open(t, func(set *setup) {
			if agreed {
				aligned(set)
			}
		})
		if s.turn(); s.st.bounds != agreed {
			t.Errorf("agreed %v: the stream keeps boundaries: %v", agreed, s.st.bounds)
		}
		s.st.bounds = false // the stream is another one now
		if s.q.Receive(s.now, s.st); s.st.bounds != agreed {
			t.Errorf("agreed %v: the next stream keeps boundaries: %v", agreed, s.st.bounds)
		}
	}
}

// TestManyBehindAHole: the segments that wait are bounded. Those beyond the bound are
// placed in order.
func TestManyBehindAHole(t *testing.T) {
	s := begun(t)
	hole := write(uint32(s.all), regionStart, []byte("hole"))
	var list [][]byte
	for i := range mostEarly + 10 {
		list = append(list, write(uint32(s.all), regionStart+100+uint64(i), []byte{byte(i)}))
	}
	for at := len(list) - 1; at >= 0; at-- { // the worst order
		s.skips(slices.Concat(hole, slices.Concat(list[:at]...)), list[at])
	}
	s.early(mostEarly)
	s.gets(append([][]byte{hole}, list...)...)
	s.silent()
	for i := range list {
		if s.mem[100+i] != byte(i) {
			t.Fatalf("octet %d is wrong", i)
		}
	}
	if len(s.q.in.ahead.early) != 0 || s.q.in.ahead.passed != 0 {
		t.Errorf("%d segments are left", len(s.q.in.ahead.early))
	}
}
