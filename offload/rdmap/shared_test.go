package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// pool is a queue of receives that several QPs share. The memory of the receives is the
// region all of the script, which is in another PD than the QPs of joins.
type pool struct {
	*script
	work.SharedQueue
}

func newPool(t testing.TB, depth int) *pool {
	p := &pool{script: open(t)}
	p.Low.Fire = func() {}
	p.Init(nil, depth, 4, p.board)
	return p
}

// joins opens a QP that takes from the pool. news counts how often the QP has raised
// News since.
func (p *pool) joins(changes ...change) (s *script, news *int) {
	p.Helper()
	news = new(int)
	s = open(p, append(changes, func(u *setup) { u.beside, u.Shared, u.RecvPD = p.script, &p.SharedQueue, p.pd })...)
	s.board.Deliver()
	s.q.News.Fire = func() { *news++ }
	return s, news
}

func (p *pool) posts(wrs ...work.RecvWR) {
	p.Helper()
	if n := p.Post(wrs); n != len(wrs) {
		p.Fatalf("%d of %d receives were taken", n, len(wrs))
	}
}

// left checks how many receives no QP has taken.
func (p *pool) left(want int) {
	p.Helper()
	if got := p.Len(); got != want {
		p.Fatalf("%d receives are left, want %d", got, want)
	}
}

// Each QP takes the oldest receive when the first segment of a Send arrives. Messages of
// several QPs arrive at the same time and complete in any order.
func TestSharedReceives(t *testing.T) {
	p := newPool(t, 4)
	x, _ := p.joins()
	y, _ := p.joins()
	p.posts(work.RecvWR{ID: 1, SGL: []work.SGE{p.at(0, 3), p.at(10, 3)}}, work.RecvWR{ID: 2, SGL: []work.SGE{p.at(20, 9)}}, work.RecvWR{ID: 3})
	x.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")))
	y.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("wx")))
	p.left(1)
	y.gets(untagged(wire.OpSend, true, 0, 0, 1, 2, []byte("yz")), send(2, nil))
	y.completes(received(2, 4), received(3, 0))
	x.gets(untagged(wire.OpSend, true, 0, 0, 1, 2, []byte("cd")))
	x.completes(received(1, 4))
	p.untouched(p.mem, 0, []byte("abc"), 10, []byte("d"), 20, []byte("wxyz"))
	p.left(0)
	if x.q.PostRecv(work.RecvWR{}) != 0 {
		t.Error("the QP has a receive queue of its own")
	}
	x.silent()
	y.silent()
}

// A Send that finds no receive ends its own connection, as with a queue of the QP (RFC
// 5041 §7: iWARP knows no receiver-not-ready). A message that has a receive needs no other.
func TestNoSharedReceive(t *testing.T) {
	p := newPool(t, 4)
	x, _ := p.joins()
	y, _ := p.joins()
	p.posts(work.RecvWR{ID: 1, SGL: []work.SGE{p.at(0, 9)}})
	x.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")))
	late := send(1, []byte("late"))
	y.gets(late)
	y.hasTerminated(ddpCode(ddp.NoBuffer), late)
	y.completes()
	x.gets(untagged(wire.OpSend, true, 0, 0, 1, 2, []byte("cd")))
	x.completes(received(1, 4))
	x.silent()
}

// However a QP ends, receives that other QPs can take stay posted. The receive in which a
// message was arriving is flushed. The QP says once that it was the last one.
func TestSharedQPEnds(t *testing.T) {
	for name, end := range map[string]func(*script){
		"reset":       func(s *script) { s.fault(stream.ErrReset) },
		"Terminate":   func(s *script) { s.gets(terminateFPDU(LocalCatastrophic)) },
		"bad segment": func(s *script) { s.gets(send(9, nil)) },
		"abort":       func(s *script) { s.q.Abort(); s.turn() },
		"truncation":  func(s *script) { s.finishes() },
		"CQ overrun":  func(s *script) { s.q.Overrun(); s.turn() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, 4)
			x, news := p.joins()
			y, others := p.joins()
			p.posts(work.RecvWR{ID: 1, SGL: []work.SGE{p.at(0, 9)}}, work.RecvWR{ID: 2}, work.RecvWR{ID: 3})
			x.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")))
			if p.left(2); x.q.Sated() {
				t.Fatal("the QP has had its last receive before its end")
			}
			end(x)
			if x.board.Deliver(); !x.q.Sated() || *news == 0 {
				t.Fatalf("last receive: %v, News: %d", x.q.Sated(), *news)
			}
			x.completes(flushed(1, work.WCRecv))
			p.left(2)
			y.gets(send(1, nil), send(2, nil))
			y.completes(received(2, 0), received(3, 0))
			y.silent()
			if y.board.Deliver(); y.q.Sated() || *others != 0 {
				t.Errorf("another QP: last receive: %v, News: %d", y.q.Sated(), *others)
			}
		})
	}
}

// A QP that is closed in good order takes its last receive before the peer's FIN.
func TestSharedQPCloses(t *testing.T) {
	p := newPool(t, 4)
	x, _ := p.joins()
	p.posts(work.RecvWR{ID: 1}, work.RecvWR{ID: 2})
	x.q.Disconnect()
	x.turn()
	x.gets(send(1, nil))
	if x.q.Sated() {
		t.Fatal("the peer can still send, and the QP has had its last receive")
	}
	x.finishes()
	x.completes(received(1, 0))
	if x.is(Idle); !x.q.Sated() {
		t.Error("the QP has not had its last receive")
	}
	p.left(1)
}

// A QP that was never connected has had its last receive when it is destroyed.
func TestSharedQPKilled(t *testing.T) {
	p := newPool(t, 2)
	p.posts(work.RecvWR{ID: 1})
	q := New(Config{Board: p.board, SendCQ: p.cq, RecvCQ: p.cq, SendDepth: 1, MaxSGE: 1, Shared: &p.SharedQueue, RecvPD: p.pd})
	q.News.Fire = func() {}
	q.Kill(ErrPeerClosed)
	if p.left(1); !q.Sated() || !q.Dead() {
		t.Error("the QP is not at its end")
	}
}

// The memory of a shared receive must be of the queue's PD, not of the QP's. A receive
// that does not fit its message fails, and ends the connection of the QP that took it.
func TestSharedReceiveFails(t *testing.T) {
	p := newPool(t, 4)
	x, _ := p.joins()
	p.posts(work.RecvWR{ID: 1, SGL: []work.SGE{x.at(0, 9)}})
	x.gets(send(1, []byte("abc")))
	x.hasTerminated(ddpCode(ddp.LocalFault))
	x.completes(failed(1, work.WCRecv, work.LocalProtErr))
	x.untouched(x.mem)
	y, _ := p.joins()
	p.posts(work.RecvWR{ID: 2, SGL: []work.SGE{p.at(0, 2)}}, work.RecvWR{ID: 3, SGL: []work.SGE{p.at(0, 2)}})
	long := send(1, []byte("abc"))
	y.gets(long)
	y.hasTerminated(ddpCode(ddp.TooLong), long)
	y.completes(failed(2, work.WCRecv, work.LocalLengthErr))
	p.left(1)
}

// Steps of a QP with a shared queue allocate nothing.
func TestSharedAllocatesNothing(t *testing.T) {
	p := newPool(t, 4)
	x, _ := p.joins()
	f := send(1, pattern(0, 1000))
	msn, got := uint32(0), x.arrival(f)
	wrs := []work.RecvWR{{SGL: []work.SGE{p.at(0, 500), p.at(500, 500)}}}
	run := func() {
		p.Post(wrs)
		msn++
		renumber(f, msn)
		got()
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
