package engine

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/simnic"
)

// A flow that has been in TIME-WAIT ends twice. Ended gets the first end before the
// second, even if another goroutine would step meanwhile.
func TestEndsAreToldInOrder(t *testing.T) {
	link, err := simnic.New(simnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := NewDirectory(4)
	if err != nil {
		t.Fatal(err)
	}
	var e *Engine
	var told []bool
	overtook := make(chan bool)
	e, err = New(link.A(), dir, Config{Ended: func(end End) {
		if len(told) == 0 {
			go func() {
				_, stepped := e.Progress(clock.Instant(2))
				overtook <- stepped
			}()
			if <-overtook {
				t.Error("another goroutine has stepped while the first end was being told")
			}
		}
		told = append(told, end.Gone)
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.ends = append(e.ends, End{ID: 1}, End{ID: 1, Gone: true})
	if _, ok := e.Progress(clock.Instant(1)); !ok || len(told) != 2 || told[0] || !told[1] {
		t.Errorf("told %v, want the end and then that it is gone", told)
	}
}

// If flows wait for frames that silent peers have, the engine looks less and less
// often. An arrival makes it look soon again.
func TestLooksForFramesLessOften(t *testing.T) {
	link, err := simnic.New(simnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := NewDirectory(4)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(link.A(), dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	waiting := &flow{e: e, place: -1}
	e.line.join(waiting)
	all := make([]port.Frame, e.limits.TxFrames)
	e.open, e.frames.lent = 2, link.A().Take(all) // other flows hold all of them
	now, looks := clock.Instant(1), 0
	for end := now.Add(time.Second); now.Before(end); looks++ {
		next := e.Step(now)
		if next == clock.Never || next.Sub(now) > retryMost {
			t.Fatalf("it looks again after %v", next.Sub(now))
		}
		now = next
	}
	if looks > 120 {
		t.Errorf("it looks %d times in a second, for nothing", looks)
	}
	e.rest.vain = 0 // as a step that moves something leaves it
	if next := e.Step(now); next.Sub(now) > 2*retryAfter {
		t.Errorf("it looks again only after %v, behind something that arrived", next.Sub(now))
	}
}
