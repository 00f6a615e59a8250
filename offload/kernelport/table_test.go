package kernelport

import (
	"context"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/tpt"
)

// revoker invalidates an STag within its first step and checks at once whether the
// invalidation is complete.
type revoker struct {
	stream.ULP
	table  *tpt.Table
	stag   tpt.STag
	pd     tpt.PD
	asked  bool
	begun  chan struct{}
	passed bool
	ticket tpt.Ticket
	fault  tpt.Fault
}

func (r *revoker) Transmit(now clock.Instant, s stream.Stream) {
	if !r.asked {
		r.asked = true
		r.ticket, r.fault = r.table.StartInvalidate(r.stag, r.pd, 0)
		r.passed = r.table.Passed(r.ticket)
		close(r.begun)
	}
	r.ULP.Transmit(now, s)
}

// TestStepsHoldInvalidationsUp: memory that is invalidated during a step may be in
// use until the step ends, and no longer.
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
	a, b := sockets(t)
	r := &revoker{ULP: octets.NewSink(0, 0), table: table, stag: stag, pd: pd, begun: make(chan struct{})}
	between := false // the first time that the step with the invalidation was over
	k := port(t, a, r, Config{Table: table, After: func() {
		if r.asked && !between {
			between = true
			if !table.Passed(r.ticket) {
				t.Error("between steps the invalidation has not passed")
			}
		}
	}})
	if n := table.Stats().Readers; n != 0 {
		t.Errorf("%d readers before Run", n)
	}
	done := make(chan error, 1)
	go func() { done <- k.Run(context.Background()) }()
	<-r.begun
	b.CloseWrite()
	if err := k.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-done
	switch {
	case r.fault != tpt.OK:
		t.Fatal(r.fault)
	case r.passed:
		t.Error("within the step that could be using the memory, the invalidation had passed")
	case !between:
		t.Error("nothing ran after the step")
	}
	if n := table.Stats().Readers; n != 0 {
		t.Errorf("%d readers after Run", n)
	}
}
