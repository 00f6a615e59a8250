package nic

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/tcp"
)

var (
	// ErrHandedBack is the error that the upper layer and Err get after HandBack. It is no
	// fault: the kernel continues the connection.
	ErrHandedBack = errors.New("the connection was handed back to the kernel")
	// ErrNoOctets is returned by HandBack for a flow that is no plain stream of octets.
	ErrNoOctets = errors.New("the kernel can continue a plain stream of octets only, not a QP or an iSCSI session")
)

// HandBack gives the connection back to the kernel. The upper layer gets ErrHandedBack and
// has no connection afterwards. The caller owns the returned connection, and continues
// with the octets that the upper layer has not consumed or emitted. The peer notices
// nothing but a short pause. Segments that arrive meanwhile are dropped, and the peer
// sends them again.
//
// The flow must have the kind bpf.KindBytes. HandBack refuses other kinds with
// ErrNoOctets, because octets of a half-received FPDU or PDU are of no use to the kernel.
// handoff.Placeholder.GiveBack lists the phases and rights. docs/tcp.md says what the
// kernel does not continue.
//
// After an error the engine continues the connection, or the connection has ended. Done
// shows which. HandBack fails with engine.ErrNoFlow or tcp.ErrEnded if the connection had
// ended before.
func (f *Flow) HandBack(ctx context.Context) (*net.TCPConn, error) {
	if f.kind != bpf.KindBytes {
		return nil, f.notBack(fmt.Errorf("%w: the flow carries %v", ErrNoOctets, f.kind))
	}
	f.shifting.Lock()
	defer f.shifting.Unlock()
	f.moving.Lock()
	defer f.moving.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, f.notBack(context.Cause(ctx))
	}
	n := f.NIC()
	if n.flow(f.id) != f {
		return nil, f.notBack(engine.ErrNoFlow)
	}
	conn, end, err := n.hops.handBack(ctx, f)
	if err != nil {
		if end != nil {
			n.ends.add(*end)
		}
		return nil, f.notBack(err)
	}
	f.final = &end.Stats
	f.finish(ErrHandedBack)
	n.hops.leave(f)
	n.forget(f.id, nil)
	n.drop(f)
	select {
	case n.freed <- struct{}{}:
	default:
	}
	n.log.Info("flow handed back to the kernel", "flow", f.id, "key", f.key)
	return conn, nil
}

func (f *Flow) notBack(err error) error {
	return fmt.Errorf("hand flow %#x back to the kernel: %w", uint32(f.id), err)
}

// handBack takes f out of its engine and gives it to the kernel. The flow's entry stays
// until the kernel's socket is complete. No segment therefore reaches a host without a
// socket, which would answer with a reset. Meanwhile no engine gets new addresses, as in
// move.
//
// end is the End of the flow. It is nil if an engine continues the connection.
func (h *hops) handBack(ctx context.Context, f *Flow) (conn *net.TCPConn, end *engine.End, err error) {
	h.telling.Lock()
	defer h.telling.Unlock()
	end, err = f.Engine().GiveAway(ctx, f.id, func(st *tcp.State) (err error) {
		conn, err = f.hold.GiveBack(st, f.letThrough)
		return err
	}, ErrHandedBack)
	return conn, end, err
}

// letThrough deletes the flow's entry. If there is none, the segments reach the kernel
// already.
func (f *Flow) letThrough() error {
	if err := f.NIC().remove(f.key); !errors.Is(err, loader.ErrNoFlow) {
		return err
	}
	return nil
}
