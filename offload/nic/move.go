package nic

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
)

// Move gives the connection to the engine of another queue. If queue is the present
// one, Move takes the connection out of its engine and puts it back. The peer does not
// notice. Calls of other methods wait until the move is done. A move takes some
// milliseconds, and longer if many octets wait to be read or acknowledged. docs/tcp.md
// says what a move keeps and drops.
//
// After an error the connection is where it was, or has ended. Done shows which. Move
// fails with engine.ErrNoFlow or tcp.ErrEnded if the connection had ended before.
func (f *Flow) Move(ctx context.Context, queue int) error {
	f.shifting.Lock()
	defer f.shifting.Unlock()
	n := f.NIC()
	if queue < 0 || queue >= len(n.engines) {
		return fmt.Errorf("move flow %#x: queue %d: %s has %d", uint32(f.id), queue, n.link.Name, len(n.engines))
	}
	f.moving.Lock()
	defer f.moving.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.flow(f.id) != f {
		return fmt.Errorf("move flow %#x: %w", uint32(f.id), engine.ErrNoFlow)
	}
	to := n.engines[queue]
	gone, err := n.hops.move(f, to)
	if gone != nil {
		n.ends.add(*gone)
	}
	if err != nil {
		return err
	}
	if err := n.update(f.key, f.entry(bpf.Live, to)); err != nil {
		n.log.Error("flow entry not updated", "key", f.key, "err", err)
	}
	if f.told != nil {
		f.told()
	}
	n.log.Debug("flow moved", "flow", f.id, "key", f.key, "queue", queue)
	return nil
}

// move moves f. Meanwhile no engine gets new addresses, because those for f would reach
// neither of the two engines.
func (h *hops) move(f *Flow, to *engine.Engine) (gone *engine.End, err error) {
	h.telling.Lock()
	defer h.telling.Unlock()
	_, gone, err = engine.Move(context.Background(), f.id, f.Engine(), to, nil)
	if err == nil {
		f.at.Store(to)
	}
	return gone, err
}

// entry returns the flow's entry for the programs. owner is nil if no engine owns the
// flow yet. The entry then has the first lane of this NIC, so that the programs keep
// the flow as long as an engine of this NIC lives.
func (f *Flow) entry(state bpf.State, owner *engine.Engine) bpf.Flow {
	e := bpf.Flow{ID: f.id, Kind: f.kind, State: state, Owner: uint16(f.NIC().first), Queue: bpf.NoOwner, Longest: uint32(f.NIC().longest())}
	if owner != nil {
		e.Owner, e.Queue = uint16(owner.Lane()), owner.Queue()
	}
	return e
}
