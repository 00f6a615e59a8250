package tap

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
)

func newRing(t testing.TB, c Config) *Ring {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// packet returns a packet of n octets whose contents identify it.
func packet(seed, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b)
	return b
}

// all takes every record.
func all(r *Ring) []Record { return r.Take(nil, latest, 1<<30) }

func TestRecordsComeOutAsTheyWentIn(t *testing.T) {
	r := newRing(t, Config{})
	r.Put(5, true, 0x100003, packet(1, 61))
	r.Put(7, false, 0, packet(2, 1514))
	r.Put(7, false, 9, nil)
	want := []Record{{5, 0x100003, true, 61, packet(1, 61)}, {7, 0, false, 1514, packet(2, 1514)}, {7, 9, false, 0, nil}}
	got := all(r)
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.At != w.At || g.Flow != w.Flow || g.Out != w.Out || g.Length != w.Length || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("record %d is %v, want %v", i, g, w)
		}
	}
	if more := all(r); len(more) != 0 || r.Lost() != 0 {
		t.Errorf("%d more records, %d lost", len(more), r.Lost())
	}
}

func TestSnapLenAndFlow(t *testing.T) {
	r := newRing(t, Config{SnapLen: 100, Flow: 7})
	for _, flow := range []bpf.FlowID{0, 6, 7, 8} {
		r.Put(1, false, flow, packet(int(flow), 1000))
	}
	r.Put(2, true, 7, packet(1, 99))
	got := all(r)
	if len(got) != 2 || !bytes.Equal(got[0].Data, packet(7, 1000)[:100]) || got[0].Length != 1000 || got[1].Length != 99 || len(got[1].Data) != 99 {
		t.Errorf("took %v", got)
	}
}

// TestFullRingLoses: a record that finds no room is counted as lost, the records in
// the ring stay whole, and Take makes room again.
func TestFullRingLoses(t *testing.T) {
	r := newRing(t, Config{Size: leastSize})
	put := 0
	for ; r.Lost() == 0; put++ {
		r.Put(clock.Instant(put), false, 1, packet(put, 1000))
	}
	r.Put(0, false, 1, packet(0, 1000))
	if r.Lost() != 2 {
		t.Errorf("%d lost, want 2", r.Lost())
	}
	got := all(r)
	if len(got) != put-1 || len(got) < leastSize/1100 {
		t.Errorf("%d records, %d were put", len(got), put-1)
	}
	for i, g := range got {
		if g.At != clock.Instant(i) || !bytes.Equal(g.Data, packet(i, 1000)) {
			t.Fatalf("record %d is not as it was put", i)
		}
	}
	r.Put(77, false, 1, packet(77, 1000))
	if got := all(r); len(got) != 1 || got[0].At != 77 || r.Lost() != 2 {
		t.Errorf("afterwards %d records, %d lost", len(got), r.Lost())
	}
}

// TestEveryWayRound: records of all sizes go round the end of the memory.
func TestEveryWayRound(t *testing.T) {
	r := newRing(t, Config{Size: leastSize})
	rnd := rand.New(rand.NewPCG(1, 2))
	put, taken := 0, 0
	for put < 20000 {
		for range rnd.IntN(40) {
			before := r.Lost()
			r.Put(clock.Instant(put), put%2 == 0, bpf.FlowID(put), packet(put, put%1600))
			if r.Lost() == before {
				put++
			}
		}
		for _, g := range r.Take(nil, latest, rnd.IntN(30000)) {
			if g.At != clock.Instant(taken) || g.Out != (taken%2 == 0) || g.Flow != bpf.FlowID(taken) || !bytes.Equal(g.Data, packet(taken, taken%1600)) {
				t.Fatalf("record %d is %v", taken, g)
			}
			taken++
		}
	}
	if r.Lost() == 0 || taken < put/2 {
		t.Errorf("%d put, %d taken, %d lost: the ring was never full, or not emptied", put, taken, r.Lost())
	}
}

// TestTakeBounds: Take stops at its limit and its instant, but makes progress.
func TestTakeBounds(t *testing.T) {
	r := newRing(t, Config{})
	if _, more, ok := r.Reach(100); more || ok {
		t.Error("something in an empty ring")
	}
	for i := range 10 {
		r.Put(clock.Instant(10*i+1), false, 1, packet(i, 100))
	}
	if at, more, ok := r.Reach(250); at != 11 || !more || !ok {
		t.Errorf("250 octets reach to %d, %v, %v", at, more, ok)
	}
	if at, more, ok := r.Reach(1000); at != 91 || more || !ok {
		t.Errorf("1000 octets reach to %d, %v, %v", at, more, ok)
	}
	for _, c := range []struct {
		until clock.Instant
		limit int
		want  int
	}{{0, 1000, 0}, {1, 1000, 1}, {latest, 250, 2}, {latest, 1, 1}, {60, 1000, 2}, {latest, 400, 4}, {latest, 400, 0}} {
		if got := r.Take(nil, c.until, c.limit); len(got) != c.want {
			t.Errorf("until %d, %d octets: %d records, want %d", c.until, c.limit, len(got), c.want)
		}
	}
}

// TestAcrossGoroutines is for the race detector as much as for order.
func TestAcrossGoroutines(t *testing.T) {
	const n = 100000
	r := newRing(t, Config{Size: leastSize})
	packets := make([][]byte, 64)
	for i := range packets {
		packets[i] = packet(i, 40+i*23)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for i := range n {
			r.Put(clock.Instant(i+1), false, bpf.FlowID(i), packets[i%64])
			if i%1000 == 0 {
				runtime.Gosched()
			}
		}
	})
	var taken uint64
	last := clock.Instant(0)
	for taken+r.Lost() < n {
		got := r.Take(nil, latest, 8192)
		for _, g := range got {
			if g.At <= last || !bytes.Equal(g.Data, packets[int(g.Flow)%64]) {
				t.Fatalf("after %d comes %d, flow %d", last, g.At, g.Flow)
			}
			last = g.At
			taken++
		}
		if len(got) == 0 {
			runtime.Gosched()
		}
	}
	done.Wait()
	if rest := all(r); taken+uint64(len(rest))+r.Lost() != n || taken == 0 {
		t.Errorf("%d taken, %d left, %d lost of %d", taken, len(rest), r.Lost(), n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{{Size: leastSize - 1}, {Size: 1<<30 + 1}, {SnapLen: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestPutAllocatesNothing(t *testing.T) {
	r := newRing(t, Config{Size: leastSize})
	b := packet(1, 1514)
	if n := testing.AllocsPerRun(1000, func() { r.Put(1, true, 1, b) }); n != 0 || r.Lost() == 0 {
		t.Errorf("%v allocations, %d lost", n, r.Lost())
	}
}

func TestList(t *testing.T) {
	var l List
	if len(l.Rings()) != 0 {
		t.Error("the zero List is not empty")
	}
	var rings []*Ring
	for range MaxRings {
		r := newRing(t, Config{Size: leastSize})
		rings = append(rings, r)
		if err := l.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Add(rings[0]); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	before := l.Rings()
	for i, r := range rings {
		l.Remove(r)
		l.Remove(r) // r is not in the list: Remove does nothing
		if got := len(l.Rings()); got != MaxRings-i-1 {
			t.Errorf("%d rings after %d were removed", got, i+1)
		}
	}
	if len(before) != MaxRings || before[0] != rings[0] {
		t.Error("a list that was read has changed")
	}
}

// TestListAcrossGoroutines: concurrent Add and Remove lose no ring.
func TestListAcrossGoroutines(t *testing.T) {
	var l List
	kept := newRing(t, Config{Size: leastSize})
	if err := l.Add(kept); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for range MaxRings - 1 {
		r := newRing(t, Config{Size: leastSize})
		done.Go(func() {
			for range 2000 {
				if err := l.Add(r); err != nil {
					t.Error(err)
				}
				l.Remove(r)
			}
		})
	}
	done.Wait()
	if rings := l.Rings(); len(rings) != 1 || rings[0] != kept {
		t.Errorf("left are %d rings", len(rings))
	}
}

func BenchmarkPut(b *testing.B) {
	r := newRing(b, Config{})
	p := packet(1, 1514)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			r.head.Store(r.tail.Load()) // as a reader does
		}
		r.Put(1, true, 1, p)
	}
	if r.Lost() != 0 {
		b.Errorf("%d lost", r.Lost())
	}
}
