package mpa_test

import (
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// loop is a stream that shows the same octets, in the same views, over and
// over, and emits into the same memory.
type loop struct {
	stream.Stream
	views [][]byte
	left  [8][]byte
	n     int
	out   [wire.MaxFPDULen + 1024]byte
}

func (l *loop) rewind() { l.n = copy(l.left[:], l.views) }

func (l *loop) Views(dst [][]byte) int { return copy(dst, l.left[:l.n]) }

func (l *loop) Consume(n int) {
	for n > 0 {
		part := min(n, len(l.left[0]))
		if l.left[0] = l.left[0][part:]; len(l.left[0]) == 0 {
			copy(l.left[:], l.left[1:l.n])
			l.n--
		}
		n -= part
	}
}

func (l *loop) Emit(n int) []byte { return l.out[:n:n] }

// run takes all FPDUs of the views and says how many there were.
func (l *loop) run(d *mpa.Deframer) (n int) {
	l.rewind()
	for {
		u, _ := d.Next(l)
		if u == nil {
			return n
		}
		d.Done(l)
		n++
	}
}

// marked is one FPDU of 1454 octets as the first of a stream, and the stream
// again from a place where the Markers fall alike.
func marked(crc bool) []byte {
	f, out := mpa.NewFramer(crc, true), &sink{}
	for len(out.bytes) == 0 || len(out.bytes)%wire.MarkerSpacing != 0 {
		frame(f, out, make([]byte, 1440))
	}
	return out.bytes
}

func TestNoAllocations(t *testing.T) {
	var plain sink
	f := mpa.NewFramer(true, false)
	for range 4 {
		frame(f, &plain, make([]byte, 1454))
	}
	long := &sink{}
	frame(mpa.NewFramer(true, false), long, make([]byte, 60000))
	m := marked(true)
	for _, c := range []struct {
		name    string
		markers bool
		fpdus   int
		views   [][]byte
	}{
		{"whole", false, 4, [][]byte{plain.bytes}},
		{"cut", false, 4, [][]byte{plain.bytes[:100], plain.bytes[100:3000], plain.bytes[3000:]}},
		{"long", false, 1, [][]byte{long.bytes[:30000], long.bytes[30000:]}},
		{"Markers", true, len(m) / 1464, [][]byte{m}},
	} {
		l, d := &loop{views: c.views}, mpa.NewDeframer(true, c.markers)
		if n := l.run(d); n < c.fpdus {
			t.Fatalf("%s: %d FPDUs, want %d", c.name, n, c.fpdus)
		}
		if a := testing.AllocsPerRun(100, func() { l.run(d) }); a != 0 {
			t.Errorf("%s: %v allocations to receive", c.name, a)
		}
	}
	for _, markers := range []bool{false, true} {
		f, l := mpa.NewFramer(true, markers), &loop{}
		if a := testing.AllocsPerRun(100, func() { f.Begin(l, 1440); f.End() }); a != 0 {
			t.Errorf("Markers %v: %v allocations to send", markers, a)
		}
	}
}

// TestAllocatesOnce: where there has been an FPDU as long, the next needs no
// memory, nor does a shorter one.
func TestAllocatesOnce(t *testing.T) {
	l, d := &loop{}, mpa.NewDeframer(true, false)
	run := func(n int) float64 {
		out := &sink{}
		frame(mpa.NewFramer(true, false), out, make([]byte, n))
		l.views = [][]byte{out.bytes[:9], out.bytes[9:]}
		return testing.AllocsPerRun(1, func() { l.run(d) })
	}
	for _, n := range []int{100, 2000, 9000, 16000, 64768, 100} {
		if a := run(n); a != 0 { // AllocsPerRun warms up with one run
			t.Errorf("a second FPDU of %d octets needs %v allocations", n, a)
		}
	}
}

func BenchmarkDeframe(b *testing.B) {
	var out sink
	f := mpa.NewFramer(true, false)
	for range 4 {
		frame(f, &out, make([]byte, 1454))
	}
	m := marked(true)
	for _, c := range []struct {
		name    string
		markers bool
		views   [][]byte
	}{
		{"whole", false, [][]byte{out.bytes}},
		{"cut", false, [][]byte{out.bytes[:730], out.bytes[730:2190], out.bytes[2190:3650], out.bytes[3650:5110], out.bytes[5110:]}},
		{"Markers", true, [][]byte{m}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, d := &loop{views: c.views}, mpa.NewDeframer(true, c.markers)
			n := 0
			for _, v := range c.views {
				n += len(v)
			}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				l.run(d)
			}
		})
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, markers := range []bool{false, true} {
		name := "plain"
		if markers {
			name = "Markers"
		}
		b.Run(name, func(b *testing.B) {
			f, l := mpa.NewFramer(true, markers), &loop{}
			n := f.MaxULPDU(1460)
			b.SetBytes(1460)
			b.ReportAllocs()
			for b.Loop() {
				f.Begin(l, n)
				f.End()
			}
		})
	}
}
