package tcp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
	"pgregory.net/rapid"
)

// link carries segments one way, with delay, loss, reordering and duplication.
type link struct {
	rng               *rand.Rand
	delay             time.Duration
	loss, dup, jitter float64
	queue             []packet
	now               clock.Instant
	from              *memory
	full              float64   // how often Send finds no room
	mtu               int       // larger packets are dropped and reported by ICMP
	tooBig            []seq.Num // sequence numbers that ICMP quotes
	mark              float64   // how often an ECN-capable packet is marked
	sent              int
}

type packet struct {
	at      clock.Instant
	h       wire.TCPFields
	payload []byte
	ce      bool
}

func (l *link) Send(h *wire.TCPFields, f port.Frame, off, n int) bool {
	if n == 0 {
		return l.SendCopy(h, nil)
	}
	return l.SendCopy(h, l.from.Bytes(f)[off:off+n])
}

func (l *link) SendCopy(h *wire.TCPFields, payload []byte) bool {
	n := len(payload)
	if l.full > 0 && l.rng.Float64() < l.full {
		return false
	}
	l.sent++
	b := append([]byte(nil), payload...)
	if l.mtu > 0 && n+40+12*b2i(h.HasTS) > l.mtu {
		l.tooBig = append(l.tooBig, h.Seq)
		return true
	}
	if l.rng.Float64() < l.loss {
		return true
	}
	for range 1 + b2i(l.rng.Float64() < l.dup) {
		d := l.delay
		if l.rng.Float64() < l.jitter {
			d += time.Duration(l.rng.Int64N(int64(3*l.delay) + 1))
		}
		ce := h.ECT && l.rng.Float64() < l.mark
		l.put(packet{l.now.Add(d), *h, b, ce})
	}
	return true
}

func (l *link) put(p packet) {
	i := len(l.queue)
	for i > 0 && p.at < l.queue[i-1].at {
		i--
	}
	l.queue = append(l.queue, packet{})
	copy(l.queue[i+1:], l.queue[i:])
	l.queue[i] = p
}

func (l *link) next() clock.Instant {
	if len(l.queue) == 0 {
		return clock.Never
	}
	return l.queue[0].at
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// end is one connection of a pair with its application. The application emits total octets of a pattern, and checks
// the pattern of what it reads.
type end struct {
	name           string
	c              *Conn
	m              *memory
	w              *watch
	out            *link
	total, written int
	read, want     int
	lazy           float64 // how often it does not read
	unload         float64 // how often its engine has too few frames
	moves          float64 // how often it moves before it runs
	other          *memory // memory that it has moved out of
	cfg            Config
	maxWrite       int
}

func (e *end) pattern(at int) byte { return byte(at*7 + at>>8*13) }

func (e *end) run(t tb, now clock.Instant) {
	rng := e.out.rng
	if e.moves > 0 && rng.Float64() < e.moves {
		e.move(t, now)
	}
	if rng.Float64() >= e.lazy {
		e.readSome(t)
	}
	if rng.Float64() < e.unload {
		e.c.Unload(1 + rng.IntN(8))
	}
	e.w.check()
	for e.written < e.total {
		n := min(1+rng.IntN(e.maxWrite), e.total-e.written, e.c.MaxEmit())
		b := e.c.Emit(n)
		if b == nil {
			break
		}
		for i := range b {
			b[i] = e.pattern(e.written + i)
		}
		e.written += n
	}
	if e.written == e.total {
		e.c.CloseWrite()
	}
	e.w.check()
	e.out.now = now
	e.c.Transmit(now, e.out)
	e.w.afterTransmit()
	for _, q := range e.out.tooBig {
		e.c.TooBig(now, q, uint16(e.out.mtu))
		e.w.check()
	}
	e.out.tooBig = e.out.tooBig[:0]
}

func (e *end) readSome(t tb) {
	var views [8][]byte
	n := e.c.Views(views[:])
	for _, v := range views[:n] {
		take := len(v)
		if e.out.rng.IntN(4) == 0 {
			take = e.out.rng.IntN(take + 1)
		}
		for i, b := range v[:take] {
			if b != e.pattern(e.read+i) {
				t.Fatalf("%s: octet %d of %d is %#x, want %#x", e.name, e.read+i, e.want, b, e.pattern(e.read+i))
			}
		}
		e.read += take
		e.c.Consume(take)
		if take < len(v) {
			return
		}
	}
}

func (e *end) deliver(t tb, p *packet) {
	f, b, ok := e.m.arrive(p.payload)
	if !ok {
		return
	}
	kept, why := e.c.Receive(p.at, &Segment{TCPFields: p.h, Payload: b, Frame: f, CE: p.ce})
	if why >= NumDrops {
		t.Fatalf("reason %d", why)
	}
	if !kept {
		e.m.Release(f)
	}
	e.w.check()
}

// pair is two connections and the links between them.
type pair struct {
	t    tb
	now  clock.Instant
	a, b *end
}

func (p *pair) step() bool {
	p.a.run(p.t, p.now)
	p.b.run(p.t, p.now)
	at := clock.Sooner(p.a.out.next(), p.b.out.next())
	at = clock.Sooner(at, clock.Sooner(p.a.c.Deadline(), p.b.c.Deadline()))
	if p.a.c.forced || p.b.c.forced || p.a.c.blocked || p.b.c.blocked || p.a.c.in.count+p.b.c.in.count > 0 || p.a.c.rst || p.b.c.rst ||
		p.a.written < p.a.total || p.b.written < p.b.total {
		at = clock.Sooner(at, p.now.Add(time.Millisecond))
	}
	if at == clock.Never {
		return false
	}
	p.now = max(p.now, at)
	for _, e := range []struct {
		l  *link
		to *end
	}{{p.a.out, p.b}, {p.b.out, p.a}} {
		for len(e.l.queue) > 0 && e.l.queue[0].at <= p.now {
			pkt := e.l.queue[0]
			e.l.queue = e.l.queue[1:]
			pkt.at = p.now
			e.to.deliver(p.t, &pkt)
		}
	}
	return true
}

// over reports whether an end has ended normally.
func (e *end) over(t tb) bool {
	done, err := e.c.Done()
	if done && err != nil {
		t.Fatalf("%s ended: %v\n%+v\n%+v", e.name, err, e.c.Info(), e.c.Stats())
	}
	return done
}

// plan is what varies between runs.
type plan struct {
	seed               uint64
	loss, dup, jitter  float64
	full, lazy         float64
	delay              time.Duration
	isnA, isnB         seq.Num
	sack, ts, noDelay  bool
	ecn                bool
	mark               float64
	congestion         string
	scaleA, scaleB     uint8
	rcvBuf             uint32
	share, slabs       int
	unload             float64 // how often transmit frames are short
	moves              float64 // how often a connection moves
	total              int
	maxWrite           int
	narrow             bool
	mssA, mssB         uint16
	queued, sentQueued int
}

func (pl *plan) start(t tb) *pair {
	rng := rand.New(rand.NewPCG(pl.seed, 1))
	p := &pair{t: t, now: 1_000_000}
	st := State{
		At: p.now, SndUna: pl.isnA, SndNxt: pl.isnA, SndWnd: 4000, MaxWnd: 4000,
		RcvNxt: pl.isnB, RcvWup: pl.isnB, RcvWnd: 4000, SndWL1: pl.isnB,
		SndScale: pl.scaleB, RcvScale: pl.scaleA, MSS: pl.mssB, MTU: 1500,
		SACK: pl.sack, Timestamps: pl.ts, TSNow: 0xfffffff0, NoDelay: pl.noDelay,
		ECN: pl.ecn, Congestion: pl.congestion,
	}
	// The longest RTO is well below TIME-WAIT. Otherwise the end in TIME-WAIT can be gone before the other one has
	// repeated its segment.
	cfg := Config{MaxRTO: 2 * time.Second, RcvBuf: pl.rcvBuf, SndBuf: 64 << 10, SndSegs: 64, RcvSegs: 64}
	p.a = pl.end(t, "A", st, cfg, rng)
	st.SndUna, st.SndNxt, st.RcvNxt, st.RcvWup, st.SndWL1 = pl.isnB, pl.isnB, pl.isnA, pl.isnA, pl.isnA
	st.SndScale, st.RcvScale, st.MSS = pl.scaleA, pl.scaleB, pl.mssA
	p.b = pl.end(t, "B", st, cfg, rng)
	return p
}

func (pl *plan) end(t tb, name string, st State, cfg Config, rng *rand.Rand) *end {
	m := newMemory(t, 96, 96, 2048, pl.share).withSlabs(pl.slabs)
	e := &end{name: name, m: m, total: pl.total, want: pl.total, lazy: pl.lazy, unload: pl.unload, moves: pl.moves, cfg: cfg, maxWrite: pl.maxWrite}
	if name == "A" && pl.queued > 0 {
		st.Queue = make([]byte, pl.queued)
		for i := range st.Queue {
			st.Queue[i] = e.pattern(i)
		}
		st.SndNxt = st.SndUna.Add(seq.Len(pl.sentQueued))
		e.written = pl.queued
	}
	c, err := New(st.At, st, cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	e.c = c
	e.w = newWatch(t, c, m)
	e.out = &link{rng: rng, delay: pl.delay, loss: pl.loss, dup: pl.dup, jitter: pl.jitter,
		full: pl.full, from: m, now: st.At, mark: pl.mark}
	if pl.narrow {
		e.out.mtu = 652
	}
	return e
}

// finish runs p until both ends have ended, and demands that everything arrived.
func (p *pair) finish(limit int) {
	p.t.Helper()
	for i := 0; !(p.a.over(p.t) && p.b.over(p.t)); i++ {
		if i == limit || !p.step() {
			p.t.Fatalf("stuck at %v after %d steps\nA %d/%d written %d read\n%+v\n%+v\nB %d/%d written %d read\n%+v\n%+v",
				time.Duration(p.now), i, p.a.written, p.a.total, p.a.read, p.a.c.Info(), p.a.c.Stats(),
				p.b.written, p.b.total, p.b.read, p.b.c.Info(), p.b.c.Stats())
		}
	}
	for _, e := range []*end{p.a, p.b} {
		if e.read != e.want || !e.c.EOF() {
			p.t.Fatalf("%s read %d of %d octets, end of stream %v", e.name, e.read, e.want, e.c.EOF())
		}
		e.c.Close()
		e.m.empty(p.t)
	}
}

// TestLossyPair runs two connections over a bad network: the stream arrives completely, in order and once.
func TestLossyPair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pl := &plan{
			seed:       rapid.Uint64().Draw(rt, "seed"),
			loss:       rapid.SampledFrom([]float64{0, 0.01, 0.05, 0.2}).Draw(rt, "loss"),
			dup:        rapid.SampledFrom([]float64{0, 0.05}).Draw(rt, "dup"),
			jitter:     rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(rt, "jitter"),
			full:       rapid.SampledFrom([]float64{0, 0.1}).Draw(rt, "full"),
			lazy:       rapid.SampledFrom([]float64{0, 0.5, 0.9}).Draw(rt, "lazy"),
			delay:      time.Duration(rapid.IntRange(0, 20000).Draw(rt, "delay")) * time.Microsecond,
			isnA:       seq.Num(rapid.Uint32().Draw(rt, "isnA")),
			isnB:       seq.Num(0 - rapid.Uint32Range(0, 50000).Draw(rt, "isnB")),
			sack:       rapid.Bool().Draw(rt, "sack"),
			ts:         rapid.Bool().Draw(rt, "ts"),
			noDelay:    rapid.Bool().Draw(rt, "noDelay"),
			ecn:        rapid.Bool().Draw(rt, "ecn"),
			mark:       rapid.SampledFrom([]float64{0, 0.05, 1}).Draw(rt, "mark"),
			congestion: rapid.SampledFrom([]string{"reno", "cubic"}).Draw(rt, "congestion"),
			scaleA:     uint8(rapid.IntRange(0, 14).Draw(rt, "scaleA")),
			scaleB:     uint8(rapid.IntRange(0, 8).Draw(rt, "scaleB")),
			rcvBuf:     rapid.Uint32Range(1000, 100000).Draw(rt, "rcvBuf"),
			share:      rapid.IntRange(1, 48).Draw(rt, "share"),
			slabs:      rapid.SampledFrom([]int{0, 0, 1, 2, 8}).Draw(rt, "slabs"),
			unload:     rapid.SampledFrom([]float64{0, 0, 0.1, 1}).Draw(rt, "unload"),
			total:      rapid.IntRange(0, 60000).Draw(rt, "total"),
			maxWrite:   rapid.SampledFrom([]int{1500, 100, 1448, 4000}).Draw(rt, "maxWrite"),
			narrow:     rapid.IntRange(0, 9).Draw(rt, "narrow") == 0,
			mssA:       uint16(rapid.SampledFrom([]int{1460, 536, 300, 1460}).Draw(rt, "mssA")),
			mssB:       1460,
		}
		pl.queued = min(rapid.IntRange(0, 20000).Draw(rt, "queued"), pl.total)
		pl.sentQueued = min(rapid.IntRange(0, 4000).Draw(rt, "sentQueued"), pl.queued)
		if pl.maxWrite <= 100 {
			pl.total = min(pl.total, 6000)
			pl.queued = min(pl.queued, pl.total)
			pl.sentQueued = min(pl.sentQueued, pl.queued)
		}
		func() {
			defer func() {
				if r := recover(); r != nil {
					panic(fmt.Sprintf("%v\nplan %+v", r, *pl))
				}
			}()
			pl.start(rt).finish(400000)
		}()
	})
}
