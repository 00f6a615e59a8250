package engine

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
)

// deluge is a port at which meaningless packets always wait.
type deluge struct {
	port.Port
	limits   port.Limits
	received int
}

func (d *deluge) Limits() port.Limits      { return d.limits }
func (d *deluge) Bytes(port.Frame) []byte  { return make([]byte, 60) }
func (d *deluge) Record(port.Frame) []byte { return nil }
func (d *deluge) Recycle([]port.Frame)     {}
func (d *deluge) Flush() error             { return nil }
func (d *deluge) Room() int                { return 1 }

func (d *deluge) Receive(dst []port.Frame) int {
	d.received += len(dst)
	return len(dst)
}

// A flood delays a timer that is due for no longer than one pool of frames. If no timer
// is due, a step receives no more than usual.
func TestFloodHoldsTimersUpOnce(t *testing.T) {
	p := &deluge{limits: port.Limits{RxFrames: 1024, TxFrames: 256}}
	dir, err := NewDirectory(8)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(p, dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, due := &flow{place: -1}, clock.Instant(time.Hour)
	e.timers.set(f, due)
	if e.Step(due - 1); p.received != batchLen || f.place < 0 {
		t.Errorf("before the timer is due: %d frames received, place %d", p.received, f.place)
	}
	p.received = 0
	if e.Step(due); p.received != batchLen+1024 || f.place >= 0 {
		t.Errorf("when it is: %d frames received, place %d", p.received, f.place)
	}
}
