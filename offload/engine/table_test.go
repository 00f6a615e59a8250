package engine_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/world"
	"github.com/stag-rdma/stag/tpt"
)

// revoker invalidates an STag from within its step, and checks at once whether the
// invalidation is done.
type revoker struct {
	stream.ULP
	t      testing.TB
	table  *tpt.Table
	stag   tpt.STag
	pd     tpt.PD
	asked  bool
	passed bool
	ticket tpt.Ticket
}

func (r *revoker) Transmit(now clock.Instant, s stream.Stream) {
	if !r.asked {
		r.asked = true
		var f tpt.Fault
		if r.ticket, f = r.table.StartInvalidate(r.stag, r.pd, 0); f != tpt.OK {
			r.t.Errorf("invalidate: %v", f)
		}
		r.passed = r.table.Passed(r.ticket)
	}
	r.ULP.Transmit(now, s)
}

// TestStepsHoldInvalidationsUp: an STag that is invalidated while an engine steps may
// be in use until the step ends, and no longer.
func TestStepsHoldInvalidationsUp(t *testing.T) {
	table, err := tpt.New(tpt.Config{Entries: 64})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	stag, err := table.Register(tpt.Region{PD: pd, Memory: make([]byte, 8), Rights: tpt.RemoteRead | tpt.RemoteInvalidate})
	if err != nil {
		t.Fatal(err)
	}
	w, err := world.New(world.Config{Engine: engine.Config{Table: table}})
	if err != nil {
		t.Fatal(err)
	}
	if n := table.Stats().Readers; n != 2 {
		t.Errorf("two engines have a table with %d readers", n)
	}
	a := octets.NewTransfer(octets.Plan{Send: 1 << 16, Seed: 1, Expect: 0, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: 0, Seed: 2, Expect: 1 << 16, PeerSeed: 1})
	r := &revoker{ULP: a, t: t, table: table, stag: stag, pd: pd}
	if _, err := w.Connect(world.Flow{}, r, b); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(time.Minute, func() bool { return r.asked }); err != nil {
		t.Fatal(err)
	}
	if r.passed {
		t.Error("within the step that could be using the memory, the invalidation had passed")
	}
	if !table.Passed(r.ticket) {
		t.Error("between steps the invalidation has not passed")
	}
	if err := table.Deregister(stag, pd); err != nil { // the verb does not wait for an engine that sleeps
		t.Error(err)
	}
}
