package e2e

import (
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
)

// TestFlowMovedUnderFire moves a connection 20 times between the engines of two queues while it sends and receives
// without pause. The peer's segments arrive at one queue and then at the other. The peer is the kernel's TCP. Every
// octet is right in both directions, both ends close normally, and the counters have continued.
func TestFlowMovedUnderFire(t *testing.T) {
	t.Parallel()
	const volume, moves = 192 << 20, 20
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{pair: pair.Config{Queues: 2}})
			our, peer := r.connect(w)
			x := r.transferOn(our, peer, volume)
			for i := range uint64(moves) {
				x.reach((i + 1) * (volume / (2 * moves))) // half of the octets come after the last move, which may be late
				if i%5 == 0 {
					r.steerTo(theirs, int(i/5)%2)
				}
				to := 1 - queue(x)
				if i%7 == 6 {
					to = 1 - to // taken out and put back
				}
				r.Must(x.flow.Move(r.Ctx(), to))
				if q := queue(x); q != to {
					t.Fatalf("queue %d has the flow, want %d", q, to)
				}
				if _, err := x.flow.Info(r.Ctx()); err != nil {
					t.Fatal(err)
				}
			}
			x.finish()
			s := x.flow.Final()
			if in := s.OctetsIn + uint64(x.flow.Inherited().Unread); in != volume || s.OctetsAcked != volume || s.ResetsIn+s.ResetsOut != 0 {
				t.Errorf("%d octets in, %d acknowledged, resets %d and %d; want %d of each and no reset", in, s.OctetsAcked, s.ResetsIn, s.ResetsOut, volume)
			}
			if sum := r.tcpTotals(); sum != s {
				t.Errorf("the engines have counted\n%+v\nthe connection\n%+v", sum, s)
			}
		})
	}
}

// TestMoveDuringTakeOver moves a flow as soon as the NIC has it. The move takes place when the take-over is done. The
// flow keeps its segments, and its entry names the engine that owns it.
func TestMoveDuringTakeOver(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{Queues: 2}})
	for range 30 {
		our, peer := r.connect(way{})
		words := []byte("what the peer sends before the take-over")
		_, err := peer.Write(words)
		r.Must(err)
		stop := r.moveAll()
		f := r.take(our, octets.NewEcho())
		_, err = io.ReadFull(peer, make([]byte, len(words)))
		r.Must(err)
		moves := stop()
		entry, err := r.nic.Steering().Lookup(f.Key())
		r.Must(err)
		if at := f.Engine(); entry.Owner != uint16(at.Lane()) || entry.Queue != at.Queue() {
			t.Fatalf("after %d moves the entry names lane %d, queue %d; the flow is at lane %d, queue %d", moves, entry.Owner, entry.Queue, at.Lane(), at.Queue())
		}
		r.Must(peer.Close())
		r.Wait(f.Done(), "the end")
		r.Must(f.Err())
	}
	r.clean()
}

// moveAll moves all flows between two queues, again and again, until stop is called, which returns the number of moves.
func (r *rig) moveAll() (stop func() int) {
	ctx, cancel := context.WithCancel(r.Ctx())
	moved := make(chan int)
	go func() {
		moves := 0
		for ctx.Err() == nil {
			for _, f := range r.nic.Flows() {
				if f.Move(ctx, 1-int(f.Engine().Queue())) == nil {
					moves++
				}
			}
			runtime.Gosched()
		}
		moved <- moves
	}()
	return func() int { cancel(); return <-moved }
}

// queue returns the queue whose engine has the connection.
func queue(x running) int { return int(x.flow.Engine().Queue()) }

// tcpTotals returns what the connections of all engines have counted.
func (r *rig) tcpTotals() (sum tcp.Stats) {
	r.Helper()
	for q := range r.nic.Engines() {
		g, err := r.nic.Look(r.Ctx(), q, nil, nil)
		r.Must(err)
		sum.AddSince(&g.TCP, &tcp.Stats{})
	}
	return sum
}
