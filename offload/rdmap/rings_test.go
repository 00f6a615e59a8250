package rdmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
)

var ne = binary.NativeEndian

// client acts as another process that has a QP's rings mapped: it knows only the layout
// that package work documents.
type client struct {
	send, recv, cq []byte
	sent, posted   uint32 // tails
	polled         [2]uint32
	seen           uint64 // completions
}

const (
	ringDepth, ringSGEs, ringInline = 4, 2, 32

	sendSlot, recvSlot = 64, 48
)

// ringed opens a QP whose rings lie in memory that the client has mapped, too.
func ringed(t testing.TB, changes ...change) (*script, *client) {
	t.Helper()
	c := new(client)
	var ours [3][]byte
	for i, mine := range []*[]byte{&c.send, &c.recv, &c.cq} {
		n := [...]int{work.SendRingLen(ringDepth, ringSGEs, ringInline), work.RecvRingLen(ringDepth, ringSGEs), work.CQRingLen(2 * ringDepth)}[i]
		ours[i], *mine = mapTwice(t, n)
	}
	send, err := work.NewSendRing(ours[0], ringDepth, ringSGEs, ringInline)
	if err != nil {
		t.Fatal(err)
	}
	recv, err := work.NewRecvRing(ours[1], ringDepth, ringSGEs)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, append(changes, func(u *setup) {
		u.SendDepth, u.RecvDepth, u.MaxSGE, u.MaxInline = ringDepth, ringDepth, ringSGEs, ringInline
		u.SendRing, u.RecvRing, u.cqMemory, u.depth = send, recv, ours[2], 2*ringDepth
	})...)
	return s, c
}

func mapTwice(t testing.TB, n int) (one, other []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	var mem [2][]byte
	for i := range mem {
		if mem[i], err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(mem[i]) }) // the process ends anyway
	}
	return mem[0], mem[1]
}

// post fills the next slot of the send ring, if its place is free.
func (c *client) post(wr work.SendWR) bool {
	if silent := uint32(ne.Uint64(c.send[64:]) >> 32); c.sent-silent-c.polled[0] == ringDepth {
		return false
	}
	slot := c.send[192+int(c.sent%ringDepth)*sendSlot:][:sendSlot]
	clear(slot)
	ne.PutUint64(slot, wr.ID)
	ne.PutUint64(slot[8:], wr.RemoteAddr)
	ne.PutUint32(slot[16:], uint32(wr.RKey))
	slot[28], slot[29], slot[30] = byte(wr.Op), byte(wr.Flags), byte(len(wr.SGL))
	if len(wr.Inline) != 0 {
		ne.PutUint32(slot[24:], uint32(len(wr.Inline)))
		slot[31] = 1
		copy(slot[32:], wr.Inline)
	}
	elements(slot[32:], wr.SGL)
	c.sent++
	ne.PutUint32(c.send, c.sent)
	return true
}

// receive fills the next slot of the receive ring, if its place is free.
func (c *client) receive(wr work.RecvWR) bool {
	if c.posted-c.polled[1] == ringDepth {
		return false
	}
	slot := c.recv[192+int(c.posted%ringDepth)*recvSlot:][:recvSlot]
	ne.PutUint64(slot, wr.ID)
	slot[8] = byte(len(wr.SGL))
	elements(slot[16:], wr.SGL)
	c.posted++
	ne.PutUint32(c.recv, c.posted)
	return true
}

func elements(b []byte, sgl []work.SGE) {
	for i, e := range sgl {
		ne.PutUint64(b[16*i:], e.Addr)
		ne.PutUint32(b[16*i+8:], e.Length)
		ne.PutUint32(b[16*i+12:], uint32(e.LKey))
	}
}

// poll takes all completions, and returns the operation and the id of each.
func (c *client) poll() (ops []work.WCOp, ids []uint64) {
	for {
		cell := c.cq[192+int(c.seen%(2*ringDepth))*32:]
		if ne.Uint64(cell) != c.seen+1 {
			return ops, ids
		}
		op := work.WCOp(cell[16])
		if op == work.WCRecv {
			c.polled[1]++
		} else {
			c.polled[0]++
		}
		ops, ids = append(ops, op), append(ids, ne.Uint64(cell[8:]))
		c.seen++
		ne.PutUint64(c.cq, c.seen)
	}
}

// A client that writes octets to its mapping of the rings has the same effect as a
// program that calls methods: requests leave, receives are filled, completions come,
// places become free.
func TestRingsOverTwoMappings(t *testing.T) {
	s, c := ringed(t)
	s.stays = true // its rings are in the memory of another program
	id := uint64(0)
	for round := range uint32(50) {
		var wantOps []work.WCOp
		var wantIDs []uint64
		for range ringDepth {
			id++
			wr := work.SendWR{ID: id, Op: work.WRSend, Flags: work.Signaled, Inline: pattern(int(id), 20)}
			switch id % 3 {
			case 0: // silent: its place is free without a completion
				wr.Flags = 0
			case 1:
				wr = work.SendWR{ID: id, Op: work.WRWrite, Flags: work.Signaled, RemoteAddr: id, RKey: 5, SGL: []work.SGE{s.at(0, 3), s.at(100, 4)}}
			}
			if !c.post(wr) {
				t.Fatalf("round %d: no place for request %d", round, id)
			}
			if wr.Flags&work.Signaled != 0 {
				wantOps, wantIDs = append(wantOps, wr.Op.Completes()), append(wantIDs, id)
			}
		}
		if c.post(work.SendWR{Op: work.WRSend}) {
			t.Fatal("a request more than the queue is deep")
		}
		s.turn()
		if len(s.st.out) != ringDepth {
			t.Fatalf("round %d: %d FPDUs have left", round, len(s.st.out))
		}
		s.st.out = nil
		ops, ids := c.poll()
		if !slices.Equal(ops, wantOps) || !slices.Equal(ids, wantIDs) {
			t.Fatalf("round %d: %v %v, want %v %v", round, ops, ids, wantOps, wantIDs)
		}
		for i := range uint64(ringDepth) {
			if !c.receive(work.RecvWR{ID: 1000 + i, SGL: []work.SGE{s.at(1000, 5), s.at(2000, 5)}}) {
				t.Fatalf("round %d: no place for a receive", round)
			}
		}
		if c.receive(work.RecvWR{}) {
			t.Fatal("a receive more than the queue is deep")
		}
		for i := range uint32(ringDepth) {
			s.gets(send(round*ringDepth+i+1, []byte("0123456789")))
		}
		if got := string(s.mem[1000:1005]) + string(s.mem[2000:2005]); got != "0123456789" {
			t.Fatalf("round %d: received %q", round, got)
		}
		if _, ids = c.poll(); !slices.Equal(ids, []uint64{1000, 1001, 1002, 1003}) {
			t.Fatalf("round %d: receives %v", round, ids)
		}
	}
	s.is(RTS)
}

// A poster may move its tail back while its receives are flushed. Here it moves back
// with the third completion: the receive ring's tail lies in that completion's cell. The
// receives that are still posted are flushed, and nothing crashes.
func TestReceivesTakenBackDuringAFlush(t *testing.T) {
	const tailAt = 192 + 2*32
	mem, other := mapTwice(t, tailAt+work.RecvRingLen(ringDepth, ringSGEs))
	recv, err := work.NewRecvRing(mem[tailAt:], ringDepth, ringSGEs)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, func(u *setup) {
		u.RecvDepth, u.MaxSGE, u.RecvRing = ringDepth, ringSGEs, recv
		u.cqMemory, u.depth = mem[:work.CQRingLen(2*ringDepth)], 2*ringDepth
	})
	c := &client{recv: other[tailAt:]}
	for i := range uint64(ringDepth) {
		c.receive(work.RecvWR{ID: i})
	}
	s.fault(stream.ErrReset)
	s.completes(flushed(0, work.WCRecv), flushed(1, work.WCRecv), flushed(2, work.WCRecv))
}

// A Read that a client posts on a connection without Reads fails. It does not hold back
// the requests behind it, and the QP ends.
func TestReadOverRingWithoutReads(t *testing.T) {
	s, c := ringed(t, withDepths(0, 4))
	c.post(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	c.post(s.reads(2, 0, 8))
	c.post(work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled})
	s.turn()
	s.sends(send(1, nil), terminateFPDU(LocalCatastrophic))
	s.completes(ok(1, work.WCSend), failed(2, work.WCRead, work.LocalQPOpErr), flushed(3, work.WCSend))
	s.is(Terminate)
	if err := s.q.Cause().Err; !errors.Is(err, ErrNoReads) {
		t.Errorf("cause %v", err)
	}
}

// FuzzScribbledRings: whatever a client writes to its rings, no step hangs or panics, also
// while a message waits for a receive; memory that the QP may not use stays unchanged, and another QP of the same table
// works. The client's own QP ends or continues.
func FuzzScribbledRings(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 1})                               // one request, of zeros
	f.Add([]byte{0, 0, 0, 200})                             // a tail beyond the depth
	f.Add([]byte{0, 0, 220, 3, 0, 0, 222, 9, 0, 0, 0, 1})   // an unknown operation, nine elements
	f.Add([]byte{0, 0, 223, 1, 0, 0, 219, 99, 0, 0, 0, 1})  // inline data longer than a slot
	f.Add([]byte{1, 0, 200, 99, 1, 0, 0, 1, 3, 0, 0, 0})    // a receive of 99 elements meets a Send
	f.Add([]byte{2, 0, 0, 99, 0, 0, 0, 4, 2, 0, 192, 7})    // the poller stores an impossible head
	f.Add([]byte{1, 0, 0, 4, 3, 0, 0, 0, 1, 0, 0, 0, 3, 0}) // receives are taken back
	f.Fuzz(func(t *testing.T, script []byte) {
		s, c := ringed(t, withHold(HoldForever), withShortImm)
		foreign, mem := s.region(100, s.other, every)
		elements(c.send[192+32:], []work.SGE{{Length: 100, LKey: foreign}})
		elements(c.recv[192+16:], []work.SGE{{Length: 100, LKey: foreign}})
		other := open(t, func(u *setup) { u.beside = s })
		msn := uint32(1)
		for len(script) >= 4 && !s.ended && s.q.State() <= Closing {
			kind, at, v := script[0]%4, int(script[1])<<8|int(script[2]), script[3]
			script = script[4:]
			switch rings := [][]byte{c.send, c.recv, c.cq}; kind {
			case 3:
				s.gets(send(msn, []byte("a Send of the peer")))
				msn++
			default:
				rings[kind][at%len(rings[kind])] = v
				s.turn()
			}
			s.st.out = nil
		}
		if !bytes.Equal(mem, fresh(len(mem))) {
			t.Error("memory of another protection domain has changed")
		}
		if !s.ended {
			s.fault(stream.ErrReset)
		}
		other.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled, SGL: []work.SGE{other.at(0, 3)}})
		other.receives(work.RecvWR{ID: 2, SGL: []work.SGE{other.at(8, 3)}})
		other.gets(send(1, []byte("abc")))
		other.sends(send(1, fresh(3)))
		other.completes(ok(1, work.WCSend), received(2, 3))
	})
}

// FuzzScribbledSharedRing: whatever a client writes to the ring of an SRQ, no step of its QPs
// hangs or panics, also while messages wait for receives. Memory that the QPs may not use stays
// unchanged, and a QP of the same table that does not use the SRQ works.
func FuzzScribbledSharedRing(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1})                         // two QPs wait, and one receive comes
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 200, 3, 0, 0, 0})                       // a tail beyond the depth
	f.Add([]byte{0, 0, 200, 99, 0, 0, 0, 1, 2, 0, 0, 0})                      // 99 elements
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0}) // receives are taken back
	f.Add([]byte{2, 0, 0, 0, 0, 0, 72, 0, 0, 0, 0, 1, 1, 0, 0, 0})            // the word waits is cleared
	f.Fuzz(func(t *testing.T, input []byte) {
		ours, theirs := mapTwice(t, work.RecvRingLen(ringDepth, ringSGEs))
		ring, err := work.NewRecvRing(ours, ringDepth, ringSGEs)
		if err != nil {
			t.Fatal(err)
		}
		p := &pool{script: open(t)}
		p.Low.Fire = func() {}
		p.Init(ring, ringDepth, ringSGEs, p.board)
		foreign, mem := p.region(100, p.other, every)
		elements(theirs[192+16:], []work.SGE{{Length: 100, LKey: foreign}})
		var users [2]*script
		for i := range users {
			users[i], _ = p.joins(withHold(HoldForever))
		}
		var msn [2]uint32
		for ; len(input) >= 4; input = input[4:] {
			at, v := int(input[1])<<8|int(input[2]), input[3]
			switch kind := input[0] % 4; kind {
			case 0:
				theirs[at%len(theirs)] = v
			case 1: // whoever hears of a post wakes those that wait
				p.TakeWaits()
				for _, s := range users {
					if s.q.Holding() != clock.Never {
						s.turn()
					}
				}
			default:
				if s := users[kind-2]; !s.ended && s.q.State() <= Closing {
					msn[kind-2]++
					s.gets(send(msn[kind-2], []byte("a Send of the peer")))
				}
			}
			for _, s := range users {
				s.st.out = nil
			}
		}
		if !bytes.Equal(mem, fresh(len(mem))) {
			t.Error("memory of another protection domain has changed")
		}
		for _, s := range users {
			if !s.ended {
				s.fault(stream.ErrReset)
			}
			s.holds(clock.Never)
		}
		p.receives(work.RecvWR{ID: 2, SGL: []work.SGE{p.at(8, 3)}})
		p.gets(send(1, []byte("abc")))
		p.completes(received(2, 3))
	})
}
