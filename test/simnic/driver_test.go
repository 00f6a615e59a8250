package simnic

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
)

// depart sends n packets from end A, one after the other, and returns their frames. The caller
// has freed them.
func depart(t *testing.T, l *Link, n int) (frames []port.Frame) {
	t.Helper()
	for range n {
		var f [1]port.Frame
		if l.A().Take(f[:]) != 1 {
			t.Fatal("no chunk")
		}
		f[0].Len = 100
		clear(l.A().Bytes(f[0]))
		if l.A().Send(f[:]) != 1 {
			t.Fatal("no room")
		}
		l.A().Flush()
		l.A().Free(f[:])
		l.Advance(l.Now() + 1)
		arrivals(l.B())
		frames = append(frames, f[0])
	}
	return frames
}

// away returns the numbers of the frames that have not completed.
func away(l *Link, frames []port.Frame) (numbers []int) {
	for i, f := range frames {
		if l.A().InFlight(f) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// TestDriverHolds checks which packets a driver keeps, and that only more packets help.
func TestDriverHolds(t *testing.T) {
	for _, c := range []struct {
		name   string
		driver Driver
		sent   int
		away   []int
	}{
		{"none", Driver{}, 5, nil},
		{"fewer than held", Driver{Hold: 3}, 3, []int{0, 1, 2}},
		{"as many as held", Driver{Hold: 3}, 8, []int{5, 6, 7}},
		{"a batch that is not full", Driver{Batch: 4}, 7, []int{4, 5, 6}},
		{"a full batch", Driver{Batch: 4}, 8, nil},
		{"behind a batch", Driver{Hold: 2, Batch: 3}, 5, []int{3, 4}},
		{"before the next batch", Driver{Hold: 2, Batch: 3}, 7, []int{3, 4, 5, 6}},
	} {
		l := newLink(t, Config{Frames: 16, Check: true, Driver: c.driver})
		frames := depart(t, l, c.sent)
		if l.Next() != clock.Never {
			t.Errorf("%s: something is left that could happen", c.name)
		}
		if got := away(l, frames); !slices.Equal(got, c.away) {
			t.Errorf("%s: %v have not completed, want %v", c.name, got, c.away)
		}
		if got := l.A().Room(); got != 16 {
			t.Errorf("%s: room for %d packets, want 16: those that have departed take none", c.name, got)
		}
	}
}

// TestDriverInterrupts checks the longest time for which a packet is kept.
func TestDriverInterrupts(t *testing.T) {
	l := newLink(t, Config{Frames: 16, Check: true, Driver: Driver{Hold: 8, HoldFor: time.Millisecond}})
	frames := depart(t, l, 3)
	if at := l.Next(); at > l.Now().Add(time.Millisecond) || at < l.Now() {
		t.Fatalf("the next event is at %d, now is %d", at, l.Now())
	}
	l.Advance(l.Next())
	if got := away(l, frames); got != nil {
		t.Errorf("%v have not completed", got)
	}
}

// TestDriverShuffles checks that packets complete in an order of their own.
func TestDriverShuffles(t *testing.T) {
	l := newLink(t, Config{Frames: 32, Seed: 1, Check: true, Driver: Driver{Hold: 8, Shuffle: true}})
	frames := depart(t, l, 24)
	got := away(l, frames)
	if len(got) != 8 || slices.Equal(got, []int{16, 17, 18, 19, 20, 21, 22, 23}) {
		t.Errorf("%v have not completed", got)
	}
}

// TestDriverFills checks that a driver takes chunks only if a whole batch is free.
func TestDriverFills(t *testing.T) {
	l := newLink(t, Config{Frames: 5, Driver: Driver{Fill: 3}})
	var held []port.Frame
	for range 5 {
		send(l.A(), 1, 100)
		l.Advance(l.Now() + 1)
		var f [1]port.Frame
		held = append(held, f[:l.B().Receive(f[:])]...)
	}
	if len(held) != 3 || l.Stats(A).NoFrame != 2 {
		t.Errorf("%d packets arrived, and %d found no chunk; want 3 and 2", len(held), l.Stats(A).NoFrame)
	}
	l.B().Recycle(held[:1])
	send(l.A(), 2, 100)
	l.Advance(l.Now() + 1)
	if got := arrivals(l.B()); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v arrived, want 2", got)
	}
}

// TestDriverHasTheChunk checks that a write to a chunk is noticed until the packet completes.
func TestDriverHasTheChunk(t *testing.T) {
	l := newLink(t, Config{Frames: 4, Check: true, Driver: Driver{Hold: 1}})
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, "before it was completed") {
			t.Errorf("panic %q", got)
		}
	}()
	var f [1]port.Frame
	l.A().Take(f[:])
	f[0].Len = 100
	l.A().Send(f[:])
	l.A().Flush()
	l.Advance(l.Now() + 1)
	l.A().Bytes(f[0])[50]++
	depart(t, l, 1)
}

// TestDriverRefused checks that settings are refused with which an end could never send again.
func TestDriverRefused(t *testing.T) {
	for _, d := range []Driver{{Hold: -1}, {HoldFor: -1}, {Hold: 3, Batch: 1}, {Fill: 5}} {
		if _, err := New(Config{Frames: 4, Driver: d}); err == nil {
			t.Errorf("%+v is accepted", d)
		}
	}
}
