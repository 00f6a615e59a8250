package rdmap

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// The region of a fuzzed QP lies in the middle of memory that no access may reach.
const fenceLen = 4096

// besieged is a connected QP with requests of every kind outstanding. CRC is off, so
// that the fuzzer's octets get past MPA.
type besieged struct {
	*script
	whole   []byte // around and with the region
	private []byte // another region, which gives the peer no right
	posted  int
}

func besiege(t testing.TB) *besieged {
	b := &besieged{script: open(t, noCRC, withRFC7306, withDepths(4, 4), withEMSS(300))}
	b.whole = fresh(2*fenceLen + 4096)
	if err := b.table.Deregister(b.all, b.pd); err != nil { // a guess could hit it
		t.Fatal(err)
	}
	mem := b.whole[fenceLen : fenceLen+4096]
	b.all = b.register(tpt.Region{PD: b.pd, Memory: mem, Start: regionStart, Rights: every | tpt.RemoteAtomic})
	var stag tpt.STag
	stag, b.private = b.region(1000, b.pd, tpt.LocalWrite)
	b.receives(work.RecvWR{ID: 0, SGL: []work.SGE{b.at(0, 500)}}, work.RecvWR{ID: 1, SGL: []work.SGE{b.at(600, 10), b.at(700, 90)}}, work.RecvWR{ID: 2})
	b.posts(b.reads(10, 100, 50), b.reads(11, 200, 0), b.reads(12, 300, 5), b.adds(15, 400, 1), work.SendWR{ID: 13, Op: work.WRSend, Flags: work.Fence},
		work.SendWR{ID: 14, Op: work.WRWrite, SGL: []work.SGE{{LKey: stag, Length: 1000}}})
	b.posted = 9
	return b
}

// survives checks three things, whatever has arrived: memory outside of the region is
// unchanged, at most one Terminate has left and nothing behind it, and the connection
// can be ended with each work request completed once.
func (b *besieged) survives() {
	b.Helper()
	terminated := false
	for _, f := range b.st.out {
		if terminated {
			b.Fatalf("sent behind a Terminate: %s", describe(f))
		}
		terminated = wire.Opcode(f[3]&15) == wire.OpTerminate
	}
	if s := b.q.State(); terminated != (s == Terminate && !b.q.Cause().Remote) && !b.ended {
		b.Fatalf("state %v, Terminate sent: %v, cause %+v", s, terminated, b.q.Cause())
	}
	b.finishes()
	b.pass(settleAgain)
	b.pass(lingerTime)
	if !b.ended {
		b.q.Abort()
		b.turn()
	}
	if !b.ended || b.q.State() != Idle && b.q.State() != Errored {
		b.Fatalf("the connection cannot be ended: %v", b.q.State())
	}
	want := fresh(len(b.whole))
	if !bytes.Equal(b.whole[:fenceLen], want[:fenceLen]) || !bytes.Equal(b.whole[fenceLen+4096:], want[fenceLen+4096:]) ||
		!bytes.Equal(b.private, want[:len(b.private)]) {
		b.Fatal("memory outside of what the peer was given has changed")
	}
	b.counted()
}

// counted checks that no work request has completed twice, and that every request which
// must have a completion has one.
func (b *besieged) counted() {
	b.Helper()
	got := make([]work.Completion, 64)
	got = got[:b.cq.Poll(got)]
	seen := map[uint64]bool{}
	for _, c := range got {
		if seen[c.ID] || c.ID > 15 {
			b.Fatalf("completion %+v comes twice, or of nothing", c)
		}
		seen[c.ID] = true
	}
	for _, id := range []uint64{0, 1, 2, 10, 11, 12, 15} {
		if !seen[id] {
			b.Fatalf("work request %d has not completed: %v", id, got)
		}
	}
}

// seeds are ULPDUs of every kind. Their STags are those of besiege, which are the same
// each time.
func (b *besieged) seeds() (all [][]byte) {
	stag := uint32(b.all)
	for _, f := range [][]byte{
		write(stag, regionStart+5, []byte("hello")), tagged(0, false, stag, regionStart+4090, []byte("abcdef")), write(0, 0, nil),
		send(1, []byte("ping")), untagged(wire.OpSendSE, false, 0, 0, 1, 0, []byte("pi")),
		untagged(wire.OpSendInvalidate, true, stag, 0, 1, 0, nil), untagged(wire.OpSendSEInvalidate, true, 0x1234, 0, 1, 0, []byte("x")),
		readRequest(1, 9, 8, 700, stag, regionStart), readRequest(1, 9, 8, 0, 0, 0),
		b.answer(true, 100, pattern(0, 50)), b.answer(false, 100, pattern(0, 20)),
		terminateFPDU(OpStream), terminateFPDU(ProtAccess, b.request(1, 100, 50), b.request(1, 100, 50)[20:48]),
		untagged(wire.OpAtomicRequest, true, 0, 1, 1, 0, make([]byte, 52)),
		atomicRequest(1, 0, 1, stag, regionStart+8, 5, 0, 0, 0), atomicRequest(1, 2, 7, stag, regionStart+16, 1, 2, 3, 4),
		atomicRequest(1, 0, 1, stag, regionStart+4092, 5, 0, 0, 0), atomicResponse(1, 4, 77), atomicResponse(1, 5, 77), immediate(1, false, 9), immediate(1, true, 9),
	} {
		all = append(all, ulpduOf(f))
	}
	return all
}

// FuzzReceive: any octets instead of FPDUs, or any ULPDUs in good ones.
func FuzzReceive(f *testing.F) {
	seeds := besiege(f).seeds()
	for _, u := range seeds {
		f.Add(fpdu(u), []byte(nil), []byte(nil))
		f.Add([]byte(nil), u, []byte(nil))
	}
	for i := range seeds {
		f.Add([]byte(nil), seeds[i], seeds[(i*5+3)%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, raw, first, second []byte) {
		b := besiege(t)
		b.board.Deliver()
		for _, u := range [][]byte{first, second} {
			if len(u) > 0 && len(u) < 1<<16 && !b.ended {
				b.gets(fpdu(u))
			}
		}
		if len(raw) > 0 && !b.ended {
			b.gets(raw)
		}
		b.survives()
	})
}

// FuzzCut: a stream of good messages has the same effect, however it is cut into views,
// with Markers or without.
func FuzzCut(f *testing.F) {
	f.Add([]byte{1}, false)
	f.Add([]byte{1}, true)
	f.Add([]byte{200, 3, 0, 77}, false)
	f.Add([]byte{255, 255, 2}, true)
	f.Fuzz(func(t *testing.T, cuts []byte, markers bool) {
		s := open(t, func(s *setup) { s.agree.ReceiveMarkers = markers })
		stag := uint32(s.all)
		s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 700)}}, work.RecvWR{ID: 2})
		s.posts(s.reads(3, 2000, 600))
		stream := [][]byte{
			write(stag, regionStart+1000, pattern(9, 333)), untagged(wire.OpSend, false, 0, 0, 1, 0, pattern(1, 301)),
			untagged(wire.OpSend, true, 0, 0, 1, 301, pattern(302, 399)), s.answer(false, 2000, pattern(5, 599)), write(9, 9, nil),
			s.answer(true, 2599, pattern(604, 1)), untagged(wire.OpSendSE, true, 0, 0, 2, 0, nil),
		}
		octets := slices.Concat(stream...)
		if markers {
			octets = framed(stream)
		}
		for i := 0; len(octets) > 0; i++ {
			n := len(octets)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			s.gets(octets[:n])
			octets = octets[n:]
		}
		s.completes(received(1, 700), read(3, 600), work.Completion{ID: 2, Op: work.WCRecv, Solicited: true})
		s.untouched(s.mem, 0, pattern(1, 700), 1000, pattern(9, 333), 2000, pattern(5, 600))
		s.is(RTS)
	})
}

// framed returns the stream of FPDUs with Markers, as our Framer makes them.
func framed(stream [][]byte) []byte {
	p := &pipe{emss: 1 << 16, room: -1}
	f := mpa.NewFramer(true, true)
	for _, x := range stream {
		u := ulpduOf(x)
		copy(f.Begin(p, len(u)), u)
		f.End()
	}
	return slices.Concat(p.out...)
}
