package engine

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

func TestPassRingKeepsOrderAndRefusesWhenFull(t *testing.T) {
	var r passRing
	r.init(5) // rounded up to 8
	for i := range 8 {
		if !r.give(port.Frame{Addr: uint64(i)}) {
			t.Fatalf("full at %d", i)
		}
	}
	if r.give(port.Frame{}) {
		t.Fatal("a ninth frame fits into 8 slots")
	}
	for i := range 8 {
		if f, ok := r.take(); !ok || f.Addr != uint64(i) {
			t.Fatalf("frame %d: %v %v", i, f, ok)
		}
	}
	if _, ok := r.take(); ok {
		t.Fatal("not empty")
	}
}

// Many engines give and one takes: every frame comes out once and whole. Frames of one
// giver come in their order.
func TestPassRingWithManyGivers(t *testing.T) {
	const givers, n = 8, 20000
	var r passRing
	r.init(64)
	var all sync.WaitGroup
	for g := range givers {
		all.Go(func() {
			for i := 0; i < n; {
				if r.give(port.Frame{Addr: uint64(i), Len: uint32(i), Home: port.Lane(g)}) {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var next [givers]int
	for left := givers * n; left > 0; {
		f, ok := r.take()
		if !ok {
			runtime.Gosched()
			continue
		}
		if f.Addr != uint64(next[f.Home]) || f.Len != uint32(f.Addr) {
			t.Fatalf("frame %d of giver %d is %v", next[f.Home], f.Home, f)
		}
		next[f.Home]++
		left--
	}
	all.Wait()
	if f, ok := r.take(); ok {
		t.Errorf("one frame more than was given: %v", f)
	}
}

// Many engines have the frames of a pool, and return them at the same time, again and
// again. Each frame comes back once, and the ring has room for all of them.
func TestHomeRingWithManyGivers(t *testing.T) {
	const givers, frames, rounds = 8, 64, 300
	var r homeRing
	r.init(frames)
	for round := range rounds {
		var all sync.WaitGroup
		for g := range givers {
			all.Go(func() {
				for i := g; i < frames; i += givers {
					r.give(uint64(i) * 4096)
				}
			})
		}
		var seen [frames]bool
		for left := frames; left > 0; {
			addr, ok := r.take()
			if !ok {
				runtime.Gosched()
				continue
			}
			if i := addr / 4096; addr%4096 != 0 || i >= frames || seen[i] {
				t.Fatalf("round %d: frame at %d came home, seen before: %v", round, addr, seen)
			} else {
				seen[i] = true
			}
			left--
		}
		all.Wait()
	}
	if addr, ok := r.take(); ok {
		t.Errorf("one frame more than was given: %d", addr)
	}
}

// A frame that comes back twice is an error that must be noticed.
func TestHomeRingNoticesFramesThatComeTwice(t *testing.T) {
	var r homeRing
	r.init(4)
	for i := range 4 {
		r.give(uint64(i))
	}
	defer func() {
		if recover() == nil {
			t.Error("a fifth of four frames came home, and nobody noticed")
		}
	}()
	r.give(0)
}

// The rings of an engine take memory for each lane, not for each pair of lanes.
func TestMailGrowsWithLanes(t *testing.T) {
	const frames = 4096
	of := func(lanes int) (octets uint64) {
		engines, _ := joined(t, lanes, frames)
		for _, e := range engines {
			octets += uint64(len(e.mail.pass.slots))*uint64(reflect.TypeFor[passSlot]().Size()) + 8*uint64(len(e.mail.home.slots))
		}
		return octets
	}
	two, most := of(2), of(64)
	pairs := func(n uint64) uint64 {
		return n * (n - 1) * (256 + frames) * uint64(reflect.TypeFor[port.Frame]().Size())
	}
	t.Logf("rings between engines with %d frames a lane: 2 lanes %d octets, 64 lanes %d octets; a ring pair for each pair of engines would take %d and %d",
		frames, two, most, pairs(2), pairs(64))
	if most != 32*two {
		t.Errorf("64 lanes take %d octets and 2 lanes take %d: want 32 times as many", most, two)
	}
}

// A frame for an owner that no lane has stays in its pool.
func TestPassToNoSuchLane(t *testing.T) {
	engines, _ := joined(t, 2, 128)
	for i, lane := range []port.Lane{2, 64, 0xfffe, noLane, 0} {
		engines[0].passTo(lane, port.Frame{Home: 0})
		if n := len(engines[0].frames.spent); n != i+1 {
			t.Errorf("lane %d: %d frames are to be given back, want %d", lane, n, i+1)
		}
		if n := engines[0].count.drops[DropNoOwner]; n != uint64(i+1) {
			t.Errorf("lane %d: %d frames count as without an owner, want %d", lane, n, i+1)
		}
	}
}

// Frames that wait for an engine which ends go back to their pools, and so do frames
// that come later.
func TestMailOfAnEngineThatEnds(t *testing.T) {
	engines, _ := joined(t, 3, 128)
	giver, ends := engines[0], engines[2]
	giver.passTo(2, port.Frame{Addr: 4096, Home: 0})
	giver.passTo(2, port.Frame{Addr: 8192, Home: 1})
	ends.ended.Store(true)
	ends.returnMail()
	giver.passTo(2, port.Frame{Addr: 12288, Home: 0})
	if addr, ok := giver.mail.home.take(); !ok || addr != 4096 {
		t.Errorf("the giver's own frame: %d %v", addr, ok)
	}
	if addr, ok := engines[1].mail.home.take(); !ok || addr != 8192 {
		t.Errorf("another lane's frame: %d %v", addr, ok)
	}
	if len(giver.frames.spent) != 1 || giver.frames.spent[0].Addr != 12288 || giver.count.drops[DropNoOwner] != 1 {
		t.Errorf("a frame for an engine that has ended: %v, %d without an owner", giver.frames.spent, giver.count.drops[DropNoOwner])
	}
}

// A frame that is given to an engine at the moment at which that engine ends goes back to its pool, whoever has the
// engine's token then.
func TestMailWhileAnEngineEnds(t *testing.T) {
	const rounds, frames = 100_000, 8
	engines, _ := joined(t, 2, 128)
	giver, ends := engines[0], engines[1]
	var began, over atomic.Uint64
	var stop atomic.Bool
	var helper sync.WaitGroup
	defer helper.Wait()
	defer stop.Store(true) // ends the helper if a round fails
	helper.Go(func() {
		for round := range uint64(rounds) {
			for began.Load() != round+1 {
				if stop.Load() {
					return
				}
				runtime.Gosched()
			}
			ends.endAll(nil)
			over.Store(round + 1)
		}
	})
	for round := range uint64(rounds) {
		ends.ended.Store(false)
		began.Store(round + 1)
		for i := range frames {
			giver.passTo(1, port.Frame{Addr: uint64(i), Home: 0})
		}
		for over.Load() != round+1 {
			runtime.Gosched()
		}
		back := len(giver.frames.spent)
		giver.frames.spent = giver.frames.spent[:0]
		for _, ok := giver.mail.home.take(); ok; _, ok = giver.mail.home.take() {
			back++
		}
		if back != frames {
			t.Fatalf("round %d: %d of %d frames are back", round, back, frames)
		}
	}
}

// A frame that comes while the token of an engine that has ended is held is returned when the token is free.
func TestMailWhileTheTokenIsHeld(t *testing.T) {
	engines, _ := joined(t, 2, 128)
	giver, ends := engines[0], engines[1]
	late := func(addr uint64) { // as passTo does if the engine has ended meanwhile
		ends.mail.pass.give(port.Frame{Addr: addr, Home: 0})
		ends.mail.late.Store(true)
		ends.drain()
	}
	home := func(holder string, want uint64) {
		t.Helper()
		if addr, ok := giver.mail.home.take(); !ok || addr != want {
			t.Errorf("%s had the token: the frame that came is not back: %d %v", holder, addr, ok)
		}
	}
	ends.flows[3] = &flow{e: ends, id: nextID(3, 0), place: -1, lingers: true}
	ends.cfg.Ended = func(End) { late(4096) }
	ends.endAll(nil)
	home("endAll", 4096)
	close(ends.stopped)
	if err := ends.between(context.Background(), func() { late(8192) }); err != nil {
		t.Fatal(err)
	}
	home("between", 8192)
}

// quiet is a port that counts how often it is woken.
type quiet struct {
	port.Port
	lane   port.Lane
	port   uint16
	frames uint32
	woken  int
}

func (q *quiet) Limits() port.Limits {
	return port.Limits{Queue: uint16(q.lane), Lane: q.lane, Port: q.port, FrameSize: 4096, RxFrames: q.frames, TxFrames: q.frames, MaxPacket: 4096, MaxPayload: 3900}
}

func (q *quiet) Wake() { q.woken++ }

// joined returns n engines of one adapter, each with the given number of frames.
func joined(t *testing.T, n int, frames uint32) (engines []*Engine, ports []*quiet) {
	t.Helper()
	dir, err := NewDirectory(64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		p := &quiet{lane: port.Lane(i), frames: frames}
		e, err := New(p, dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		engines, ports = append(engines, e), append(ports, p)
	}
	if err := Join(engines...); err != nil {
		t.Fatal(err)
	}
	return engines, ports
}

// Every engine that a frame is left for is woken once, whatever the number of lanes.
func TestWakeBeyond64Lanes(t *testing.T) {
	engines, ports := joined(t, 130, 128)
	for _, q := range []port.Lane{1, 63, 64, 65, 127, 128, 129} {
		engines[0].passTo(q, port.Frame{})
		engines[0].passTo(q, port.Frame{})
		engines[0].wakePeers()
		engines[0].wakePeers()
		if ports[q].woken != 1 {
			t.Errorf("lane %d got two frames in one step, and its engine was woken %d times", q, ports[q].woken)
		}
	}
	engines[0].release(port.Frame{Home: 100})
	engines[0].wakePeers()
	if ports[100].woken != 1 {
		t.Errorf("lane 100 got its frame back, and its engine was woken %d times", ports[100].woken)
	}
}
