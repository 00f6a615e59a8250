package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

func TestReceiveWrites(t *testing.T) { // RFC 5040 §5.1
	s := open(t)
	all := uint32(s.all)
	s.gets(
		tagged(wire.OpWrite, false, all, regionStart+10, []byte("abc")),
		tagged(wire.OpWrite, true, all, regionStart+13, []byte("de")),
		write(all, regionStart+regionLen-1, []byte("z")),
		write(0xffffffff, 1<<64-1, nil), // no octets: STag and offset are ignored (RFC 5041 §5.2)
		write(all, regionStart, nil),
	)
	s.silent()
	s.untouched(s.mem, 10, []byte("abcde"), regionLen-1, []byte("z"))
}

// Segments of a Write may be out of order (RFC 5041 §5.3), and a tagged message may
// interleave with an untagged one.
func TestInterleaved(t *testing.T) {
	s := open(t)
	all := uint32(s.all)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 10)}})
	s.gets(
		tagged(wire.OpWrite, false, all, regionStart+103, []byte("de")),
		untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("pi")),
		tagged(wire.OpWrite, true, all, regionStart+100, []byte("abc")),
		untagged(wire.OpSend, true, 0, 0, 1, 2, []byte("ng")),
	)
	s.completes(received(1, 4))
	s.untouched(s.mem, 0, []byte("ping"), 100, []byte("abcde"))
}

// Sends fill receives in order, scattered over their elements.
func TestReceiveSends(t *testing.T) { // RFC 5040 §5.3
	s := open(t)
	s.receives(
		work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 3), {LKey: 1, Addr: 5}, s.at(100, 2), s.at(200, 10)}},
		work.RecvWR{ID: 2},
		work.RecvWR{ID: 3, SGL: []work.SGE{s.at(300, 4)}},
		work.RecvWR{ID: 4, SGL: []work.SGE{s.at(400, 4)}},
		work.RecvWR{ID: 5, SGL: []work.SGE{s.at(500, 4)}},
	)
	s.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("abcd")))
	s.silent()
	s.gets(
		untagged(wire.OpSend, true, 0, 0, 1, 4, []byte("efg")),
		untagged(wire.OpSendSE, true, 0, 0, 2, 0, nil),
		untagged(wire.OpSendSE, false, 0, 0, 3, 0, []byte("wx")),
		untagged(wire.OpSendSE, true, 0, 0, 3, 2, []byte("yz")), // exactly full
		untagged(wire.OpSend, false, 0, 0, 4, 0, nil),           // odd, but not wrong
		untagged(wire.OpSend, true, 0, 0, 4, 0, []byte("!")),
	)
	s.completes(received(1, 7), work.Completion{ID: 2, Op: work.WCRecv, Solicited: true},
		work.Completion{ID: 3, Op: work.WCRecv, Length: 4, Solicited: true}, received(4, 1))
	s.untouched(s.mem, 0, []byte("abc"), 100, []byte("de"), 200, []byte("fg"), 300, []byte("wxyz"), 400, []byte("!"))
	s.is(RTS)
}

// Reserved bits are ignored (RFC 5041 §4.1, RFC 5040 §4.1).
func TestReservedBits(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 1})
	s.gets(
		again(write(uint32(s.all), regionStart, []byte("x")), func(u []byte) { u[0] |= 0x3c; u[1] |= 0x30 }),
		again(send(1, nil), func(u []byte) { u[0] |= 0x3c; u[1] |= 0x30 }),
	)
	s.completes(received(1, 0))
	s.untouched(s.mem, 0, []byte("x"))
}

// With the CRC off the CRC field is ignored, and 0 is sent.
func TestNoCRC(t *testing.T) { // RFC 5044 §4.4
	s := open(t, noCRC)
	f := write(uint32(s.all), regionStart, []byte("x"))
	copy(f[len(f)-4:], "crc?")
	s.gets(f)
	s.untouched(s.mem, 0, []byte("x"))
	s.posts(work.SendWR{Op: work.WRSend})
	want := send(1, nil)
	clear(want[len(want)-4:])
	s.sends(want)
}

// Send with Invalidate: the STag is invalid when the receive completes (RFC 5040 §5.3).
func TestReceiveInvalidate(t *testing.T) {
	s := open(t)
	a, _ := s.region(8, s.pd, every)
	b, _ := s.region(8, s.pd, every)
	s.receives(work.RecvWR{ID: 1}, work.RecvWR{ID: 2, SGL: []work.SGE{s.at(0, 2)}}, work.RecvWR{ID: 3})
	again := untagged(wire.OpSendInvalidate, true, uint32(a), 0, 3, 0, nil)
	s.gets(
		untagged(wire.OpSendInvalidate, true, uint32(a), 0, 1, 0, nil),
		untagged(wire.OpSendSEInvalidate, true, uint32(b), 0, 2, 0, []byte("hi")),
		again, // already invalid: no fault
	)
	s.completes(
		work.Completion{ID: 1, Op: work.WCRecv, Invalidated: a},
		work.Completion{ID: 2, Op: work.WCRecv, Length: 2, Invalidated: b, Solicited: true},
		work.Completion{ID: 3, Op: work.WCRecv, Invalidated: a})
	for _, stag := range []tpt.STag{a, b} {
		if _, f := s.table.Check(tpt.Access{STag: stag, PD: s.pd, Right: tpt.LocalRead, Len: 1}); f != tpt.BadSTag {
			t.Errorf("STag %v after its invalidation: %v", stag, f)
		}
	}
	w := write(uint32(a), 0, []byte("x"))
	s.gets(w)
	s.hasTerminated(Code{1, 1, 0}, w)
}

// A region that is bound to the QP serves the QP's peer. The peer may invalidate it
// without a right for that (RFC 5041 §8.2, RFC 5040 §8.1.1 rule 7). No other engine can use
// the region, so the completion waits for none.
func TestBoundRegion(t *testing.T) {
	s := open(t)
	other := s.table.Join()
	defer other.Close()
	other.Enter()
	mine := s.bound(s.q.Number(), tpt.LocalWrite|tpt.RemoteWrite)
	s.receives(work.RecvWR{ID: 1})
	s.gets(write(mine, 0, []byte("hi")), untagged(wire.OpSendInvalidate, true, mine, 0, 1, 0, nil))
	s.completes(work.Completion{ID: 1, Op: work.WCRecv, Invalidated: tpt.STag(mine)})
	w := write(mine, 0, []byte("x"))
	s.gets(w)
	s.hasTerminated(Code{1, 1, 0}, w)
}

// The completion of a Send with Invalidate waits until no other engine can be using the
// STag. No later message overtakes it.
func TestInvalidateWaitsForReaders(t *testing.T) {
	for _, marked := range []bool{false, true} { // in place, and moved together
		s := open(t, func(s *setup) { s.agree.ReceiveMarkers = marked })
		other := s.table.Join()
		defer other.Close()
		other.Enter()
		a, _ := s.region(8, s.pd, every)
		s.receives(work.RecvWR{ID: 1}, work.RecvWR{ID: 2, SGL: []work.SGE{s.at(0, 8)}})
		fpdus := [][]byte{
			untagged(wire.OpSendInvalidate, true, uint32(a), 0, 1, 0, nil),
			send(2, []byte("later")),
			write(uint32(s.all), regionStart+100, []byte("later")),
		}
		if marked {
			fpdus = [][]byte{mark(fpdus...)}
		}
		s.gets(fpdus...)
		s.silent()
		s.untouched(s.mem)
		s.pass(settleAgain - 1)
		s.silent()
		s.pass(1)
		s.silent()
		// Sending goes on meanwhile.
		s.posts(work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled})
		s.sends(send(1, nil))
		s.completes(ok(3, work.WCSend))
		other.Leave()
		s.completes()
		s.pass(settleAgain)
		s.completes(work.Completion{ID: 1, Op: work.WCRecv, Invalidated: a}, received(2, 5))
		s.untouched(s.mem, 0, []byte("later"), 100, []byte("later"))
		if d := s.q.Deadline(); d != 0 {
			t.Errorf("a deadline at %v with nothing to wait for", d)
		}
	}
}

// A peer sends its last message and closes, both before the invalidation is done: the
// message is delivered all the same.
func TestHeldDeliveryAndClose(t *testing.T) {
	for _, weToo := range []bool{false, true} {
		for _, marked := range []bool{false, true} {
			s := open(t, func(s *setup) { s.agree.ReceiveMarkers = marked })
			other := s.table.Join()
			defer other.Close()
			other.Enter()
			a, _ := s.region(8, s.pd, every)
			s.receives(work.RecvWR{ID: 1}, work.RecvWR{ID: 2})
			if weToo {
				s.q.Disconnect()
				s.turn()
				s.is(Closing)
			}
			f := untagged(wire.OpSendInvalidate, true, uint32(a), 0, 1, 0, nil)
			if marked {
				f = mark(f)
			}
			s.finishes(f)
			s.completes()
			if s.ended {
				t.Fatal("the stream has ended before its last message was delivered")
			}
			other.Leave()
			s.pass(settleAgain)
			s.completes(work.Completion{ID: 1, Op: work.WCRecv, Invalidated: a}, flushed(2, work.WCRecv))
			s.is(Idle)
		}
	}
}

// The reader of the engine that steps the QP has entered: the QP must not wait for its
// own engine for ever.
func TestOwnReader(t *testing.T) {
	s := open(t)
	s.stays = true // within a step of this Reader
	own := s.table.Join()
	defer own.Close()
	a, _ := s.region(8, s.pd, every)
	s.receives(work.RecvWR{ID: 1})
	own.Enter()
	s.gets(untagged(wire.OpSendInvalidate, true, uint32(a), 0, 1, 0, nil))
	own.Leave()
	s.now = s.now.Add(settleAgain)
	own.Enter()
	s.turn()
	own.Leave()
	s.completes(work.Completion{ID: 1, Op: work.WCRecv, Invalidated: a})
}

// mark puts FPDUs into a stream with Markers (RFC 5044 §4.3). The stream begins with
// the FPDUs. They are short, so that there is one Marker, at the beginning.
func mark(fpdus ...[]byte) []byte {
	b := make([]byte, 4)
	for i, f := range fpdus {
		if i == 0 { // its CRC covers the Marker before it
			n := len(f) - 4
			b = append(b, f[:n]...)
			b = append(b, crcOf(b)...)
			continue
		}
		b = append(b, f...)
	}
	if len(b) > 512 {
		panic("a second Marker is due")
	}
	return b
}

// The RTR of each of the three kinds (RFC 6581 §9.2) leaves first, before posted
// requests, and has no completion.
func TestRTRSent(t *testing.T) {
	for _, c := range []struct {
		rtr  mpa.RTR
		want []byte
		next uint32 // MSN of the first Send
	}{
		{mpa.NoRTR, nil, 1},
		{mpa.RTRWrite, write(0, 0, nil), 1},
		{mpa.RTRSend, send(1, nil), 2},
		{mpa.RTRRead, readRequest(1, 0, 0, 0, 0, 0), 1},
	} {
		t.Run(c.rtr.String(), func(t *testing.T) {
			s := open(t, withRTR(c.rtr), withDepths(1, 1))
			s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled},
				work.SendWR{ID: 2, Op: work.WRRead, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 1)}, RKey: 2})
			want := [][]byte{c.want, send(c.next, nil)}
			if c.want == nil {
				want = want[1:]
			}
			if c.rtr != mpa.RTRRead {
				want = append(want, readRequest(1, uint32(s.all), regionStart, 1, 2, 0))
			}
			s.sends(want...)
			s.completes(ok(1, work.WCSend))
			if c.rtr == mpa.RTRRead { // the RTR has taken the only place for a Read
				s.gets(response(0, 0, nil))
				s.sends(readRequest(2, uint32(s.all), regionStart, 1, 2, 0))
			}
			s.gets(response(uint32(s.all), regionStart, []byte("x")))
			s.completes(read(2, 1))
			s.is(RTS)
		})
	}
}

func TestRTRReceived(t *testing.T) {
	for _, c := range []struct {
		rtr   mpa.RTR
		fpdu  []byte
		sends [][]byte
		next  uint32
	}{
		{mpa.RTRWrite, write(1, 0, nil), nil, 1},
		{mpa.RTRSend, send(1, nil), nil, 2},
		{mpa.RTRRead, readRequest(1, 1, 0, 0, 1, 0), [][]byte{response(1, 0, nil)}, 1},
	} {
		t.Run(c.rtr.String(), func(t *testing.T) {
			s := open(t, asResponder, withRTR(c.rtr), withDepths(0, 0)) // the RTR's Read has a place even if no other Read has one
			s.receives(work.RecvWR{ID: 1})
			s.posts(work.SendWR{ID: 2, Op: work.WRWrite, Flags: work.Signaled, RKey: 3})
			s.silent() // RFC 5044 §7.1.2: nothing before the first FPDU
			s.gets(c.fpdu)
			s.sends(append(c.sends, write(3, 0, nil))...)
			s.completes(ok(2, work.WCWrite))
			s.gets(send(c.next, nil))
			s.completes(received(1, 0))
			s.is(RTS)
		})
	}
}

// A responder without RTR waits for any FPDU.
func TestResponderIsSilent(t *testing.T) { // RFC 5044 §7.1.2
	s := open(t, asResponder)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	f := write(uint32(s.all), regionStart, []byte("x"))
	s.gets(f[:len(f)-1])
	s.silent()
	s.gets(f[len(f)-1:])
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))
}

// A responder whose application says that the peer need not begin does not wait.
func TestEagerResponderIsNot(t *testing.T) {
	s := open(t, asResponder, func(s *setup) { s.agree.Eager = true })
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))

	s = open(t, asResponder, withRTR(mpa.RTRWrite), func(s *setup) { s.agree.Eager = true })
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.silent() // the peer has promised to begin
}

// patient makes a responder that waits for the peer's first FPDU for 100 ms.
func patient(s *setup) { s.agree.Initiator, s.agree.EagerAfter = false, 100*ms }

// A responder with EagerAfter waits for that time, and sends nudges as an initiator does.
func TestPatientResponder(t *testing.T) {
	s := open(t, patient)
	s.receives(work.RecvWR{ID: 9})
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.silent()
	s.pass(99 * ms)
	s.silent()
	s.pass(ms)
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))
	s.pass(49 * ms)
	s.silent()
	s.pass(ms)
	s.sends(empty())
	s.gets(send(1, nil))
	s.completes(received(9, 0))
	s.noMore()
}

// A responder with EagerAfter that has nothing to send stays silent. Its first Send then leaves at once.
func TestPatientResponderHasTime(t *testing.T) {
	s := open(t, patient)
	s.turn()
	s.noMore()
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))
}

// A responder with EagerAfter sends as soon as the peer's first FPDU has come. A peer that has
// promised one is waited for, and octets that TCP has not delivered yet prolong the wait.
func TestPatientResponderHears(t *testing.T) {
	s := open(t, patient)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.pass(50 * ms)
	s.silent()
	s.gets(empty())
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))
	s.noMore()

	s = open(t, patient, withRTR(mpa.RTRWrite))
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.noMore()
	s.silent()

	s = open(t, patient)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.st.afloat = 20
	s.pass(100 * ms)
	s.silent()
	s.st.afloat = 0
	s.pass(50 * ms)
	s.sends(send(1, nil))
}

// A responder with EagerAfter closes without a wait if it has nothing to send.
func TestPatientResponderCloses(t *testing.T) {
	s := open(t, patient)
	s.q.Disconnect()
	s.turn()
	s.is(Closing)
}

// A message that the Reply did not name, or that has octets, is no RTR. The Terminate
// says so (RFC 6581 §8). Nothing is placed, answered or completed.
func TestWrongRTR(t *testing.T) {
	empty, full := []byte(nil), []byte("12345678")
	for _, c := range []struct {
		name string
		rtr  mpa.RTR
		fpdu func(all uint32) []byte
	}{
		{"a Write with octets", mpa.RTRWrite, func(all uint32) []byte { return write(all, regionStart, full) }},
		{"a Write that is not whole", mpa.RTRWrite, func(all uint32) []byte { return tagged(wire.OpWrite, false, all, regionStart, empty) }},
		{"a Send for a Write", mpa.RTRWrite, func(uint32) []byte { return send(1, empty) }},
		{"a Read for a Write", mpa.RTRWrite, func(uint32) []byte { return readRequest(1, 1, 0, 0, 1, 0) }},
		{"a Read with octets", mpa.RTRRead, func(all uint32) []byte { return readRequest(1, 1, 0, 1, all, regionStart) }},
		{"a Write for a Read", mpa.RTRRead, func(all uint32) []byte { return write(all, regionStart, empty) }},
		{"a Send with octets", mpa.RTRSend, func(uint32) []byte { return send(1, full) }},
		{"a Send that is not whole", mpa.RTRSend, func(uint32) []byte { return untagged(wire.OpSend, false, 0, 0, 1, 0, empty) }},
		{"a Send with Invalidate", mpa.RTRSend, func(all uint32) []byte { return untagged(wire.OpSendInvalidate, true, all, 0, 1, 0, empty) }},
		{"a Write for a Send", mpa.RTRSend, func(all uint32) []byte { return write(all, regionStart, empty) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, asResponder, withRTR(c.rtr))
			s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 8)}})
			s.gets(c.fpdu(uint32(s.all)))
			s.completes(flushed(1, work.WCRecv))
			s.untouched(s.mem)
			s.hasTerminated(NoMatchingRTR)
		})
	}
}
