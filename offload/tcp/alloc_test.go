package tcp

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

// loop passes segments from one connection directly to another and copies only the payload. One in lose segments with
// data is lost.
type loop struct {
	from, to *memory
	peer     *Conn
	now      clock.Instant
	seg      [64]Segment
	n        int
	lose     int
	count    int
}

func (l *loop) Send(h *wire.TCPFields, f port.Frame, off, n int) bool {
	if n == 0 {
		return l.SendCopy(h, nil)
	}
	return l.SendCopy(h, l.from.Bytes(f)[off:off+n])
}

func (l *loop) SendCopy(h *wire.TCPFields, payload []byte) bool {
	n := len(payload)
	if l.n == len(l.seg) {
		return false
	}
	if n > 0 {
		if l.count++; l.lose > 0 && l.count%l.lose == 0 {
			return true
		}
	}
	fr, b, ok := l.to.arrive(payload)
	if !ok {
		return true
	}
	l.seg[l.n] = Segment{TCPFields: *h, Payload: b, Frame: fr}
	l.n++
	return true
}

// deliver passes on what was sent.
func (l *loop) deliver() {
	for i := range l.n {
		if kept, _ := l.peer.Receive(l.now, &l.seg[i]); !kept {
			l.to.Release(l.seg[i].Frame)
		}
	}
	l.n = 0
}

type looped struct {
	a, b   *Conn
	ab, ba loop
	now    clock.Instant
	views  [8][]byte
}

func newLooped(t testing.TB, lose int, change ...func(*State, *Config)) *looped {
	l := &looped{now: scriptStart}
	ma, mb := newMemory(t, 256, 256, 2048, 64), newMemory(t, 256, 256, 2048, 64)
	st := State{At: l.now, SndUna: 1, SndNxt: 1, SndWnd: 60000, MaxWnd: 60000, RcvNxt: 1, RcvWup: 1, RcvWnd: 60000,
		SndScale: 4, RcvScale: 4, MSS: 1460, MTU: 1500, SACK: true, Timestamps: true, NoDelay: true}
	cfg := Config{SndSegs: 128, RcvSegs: 64}
	for _, f := range change {
		f(&st, &cfg)
	}
	var err error
	if l.a, err = New(l.now, st, cfg, ma); err != nil {
		t.Fatal(err)
	}
	if l.b, err = New(l.now, st, cfg, mb); err != nil {
		t.Fatal(err)
	}
	l.ab = loop{from: ma, to: mb, peer: l.b, lose: lose}
	l.ba = loop{from: mb, to: ma, peer: l.a}
	return l
}

// round does one round trip: A fills its window, B reads and acknowledges. It returns how many octets arrived.
func (l *looped) round() (octets int) {
	l.now = l.now.Add(time.Millisecond)
	l.ab.now, l.ba.now = l.now, l.now
	for l.a.Emit(1448) != nil {
	}
	l.a.Transmit(l.now, &l.ab)
	l.ab.deliver()
	for n := l.b.Views(l.views[:]); n > 0; n = l.b.Views(l.views[:]) {
		for _, v := range l.views[:n] {
			octets += len(v)
			l.b.Consume(len(v))
		}
	}
	l.b.Transmit(l.now, &l.ba)
	l.ba.deliver()
	return octets
}

// TestNothingAllocates: a running connection allocates nothing.
func TestNothingAllocates(t *testing.T) {
	for _, x := range []struct {
		name    string
		lose    int
		control string
	}{{"clean", 0, "reno"}, {"one in 37 lost", 37, "reno"}, {"CUBIC with ECN", 37, "cubic"}} {
		t.Run(x.name, func(t *testing.T) {
			l := newLooped(t, x.lose, func(st *State, _ *Config) { st.Congestion, st.ECN = x.control, x.control == "cubic" })
			moved := 0
			if n := testing.AllocsPerRun(500, func() { moved += l.round() }); n != 0 {
				t.Errorf("%v allocations per round trip", n)
			}
			if moved < 1<<20 {
				t.Errorf("only %d octets moved: %+v", moved, l.a.Info())
			}
			if x.lose > 0 && l.a.Stats().Retransmits == 0 {
				t.Error("nothing was retransmitted")
			}
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, x := range []struct {
		name    string
		lose    int
		control string
	}{{"clean", 0, "reno"}, {"lossy", 100, "reno"}, {"clean, CUBIC", 0, "cubic"}, {"lossy, CUBIC", 100, "cubic"}} {
		b.Run(x.name, func(b *testing.B) {
			l := newLooped(b, x.lose, func(st *State, _ *Config) { st.Congestion = x.control })
			b.ReportAllocs()
			octets := 0
			for b.Loop() {
				octets += l.round()
			}
			b.SetBytes(int64(octets / b.N))
			segs := l.a.Stats().SegsOut + l.b.Stats().SegsOut
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(segs), "ns/segment")
		})
	}
}

// nowhere is an Output that accepts and drops every segment.
type nowhere struct{}

func (nowhere) Send(*wire.TCPFields, port.Frame, int, int) bool { return true }

func (nowhere) SendCopy(*wire.TCPFields, []byte) bool { return true }

// BenchmarkReceive receives and consumes one in-order segment, with an ACK for every second one.
func BenchmarkReceive(b *testing.B) {
	l := newLooped(b, 0)
	fr, data, _ := l.ab.to.arrive(make([]byte, 1448))
	s := Segment{TCPFields: wire.TCPFields{Seq: 1, Ack: 1, Flags: wire.ACK, Window: 4000, HasTS: true}, Payload: data, Frame: fr}
	b.SetBytes(1448)
	b.ReportAllocs()
	for b.Loop() {
		kept, why := l.b.Receive(l.now, &s)
		if !kept {
			b.Fatal(why)
		}
		l.b.Consume(1448)
		l.b.Transmit(l.now, nowhere{})
		s.Seq = s.Seq.Add(1448)
		s.TSVal++
		s.Frame, s.Payload, _ = l.ab.to.arrive(nil)
		s.Payload = data
	}
}

// BenchmarkTransmit emits and sends one full segment, with an ACK for every second one.
func BenchmarkTransmit(b *testing.B) {
	l := newLooped(b, 0)
	s := Segment{TCPFields: wire.TCPFields{Seq: 1, Flags: wire.ACK, Window: 4000, HasTS: true, TSVal: 1}}
	b.SetBytes(1448)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if l.a.Emit(1448) == nil {
			b.Fatal("no room")
		}
		l.a.Transmit(l.now, nowhere{})
		if i&1 == 1 {
			s.Ack = l.a.sndNxt
			l.a.Receive(l.now, &s)
		}
	}
}
