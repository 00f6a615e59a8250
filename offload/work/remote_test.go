package work

import (
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
)

// A poster in another process finds room for as many requests as the queue has places, over
// many rounds. The place of a request without a completion is free when the request has
// completed, and that of any other when its completion has been polled.
func TestSendPoster(t *testing.T) {
	ours, theirs := twice(t, SendRingLen(5, 2, 40))
	r, err := NewSendRing(ours, 5, 2, 40)
	if err != nil {
		t.Fatal(err)
	}
	var q SendQueue
	q.Init(r, 5, 2, 40)
	p, err := OpenSendRing(theirs)
	if err != nil {
		t.Fatal(err)
	}
	wrs := make([]SendWR, 8)
	for round := range uint64(20) {
		for i := range wrs {
			wrs[i] = SendWR{ID: 100*round + uint64(i), Op: WRWrite, RemoteAddr: uint64(i), RKey: 7, Inline: []byte("some octets")}
		}
		if n := p.Post(wrs); n != 5 {
			t.Fatalf("round %d: room for %d of 5", round, n)
		}
		for i := range uint64(5) {
			if !q.Posted() {
				t.Fatalf("round %d: request %d has not come", round, i)
			}
			if w := q.Next(); w.ID != 100*round+i || w.Remote != i || w.RKey != 7 || w.Length != 11 {
				t.Fatalf("round %d: %+v", round, w)
			}
			pos := q.Begin()
			if got := string(q.Small(pos, 0, 11)); got != "some octets" {
				t.Fatalf("%q", got)
			}
		}
		from, to := q.Started()
		q.GiveBack(from, to-2) // three without a completion
		q.Pop()
		q.Pop()
		if n := p.Post(wrs[:1]); n != 1 {
			t.Fatalf("round %d: the place of a silent request is not free", round)
		}
		q.Posted()
		q.Begin()
		q.Pop()
		p.Polled(3)
	}
}

// A poster of receives, and a poller, as for sends.
func TestRecvPosterAndPoller(t *testing.T) {
	ours, theirs := twice(t, RecvRingLen(3, 2))
	r, err := NewRecvRing(ours, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	var q RecvQueue
	q.Init(r, 3, 2)
	p, err := OpenRecvRing(theirs)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = twice(t, CQRingLen(4))
	board := new(signal.Board)
	cq, err := NewCQIn(ours, 4, board)
	if err != nil {
		t.Fatal(err)
	}
	fired := 0
	cq.News.Fire = func() { fired++ }
	poller, err := OpenCQ(theirs)
	if err != nil || poller.Cap() != 4 {
		t.Fatal(err)
	}
	var got [8]Completion
	for round := range uint64(20) {
		wrs := []RecvWR{{ID: round, SGL: []SGE{{Addr: 1, Length: 2, LKey: 3}}}, {ID: round + 1}, {ID: round + 2}, {ID: round + 3}}
		if n, ring := p.Post(wrs); n != 3 || ring {
			t.Fatalf("round %d: room for %d of 3, bell %v", round, n, ring)
		}
		q.Wait(true)
		if _, ring := p.Post(nil); !ring {
			t.Fatal("the transport waits, and the poster need not ring")
		}
		q.Wait(false)
		poller.Arm(false)
		for i := range uint64(3) {
			w := q.Front()
			if w == nil || w.ID != round+i {
				t.Fatalf("round %d: %+v", round, w)
			}
			q.Pop()
			cq.Push(q.Places, Completion{ID: w.ID, Op: WCRecv, Length: 9}, false)
		}
		board.Deliver()
		if fired != int(round)+1 || !poller.Ready() {
			t.Fatalf("round %d: fired %d times", round, fired)
		}
		n := poller.Poll(got[:2])
		n += poller.Poll(got[n:])
		if n != 3 || got[2].ID != round+2 || got[2].Op != WCRecv || got[2].Length != 9 || poller.Ready() {
			t.Fatalf("round %d: %d: %+v", round, n, got[:n])
		}
		p.Polled(n)
	}
	for range 5 {
		cq.Push(q.Places, Completion{}, false)
	}
	if !poller.Overrun() {
		t.Error("the poller does not learn of an overrun")
	}
}

// A header that does not fit the memory is refused.
func TestOpenRings(t *testing.T) {
	for name, spoil := range map[string]func(ring []byte){
		"version":  func(b []byte) { b[128]++ },
		"depth":    func(b []byte) { b[132] += 8 },
		"slot":     func(b []byte) { b[136] += 16 },
		"elements": func(b []byte) { b[140] += 4 },
		"no depth": func(b []byte) { clear(b[132:136]) },
	} {
		send, recv, cq := lines(SendRingLen(4, 2, 0)), lines(RecvRingLen(4, 2)), lines(CQRingLen(4))
		NewSendRing(send, 4, 2, 0)
		NewRecvRing(recv, 4, 2)
		NewCQIn(cq, 4, nil)
		for _, b := range [][]byte{send, recv, cq} {
			spoil(b)
		}
		if _, err := OpenSendRing(send); err == nil {
			t.Errorf("%s: a send ring was opened", name)
		}
		if _, err := OpenRecvRing(recv); err == nil {
			t.Errorf("%s: a receive ring was opened", name)
		}
		if _, err := OpenCQ(cq); err == nil && name != "elements" { // a CQ has none
			t.Errorf("%s: a completion ring was opened", name)
		}
	}
	if _, err := OpenSendRing(nil); err == nil {
		t.Error("no memory was opened")
	}
}
