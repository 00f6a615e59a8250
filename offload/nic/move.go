package nic

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
)

// Move gives the connection to the engine of another queue, or takes it out of its
// engine and puts it back. The peer does not notice, and calls of other methods wait
// until it is done: some milliseconds, and longer the more octets wait to be read or
// to be acknowledged. What a move keeps and drops is in docs/tcp.md.
//
// After an error the connection is where it was, or has ended: Done shows that.
// engine.ErrNoFlow or tcp.ErrEnded if it had ended before.
func (f *Flow) Move(ctx context.Context, queue int) error {
	n := f.nic
	if queue < 0 || queue >= len(n.engines) {
		return fmt.Errorf("move flow %#x: queue %d: %s has %d", uint32(f.id), queue, n.link.Name, len(n.engines))
	}
	f.moving.Lock()
	defer f.moving.Unlock()
	if err := ctx.Err(); err != nil {
		return err
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
	n.log.Debug("flow moved", "flow", f.id, "key", f.key, "queue", queue)
	return nil
}

// move moves f while no engine is told of addresses: such news would reach neither.
func (h *hops) move(f *Flow, to *engine.Engine) (gone *engine.End, err error) {
	h.telling.Lock()
	defer h.telling.Unlock()
	gone, err = engine.Move(context.Background(), f.id, f.Engine(), to)
	if err == nil {
		f.moved.Store(true)
		f.at.Store(to)
	}
	return gone, err
}

// entry is what the programs are told of the flow. owner is nil before there is one.
func (f *Flow) entry(state bpf.State, owner *engine.Engine) bpf.Flow {
	e := bpf.Flow{ID: f.id, Kind: f.kind, State: state, Owner: bpf.NoOwner, Queue: bpf.NoOwner, Longest: uint32(f.nic.longest())}
	if owner != nil {
		e.Owner, e.Queue = uint16(owner.Lane()), owner.Queue()
	}
	return e
}
