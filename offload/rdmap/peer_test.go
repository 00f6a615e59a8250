package rdmap

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// swapped returns a Terminate's payload with the control word as Linux siw sends it: its
// fields begin at the other end. The length of the payload stays the same.
func swapped(body []byte) []byte {
	b := append([]byte(nil), body...)
	b[0] = b[0]<<4 | b[0]>>4
	var f byte
	for i := range 3 {
		if b[2]&(0x80>>i) != 0 {
			f |= 1 << i
		}
	}
	b[2] = f
	return b
}

// Terminates of the peer, and the result for our work: the Read that is blamed gets its
// status, everything else is flushed, no Terminate goes back, and our direction is
// closed (RFC 5040 §4.8, §5.4).
func TestTerminateReceived(t *testing.T) {
	request := func(s *script, at int) []byte { // the second Read, of which at octets have come
		return readHeader(uint32(s.all), regionStart+20+uint64(at), uint32(10-at), peerSTag, 0x99+uint64(at))
	}
	asked := func(s *script) []byte { return s.request(2, 20, 10) }
	for _, c := range []struct {
		name   string
		body   func(s *script) []byte
		code   Code
		status work.Status // of the second Read
		text   string
	}{
		{"Read refused", func(s *script) []byte { return terminateBody(ProtInvalidSTag, asked(s), request(s, 0)) }, ProtInvalidSTag, work.RemoteAccessErr,
			"QP 7: terminated by the peer: RDMAP remote protection error: invalid STag (0/1/00), for RDMA Read Request of 0x00005500 at offset 153"},
		{"Read refused half-way", func(s *script) []byte { return terminateBody(ProtBounds, asked(s), request(s, 4)) }, ProtBounds, work.RemoteAccessErr,
			"base or bounds violation (0/1/01), for RDMA Read Request of 0x00005500 at offset 157"},
		{"Read refused for another reason", func(s *script) []byte { return terminateBody(OpStream, asked(s), request(s, 0)) }, OpStream, work.RemoteOperationErr, "0/2/07"},
		{"Read of a sink we do not know", func(s *script) []byte {
			return terminateBody(ProtAccess, asked(s), readHeader(1, 2, 3, 4, 5))
		}, ProtAccess, work.Flushed, "of 0x00000004 at offset 5"},
		{"Write refused", func(s *script) []byte { return terminateBody(Code{1, 1, 1}, write(0x77, 3, []byte("x"))) }, Code{1, 1, 1}, work.Flushed,
			"DDP tagged buffer error: base or bounds violation (1/1/01), for RDMA Write to 0x00000077 at offset 3"},
		{"Send without receive", func(s *script) []byte { return terminateBody(Code{1, 2, 2}, send(1, nil)) }, Code{1, 2, 2}, work.Flushed,
			"DDP untagged buffer error: no buffer for the message (1/2/02), for Send"},
		{"Send with Invalidate refused", func(s *script) []byte {
			return terminateBody(ProtInvalidate, untagged(wire.OpSendInvalidate, true, 0x99, 0, 1, 0, nil))
		}, ProtInvalidate, work.Flushed, "STag cannot be invalidated (0/1/09), for Send with Invalidate of 0x00000099"},
		{"CRC", func(s *script) []byte { return terminateBody(CRCError) }, CRCError, work.Flushed, "MPA: CRC error (2/0/02)"},
		{"CRC, as some adapters number it", func(s *script) []byte { return terminateBody(Code{2, 3, 2}) }, Code{2, 3, 2}, work.Flushed, "MPA: CRC error (2/3/02)"},
		{"0/0/ff", func(s *script) []byte { return terminateBody(LocalCatastrophic) }, LocalCatastrophic, work.Flushed, "RDMAP: local catastrophic error (0/0/ff)"},
		{"0/0/00", func(s *script) []byte { return terminateBody(Code{}) }, Code{}, work.Flushed, "local catastrophic error (0/0/00)"},
		{"nothing we know", func(s *script) []byte { return terminateBody(Code{5, 6, 7}) }, Code{5, 6, 7}, work.Flushed, "unknown error (5/6/07)"},
		{"M, D and R, but half of it", func(s *script) []byte { return terminateBody(ProtAccess, asked(s), request(s, 0))[:30] }, ProtAccess, work.Flushed,
			"access rights violation (0/1/02), for RDMA Read Request"},
		{"M, D and R, but nothing", func(s *script) []byte { return terminateBody(ProtAccess, asked(s), request(s, 0))[:4] }, ProtAccess, work.Flushed, "(0/1/02)"},
	} {
		for _, siw := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				s := open(t)
				s.receives(work.RecvWR{ID: 9})
				s.posts(s.reads(1, 0, 5), s.reads(2, 20, 10), s.reads(3, 40, 10), work.SendWR{ID: 4, Op: work.WRSend, Flags: work.Signaled}, work.SendWR{ID: 5, Op: work.WRSend, Flags: work.Fence})
				s.sends(s.request(1, 0, 5), s.request(2, 20, 10), s.request(3, 40, 10), send(1, nil))
				s.gets(s.answer(true, 0, pattern(0, 5)), s.answer(false, 20, pattern(20, 4)))
				s.completes(read(1, 5))
				body := c.body(s)
				if siw && c.name != "nothing we know" { // a word without meaning in either order is read in the RFC's order

					body = swapped(body)
				}
				s.gets(untagged(wire.OpTerminate, true, 0, 2, 1, 0, body))
				s.sends()
				s.is(Terminate)
				s.completes(failed(2, work.WCRead, c.status), flushed(3, work.WCRead), flushed(4, work.WCSend), flushed(5, work.WCSend), flushed(9, work.WCRecv))
				got := s.q.Cause()
				if got.Code != c.code || !got.Remote || got.Err != nil {
					t.Errorf("cause %+v, want the peer's %v", got, c.code)
				}
				text := (&Error{7, got}).Error()
				if siw && got.Code != (Code{}) && got.Code != LocalCatastrophic && !got.Swapped && c.name != "nothing we know" {
					t.Errorf("%q does not say that siw has sent it", text)
				}
				if !strings.Contains(text, c.text) {
					t.Errorf("%q, want %q", text, c.text)
				}
				if !s.st.shut {
					t.Error("our direction is open")
				}
				s.finishes()
				s.is(Errored)
				if s.st.killed || s.q.Cause() != got {
					t.Errorf("reset %v, cause %+v", s.st.killed, s.q.Cause())
				}
			})
		}
	}
}

// A Terminate may have a meaning in both orders of the control word's bits. The
// possible cause decides: the first message of an initiator can only concern our Reply,
// any other an FPDU of ours.
func TestTerminateInEitherOrder(t *testing.T) {
	initiator := func(t *testing.T) *script { return open(t) }
	first := func(t *testing.T) *script { return open(t, asResponder) }
	later := func(t *testing.T) *script {
		s := open(t, asResponder)
		s.gets(write(1, 0, nil))
		return s
	}
	for _, c := range []struct {
		name    string
		open    func(*testing.T) *script
		word    [2]byte
		code    Code
		swapped bool
	}{
		{"to an initiator", initiator, [2]byte{0x20, 5}, OpVersion, true},
		{"to an initiator", initiator, [2]byte{0x20, 6}, OpUnexpected, true},
		{"to an initiator", initiator, [2]byte{0x20, 7}, OpStream, true},
		{"to an initiator", initiator, [2]byte{0x02, 5}, OpVersion, false},
		{"to an initiator", initiator, [2]byte{0x02, 6}, OpUnexpected, false},
		{"to an initiator", initiator, [2]byte{0x02, 7}, OpStream, false},
		{"first to a responder", first, [2]byte{0x20, 6}, InsufficientIRD, false},
		{"first to a responder", first, [2]byte{0x20, 7}, NoMatchingRTR, false},
		{"first to a responder", first, [2]byte{0x02, 5}, Code{2, 0, 5}, true},
		{"first to a responder", first, [2]byte{0x02, 6}, InsufficientIRD, true},
		{"first to a responder", first, [2]byte{0x02, 7}, NoMatchingRTR, true},
		{"first to a responder, CRC", first, [2]byte{0x20, 2}, CRCError, false},
		{"first to a responder, siw's CRC", first, [2]byte{0x02, 2}, CRCError, true},
		{"later to a responder", later, [2]byte{0x20, 6}, OpUnexpected, true},
		{"later to a responder", later, [2]byte{0x02, 6}, OpUnexpected, false},
		{"later to a responder, CRC", later, [2]byte{0x20, 2}, CRCError, false},
	} {
		s := c.open(t)
		s.gets(untagged(wire.OpTerminate, true, 0, 2, 1, 0, append(c.word[:], 0, 0)))
		if got := s.q.Cause(); got.Code != c.code || got.Swapped != c.swapped || !got.Remote {
			t.Errorf("%s: % x is %v, swapped %v; want %v, %v", c.name, c.word, got.Code, got.Swapped, c.code, c.swapped)
		}
	}
}

// siw's Terminate in answer to a Reply that it cannot agree to has no CRC. The
// responder accepts it at that point, and at no other.
func TestTerminateWithoutCRC(t *testing.T) {
	unsummed := func(ulpdu []byte) []byte {
		clear(ulpdu[len(ulpdu)-4:])
		return ulpdu
	}
	terminate := func() []byte {
		return unsummed(untagged(wire.OpTerminate, true, 0, 2, 1, 0, []byte{0x02, 6, 0, 0}))
	}
	ours := Cause{Code: CRCError}
	for name, c := range map[string]struct {
		begins change
		before []byte
		fpdu   []byte
		want   Cause
	}{
		"to our Reply":          {asResponder, nil, terminate(), Cause{Code: InsufficientIRD, Remote: true, Swapped: true}},
		"to our Reply, eager":   {func(s *setup) { asResponder(s); s.agree.Eager = true }, nil, terminate(), Cause{Code: InsufficientIRD, Remote: true, Swapped: true}},
		"to our Request":        {func(*setup) {}, nil, terminate(), ours},
		"later":                 {asResponder, write(1, 0, nil), terminate(), ours},
		"another CRC":           {asResponder, nil, append(terminate()[:24], 0, 0, 0, 1), ours},
		"a Send":                {asResponder, nil, unsummed(send(1, nil)), ours},
		"a malformed Terminate": {asResponder, nil, unsummed(untagged(wire.OpTerminate, true, 0, 2, 2, 0, []byte{2, 6, 0, 0})), ours},
		"no DDP":                {asResponder, nil, unsummed(untagged(wire.OpTerminate, true, 0, 2, 1, 0, nil))[:24], ours},
	} {
		for _, cut := range []int{len(c.fpdu), 13} {
			s := open(t, c.begins)
			s.receives(work.RecvWR{ID: 1})
			if c.before != nil {
				s.gets(c.before)
			}
			s.gets(c.fpdu[:cut])
			if cut < len(c.fpdu) {
				s.gets(c.fpdu[cut:])
			}
			if got := s.q.Cause(); got != c.want {
				t.Errorf("%s, cut at %d: %+v, want %+v", name, cut, got, c.want)
			}
			s.completes(flushed(1, work.WCRecv))
			s.is(Terminate)
		}
	}
}

// A Terminate comes in the middle of the peer's own message, and of ours.
func TestTerminateWithinMessages(t *testing.T) {
	s := open(t, withEMSS(128))
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 8)}})
	s.st.room = 1
	s.posts(work.SendWR{ID: 2, Op: work.WRWrite, SGL: []work.SGE{s.at(0, 200)}, RKey: 4})
	s.sends(tagged(wire.OpWrite, false, 4, 0, pattern(0, 108)))
	s.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")), terminateFPDU(OpStream))
	s.st.room = -1
	s.turn()
	s.sends()
	s.completes(flushed(2, work.WCWrite), flushed(1, work.WCRecv))
	s.finishes()
	s.is(Errored)
}

// Terminates cross: each side has sent one, and none answers the other's.
func TestTerminatesCross(t *testing.T) {
	s := open(t)
	f := write(1, 0, []byte("x"))
	s.gets(f)
	s.sends(terminateFPDU(Code{1, 1, 0}, f))
	s.finishes(terminateFPDU(OpStream))
	s.sends()
	s.is(Errored)
	if c := s.q.Cause(); c.Remote || c.Code != (Code{1, 1, 0}) {
		t.Errorf("cause %+v", c)
	}
}

// The texts of our own errors.
func TestErrorTexts(t *testing.T) {
	for _, c := range []struct {
		e    Error
		want string
	}{
		{Error{3, Cause{Err: ErrTruncated}}, "QP 3: the peer closed the connection in the middle of a message"},
		{Error{3, Cause{Code: LocalCatastrophic, Err: ErrLocalAccess}},
			"QP 3: terminated by this side: RDMAP: local catastrophic error (0/0/ff): a work request names local memory that this QP may not use"},
		{Error{3, Cause{Code: Code{1, 1, 4}, HasSegment: true, Opcode: wire.OpWrite, STag: 9, TO: 8}},
			"QP 3: terminated by this side: DDP tagged buffer error: invalid DDP version (1/1/04), for RDMA Write to 0x00000009 at offset 8"},
		{Error{3, Cause{Code: Code{1, 0, 0}}}, "QP 3: terminated by this side: DDP local error: local catastrophic error (1/0/00)"},
		{Error{3, Cause{Code: Code{1, 9, 9}}}, "QP 3: terminated by this side: unknown error (1/9/09)"},
	} {
		if got := c.e.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The whole state table: the next state for each event in each state.
func TestStates(t *testing.T) {
	const no = 255
	states := []State{Idle, RTS, Closing, Terminate, Errored}
	for _, row := range []struct {
		ev   event
		want [5]State // from Idle, RTS, Closing, Terminate, Errored
	}{
		{evConnected, [5]State{RTS, no, no, no, no}},
		{evClosing, [5]State{no, Closing, no, no, no}},
		{evTerminate, [5]State{no, Terminate, Terminate, no, no}},
		{evEnded, [5]State{no, Errored, Idle, Errored, no}},
		{evLost, [5]State{Errored, Errored, Errored, Errored, no}},
	} {
		for i, from := range states {
			got, allowed := from.next(row.ev)
			if want := row.want[i]; allowed != (want != no) || allowed && got != want || !allowed && got != from {
				t.Errorf("event %d in %v: %v, %v", row.ev, from, got, allowed)
			}
		}
	}
}
