package flow

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// TestTargetMemory: without memory commands wait, and none is BUSY. Unsolicited data that
// arrives in the meantime is asked for by R2T, and the commands are served in their order.
func TestTargetMemory(t *testing.T) {
	for _, digest := range []bool{false, true} {
		p := usualTarget()
		p.InitialR2T, p.Digests.Data = false, digest
		s := serve(t, p, false)
		taken := [][]byte{s.pool.Take(2 << 20), s.pool.Take(2 << 20)}
		want := pattern(2048, 1)
		unasked := s.pdu(pdu.OpDataOut, 5, func(h *pdu.Header) {
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetBufferOffset(512)
		}, want[512:1024])
		for _, b := range [][]byte{
			s.write(1, 0, 1, want[:512]), s.write(2, 1, 1, nil), s.command(3, cdb10(0x28, 9, 1), pdu.Final|pdu.Read, 512, nil),
			s.command(4, []byte{0x12, 0, 0, 0, 255, 0}, pdu.Final|pdu.Read, 255, nil),
			s.command(5, cdb10(0x2a, 4, 4), pdu.Write, 2048, want[:512]), unasked,
			s.command(6, cdb10(0x2e, 0, 1), pdu.Final|pdu.Write, 512, want[:512]), // WRITE AND VERIFY needs a worker
		} {
			if got := s.hears(b); len(got) != 0 {
				t.Fatalf("sent %v without memory", opcodes(got))
			}
		}
		if !s.ulp.Deadline().Due(1 + 2_000_000) {
			t.Error("nobody looks for memory again")
		}
		for _, b := range taken {
			s.pool.Give(b)
		}
		var order []pdu.Tag
		for got := s.hears(); len(got) != 0; {
			next := [][]byte{}
			for _, x := range got {
				switch h := x.h; {
				case h.Opcode() == pdu.OpR2T:
					if h.BufferOffset() != 0 {
						t.Fatalf("asked for octets from %d on", h.BufferOffset())
					}
					next = append(next, s.dataOut(&h, 0, 0, true, want[:h.DesiredLength()]))
				case h.Opcode() == pdu.OpReject || h.Status() != 0:
					t.Fatalf("%x % x", h, x.data)
				default:
					order = append(order, h.InitiatorTaskTag())
				}
			}
			if got = nil; len(next) != 0 {
				got = s.hears(next...)
			}
		}
		if len(order) != 6 || !bytes.Equal(s.blocks(0, 1), want[:512]) || !bytes.Equal(s.blocks(1, 1), want[:512]) || !bytes.Equal(s.blocks(4, 4), want) {
			t.Errorf("answers to %v, or other octets on the disk", order)
		}
		s.idle()
	}
}

// TestTargetAbortWithoutMemory: the abort of a command that waits for memory does not wait
// for memory.
func TestTargetAbortWithoutMemory(t *testing.T) {
	s := serve(t, usualTarget(), false)
	all := s.pool.Take(4 << 20)
	s.hears(s.write(1, 0, 1, nil), s.write(2, 0, 1, nil))
	got := s.one(s.hears(s.pdu(pdu.OpTask, 9, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetFunction(pdu.AbortTask)
		h.SetReferencedTaskTag(2)
	}, nil)), pdu.OpTaskResponse)
	if got.h.Response() != pdu.FunctionComplete {
		t.Errorf("%x", got.h)
	}
	s.pool.Give(all)
	if h := s.one(s.hears(), pdu.OpR2T).h; h.InitiatorTaskTag() != 1 {
		t.Errorf("an R2T for command %d", h.InitiatorTaskTag())
	}
}

// TestGreedySession: a session with as many large commands as it may have, over a backend
// that does nothing, leaves memory for the others. When the backend goes on, all of its
// commands are served, in their order.
func TestGreedySession(t *testing.T) {
	pool := NewPool(make([]byte, 4<<20))
	greedy := serveFrom(t, usualTarget(), false, pool)
	greedy.lazy = true
	modest := make([]*server, 3)
	for i := range modest {
		modest[i] = serveFrom(t, usualTarget(), false, pool)
	}
	const large = 512 << 10 / 512
	for i := range serverWindow {
		if got := greedy.hears(greedy.command(pdu.Tag(i), cdb10(0x28, i, large), pdu.Final|pdu.Read, large*512, nil)); len(got) != 0 {
			t.Fatalf("sent %v", opcodes(got))
		}
	}
	for round := range 20 {
		for i, m := range modest {
			if got := m.hears(m.command(pdu.Tag(i), cdb10(0x28, 0, 128), pdu.Final|pdu.Read, 64<<10, nil)); len(got) == 0 {
				t.Fatalf("round %d: session %d gets nothing: %d of %d octets are free", round, i, pool.Free(), pool.Size())
			}
			want := pattern(8192, byte(round))
			h := m.one(m.hears(m.write(7, 8, 16, want[:4096])), pdu.OpR2T).h
			m.status(m.hears(m.dataOut(&h, 0, 4096, true, want[4096:])), unit.Good, 0)
		}
	}
	var order []pdu.Tag
	for len(order) != serverWindow {
		greedy.work()
		for _, x := range greedy.hears() {
			if x.h.Has(pdu.StatusPresent) {
				order = append(order, x.h.InitiatorTaskTag())
			}
		}
	}
	for i, tag := range order {
		if tag != pdu.Tag(i) {
			t.Fatalf("served in the order %v", order)
		}
	}
	for _, s := range append(modest, greedy) {
		s.idle()
	}
}

// TestShare: the limits of one session alone, and of several.
func TestShare(t *testing.T) {
	pool := NewPool(make([]byte, 4<<20))
	a := pool.Join()
	all := a.Take(4 << 20)
	if all == nil {
		t.Fatal("one session alone does not get the whole pool")
	}
	a.Give(all)
	b, c := pool.Join(), pool.Join()
	if all = b.Take(4 << 20); all == nil {
		t.Fatal("a session that holds nothing does not get a buffer of the size of the pool")
	}
	if c.Take(1) != nil {
		t.Fatal("more than there is")
	}
	b.Give(all)
	var mine [][]byte
	for x := a.Take(64 << 10); x != nil; x = a.Take(64 << 10) {
		mine = append(mine, x)
	}
	if n := len(mine) * 64 << 10; n != 2<<20 {
		t.Errorf("one of three sessions holds %d octets, want half of the pool", n)
	}
	for _, x := range mine {
		a.Give(x)
	}
	b.Leave()
	c.Leave()
	if all = a.Take(2 << 20); all == nil || a.Take(2<<20) == nil {
		t.Error("the others have left, and have their part still")
	}
}

// TestSharesAtOnce: shares of several goroutines. Nobody holds more than its limit, and all
// comes back.
func TestSharesAtOnce(t *testing.T) {
	pool := NewPool(make([]byte, 4<<20))
	var all sync.WaitGroup
	var served atomic.Int64
	for g := range 4 {
		s := pool.Join()
		all.Go(func() {
			defer s.Leave()
			var mine [][]byte
			for i := range 5000 {
				if x := s.Take(4096 << ((i + g) % 6)); x != nil {
					mine = append(mine, x)
					served.Add(1)
				}
				if len(mine) > 8*(g+1) {
					s.Give(mine[0])
					mine = mine[1:]
				}
			}
			for _, x := range mine {
				s.Give(x)
			}
			if s.held.Load() != 0 {
				t.Errorf("holds %d units", s.held.Load())
			}
		})
	}
	all.Wait()
	if pool.Free() != pool.Size() || served.Load() == 0 {
		t.Errorf("%d of %d octets are free", pool.Free(), pool.Size())
	}
}

// serveFrom is serve with a pool that other servers have too.
func serveFrom(t tester, p login.Params, lends bool, pool *Pool) *server {
	s := serve(t, p, lends)
	s.tgt.share.Leave()
	s.pool = pool
	s.tgt.share = pool.Join()
	return s
}
