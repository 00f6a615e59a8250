package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

const peerSTag = 0x5500

// reads returns a signalled Read of n of the peer's octets to off octets behind the
// region's begin.
func (s *script) reads(id uint64, off, n int) work.SendWR {
	wr := work.SendWR{ID: id, Op: work.WRRead, Flags: work.Signaled, RKey: peerSTag, RemoteAddr: 0x99}
	if n != 0 {
		wr.SGL = []work.SGE{s.at(off, n)}
	}
	return wr
}

// request returns the Read Request that the work request of reads sends.
func (s *script) request(msn uint32, off, n int) []byte {
	return readRequest(msn, uint32(s.all), regionStart+uint64(off), uint32(n), peerSTag, 0x99)
}

// answer returns a segment of the Response to reads, beginning with octet off.
func (s *script) answer(last bool, off int, payload []byte) []byte {
	return tagged(wire.OpReadResponse, last, uint32(s.all), regionStart+uint64(off), payload)
}

func TestRead(t *testing.T) { // RFC 5040 §5.2
	s := open(t)
	s.posts(s.reads(1, 10, 5), work.SendWR{ID: 2, Op: work.WRRead, Flags: work.Signaled, RKey: 77, RemoteAddr: 88}, s.reads(3, 20, 1))
	s.sends(s.request(1, 10, 5), readRequest(2, 0, 0, 0, 77, 88), s.request(3, 20, 1))
	s.gets(s.answer(false, 10, []byte("abc")))
	s.silent()
	s.gets(s.answer(true, 13, []byte("de")))
	s.completes(read(1, 5))
	// The STag and offset of a Response without octets are ignored.
	s.gets(response(0xbad, 0xbad, nil), s.answer(true, 20, []byte("x")))
	s.completes(read(2, 0), read(3, 1))
	s.untouched(s.mem, 10, []byte("abcde"), 20, []byte("x"))
	s.is(RTS)
}

// A request that was posted behind a Read completes behind it, although the request
// left before the Response came.
func TestReadHoldsCompletions(t *testing.T) { // RFC 5040 §5.5
	s := open(t)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled}, s.reads(2, 0, 1), work.SendWR{ID: 3, Op: work.WRWrite, Flags: work.Signaled},
		work.SendWR{ID: 4, Op: work.WRSend}, s.reads(5, 1, 1), work.SendWR{ID: 6, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, nil), s.request(1, 0, 1), write(0, 0, nil), send(2, nil), s.request(2, 1, 1), send(3, nil))
	s.completes(ok(1, work.WCSend))
	s.gets(s.answer(true, 0, []byte("a")))
	s.completes(read(2, 1), ok(3, work.WCWrite))
	s.gets(s.answer(true, 1, []byte("b")))
	s.completes(read(5, 1), ok(6, work.WCSend))
}

func TestUnsignaledRead(t *testing.T) {
	s := open(t)
	wr := s.reads(1, 0, 1)
	wr.Flags = 0
	s.posts(wr, work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled})
	s.sends(s.request(1, 0, 1), send(1, nil))
	s.gets(s.answer(true, 0, []byte("a")))
	s.completes(ok(2, work.WCSend))
}

// A fence holds its request, and all behind it, until the Reads before it have
// completed. Without a fence they leave.
func TestFence(t *testing.T) { // RFC 5040 §5.5
	s := open(t)
	s.posts(s.reads(1, 0, 1), s.reads(2, 1, 1), work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Fence | work.Signaled}, work.SendWR{ID: 4, Op: work.WRWrite})
	s.sends(s.request(1, 0, 1), s.request(2, 1, 1))
	s.gets(s.answer(true, 0, []byte("a")))
	s.sends()
	s.gets(s.answer(false, 1, nil))
	s.sends()
	s.gets(s.answer(true, 1, []byte("b")))
	s.sends(send(1, nil), write(0, 0, nil))
	s.completes(read(1, 1), read(2, 1), ok(3, work.WCSend))
	s.posts(work.SendWR{ID: 5, Op: work.WRSend, Flags: work.Fence}) // nothing to wait for
	s.sends(send(2, nil))
}

// Reads beyond ORD wait, and so does everything posted behind them (RFC 5040 §5.2.1).
func TestORD(t *testing.T) {
	s := open(t, withDepths(2, 0))
	s.posts(s.reads(1, 0, 1), s.reads(2, 1, 1), s.reads(3, 2, 1), work.SendWR{ID: 4, Op: work.WRSend, Flags: work.Signaled}, s.reads(5, 3, 1))
	s.sends(s.request(1, 0, 1), s.request(2, 1, 1))
	s.gets(s.answer(true, 0, []byte("a")))
	s.sends(s.request(3, 2, 1), send(1, nil))
	s.gets(s.answer(true, 1, []byte("b")), s.answer(true, 2, []byte("c")))
	s.sends(s.request(4, 3, 1))
	s.gets(s.answer(true, 3, []byte("d")))
	s.completes(read(1, 1), read(2, 1), read(3, 1), ok(4, work.WCSend), read(5, 1))
}

// The peer reads from us: Responses leave in the order of the Requests, and are
// segmented like any message.
func TestReadResponses(t *testing.T) {
	s := open(t, withEMSS(128)) // 108 octets
	all := uint32(s.all)
	s.gets(
		readRequest(1, 0x1100, 0x10, 250, all, regionStart+7),
		readRequest(2, 0x2200, 1<<64-1, 0, 0xdead, 0xbeef), // an empty one is not checked (RFC 5040 §5.2)
		readRequest(3, 0x3300, 0, 1, all, regionStart+regionLen-1),
	)
	s.sends(
		tagged(wire.OpReadResponse, false, 0x1100, 0x10, pattern(7, 108)),
		tagged(wire.OpReadResponse, false, 0x1100, 0x10+108, pattern(115, 108)),
		tagged(wire.OpReadResponse, true, 0x1100, 0x10+216, pattern(223, 34)),
		response(0x2200, 1<<64-1, nil),
		response(0x3300, 0, pattern(regionLen-1, 1)),
	)
	s.completes()
	s.is(RTS)
}

// A Response shows what the Write and the Send before its Request placed.
func TestReadAfterWrite(t *testing.T) { // RFC 5040 §5.5
	s := open(t)
	all := uint32(s.all)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(2, 2)}})
	s.gets(write(all, regionStart, []byte("ab")), send(1, []byte("cd")), readRequest(1, 1, 0, 4, all, regionStart))
	s.sends(response(1, 0, []byte("abcd")))
	s.completes(received(1, 2))
}

// Responses and work requests take turns, message by message.
func TestTurns(t *testing.T) {
	s := open(t)
	all := uint32(s.all)
	s.st.room = 0
	for i := range uint64(4) {
		s.posts(work.SendWR{ID: i, Op: work.WRSend})
	}
	s.gets(readRequest(1, 1, 0, 1, all, regionStart), readRequest(2, 2, 0, 1, all, regionStart), readRequest(3, 3, 0, 1, all, regionStart))
	s.st.room = -1
	s.turn()
	x := pattern(0, 1)
	// The first Send has been begun, without room, before the Requests came.
	s.sends(send(1, nil), response(1, 0, x), send(2, nil), response(2, 0, x), send(3, nil), response(3, 0, x), send(4, nil))
}

// Responses leave although our own queue is held by a fence.
func TestResponsesPassAFence(t *testing.T) {
	s := open(t)
	s.posts(s.reads(1, 0, 1), work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Fence})
	s.sends(s.request(1, 0, 1))
	s.gets(readRequest(1, 1, 0, 1, uint32(s.all), regionStart))
	s.sends(response(1, 0, pattern(0, 1)))
}

// As many Requests as IRD wait for their answers; one more is refused.
func TestIRD(t *testing.T) { // RFC 5040 §5.2.1, RFC 5041 §7: no buffer on queue 1
	s := open(t, withDepths(0, 2))
	all := uint32(s.all)
	r := func(msn uint32) []byte { return readRequest(msn, msn, 0, 1, all, regionStart) }
	s.gets(r(1), r(2))
	s.sends(response(1, 0, pattern(0, 1)), response(2, 0, pattern(0, 1)))
	s.st.room = 0
	s.gets(r(3), r(4))
	s.silent()
	s.gets(r(5))
	s.st.room = -1
	s.turn()
	s.hasTerminated(Code{1, 2, 2}, r(5))
}

func TestNoReadsAllowed(t *testing.T) {
	s := open(t, withDepths(0, 0))
	r := readRequest(1, 1, 0, 0, 0, 0)
	s.gets(r)
	s.hasTerminated(Code{1, 2, 2}, r)
}

// The source is revoked in the middle of a Response: the Terminate describes the rest
// of the Request (RFC 5040 §4.8).
func TestSourceRevokedWithinResponse(t *testing.T) {
	s := open(t, withEMSS(128))
	src, _ := s.region(300, s.pd, every)
	r := readRequest(1, 0x1100, 0x10, 250, uint32(src), 7)
	s.st.room = 1
	s.gets(r)
	s.sends(tagged(wire.OpReadResponse, false, 0x1100, 0x10, pattern(7, 108)))
	if err := s.table.Invalidate(src, s.pd); err != nil {
		t.Fatal(err)
	}
	s.st.room = -1
	s.turn()
	s.hasTerminated(ProtInvalidSTag, r, readHeader(0x1100, 0x10+108, 250-108, uint32(src), 7+108))
}

// The source is revoked between Request and Response: no part of the Response leaves.
func TestSourceRevokedBeforeResponse(t *testing.T) {
	s := open(t)
	src, _ := s.region(300, s.pd, every)
	r := readRequest(1, 0x1100, 0x10, 250, uint32(src), 7)
	s.st.room = 0
	s.gets(r)
	if err := s.table.Invalidate(src, s.pd); err != nil {
		t.Fatal(err)
	}
	s.st.room = -1
	s.turn()
	s.hasTerminated(ProtInvalidSTag, r, r[20:48])
}

// The sink is revoked before the Response comes: it is not written, and the Read fails
// for a local reason.
func TestSinkRevoked(t *testing.T) {
	s := open(t)
	sink, mem := s.region(8, s.pd, tpt.LocalWrite)
	s.posts(work.SendWR{ID: 1, Op: work.WRRead, SGL: []work.SGE{{LKey: sink, Length: 8}}, RKey: 5}, work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled})
	s.sends(readRequest(1, uint32(sink), 0, 8, 5, 0), send(1, nil))
	if err := s.table.Invalidate(sink, s.pd); err != nil {
		t.Fatal(err)
	}
	a := response(uint32(sink), 0, []byte("12345678"))
	s.gets(a)
	s.completes(failed(1, work.WCRead, work.LocalProtErr), flushed(2, work.WCSend))
	s.hasTerminated(Code{1, 0, 0}) // which quotes nothing (RFC 5040 §4.8)
	s.untouched(mem)
}

// A Response that the Read did not ask for would be a Write to a place that the peer
// chooses.
func TestWrongResponses(t *testing.T) { // RFC 5040 §5.2.2
	five := []byte("abcde")
	for _, c := range []struct {
		name string
		fpdu func(s *script) []byte
		code Code
	}{
		{"wrong STag", func(s *script) []byte { return response(uint32(s.all)+1, regionStart+10, five) }, Code{1, 1, 0}},
		{"wrong offset", func(s *script) []byte { return s.answer(true, 11, five) }, Code{1, 1, 1}},
		{"before the sink", func(s *script) []byte { return s.answer(false, 9, five) }, Code{1, 1, 1}},
		{"too long", func(s *script) []byte { return s.answer(true, 10, []byte("abcdef")) }, Code{1, 1, 1}},
		{"too long, not last", func(s *script) []byte { return s.answer(false, 10, []byte("abcdef")) }, Code{1, 1, 1}},
		{"last too early", func(s *script) []byte { return s.answer(true, 10, five[:4]) }, Code{1, 1, 1}},
		{"nothing at all", func(s *script) []byte { return s.answer(true, 10, nil) }, Code{1, 1, 1}},
		{"last missing", func(s *script) []byte { return s.answer(false, 10, five) }, Code{1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled}, s.reads(2, 10, 5), work.SendWR{ID: 3, Op: work.WRWrite, Flags: work.Signaled}, s.reads(4, 20, 5))
			s.st.out = nil
			f := c.fpdu(s)
			s.gets(f)
			s.completes(ok(1, work.WCSend), failed(2, work.WCRead, work.BadResponseErr), flushed(3, work.WCWrite), flushed(4, work.WCRead))
			s.untouched(s.mem)
			s.hasTerminated(c.code, f)
		})
	}
}

// A Response with octets comes for an empty Read.
func TestResponseToAnEmptyRead(t *testing.T) {
	s := open(t)
	s.posts(s.reads(1, 0, 0))
	s.st.out = nil
	f := response(0, 0, []byte("x"))
	s.gets(f)
	s.completes(failed(1, work.WCRead, work.BadResponseErr))
	s.hasTerminated(Code{1, 1, 1}, f)
}

func TestResponseNobodyAskedFor(t *testing.T) {
	s := open(t)
	s.posts(s.reads(1, 0, 1))
	s.st.out = nil
	s.gets(s.answer(true, 0, []byte("x")))
	s.completes(read(1, 1))
	f := s.answer(true, 0, []byte("y"))
	s.gets(f)
	s.hasTerminated(OpUnexpected, f)
	s.untouched(s.mem, 0, []byte("x"))
}
