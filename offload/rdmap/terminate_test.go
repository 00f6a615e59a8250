package rdmap

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// tries has regions of every kind that a peer may try.
type tries struct {
	*script
	all, foreign, readOnly, writeOnly, localOnly, gone uint32
	bound, others                                      uint32 // to this QP, and to another one
}

func (s *script) tries() tries {
	s.Helper()
	one := func(pd tpt.PD, r tpt.Rights) uint32 { stag, _ := s.region(64, pd, r); return uint32(stag) }
	x := tries{s, uint32(s.all), one(s.other, every), one(s.pd, tpt.RemoteRead), one(s.pd, tpt.LocalWrite|tpt.RemoteWrite),
		one(s.pd, tpt.LocalWrite), one(s.pd, every), s.bound(s.q.Number(), every), s.bound(s.q.Number()+1, every)}
	if err := s.table.Invalidate(tpt.STag(x.gone), s.pd); err != nil {
		s.Fatal(err)
	}
	return x
}

// bound makes a region that is bound to a queue pair, and returns its STag.
func (s *script) bound(qp uint32, rights tpt.Rights) uint32 {
	s.Helper()
	return uint32(s.register(tpt.Region{PD: s.pd, QP: qp, Memory: make([]byte, 64), Rights: rights}))
}

// Each refusal leads to a Terminate, octet by octet: with M, D and the DDP header of
// the refused segment (and with R and the Read Request's header if RDMAP's remote
// protection refused it). Then come a FIN, silence, and the flush of everything in
// order. Codes: RFC 5040 §4.8 and §7, RFC 5041 §7.
func TestRefusals(t *testing.T) {
	x := []byte("x")
	const top = regionStart + regionLen
	for _, c := range []struct {
		name  string
		fpdu  func(s tries) []byte
		code  Code
		quote int // 0: nothing, 1: DDP header, 2: and the Read Request's
	}{
		{"Write: entry 0", func(s tries) []byte { return write(0x12, 0, x) }, Code{1, 1, 0}, 1},
		{"Write: beyond the table", func(s tries) []byte { return write(0xffffff00, 0, x) }, Code{1, 1, 0}, 1},
		{"Write: wrong key", func(s tries) []byte { return write(s.all^0xff, regionStart, x) }, Code{1, 1, 0}, 1},
		{"Write: revoked", func(s tries) []byte { return write(s.gone, 0, x) }, Code{1, 1, 0}, 1},
		{"Write: below", func(s tries) []byte { return write(s.all, regionStart-1, x) }, Code{1, 1, 1}, 1},
		{"Write: above", func(s tries) []byte { return write(s.all, top, x) }, Code{1, 1, 1}, 1},
		{"Write: across the end", func(s tries) []byte { return write(s.all, top-1, []byte("xy")) }, Code{1, 1, 1}, 1},
		{"Write: foreign", func(s tries) []byte { return write(s.foreign, 0, x) }, Code{1, 1, 2}, 1},
		{"Write: bound to another QP", func(s tries) []byte { return write(s.others, 0, x) }, Code{1, 1, 2}, 1},
		{"Write: wraps", func(s tries) []byte { return write(s.all, 1<<64-1, []byte("xy")) }, Code{1, 1, 3}, 1},
		{"Write: no right", func(s tries) []byte { return write(s.readOnly, 0, x) }, ProtAccess, 1},
		{"Write: local only", func(s tries) []byte { return write(s.localOnly, 0, x) }, ProtAccess, 1},
		{"Write: second segment", func(s tries) []byte { return tagged(0, true, s.gone, 1, x) }, Code{1, 1, 0}, 1},

		{"Read: bad STag", func(s tries) []byte { return readRequest(1, 9, 8, 1, s.all+1, regionStart) }, ProtInvalidSTag, 2},
		{"Read: revoked", func(s tries) []byte { return readRequest(1, 9, 8, 1, s.gone, 0) }, ProtInvalidSTag, 2},
		{"Read: across the end", func(s tries) []byte { return readRequest(1, 9, 8, 2, s.all, top-1) }, ProtBounds, 2},
		{"Read: 4 GiB", func(s tries) []byte { return readRequest(1, 9, 8, 1<<32-1, s.all, regionStart) }, ProtBounds, 2},
		{"Read: no right", func(s tries) []byte { return readRequest(1, 9, 8, 1, s.writeOnly, 0) }, ProtAccess, 2},
		{"Read: local only", func(s tries) []byte { return readRequest(1, 9, 8, 1, s.localOnly, 0) }, ProtAccess, 2},
		{"Read: foreign", func(s tries) []byte { return readRequest(1, 9, 8, 1, s.foreign, 0) }, ProtStream, 2},
		{"Read: bound to another QP", func(s tries) []byte { return readRequest(1, 9, 8, 1, s.others, 0) }, ProtStream, 2},
		{"Read: wraps", func(s tries) []byte { return readRequest(1, 9, 8, 2, s.all, 1<<64-1) }, ProtWrap, 2},
		{"Read: MSN 0", func(s tries) []byte { return readRequest(0, 9, 8, 1, s.all, regionStart) }, Code{1, 2, 3}, 1},
		{"Read: MSN 2", func(s tries) []byte { return readRequest(2, 9, 8, 1, s.all, regionStart) }, Code{1, 2, 3}, 1},
		{"Read: offset", func(s tries) []byte {
			return untagged(wire.OpReadRequest, true, 0, 1, 1, 4, readHeader(9, 8, 1, s.all, regionStart))
		}, Code{1, 2, 4}, 1},
		{"Read: longer", func(s tries) []byte {
			return untagged(wire.OpReadRequest, true, 0, 1, 1, 0, append(readHeader(9, 8, 1, s.all, regionStart), 0))
		}, Code{1, 2, 5}, 1},
		{"Read: not last", func(s tries) []byte {
			return untagged(wire.OpReadRequest, false, 0, 1, 1, 0, readHeader(9, 8, 1, s.all, regionStart))
		}, Code{1, 2, 5}, 1},
		{"Read: shorter", func(s tries) []byte {
			return untagged(wire.OpReadRequest, true, 0, 1, 1, 0, readHeader(9, 8, 1, s.all, regionStart)[:27])
		}, MarkerError, 0},
		{"Read: empty", func(s tries) []byte { return untagged(wire.OpReadRequest, true, 0, 1, 1, 0, nil) }, MarkerError, 0},
		{"Read: on queue 0", func(s tries) []byte {
			return untagged(wire.OpReadRequest, true, 0, 0, 1, 0, readHeader(9, 8, 1, s.all, regionStart))
		}, Code{1, 2, 1}, 1},

		{"Send: MSN 0", func(s tries) []byte { return send(0, x) }, Code{1, 2, 3}, 1},
		{"Send: MSN 2", func(s tries) []byte { return send(2, x) }, Code{1, 2, 3}, 1},
		{"Send: offset", func(s tries) []byte { return untagged(wire.OpSend, true, 0, 0, 1, 1, x) }, Code{1, 2, 4}, 1},
		{"Send: queue 1", func(s tries) []byte { return untagged(wire.OpSend, true, 0, 1, 1, 0, x) }, Code{1, 2, 1}, 1},
		{"Send: queue 2", func(s tries) []byte { return untagged(wire.OpSend, true, 0, 2, 1, 0, x) }, Code{1, 2, 1}, 1},
		{"Send: queue 3", func(s tries) []byte { return untagged(wire.OpSend, true, 0, 3, 1, 0, x) }, Code{1, 2, 1}, 1},
		{"Send: queue 2^32-1", func(s tries) []byte { return untagged(wire.OpSend, true, 0, 1<<32-1, 1, 0, x) }, Code{1, 2, 1}, 1},

		{"DV 0, tagged", func(s tries) []byte { return again(write(s.all, regionStart, x), func(u []byte) { u[0] &^= 3 }) }, Code{1, 1, 4}, 1},
		{"DV 2, tagged", func(s tries) []byte { return again(write(s.all, regionStart, x), func(u []byte) { u[0] ^= 3 }) }, Code{1, 1, 4}, 1},
		{"DV 3, untagged", func(s tries) []byte { return again(send(1, x), func(u []byte) { u[0] |= 3 }) }, Code{1, 2, 6}, 1},
		{"DV 0, untagged", func(s tries) []byte { return again(send(1, x), func(u []byte) { u[0] &^= 3 }) }, Code{1, 2, 6}, 1},
		{"RV 0", func(s tries) []byte { return again(send(1, x), func(u []byte) { u[1] &^= 0xc0 }) }, OpVersion, 1},
		{"RV 2", func(s tries) []byte { return again(write(s.all, regionStart, x), func(u []byte) { u[1] ^= 0xc0 }) }, OpVersion, 1},
		{"RV 3 without octets", func(s tries) []byte { return again(write(0, 0, nil), func(u []byte) { u[1] |= 0xc0 }) }, OpVersion, 1},

		{"tagged Send", func(s tries) []byte { return tagged(wire.OpSend, true, s.all, regionStart, x) }, OpUnexpected, 1},
		{"tagged Read Request", func(s tries) []byte { return tagged(wire.OpReadRequest, true, s.all, regionStart, x) }, OpUnexpected, 1},
		{"tagged Terminate", func(s tries) []byte { return tagged(wire.OpTerminate, true, s.all, regionStart, x) }, OpUnexpected, 1},
		{"untagged Write", func(s tries) []byte { return untagged(wire.OpWrite, true, 0, 0, 1, 0, x) }, OpUnexpected, 1},
		{"untagged Response", func(s tries) []byte { return untagged(wire.OpReadResponse, true, 0, 0, 1, 0, x) }, OpUnexpected, 1},

		{"Terminate: MSN 2", func(s tries) []byte { return untagged(wire.OpTerminate, true, 0, 2, 2, 0, terminateBody(OpStream)) }, Code{1, 2, 3}, 1},
		{"Terminate: offset", func(s tries) []byte { return untagged(wire.OpTerminate, true, 0, 2, 1, 4, terminateBody(OpStream)) }, Code{1, 2, 4}, 1},
		{"Terminate: not last", func(s tries) []byte {
			return untagged(wire.OpTerminate, false, 0, 2, 1, 0, terminateBody(OpStream))
		}, Code{1, 2, 5}, 1},
		{"Terminate: 3 octets", func(s tries) []byte { return untagged(wire.OpTerminate, true, 0, 2, 1, 0, []byte{0, 0, 0}) }, MarkerError, 0},
		{"Terminate: queue 0", func(s tries) []byte { return untagged(wire.OpTerminate, true, 0, 0, 1, 0, terminateBody(OpStream)) }, Code{1, 2, 1}, 1},

		{"CRC", func(s tries) []byte { f := send(1, x); f[len(f)-1] ^= 1; return f }, CRCError, 0},
		{"payload", func(s tries) []byte { f := send(1, x); f[20] ^= 1; return f }, CRCError, 0},
		{"padding", func(s tries) []byte { f := send(1, x); f[21] ^= 1; return f }, CRCError, 0},
		{"length 0", func(s tries) []byte { return fpdu(nil) }, MarkerError, 0},
		{"length 13", func(s tries) []byte { return fpdu(make([]byte, 13)) }, MarkerError, 0},
		{"untagged, length 14", func(s tries) []byte { return fpdu(ulpduOf(send(1, nil))[:14]) }, MarkerError, 0},
		{"untagged, length 17", func(s tries) []byte { return fpdu(ulpduOf(send(1, nil))[:17]) }, MarkerError, 0},
		{"length one too long", func(s tries) []byte { f := send(1, x); f[1]++; return append(f, send(2, x)...) }, CRCError, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, withDepths(1, 1)).tries()
			s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 64)}}, work.RecvWR{ID: 2})
			s.posts(s.reads(3, 0, 8), s.reads(4, 0, 8), work.SendWR{ID: 5, Op: work.WRSend, Flags: work.Signaled})
			s.gets(s.answer(true, 0, pattern(0, 8))) // Read 3 is done, Read 4 outstanding
			s.sends(s.request(1, 0, 8), s.request(2, 0, 8), send(1, nil))
			s.completes(read(3, 8))
			f := c.fpdu(s)
			s.gets(f, write(s.all, regionStart, []byte("behind it")))
			s.completes(flushed(4, work.WCRead), flushed(5, work.WCSend), flushed(1, work.WCRecv), flushed(2, work.WCRecv))
			s.untouched(s.mem)
			quotes := [][]byte{f, nil}
			if c.quote == 2 {
				quotes[1] = f[20:48]
			}
			s.hasTerminated(c.code, quotes[:c.quote]...)
			s.untouched(s.mem)
			s.refused(f, c.code, c.quote)
		})
	}
}

// refused checks that the cause names the refused segment.
func (s *script) refused(f []byte, code Code, quote int) {
	s.Helper()
	got := s.q.Cause()
	want := Cause{Code: code, HasSegment: quote > 0}
	if u := ulpduOf(f); quote > 0 {
		want.Opcode = wire.Opcode(u[1] & 15)
		want.STag = tpt.STag(be.Uint32(u[2:]))
		if u[0]&0x80 != 0 {
			want.TO = be.Uint64(u[6:])
		}
		if quote == 2 {
			want.STag, want.TO = tpt.STag(be.Uint32(u[18+16:])), be.Uint64(u[18+20:])
		}
	}
	if got != want {
		s.Fatalf("cause\n got %+v\nwant %+v", got, want)
	}
}

func TestUnknownOpcodes(t *testing.T) { // RFC 5040 §4.2, RFC 7306 not spoken
	for op := wire.Opcode(8); op < 16; op++ {
		for _, f := range [][]byte{
			tagged(op, true, 1, 2, []byte("x")), untagged(op, true, 0, 0, 1, 0, []byte("12345678")), untagged(op, true, 0, 1, 1, 0, nil),
		} {
			s := open(t)
			s.gets(f)
			s.hasTerminated(OpUnexpected, f)
		}
	}
}

// Refusals of a Send that depend on the receive at the head of the queue.
func TestRefusedSends(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(s tries) [][]byte // arrives first
		fpdu   func(s tries) []byte
		recv   func(s tries) []work.SGE
		status work.Status
		code   Code
		placed []any
	}{
		{"longer than its receive", nil, func(s tries) []byte { return send(1, []byte("12345")) },
			func(s tries) []work.SGE { return []work.SGE{s.at(0, 2), s.at(8, 2)} }, work.LocalLengthErr, Code{1, 2, 5}, nil},
		{"longer by its second segment", func(s tries) [][]byte { return [][]byte{untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("abc"))} },
			func(s tries) []byte { return untagged(wire.OpSend, true, 0, 0, 1, 3, []byte("de")) },
			func(s tries) []work.SGE { return []work.SGE{s.at(0, 4)} }, work.LocalLengthErr, Code{1, 2, 5}, []any{0, []byte("abc")}},
		{"receive of nothing", nil, func(s tries) []byte { return send(1, []byte("1")) },
			func(s tries) []work.SGE { return nil }, work.LocalLengthErr, Code{1, 2, 5}, nil},
		{"receive with an unknown key", nil, func(s tries) []byte { return send(1, []byte("12345")) },
			func(s tries) []work.SGE { return []work.SGE{s.at(0, 4), {LKey: 0x7700, Length: 4}} }, work.LocalProtErr, Code{1, 0, 0}, nil},
		{"receive into another PD", nil, func(s tries) []byte { return send(1, []byte("12345")) },
			func(s tries) []work.SGE { return []work.SGE{{LKey: tpt.STag(s.foreign), Length: 8}} }, work.LocalProtErr, Code{1, 0, 0}, nil},
		{"receive into read-only", nil, func(s tries) []byte { return send(1, []byte("12345")) },
			func(s tries) []work.SGE { return []work.SGE{{LKey: tpt.STag(s.readOnly), Length: 8}} }, work.LocalAccessErr, Code{1, 0, 0}, nil},
		{"receive beyond its region", nil, func(s tries) []byte { return send(1, []byte("12345")) },
			func(s tries) []work.SGE { return []work.SGE{s.at(regionLen-4, 5)} }, work.LocalProtErr, Code{1, 0, 0}, nil},
		{"invalidate: unknown", nil, func(s tries) []byte { return untagged(wire.OpSendInvalidate, true, 0x7700, 0, 1, 0, []byte("abc")) },
			func(s tries) []work.SGE { return []work.SGE{s.at(0, 4)} }, work.RemoteInvalidErr, OpInvalidate, []any{0, []byte("abc")}},
		{"invalidate: wrong key", nil, func(s tries) []byte { return untagged(wire.OpSendSEInvalidate, true, s.all+1, 0, 1, 0, nil) },
			func(s tries) []work.SGE { return nil }, work.RemoteInvalidErr, OpInvalidate, nil},
		{"invalidate: foreign", nil, func(s tries) []byte { return untagged(wire.OpSendInvalidate, true, s.foreign, 0, 1, 0, nil) },
			func(s tries) []work.SGE { return nil }, work.RemoteInvalidErr, ProtInvalidate, nil},
		{"invalidate: for nobody but us", nil, func(s tries) []byte { return untagged(wire.OpSendInvalidate, true, s.localOnly, 0, 1, 0, nil) },
			func(s tries) []work.SGE { return nil }, work.RemoteInvalidErr, ProtInvalidate, nil},
		{"invalidate: of several streams", nil, func(s tries) []byte { return untagged(wire.OpSendInvalidate, true, s.readOnly, 0, 1, 0, nil) },
			func(s tries) []work.SGE { return nil }, work.RemoteInvalidErr, ProtInvalidate, nil},
		{"invalidate: bound to another QP", nil, func(s tries) []byte { return untagged(wire.OpSendInvalidate, true, s.others, 0, 1, 0, nil) },
			func(s tries) []work.SGE { return nil }, work.RemoteInvalidErr, ProtInvalidate, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t).tries()
			s.receives(work.RecvWR{ID: 1, SGL: c.recv(s)}, work.RecvWR{ID: 2})
			s.posts(work.SendWR{ID: 3, Op: work.WRRead, RKey: 1})
			s.st.out = nil
			if c.before != nil {
				s.gets(c.before(s)...)
				s.silent()
			}
			f := c.fpdu(s)
			s.gets(f)
			s.completes(failed(1, work.WCRecv, c.status), flushed(3, work.WCRead), flushed(2, work.WCRecv))
			quote := [][]byte{f}
			if c.code.Type == typeLocal {
				quote = nil // RFC 5040 §4.8; here the cause names the segment
			}
			s.hasTerminated(c.code, quote...)
			s.untouched(s.mem, c.placed...)
			s.refused(f, c.code, 1)
			if _, f := s.table.Check(tpt.Access{STag: tpt.STag(s.foreign), PD: s.other, Right: tpt.LocalRead, Len: 1}); f != tpt.OK {
				t.Errorf("the foreign region after it all: %v", f)
			}
		})
	}
}

// A Send finds no receive (RFC 5041 §7: no buffer), whether it has octets or not.
func TestSendWithoutReceive(t *testing.T) {
	for _, payload := range [][]byte{nil, []byte("x")} {
		s := open(t)
		s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 1)}})
		s.gets(send(1, payload))
		s.completes(received(1, uint32(len(payload))))
		f := send(2, payload)
		s.gets(f)
		s.hasTerminated(Code{1, 2, 2}, f)
	}
}

// All segments of a message repeat opcode and STag (RFC 5041 §4.3).
func TestMessageChangesItsMind(t *testing.T) {
	for _, f := range [][]byte{
		untagged(wire.OpSendSE, true, 0, 0, 1, 2, []byte("cd")),
		untagged(wire.OpSendInvalidate, true, 0, 0, 1, 2, []byte("cd")),
		untagged(wire.OpSend, true, 5, 0, 1, 2, []byte("cd")),
	} {
		s := open(t)
		s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 4)}})
		s.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")), f)
		s.completes(flushed(1, work.WCRecv))
		s.hasTerminated(OpUnexpected, f)
	}
}

// A gap and an overlap within a message.
func TestWrongOffsetWithinMessage(t *testing.T) {
	for _, mo := range []uint32{0, 1, 3, 1<<32 - 1} {
		s := open(t)
		s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 8)}})
		f := untagged(wire.OpSend, true, 0, 0, 1, mo, []byte("cd"))
		s.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")), f)
		s.completes(flushed(1, work.WCRecv))
		s.hasTerminated(Code{1, 2, 4}, f)
		s.untouched(s.mem, 0, []byte("ab"))
	}
}

// A Marker that points elsewhere (RFC 5044 §4.3).
func TestBadMarker(t *testing.T) {
	s := open(t, func(s *setup) { s.agree.ReceiveMarkers = true })
	b := append([]byte{0, 0, 0, 4}, send(1, nil)...)
	copy(b[len(b)-4:], crcOf(b[:len(b)-4]))
	s.gets(b)
	s.hasTerminated(MarkerError)
}

// Any part of an FPDU may be refused in the middle of our own message: the Terminate
// comes next, and the rest of the message is never sent.
func TestTerminateWithinOurMessage(t *testing.T) {
	s := open(t, withEMSS(128))
	s.st.room = 1
	s.posts(work.SendWR{ID: 1, Op: work.WRWrite, SGL: []work.SGE{s.at(0, 300)}})
	s.st.out = nil
	f := write(1, 0, []byte("x"))
	s.gets(f)
	s.sends()
	s.completes(flushed(1, work.WCWrite))
	s.st.room = -1
	s.turn()
	s.hasTerminated(Code{1, 1, 0}, f)
}

// If there is no room for the Terminate, it is sent later, once.
func TestTerminateWaitsForRoom(t *testing.T) {
	s := open(t)
	s.st.room = 0
	f := write(1, 0, []byte("x"))
	s.gets(f)
	s.is(Terminate)
	s.turn()
	if s.st.shut {
		t.Fatal("a FIN before the Terminate")
	}
	s.st.room = -1
	s.turn()
	s.hasTerminated(Code{1, 1, 0}, f)
}

// A peer that does not close is reset after a while (RFC 5040 §6.2), which begins when
// the peer has acknowledged the Terminate. A peer that does not acknowledge it has
// longer, but not for ever.
func TestLinger(t *testing.T) {
	for _, c := range []struct {
		name         string
		room, afloat int
		takes        time.Duration // when the peer acknowledges; 0: never
		want         time.Duration
	}{
		{name: "acknowledged at once", room: -1, want: lingerTime},
		{name: "acknowledged late", room: -1, afloat: 1, takes: 10 * time.Second, want: 10*time.Second + lingerTime},
		{name: "acknowledged too late", room: -1, afloat: 1, takes: lingerMost - 1, want: lingerMost},
		{name: "never acknowledged", room: -1, afloat: 1, want: lingerMost},
		{name: "no room for it", room: 0, want: lingerMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			s.st.room, s.st.afloat = c.room, c.afloat
			s.gets(write(1, 0, []byte("x")))
			left := c.want
			if c.takes != 0 {
				for range c.takes / time.Second { // acknowledgements of earlier octets
					s.pass(time.Second)
				}
				s.pass(c.takes % time.Second)
				s.st.afloat = 0
				s.turn()
				left -= c.takes
			}
			s.pass(left - 1)
			s.is(Terminate)
			if s.st.killed {
				t.Fatal("reset too early")
			}
			s.pass(1)
			s.is(Errored)
			if !s.st.killed || s.q.Cause().Code != (Code{1, 1, 0}) {
				t.Errorf("reset %v, cause %+v", s.st.killed, s.q.Cause())
			}
		})
	}
}

// In segments so short that a Terminate has no room for the quoted headers, only its
// code is sent. A Terminate is always one segment (RFC 5040 §4.8).
func TestTerminateInShortSegments(t *testing.T) {
	s := open(t, withEMSS(60))
	s.gets(readRequest(1, 9, 8, 1, 3, 0))
	s.hasTerminated(ProtInvalidSTag)
}

// In segments too short for a Read Request, the connection ends.
func TestReadInShortSegments(t *testing.T) {
	s := open(t, withEMSS(52)) // 46 octets: just enough
	s.posts(s.reads(1, 0, 1), work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled, Inline: pattern(0, 30)})
	s.sends(s.request(1, 0, 1), untagged(wire.OpSend, false, 0, 0, 1, 0, pattern(0, 28)), untagged(wire.OpSend, true, 0, 0, 1, 28, pattern(28, 2)))
	s.st.emss = 51
	s.posts(s.reads(3, 0, 1), work.SendWR{ID: 4, Op: work.WRSend})
	s.completes(flushed(1, work.WCRead), flushed(2, work.WCSend), failed(3, work.WCRead, work.LocalQPOpErr), flushed(4, work.WCSend))
	if c := s.q.Cause(); c != (Cause{Code: LocalCatastrophic, Err: ErrNarrow}) {
		t.Errorf("cause %+v", c)
	}
	s.hasTerminated(LocalCatastrophic)
}
