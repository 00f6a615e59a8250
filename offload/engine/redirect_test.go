package engine_test

import (
	"context"
	"testing"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/world"
)

// TestRedirect: every named flow gets its heading, few of them between two steps. A
// flow that is gone does not keep the others from theirs.
func TestRedirect(t *testing.T) {
	const flows, mtu = 600, 1200
	w, err := world.New(world.Config{Flows: flows + 1})
	if err != nil {
		t.Fatal(err)
	}
	list := []engine.Heading{{Flow: 0xfff00fff}}
	for i := range flows {
		c, err := w.Connect(world.Flow{}, octets.NewSink(1, 0), octets.NewSink(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, engine.Heading{Flow: c.ID[0], Dst: wire.MAC{2, 5: byte(i)}, Src: wire.MAC{2, 4: 1}, MTU: mtu})
	}
	list[flows].MTU = 0 // it is not known
	e := w.Engines[0]
	steps, err := meanwhile(w, func() error { return e.Redirect(context.Background(), list) })
	if err != nil || steps < 3 {
		t.Errorf("%d flows within %d steps, %v", flows, steps, err)
	}
	narrow := 0
	_, err = meanwhile(w, func() error {
		for _, h := range list[1:] {
			err := e.Inspect(context.Background(), h.Flow, func(c *tcp.Conn) {
				if c.Info().MTU == mtu {
					narrow++
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || narrow != flows-1 {
		t.Errorf("%d flows have the MTU of %d, want %d; %v", narrow, mtu, flows-1, err)
	}
}

// meanwhile runs f while side A's engine makes its steps, and counts those.
func meanwhile(w *world.World, f func() error) (steps int, err error) {
	done := make(chan error)
	go func() { done <- f() }()
	for {
		w.Engines[0].Progress(w.Now())
		steps++
		select {
		case err := <-done:
			return steps, err
		default:
		}
	}
}
