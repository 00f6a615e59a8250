package flow

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
)

// TestFault: all commands complete once, in whatever state they are.
func TestFault(t *testing.T) {
	p := usual()
	p.MaxCmdSN = p.CmdSN
	e := begin(t, p, 4)
	c := Command{CDB: read10, In: [][]byte{make([]byte, 8)}}
	e.post(c)   // has left
	e.post(c)   // waits for the window
	e.q.Post(c) // has not been seen by a step
	e.f.Fault(1, nil)
	var got [8]Completion
	n := e.q.Poll(got[:])
	sent := 0
	for _, c := range got[:n] {
		if c.Why != Lost {
			t.Error(c.Why)
		}
		if c.Sent {
			sent++
		}
	}
	if n != 3 || sent != 1 || e.q.Room() != 4 {
		t.Errorf("%d completions, %d sent, room for %d", n, sent, e.q.Room())
	}
}

func TestReasonsHaveNames(t *testing.T) {
	for r := range reasons {
		known := r <= Repeated || r >= HeaderDigest && r <= Closed || r >= Lost
		if named := reasonNames[r] != ""; named != known {
			t.Errorf("reason %d: named %v", r, named)
		}
	}
	if fmt.Sprint(Reason(200)) != "iscsi: reason 200" {
		t.Error(Reason(200))
	}
}

// TestPostAgainstFault: a command that is posted while the connection ends completes, or is
// refused.
func TestPostAgainstFault(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	const others = 200 // queues that the end looks at after the poster's
	table := newTable(t)
	for i := range rounds {
		pd, err := table.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		tags, err := table.ReserveTags(pd, 8+others)
		if err != nil {
			t.Fatal(err)
		}
		f := NewInitiator(Config{Params: usual(), Tags: tags, Board: new(signal.Board)})
		f.News.Fire = func() {}
		for k := range others {
			f.NewQueue(8+k, 1)
		}
		q := f.NewQueue(0, 8)
		q.News().Fire = func() {}
		posted := make(chan int)
		go func() {
			n := 0
			for n < 8 {
				if k, err := q.Post(Command{CDB: read10}); err != nil {
					break
				} else {
					n += k
				}
			}
			posted <- n
		}()
		if i%2 == 0 {
			runtime.Gosched()
		}
		f.Fault(1, nil)
		var got [9]Completion
		if want, n := <-posted, q.Poll(got[:]); n != want {
			t.Fatalf("round %d: %d of %d commands completed", i, n, want)
		}
		tags.Release()
		if err := table.FreePD(pd); err != nil {
			t.Fatal(err)
		}
	}
}
