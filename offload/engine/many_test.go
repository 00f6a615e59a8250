package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/rig"
)

// still is a port at which nothing arrives.
type still struct{ quiet }

func (s *still) Receive([]port.Frame) int { return 0 }
func (s *still) Recycle([]port.Frame)     {}
func (s *still) Flush() error             { return nil }

// adapterOf returns n engines of one adapter, at whose ports nothing arrives.
func adapterOf(t testing.TB, n int) (engines []*Engine) {
	t.Helper()
	dir, err := NewDirectory(64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e, err := New(&still{quiet{lane: port.Lane(i), frames: 128}}, dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	if err := Join(engines...); err != nil {
		t.Fatal(err)
	}
	return engines
}

// dozing is a port at which nothing arrives, and at which an engine sleeps until it is woken.
type dozing struct {
	still
	bell chan struct{} // has room for one
	home chan struct{} // gets a token for each frame that comes home
}

func (d *dozing) Arm(time.Duration) (time.Duration, error) { return time.Hour, nil }
func (d *dozing) Sleep(time.Duration) error                { <-d.bell; return nil }
func (d *dozing) SleepUntilWake(limit time.Duration) error { return d.Sleep(limit) }
func (d *dozing) Bytes(port.Frame) []byte                  { return nil }
func (d *dozing) Record(port.Frame) []byte                 { return nil }
func (d *dozing) Recycle(frames []port.Frame) {
	for range frames {
		d.home <- struct{}{}
	}
}
func (d *dozing) Wake() {
	select {
	case d.bell <- struct{}{}:
	default:
	}
}

// TestSleepersBeyond64Lanes: engines that sleep until they are woken pass frames to each
// other. A frame comes home only if each of the two engines is woken for it.
func TestSleepersBeyond64Lanes(t *testing.T) {
	const lanes = 130
	dir, err := NewDirectory(64)
	rig.Must(t, err)
	var engines []*Engine
	var ports []*dozing
	for i := range lanes {
		p := &dozing{still{quiet{lane: port.Lane(i), frames: 128}}, make(chan struct{}, 1), make(chan struct{}, 1)}
		e, err := New(p, dir, Config{})
		rig.Must(t, err)
		engines, ports = append(engines, e), append(ports, p)
	}
	rig.Must(t, Join(engines...))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for _, e := range engines {
		done.Go(func() { _ = e.Run(ctx) })
	}
	for i, from := range []port.Lane{0, 63, 64, 65, 100, 127, 128, 129} {
		to := port.Lane(lanes-1-i*17) % lanes
		rig.Must(t, engines[from].between(ctx, func() { engines[from].passTo(to, port.Frame{Home: from}) }))
		select {
		case <-ports[from].home:
		case <-time.After(10 * time.Second):
			t.Errorf("a frame of lane %d that was passed to lane %d has not come home", from, to)
		}
	}
	cancel()
	done.Wait()
}

// TestStrainOfManyLenders compares the strain with one that is computed from the frames of
// all lanes, while an engine of an adapter with many lanes borrows and returns frames.
func TestStrainOfManyLenders(t *testing.T) {
	const lanes = 130
	e := adapterOf(t, lanes)
	luck := rand.New(rand.NewPCG(1, 2))
	var held [lanes]int
	for range 5000 {
		lane := luck.IntN(lanes-1) + 1
		n := 1
		if held[lane] != 0 && luck.IntN(3) != 0 {
			n = -luck.IntN(held[lane] + 1)
		}
		if n != 0 {
			e[0].frames.keep(port.Frame{Home: port.Lane(lane)}, n)
			held[lane] += n
		}
		if other := luck.IntN(lanes-1) + 1; luck.IntN(4) == 0 {
			e[other].frames.kept = luck.IntN(100)
			e[other].frames.publish()
		}
		want := 0
		for lane, n := range held {
			if n != 0 {
				want = max(want, n+int(e[lane].frames.keptHere.Load()))
			}
		}
		if e[0].frames.compare(); e[0].frames.strain != want {
			t.Fatalf("strain %d, want %d: %v", e[0].frames.strain, want, held)
		}
	}
}

// TestFewLendersOfManyLanes: a step looks at the lanes that have lent frames, and at no
// others, however many lanes the adapter has.
func TestFewLendersOfManyLanes(t *testing.T) {
	e := adapterOf(t, 1024)
	for range 3 {
		for _, lane := range []port.Lane{700, 3, 1023} {
			e[0].frames.keep(port.Frame{Home: lane}, 2)
			e[0].frames.keep(port.Frame{Home: lane}, -1)
		}
		if e[0].frames.compare(); len(e[0].frames.owed) != 3 {
			t.Errorf("a step looks at the lanes %v, want three", e[0].frames.owed)
		}
		for _, lane := range []port.Lane{3, 1023, 700} {
			e[0].frames.keep(port.Frame{Home: lane}, -1)
		}
		if e[0].frames.compare(); len(e[0].frames.owed) != 0 || e[0].frames.strain != 0 {
			t.Errorf("all frames are back, and a step looks at the lanes %v", e[0].frames.owed)
		}
	}
}

// BenchmarkStepOfManyLanes is a step of an engine that holds a frame of another lane, and
// that gives a frame to a third one.
func BenchmarkStepOfManyLanes(b *testing.B) {
	for _, lanes := range []int{2, 4, 8, 64, 1024} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			e := adapterOf(b, lanes)
			e[0].frames.keep(port.Frame{Home: 1}, 1)
			last := e[lanes-1]
			b.ReportAllocs()
			for b.Loop() {
				e[0].passTo(last.lane, port.Frame{Home: 0})
				e[0].Step(clock.Instant(1))
				last.mail.pass.take()
			}
		})
	}
}

// TestJoinCostsTheSame: what an engine allocates to know the others does not depend on their
// number, and a step allocates only when an engine first meets a lane.
func TestJoinCostsTheSame(t *testing.T) {
	perEngine := func(lanes int) float64 {
		e := adapterOf(t, lanes)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rig.Must(t, Join(e...))
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(lanes)
	}
	if few, many := perEngine(8), perEngine(1024); many > 100 || many > 4*few {
		t.Errorf("an engine takes %.0f octets to know 1023 others, and %.0f to know 7", many, few)
	}
	e := adapterOf(t, 1024)
	pass := func() {
		for _, lane := range []port.Lane{1023, 65, 700} {
			e[0].passTo(lane, port.Frame{Home: 0})
			e[lane].mail.pass.take()
			e[0].frames.keep(port.Frame{Home: lane}, 1)
		}
		e[0].Step(clock.Instant(1))
		for _, lane := range []port.Lane{700, 1023, 65} {
			e[0].frames.keep(port.Frame{Home: lane}, -1)
		}
		e[0].Step(clock.Instant(1))
	}
	pass()
	if n := testing.AllocsPerRun(10, pass); n != 0 {
		t.Errorf("%v allocations for lanes that the engine has met", n)
	}
}

// BenchmarkJoin connects the engines of an adapter. Per engine it should cost the same.
func BenchmarkJoin(b *testing.B) {
	for _, lanes := range []int{2, 8, 64, 1024} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			e := adapterOf(b, lanes)
			b.ReportAllocs()
			for b.Loop() {
				if err := Join(e...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lanes), "ns/engine")
		})
	}
}
