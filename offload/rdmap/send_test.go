package rdmap

import (
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Segments of a message fill their FPDUs: MULPDU is EMSS - 6 - EMSS mod 4
// (RFC 5044 §4.5), the payload of a segment 14 or 18 octets less.
func TestSegmentationOfWrites(t *testing.T) { // RFC 5041 §5.1
	for _, emss := range []int{1460, 1448, 1461, 1463, 536, 128} {
		room := emss - 6 - emss%4 - 14
		for _, n := range []int{0, 1, room - 1, room, room + 1, 2 * room, 2*room + 1, 3*room - 1} {
			t.Run(fmt.Sprintf("%d-%d", emss, n), func(t *testing.T) {
				s := open(t, withEMSS(emss))
				s.posts(work.SendWR{ID: 1, Op: work.WRWrite, Flags: work.Signaled, SGL: []work.SGE{s.at(100, n)}, RKey: 0xabc, RemoteAddr: 5})
				var want [][]byte
				for at := 0; at == 0 || at < n; at += room {
					k := min(room, n-at)
					want = append(want, tagged(wire.OpWrite, at+k == n, 0xabc, uint64(5+at), pattern(100+at, k)))
				}
				s.sends(want...)
				s.completes(ok(1, work.WCWrite))
			})
		}
	}
}

func TestSegmentationOfSends(t *testing.T) {
	for _, emss := range []int{1460, 1448, 137} {
		room := emss - 6 - emss%4 - 18
		for _, n := range []int{0, 1, room - 1, room, room + 1, 2 * room, 2*room + 1} {
			t.Run(fmt.Sprintf("%d-%d", emss, n), func(t *testing.T) {
				s := open(t, withEMSS(emss))
				s.posts(work.SendWR{ID: 1, Op: work.WRSendInvalidate, Flags: work.Signaled | work.Solicited, SGL: []work.SGE{s.at(3, n)}, Invalidate: 0x77})
				var want [][]byte
				for at := 0; at == 0 || at < n; at += room {
					k := min(room, n-at)
					want = append(want, untagged(wire.OpSendSEInvalidate, at+k == n, 0x77, 0, 1, uint32(at), pattern(3+at, k)))
				}
				s.sends(want...)
				s.completes(ok(1, work.WCSend))
			})
		}
	}
}

// The segment size may change between the segments of a message.
func TestEMSSChangesWithinMessage(t *testing.T) {
	s := open(t, withEMSS(200))
	s.st.room = 1
	s.posts(work.SendWR{ID: 1, Op: work.WRWrite, SGL: []work.SGE{s.at(0, 300)}, RKey: 1})
	s.sends(tagged(wire.OpWrite, false, 1, 0, pattern(0, 180)))
	s.st.emss, s.st.room = 120, 1
	s.turn()
	s.sends(tagged(wire.OpWrite, false, 1, 180, pattern(180, 100)))
	s.st.emss, s.st.room = 1460, 1
	s.turn()
	s.sends(tagged(wire.OpWrite, true, 1, 280, pattern(280, 20)))
	s.completes()
}

// Messages leave in the order of posting, numbered by queue (RFC 5041 §4.3).
func TestEverySend(t *testing.T) {
	s := open(t)
	s.posts(
		work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled, Inline: []byte("a")},
		work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled | work.Solicited, Inline: []byte("b")},
		work.SendWR{ID: 3, Op: work.WRWrite, Flags: work.Signaled, Inline: []byte("c"), RKey: 9, RemoteAddr: 1 << 63},
		work.SendWR{ID: 4, Op: work.WRSendInvalidate, Flags: work.Signaled, Inline: []byte("d"), Invalidate: 0x1001},
		work.SendWR{ID: 5, Op: work.WRSendInvalidate, Flags: work.Signaled | work.Solicited, Invalidate: 0x1002},
	)
	s.sends(
		untagged(wire.OpSend, true, 0, 0, 1, 0, []byte("a")),
		untagged(wire.OpSendSE, true, 0, 0, 2, 0, []byte("b")),
		tagged(wire.OpWrite, true, 9, 1<<63, []byte("c")),
		untagged(wire.OpSendInvalidate, true, 0x1001, 0, 3, 0, []byte("d")),
		untagged(wire.OpSendSEInvalidate, true, 0x1002, 0, 4, 0, nil),
	)
	s.completes(ok(1, work.WCSend), ok(2, work.WCSend), ok(3, work.WCWrite), ok(4, work.WCSend), ok(5, work.WCSend))
	s.is(RTS)
}

// A list is gathered across its elements, empty ones included. Segments end at their
// limit, not at the ends of elements.
func TestGather(t *testing.T) {
	s := open(t, withEMSS(128)) // 104 octets in a segment of a Send
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, SGL: []work.SGE{s.at(500, 100), {Addr: 1, LKey: 2}, s.at(10, 7), s.at(4000, 103)}})
	all := append(append(pattern(500, 100), pattern(10, 7)...), pattern(4000, 103)...)
	s.sends(
		untagged(wire.OpSend, false, 0, 0, 1, 0, all[:104]),
		untagged(wire.OpSend, false, 0, 0, 1, 104, all[104:208]),
		untagged(wire.OpSend, true, 0, 0, 1, 208, all[208:]),
	)
}

// The poster may reuse inline octets as soon as PostSend returns.
func TestInlineIsCopied(t *testing.T) {
	s := open(t)
	s.st.room = 0
	b := []byte("mine")
	s.posts(work.SendWR{Op: work.WRSend, Inline: b})
	copy(b, "gone")
	s.st.room = -1
	s.turn()
	s.sends(send(1, []byte("mine")))
}

// Without room no octet is lost, and none is sent twice.
func TestNoRoom(t *testing.T) {
	s := open(t, withEMSS(128))
	s.st.room = 0
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 250)}}, work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled})
	s.silent()
	for _, want := range [][]byte{
		untagged(wire.OpSend, false, 0, 0, 1, 0, pattern(0, 104)),
		untagged(wire.OpSend, false, 0, 0, 1, 104, pattern(104, 104)),
		untagged(wire.OpSend, true, 0, 0, 1, 208, pattern(208, 42)),
	} {
		s.completes()
		s.st.room = 1
		s.turn()
		s.sends(want)
	}
	s.completes(ok(1, work.WCSend))
	s.st.room = 1
	s.turn()
	s.sends(send(2, nil))
	s.completes(ok(2, work.WCSend))
}

// A successful request has a completion only when it is signalled.
func TestUnsignaled(t *testing.T) {
	s := open(t)
	for round := range uint32(40) { // more than the queue holds
		s.posts(work.SendWR{ID: 1, Op: work.WRSend})
		s.sends(send(round+1, nil))
	}
	s.completes()
	if !s.q.Drained() {
		t.Error("the send queue is not empty")
	}
}

// A local element that may not be used ends the connection: the request completes in
// error, no part of the message leaves, and the peer learns only 0/0/ff.
func TestLocalFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		sge  func(s *script) work.SGE
		op   work.WROp
		want work.Status
	}{
		{"unknown key", func(*script) work.SGE { return work.SGE{LKey: 0x12300, Length: 1} }, work.WRSend, work.LocalProtErr},
		{"entry 0", func(*script) work.SGE { return work.SGE{LKey: 5, Length: 1} }, work.WRSend, work.LocalProtErr},
		{"wrong key octet", func(s *script) work.SGE { e := s.at(0, 1); e.LKey ^= 1; return e }, work.WRWrite, work.LocalProtErr},
		{"other PD", func(s *script) work.SGE { r, _ := s.region(8, s.other, every); return work.SGE{LKey: r, Length: 1} }, work.WRSend, work.LocalProtErr},
		{"before the region", func(s *script) work.SGE { return work.SGE{Addr: regionStart - 1, LKey: s.all, Length: 2} }, work.WRSend, work.LocalProtErr},
		{"beyond the region", func(s *script) work.SGE { return s.at(regionLen-3, 4) }, work.WRWrite, work.LocalProtErr},
		{"wraps", func(s *script) work.SGE { return work.SGE{Addr: 1<<64 - 1, LKey: s.all, Length: 2} }, work.WRWrite, work.LocalProtErr},
		{"read sink without local write", func(s *script) work.SGE {
			r, _ := s.region(8, s.pd, tpt.RemoteRead)
			return work.SGE{LKey: r, Length: 8}
		}, work.WRRead, work.LocalAccessErr},
		{"read sink beyond", func(s *script) work.SGE { return s.at(regionLen, 1) }, work.WRRead, work.LocalProtErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			op := map[work.WROp]work.WCOp{work.WRSend: work.WCSend, work.WRWrite: work.WCWrite, work.WRRead: work.WCRead}[c.op]
			s.receives(work.RecvWR{ID: 9})
			sgl := []work.SGE{s.at(0, 4), c.sge(s)}
			if c.op == work.WRRead {
				sgl = sgl[1:]
			}
			s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled}, work.SendWR{ID: 2, Op: c.op, SGL: sgl}, work.SendWR{ID: 3, Op: work.WRSend})
			s.sends(send(1, nil), terminateFPDU(LocalCatastrophic))
			s.completes(ok(1, work.WCSend), failed(2, op, c.want), flushed(3, work.WCSend), flushed(9, work.WCRecv))
			if c := s.q.Cause(); c != (Cause{Code: LocalCatastrophic, Err: ErrLocalAccess}) {
				t.Errorf("cause %+v", c)
			}
			s.deafAfter(LocalCatastrophic)
			s.untouched(s.mem)
		})
	}
}

// A region is revoked while its message is being sent: the rest of it is not read.
func TestSourceRevokedWithinSend(t *testing.T) {
	s := open(t, withEMSS(128))
	r, _ := s.region(300, s.pd, 0)
	s.st.room = 1
	s.posts(work.SendWR{ID: 1, Op: work.WRWrite, SGL: []work.SGE{{LKey: r, Length: 300}}, RKey: 5})
	s.sends(tagged(wire.OpWrite, false, 5, 0, pattern(0, 108)))
	if err := s.table.Invalidate(r, s.pd); err != nil {
		t.Fatal(err)
	}
	s.st.room = -1
	s.turn()
	s.sends(terminateFPDU(LocalCatastrophic))
	s.completes(failed(1, work.WCWrite, work.LocalProtErr))
	s.deafAfter(LocalCatastrophic)
}

// A long message begins in the room that the previous message has left in its TCP
// segment, if that room is at least an eighth of a segment. A message that fits a
// segment of its own does not.
func TestLongMessageFillsSegment(t *testing.T) {
	for _, c := range []struct {
		left, n int
		lengths []int // of the payloads
	}{
		{left: 100, n: 300, lengths: []int{80, 180, 40}},
		{left: 101, n: 300, lengths: []int{80, 180, 40}}, // an FPDU is a multiple of 4
		{left: 28, n: 300, lengths: []int{180, 120}},
		{left: 100, n: 180, lengths: []int{180}},
		{left: 200, n: 300, lengths: []int{180, 120}},
	} {
		s := open(t, withEMSS(200))
		s.st.left = c.left
		s.posts(work.SendWR{ID: 1, Op: work.WRWrite, Flags: work.Signaled, SGL: []work.SGE{s.at(0, c.n)}, RKey: 1})
		var want [][]byte
		at := 0
		for _, n := range c.lengths {
			want = append(want, tagged(wire.OpWrite, at+n == c.n, 1, uint64(at), pattern(at, n)))
			at += n
		}
		s.sends(want...)
		s.completes(ok(1, work.WCWrite))
	}
}

// A Read Request is one segment, however much room the previous message has left.
func TestReadRequestIsNotCutToFill(t *testing.T) {
	s := open(t, withEMSS(200))
	s.st.left = 40
	s.posts(work.SendWR{ID: 1, Op: work.WRRead, SGL: []work.SGE{s.at(0, 8)}, RKey: 3, RemoteAddr: 9})
	s.sends(readRequest(1, uint32(s.all), regionStart, 8, 3, 9))
}
