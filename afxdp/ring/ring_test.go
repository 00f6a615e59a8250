package ring

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// pair returns both ends of one ring in Go memory.
func pair(t interface{ Fatal(...any) }, n int, start uint32) (Producer[uint64], Consumer[uint64]) {
	m := OnHeap[uint64](n, start)
	p, err := NewProducer(m)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(m)
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

func TestMemoryIsChecked(t *testing.T) {
	apart := OnHeap[int](4, 7)
	apart.Producer.Store(12)
	noFlags := OnHeap[int](4, 0)
	noFlags.Flags = nil
	for name, m := range map[string]Memory[int]{
		"no memory":       {},
		"no slots":        OnHeap[int](0, 0),
		"three slots":     OnHeap[int](3, 0),
		"indices apart":   apart,
		"no flags word":   noFlags,
		"not a power (6)": OnHeap[int](6, 0),
	} {
		if _, err := NewProducer(m); err == nil {
			t.Errorf("%s: producer made", name)
		}
		if _, err := NewConsumer(m); err == nil {
			t.Errorf("%s: consumer made", name)
		}
	}
}

func TestGoesOnFromTheIndicesFound(t *testing.T) {
	m := OnHeap[uint64](8, math.MaxUint32-1)
	m.Slots[(math.MaxUint32-1)&7] = 41
	m.Slots[math.MaxUint32&7] = 42
	m.Producer.Store(0) // two values; the index has just wrapped
	c, err := NewConsumer(m)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Ready(); n != 2 {
		t.Fatalf("%d ready, want 2", n)
	}
	for want := uint64(41); want <= 42; want++ {
		if v, ok := c.Next(); !ok || v != want {
			t.Fatalf("got %d %v, want %d", v, ok, want)
		}
	}
	p, err := NewProducer(m)
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Room(8); n != 6 {
		t.Fatalf("room %d before Release, want 6", n)
	}
	c.Release()
	if n := p.Room(8); n != 8 {
		t.Fatalf("room %d after Release, want 8", n)
	}
}

func TestNothingIsSeenBeforePublishNorReusedBeforeRelease(t *testing.T) {
	p, c := pair(t, 2, math.MaxUint32)
	if !p.Put(1) || !p.Put(2) {
		t.Fatal("no room in an empty ring")
	}
	if p.Put(3) {
		t.Fatal("three values in two slots")
	}
	if n := c.Ready(); n != 0 {
		t.Fatalf("%d seen before Publish", n)
	}
	if n := p.Pending(); n != 0 {
		t.Fatalf("%d pending before Publish", n)
	}
	p.Publish()
	if n := p.Pending(); n != 2 {
		t.Fatalf("%d pending, want 2", n)
	}
	for want := uint64(1); want <= 2; want++ {
		if v, ok := c.Next(); !ok || v != want {
			t.Fatalf("got %d %v, want %d", v, ok, want)
		}
	}
	if _, ok := c.Next(); ok {
		t.Fatal("a third value")
	}
	if p.Put(3) {
		t.Fatal("slot reused before Release")
	}
	c.Release()
	if p.Pending() != 0 || !p.Put(3) {
		t.Fatal("no room after Release")
	}
}

func TestAnImpossibleIndexMeansNothing(t *testing.T) {
	m := OnHeap[uint64](4, 100)
	p, _ := NewProducer(m)
	c, _ := NewConsumer(m)
	m.Producer.Store(105) // five in four slots
	if n := c.Ready(); n != 0 {
		t.Errorf("consumer believes %d", n)
	}
	m.Consumer.Store(101) // consumed a value that was never produced
	p.Pending()
	if p.Put(1) || p.Room(1) != 0 {
		t.Error("producer believes it")
	}
}

func TestNeedsWakeup(t *testing.T) {
	m := OnHeap[uint64](4, 0)
	p, _ := NewProducer(m)
	if p.NeedsWakeup() {
		t.Error("flag seen that is not set")
	}
	m.Flags.Store(NeedWakeup | 1<<7)
	if !p.NeedsWakeup() {
		t.Error("flag not seen")
	}
}

// model makes random calls and compares them with a plain queue.
func model(t *rapid.T) {
	size := 1 << rapid.IntRange(0, 6).Draw(t, "log size")
	start := rapid.Uint32().Draw(t, "start")
	if rapid.Bool().Draw(t, "near the wrap") {
		start = math.MaxUint32 - start%uint32(3*size)
	}
	p, c := pair(t, size, start)
	var written, visible, taken, released uint64 // counts since the start

	t.Repeat(map[string]func(*rapid.T){
		"put": func(t *rapid.T) {
			for range rapid.IntRange(1, size+1).Draw(t, "n") {
				fits := written-released < uint64(size)
				if ok := p.Put(written); ok != fits {
					t.Fatalf("Put %v with %d in %d slots", ok, written-released, size)
				} else if ok {
					written++
				}
			}
		},
		"publish": func(*rapid.T) { p.Publish(); visible = written },
		"next": func(t *rapid.T) {
			for range rapid.IntRange(1, size+1).Draw(t, "n") {
				v, ok := c.Next()
				if ok != (taken < visible) || ok && v != taken {
					t.Fatalf("Next gives %d %v; %d taken of %d visible", v, ok, taken, visible)
				} else if ok {
					taken++
				}
			}
		},
		"release": func(*rapid.T) { c.Release(); released = taken },
		"": func(t *rapid.T) {
			if n := p.Room(size); n != size-int(written-released) {
				t.Fatalf("Room %d, want %d", n, size-int(written-released))
			}
			if n := p.Pending(); n != int(visible-released) {
				t.Fatalf("Pending %d, want %d", n, visible-released)
			}
			if n := c.Ready(); n > int(visible-taken) || n == 0 && taken < visible {
				t.Fatalf("Ready %d of %d", n, visible-taken)
			}
		},
	})
}

func TestAgainstModel(t *testing.T) { rapid.Check(t, model) }

func FuzzAgainstModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(model)) }

// TestTwoGoroutines passes values between goroutines. The ring is on the heap, where
// the race detector sees the slots. The indices start just before they wrap.
func TestTwoGoroutines(t *testing.T) {
	const total = 500_000
	p, c := pair(t, 64, math.MaxUint32-1000)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for v := uint64(0); v < total && !stop.Load(); {
			burst := 1 + int(v%61)
			for ; burst > 0 && v < total && p.Put(v); burst-- {
				v++
			}
			p.Publish()
			if burst > 0 {
				runtime.Gosched()
			}
		}
	}()
	defer func() { stop.Store(true); <-done }()
	for want := uint64(0); want < total; {
		v, ok := c.Next()
		if !ok {
			c.Release()
			runtime.Gosched()
			continue
		}
		if v != want {
			t.Fatalf("got %d, want %d", v, want)
		}
		want++
		if want%17 == 0 {
			c.Release()
		}
	}
}

func BenchmarkRing(b *testing.B) {
	p, c := pair(b, 256, 0)
	b.ReportAllocs()
	for b.Loop() {
		for i := range uint64(64) {
			p.Put(i)
		}
		p.Publish()
		for range 64 {
			c.Next()
		}
		c.Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/slot")
}
