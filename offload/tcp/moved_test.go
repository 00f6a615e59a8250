package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// move exports the end's connection and makes it again with other memory. It demands that nothing lent by the first
// memory is kept, and that an export of the second connection equals the State that it was made from.
func (e *end) move(t tb, now clock.Instant) {
	if done, _ := e.c.Done(); done || e.c.phase == Closed {
		return
	}
	st := e.export(t, now)
	e.remake(t, now, st)
	if e.out.rng.IntN(8) != 0 {
		return
	}
	again := e.export(t, now)
	if want, got := settled(st), settled(again); !reflect.DeepEqual(want, got) {
		want.Queue, got.Queue = want.Queue[:min(8, len(want.Queue))], got.Queue[:min(8, len(got.Queue))]
		t.Fatalf("%s: exported\n%+v\n%+v\nand after New\n%+v\n%+v", e.name, want, *want.Moved, got, *got.Moved)
	}
	e.remake(t, now, st)
}

func (e *end) export(t tb, now clock.Instant) State {
	st, err := e.c.Export(now)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	e.m.empty(t)
	if done, err := e.c.Done(); !done || err != ErrExported {
		t.Fatalf("%s: after Export, Done is %v, %v", e.name, done, err)
	}
	return carried(t, now, st)
}

// carried encodes and decodes st. The result must be equal to st, also in a process whose
// clock is another. Every second connection continues with the decoded State.
func carried(t tb, now clock.Instant, st State) State {
	b, err := st.AppendTo(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeState(b, now)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, st) {
		t.Fatalf("encoded\n%+v\n%+v\nand decoded\n%+v\n%+v", st, st.Moved, got, got.Moved)
	}
	elsewhere := now - 3e15
	far, err := DecodeState(b, elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := far.AppendTo(nil, elsewhere); err != nil || !bytes.Equal(again, b) {
		t.Fatalf("encoded again with another clock: %v, equal %v", err, bytes.Equal(again, b))
	}
	if st.SndNxt%2 == 0 {
		return got
	}
	return st
}

func (e *end) remake(t tb, now clock.Instant, st State) {
	m := e.other
	if m == nil {
		m = newMemory(t, len(e.m.tx.held), len(e.m.rx.held), e.m.chunk, e.m.share).withSlabs(len(e.m.slabs))
	}
	c, err := New(now, st, e.cfg, m)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	e.other = e.m
	e.m, e.c, e.w.m, e.w.c, e.out.from = m, c, m, c, m
	e.w.check()
}

// settled returns st without what New changes in it: a recovery that begins, and timers that it starts.
func settled(st State) State {
	m := *st.Moved
	m.Recovering, m.Hole, m.ProbeTail, m.Control, m.Resent, m.Missing = false, false, false, nil, 0, 0
	m.RTOAt, m.PersistAt, m.StalledAt, m.PersistBackoff = 0, 0, 0, 0
	m.DupAcks, m.ECNHeld, m.ECNReduced = 0, false, false
	m.Stats.Recoveries = 0
	m.Arrived = m.Arrived || len(st.Unread) > 0
	st.Cwnd, st.Ssthresh = 0, 0
	st.Moved = &m
	return st
}

// movedPlan returns the plan of one seed: a network that may be bad, and connections that move sometimes, or at every
// step.
func movedPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 2))
	oneOf := func(list ...float64) float64 { return list[rng.IntN(len(list))] }
	pl := &plan{
		seed: seed, loss: oneOf(0, 0.01, 0.05, 0.2), dup: oneOf(0, 0.05), jitter: oneOf(0, 0.1, 0.5),
		full: oneOf(0, 0.1), lazy: oneOf(0, 0.5, 0.9), moves: oneOf(0.01, 0.1, 0.5, 1),
		delay: time.Duration(rng.IntN(20000)) * time.Microsecond,
		isnA:  seq.Num(rng.Uint32()), isnB: seq.Num(0 - rng.Uint32N(50000)),
		sack: rng.IntN(2) == 0, ts: rng.IntN(2) == 0, noDelay: rng.IntN(2) == 0, ecn: rng.IntN(2) == 0, mark: oneOf(0, 0.05, 1),
		congestion: []string{"reno", "cubic"}[rng.IntN(2)], scaleA: uint8(rng.IntN(15)), scaleB: uint8(rng.IntN(9)),
		rcvBuf: 1000 + rng.Uint32N(99000), share: 1 + rng.IntN(48), slabs: rng.IntN(9), unload: oneOf(0, 0.1, 1),
		total: rng.IntN(20000), maxWrite: 100 + rng.IntN(3900), narrow: rng.IntN(10) == 0,
		mssA: uint16(oneOf(1460, 536, 300)), mssB: 1460,
	}
	pl.queued = min(rng.IntN(10000), pl.total)
	pl.sentQueued = min(rng.IntN(4000), pl.queued)
	return pl
}

// TestMovedPair is TestLossyPair with connections that move again and again: the stream arrives completely, in order
// and once, and ends normally.
func TestMovedPair(t *testing.T) {
	for seed := range uint64(150) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { movedPlan(seed).start(t).finish(400000) }) {
			t.Fatalf("plan %+v", *movedPlan(seed))
		}
	}
}
