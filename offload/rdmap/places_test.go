package rdmap

import (
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/work"
)

// A poster that has polled a completion has room for another work request at any
// moment, even while the step completes the next request.
func TestPolledPlaceIsFree(t *testing.T) {
	const depth, rounds = 4, 100000
	board := new(signal.Board)
	cq := work.NewCQ(depth, board)
	q := New(Config{Board: board, SendCQ: cq, RecvCQ: cq, SendDepth: depth, RecvDepth: depth, MaxSGE: 1})
	for range depth {
		if q.PostRecv(work.RecvWR{}) == 0 {
			t.Fatal("an empty queue is full")
		}
	}
	done := make(chan struct{})
	go func() { // the step
		defer close(done)
		for range rounds {
			for q.rq.Empty() {
				runtime.Gosched()
			}
			q.completeReceive(work.Completion{Op: work.WCRecv}, false)
		}
	}()
	var some [depth]work.Completion
	for polled := 0; polled < rounds; {
		n := cq.Poll(some[:])
		for range n {
			if q.PostRecv(work.RecvWR{}) == 0 {
				t.Fatalf("after %d completions: no room for a receive whose place has been polled", polled)
			}
		}
		polled += n
		runtime.Gosched()
	}
	<-done
	if cq.Overrun() {
		t.Error("a CQ as deep as its queue was overrun")
	}
}

// The depth of a queue is the depth that was asked for, not the size of its ring:
// programs compute the size of a CQ from depths.
func TestDepthIsExact(t *testing.T) {
	for _, depth := range []int{1, 2, 3, 5, 8, 100} {
		board := new(signal.Board)
		cq := work.NewCQ(2*depth, board)
		q := New(Config{Board: board, SendCQ: cq, RecvCQ: cq, SendDepth: depth, RecvDepth: depth, MaxSGE: 1})
		var sends, recvs int
		for q.PostSend(work.SendWR{Op: work.WRSend}) == 1 {
			sends++
		}
		for q.PostRecv(work.RecvWR{}) == 1 {
			recvs++
		}
		if sends != depth || recvs != depth {
			t.Errorf("depth %d: room for %d sends and %d receives", depth, sends, recvs)
		}
		q.Kill(ErrPeerClosed)
		if cq.Overrun() {
			t.Errorf("depth %d: a CQ for both queues was overrun", depth)
		}
	}
}
