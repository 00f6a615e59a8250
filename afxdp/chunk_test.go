package afxdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestSingleOwner breaks each rule of ownership. With Check the queue must panic with
// the chunk's history. Without Check it must only count.
func TestSingleOwner(t *testing.T) {
	type queue = *fake
	take := func(q queue) port.Frame {
		var f [1]port.Frame
		q.Take(f[:])
		return f[0]
	}
	receive := func(q queue) port.Frame {
		var f [1]port.Frame
		q.Receive(nil)
		q.deliver(256, 60)
		q.Receive(f[:])
		return f[0]
	}
	for _, c := range []struct {
		name string
		do   func(q queue)
		says string
	}{
		{"free twice", func(q queue) { f := take(q); q.Free([]port.Frame{f, f}) }, "taken (#1), freed (#2)"},
		{"free what was received", func(q queue) { q.Free([]port.Frame{receive(q)}) }, "receive chunk"},
		{"recycle twice", func(q queue) { f := receive(q); q.Recycle([]port.Frame{f, f}) }, "received"},
		{"recycle what was taken", func(q queue) { q.Recycle([]port.Frame{take(q)}) }, "transmit chunk"},
		{"send twice", func(q queue) { f := take(q); q.Send([]port.Frame{f, f}) }, "held and with the kernel"},
		{"send after free", func(q queue) { f := []port.Frame{take(q)}; q.Free(f); q.Send(f) }, "in the pool"},
		{"send what was received", func(q queue) { q.Send([]port.Frame{receive(q)}) }, "receive chunk"},
		{"send nothing", func(q queue) { f := take(q); f.Len = 0; q.Send([]port.Frame{f}) }, "Len:0"},
		{"send beyond the chunk", func(q queue) { f := take(q); f.Len++; q.Send([]port.Frame{f}) }, "cannot be sent"},
		{"send a huge length", func(q queue) { f := take(q); f.Len = ^uint32(0); q.Send([]port.Frame{f}) }, "cannot be sent"},
		{"recycle another queue's", func(q queue) { q.Recycle([]port.Frame{{Addr: q.base - 1}}) }, "outside the queue's region"},
		{"free another queue's", func(q queue) { q.Free([]port.Frame{{Addr: q.base + q.size}}) }, "outside the queue's region"},
		{"free an absurd one", func(q queue) { q.Free([]port.Frame{{Addr: ^uint64(0)}}) }, "outside the queue's region"},
		{"complete what was not sent", func(q queue) { f := take(q); q.complete(f.Addr - q.base); q.Room() }, "cannot be completed"},
		{"complete nonsense", func(q queue) { q.complete(^uint64(0)); q.Room() }, "cannot be completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newFake(t, small)
			defer q.close(t)
			if said := panics(t, func() { c.do(q) }); !strings.Contains(said, c.says) || !strings.Contains(said, "test0 queue 0") {
				t.Errorf("it says %q, not %q", said, c.says)
			}
			quiet := small
			quiet.Check = debug
			if debug {
				return
			}
			q = newFake(t, quiet)
			defer q.close(t)
			c.do(q)
			if q.count.Misused != 1 {
				t.Errorf("%d counted, want 1", q.count.Misused)
			}
		})
	}
}

// TestBytesOfAFrameNotHeld checks that Bytes counts as a use of the frame.
func TestBytesOfAFrameNotHeld(t *testing.T) {
	q := newFake(t, small)
	defer q.close(t)
	f := make([]port.Frame, 1)
	q.Take(f)
	q.Free(f)
	if said := panics(t, func() { q.Bytes(f[0]) }); !strings.Contains(said, "cannot be viewed") {
		t.Errorf("it says %q", said)
	}
}

// TestBadDescriptors checks that invalid descriptors from the kernel are refused.
func TestBadDescriptors(t *testing.T) {
	c := small
	c.Check = false
	if debug {
		t.Log("stagdebug panics on the first; see TestSingleOwner")
		return
	}
	q := newFake(t, c)
	defer q.close(t)
	q.Receive(nil)
	addr, _ := q.fill.Next()
	bad := []unix.XDPDesc{
		{Addr: q.size, Len: 60},                                      // after the region
		{Addr: ^uint64(0) - 100, Len: 60},                            // before the region
		{Addr: uint64(c.RxFrames) * uint64(q.cfg.FrameSize), Len: 1}, // a transmit chunk
		{Addr: addr + 256, Len: q.cfg.FrameSize - 255},               // beyond the chunk
		{Addr: uint64(35) << q.shift, Len: 60},                       // a chunk that the kernel does not own (its ring has 32)
	}
	for _, d := range bad {
		q.rx.Put(d)
	}
	q.rx.Put(unix.XDPDesc{Addr: addr + 256, Len: q.cfg.FrameSize - 256})
	q.rx.Publish()
	var got [8]port.Frame
	if n := q.Receive(got[:]); n != 1 || got[0].Addr != q.base+addr+256 || got[0].Len != q.cfg.FrameSize-256 {
		t.Errorf("%d frames: %+v", n, got[:n])
	}
	if q.count.RxBad != uint64(len(bad)) {
		t.Errorf("%d counted, want %d", q.count.RxBad, len(bad))
	}
}

// TestInFlight checks that InFlight reaps completions itself.
func TestInFlight(t *testing.T) {
	q := newFake(t, small)
	defer q.close(t)
	f := make([]port.Frame, 1)
	q.Take(f)
	q.Send(f)
	d := q.consume(1)
	if !q.InFlight(f[0]) {
		t.Error("not in flight before its completion")
	}
	q.complete(d[0].Addr)
	if q.InFlight(f[0]) {
		t.Error("in flight after its completion")
	}
}

// TestNapsAreShortWhileACompletionIsAwaited checks the limit of the sleep, because a
// completion does not end a poll.
func TestNapsAreShortWhileACompletionIsAwaited(t *testing.T) {
	q := newFake(t, small)
	defer q.close(t)
	expect := func(what string, want time.Duration) {
		t.Helper()
		if got := q.firstLimit(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("idle", probeEvery)
	f := make([]port.Frame, 32)
	q.Take(f)
	q.Send(f)
	expect("frames in the ring", firstSleep)
	sent := q.consume(32)
	expect("frames under way, no shortage", probeEvery)
	q.Take(make([]port.Frame, 48))
	expect("frames under way and a shortage", firstSleep)
	for _, d := range sent {
		q.complete(d.Addr)
	}
	q.Room()
	expect("all are back", probeEvery)
}

// TestRegionUsedAgain checks that a region contains no records of an earlier queue.
func TestRegionUsedAgain(t *testing.T) {
	a, err := NewArena(1 << 16)
	rig.Must(t, err)
	defer a.Close()
	r, err := a.Cut(1 << 15)
	rig.Must(t, err)
	release, err := r.claim(4096)
	rig.Must(t, err)
	r.Bytes()[256-port.RecordLen] = 1
	if _, err := r.claim(4096); !errors.Is(err, unix.EBUSY) {
		t.Errorf("claimed twice: %v", err)
	}
	rig.Must(t, release())
	if _, err := r.claim(2048); err == nil || !strings.Contains(err.Error(), "make them equal") {
		t.Errorf("two chunk sizes in an arena: %v", err)
	}
	release, err = r.claim(4096)
	rig.Must(t, err)
	if r.Bytes()[256-port.RecordLen] != 0 {
		t.Error("an old record")
	}
	rig.Must(t, release())
}

// TestViews checks Bytes and Record for every offset at which a packet may begin.
func TestViews(t *testing.T) {
	q := newFake(t, small)
	defer q.close(t)
	size := q.cfg.FrameSize
	for _, at := range []uint32{0, 1, 31, 32, 33, 256, 288, size - 1} {
		q.Receive(nil)
		d, _ := q.deliver(at, 1)
		var f [1]port.Frame
		if q.Receive(f[:]) != 1 {
			t.Fatal("nothing received")
		}
		b := q.Bytes(f[0])
		if len(b) != 1 || cap(b) != int(size-at) || &b[0] != &q.mem[q.base+d.Addr] {
			t.Errorf("at %d: %d octets, capacity %d", at, len(b), cap(b))
		}
		r := q.Record(f[0])
		if at < port.RecordLen && r != nil {
			t.Errorf("at %d: a record that begins in another chunk", at)
		} else if at >= port.RecordLen && (len(r) != port.RecordLen || cap(r) != port.RecordLen || &r[0] != &q.mem[q.base+d.Addr-port.RecordLen]) {
			t.Errorf("at %d: record of %d octets", at, len(r))
		}
		for i := range r {
			r[i] = 0xee
		}
		moved := f // an engine may have advanced its view
		moved[0].Addr |= uint64(size - 1)
		q.Recycle(moved[:])
		if r != nil && !bytes.Equal(r[:8], make([]byte, 8)) {
			t.Errorf("at %d: record not wiped: %x", at, r)
		}
	}
	f := port.Frame{Addr: q.base + q.size, Len: 64} // a frame of another queue of the arena
	if b := q.Bytes(f); len(b) != 64 || cap(b) != int(size) {
		t.Errorf("another queue's frame: %d octets, capacity %d", len(b), cap(b))
	}
}

// pool makes random calls as engine and as kernel, and compares them with a model of
// the owner of each chunk. The queue's own checks are on.
type pool struct {
	*fake
	rxHeld []port.Frame          // received, not recycled
	txHeld map[uint64]port.Frame // taken, not freed, by chunk address
	flying map[uint64]byte       // sent, not completed: contents of the chunk
	ringed []unix.XDPDesc        // consumed by the kernel, not completed
	stamp  byte
}

func (p *pool) chunk(addr uint64) uint64 { return addr &^ uint64(p.cfg.FrameSize-1) }

// pick removes and returns a random subset of frames.
func pick(t *rapid.T, frames []port.Frame) (some, rest []port.Frame) {
	for _, f := range frames {
		if rapid.Bool().Draw(t, "this one") {
			some = append(some, f)
		} else {
			rest = append(rest, f)
		}
	}
	return some, rest
}

func (p *pool) receive(t *rapid.T) {
	dst := make([]port.Frame, rapid.IntRange(0, 12).Draw(t, "room"))
	n := p.Receive(dst)
	for _, f := range dst[:n] {
		if f.Home != p.cfg.Lane || p.Bytes(f)[0] != p.mem[f.Addr] {
			t.Fatalf("frame %+v", f)
		}
		p.rxHeld = append(p.rxHeld, f)
	}
}

func (p *pool) recycle(t *rapid.T) {
	var some []port.Frame
	some, p.rxHeld = pick(t, p.rxHeld)
	p.Recycle(some)
}

// arrive fills chunks as the kernel does, and checks that they contain no old record.
func (p *pool) arrive(t *rapid.T) {
	for range rapid.IntRange(1, 10).Draw(t, "packets") {
		if p.rx.Room(1) == 0 {
			return
		}
		at := rapid.SampledFrom([]uint32{256, 256, 224, 288, 40}).Draw(t, "at")
		d, ok := p.deliver(at, rapid.Uint32Range(1, p.cfg.FrameSize-at).Draw(t, "length"))
		if !ok {
			return
		}
		record := p.mem[p.base+d.Addr-port.RecordLen:]
		if binary.NativeEndian.Uint64(record) != 0 {
			t.Fatalf("chunk at %d given to the kernel with a record in it", d.Addr)
		}
		for i := range port.RecordLen {
			record[i] = 0xaa
		}
	}
}

func (p *pool) take(t *rapid.T) {
	dst := make([]port.Frame, rapid.IntRange(0, 20).Draw(t, "want"))
	for _, f := range dst[:p.Take(dst)] {
		c := p.chunk(f.Addr)
		if _, twice := p.txHeld[c]; twice || f.Addr-c != port.Headroom || f.Len != p.Limits().MaxPayload {
			t.Fatalf("lent %+v", f)
		}
		if _, flying := p.flying[c]; flying {
			t.Fatalf("lent %+v, which is in flight", f)
		}
		p.txHeld[c] = f
	}
}

// held returns the held frames in the order of their addresses, either those in flight
// or the others.
func (p *pool) held(flying bool) (some []port.Frame) {
	for i := range p.cfg.TxFrames {
		c := p.memory(p.cfg.RxFrames + i)
		f, ok := p.txHeld[c]
		if _, away := p.flying[c]; ok && away == flying {
			some = append(some, f)
		}
	}
	return some
}

func (p *pool) send(t *rapid.T) {
	some, _ := pick(t, p.held(false))
	for i := range some {
		f := &some[i]
		if p.InFlight(*f) {
			t.Fatalf("%+v is not in flight", *f)
		}
		back := rapid.Uint64Range(0, port.Headroom).Draw(t, "headers")
		f.Addr -= back
		f.Len = rapid.Uint32Range(1, p.cfg.FrameSize-port.Headroom+uint32(back)).Draw(t, "length")
		p.stamp++
		p.Bytes(*f)[f.Len-1] = p.stamp
	}
	room := p.Room()
	n := p.Send(some)
	if n != min(room, len(some)) {
		t.Fatalf("Send takes %d of %d with room for %d", n, len(some), room)
	}
	for _, f := range some[:n] {
		p.flying[p.chunk(f.Addr)] = p.mem[f.Addr+uint64(f.Len)-1]
	}
}

func (p *pool) free(t *rapid.T) {
	some, _ := pick(t, append(p.held(false), p.held(true)...))
	p.Free(some)
	for _, f := range some {
		delete(p.txHeld, p.chunk(f.Addr))
	}
}

// transmit takes descriptors as the kernel does, and completes some of them in any
// order.
func (p *pool) transmit(t *rapid.T) {
	p.ringed = append(p.ringed, p.consume(rapid.IntRange(0, 12).Draw(t, "descriptors"))...)
	for range rapid.IntRange(0, len(p.ringed)).Draw(t, "completions") {
		k := rapid.IntRange(0, len(p.ringed)-1).Draw(t, "which")
		d := p.ringed[k]
		p.ringed = append(p.ringed[:k], p.ringed[k+1:]...)
		c := p.base + p.chunk(d.Addr)
		if p.mem[p.base+d.Addr+uint64(d.Len)-1] != p.flying[c] {
			t.Fatalf("chunk at %d was written to while in flight", c)
		}
		p.complete(d.Addr)
		delete(p.flying, c)
	}
	p.Room()
}

// whole checks that every chunk has the owner that the model has.
func (p *pool) whole(t *rapid.T) {
	out := 0
	for i := range p.cfg.TxFrames {
		c := p.memory(p.cfg.RxFrames + i)
		_, isHeld := p.txHeld[c]
		_, isAway := p.flying[c]
		if got := p.state[p.cfg.RxFrames+i]; got&held != 0 != isHeld || got&away != 0 != isAway {
			t.Fatalf("chunk at %d is %v; held %v, in flight %v", c, got, isHeld, isAway)
		}
		if isHeld || isAway {
			out++
		}
	}
	if len(p.txPool) != int(p.cfg.TxFrames)-out || p.Queue.flying != len(p.flying) {
		t.Fatalf("%d in the pool, %d of %d out; %d in flight, want %d",
			len(p.txPool), out, p.cfg.TxFrames, p.Queue.flying, len(p.flying))
	}
	if p.count.Misused+p.count.RxBad != 0 {
		t.Fatalf("counts: %+v", p.count)
	}
}

func owners(t *rapid.T) {
	p := &pool{fake: newFake(t, small), txHeld: map[uint64]port.Frame{}, flying: map[uint64]byte{}}
	defer p.close(t)
	p.Receive(nil)
	t.Repeat(map[string]func(*rapid.T){
		"receive": p.receive, "recycle": p.recycle, "arrive": p.arrive,
		"take": p.take, "send": p.send, "free": p.free, "transmit": p.transmit,
		"": p.whole,
	})
}

func TestOwners(t *testing.T) { rapid.Check(t, owners) }

func FuzzOwners(f *testing.F) { f.Fuzz(rapid.MakeFuzz(owners)) }
