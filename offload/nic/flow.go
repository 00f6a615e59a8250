package nic

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/visits"
)

// Flow is a connection that was taken over. A Flow is safe for concurrent use.
type Flow struct {
	home      atomic.Pointer[NIC] // interface of the connection; MoveTo changes it
	id        engine.FlowID
	key       bpf.FlowKey
	query     loader.Query // what the kernel's choice of the route depends on
	way       *way         // how the packets leave the host; guarded by hops of the interface
	kind      bpf.Kind
	shifting  sync.Mutex                    // lock that is held from the choice of another interface until the flow is there; taken before moving
	moving    sync.RWMutex                  // lock that is held for writing while the flow is installed, moved or removed
	at        atomic.Pointer[engine.Engine] // engine that owns the flow; the installation of the flow and Move set it
	hold      *handoff.Placeholder          // placeholder of the connection; nil until the flow is installed
	stall     time.Duration
	inherited Inherited
	strays    atomic.Uint32 // number of stray segments counted so far
	accepted  bool          // value of Options.Accepted
	told      func()        // value of Options.Moved

	once  sync.Once
	done  chan struct{} // channel that is closed when the upper layer's Fault has been called
	err   error         // error that ended the connection, valid once done is closed
	final *tcp.Stats    // counters at the end of the connection, valid once done is closed; nil: none
}

// ID returns the flow's id, as in the flow entry and the steering record.
func (f *Flow) ID() engine.FlowID { return f.id }

// NIC returns the interface of the flow. MoveTo changes it.
func (f *Flow) NIC() *NIC { return f.home.Load() }

// Key returns the flow's 4-tuple and VLAN.
func (f *Flow) Key() bpf.FlowKey { return f.key }

// Engine returns the engine that owns the flow. Move changes it.
func (f *Flow) Engine() *engine.Engine { return f.at.Load() }

// Held returns how long the take-over held the connection's segments back.
func (f *Flow) Held() time.Duration { return f.stall }

// Inherited says how many octets a take-over found in the kernel's queues.
type Inherited struct {
	Unread  int // octets that were received and acknowledged, but not read by the application
	Queued  int // octets that the application has written and the peer has not acknowledged
	Unacked int // octets of Queued that the kernel had sent
}

// Inherited returns the octets that the take-over found in the kernel's queues.
func (f *Flow) Inherited() Inherited { return f.inherited }

// Placeholder returns the kernel socket that holds the flow's 4-tuple.
func (f *Flow) Placeholder() *handoff.Placeholder { return f.hold }

// Way returns how the flow's packets leave the host. Way returns the zero Way if the
// flow has ended.
func (f *Flow) Way() Way {
	for {
		n := f.NIC()
		if w := n.hops.wayOf(f); w != (Way{}) || f.NIC() == n {
			return w
		}
	}
}

// Ring tells the flow's upper layer that it may have data to transmit.
func (f *Flow) Ring() { f.Engine().Ring(f.id) }

// RingSilently rings without waking the engine that owns the flow. RingSilently returns
// that engine, and the caller must visit it next. If the flow moves meanwhile, the
// engine that is visited passes the doorbell on.
func (f *Flow) RingSilently() visits.Runner {
	e := f.Engine()
	e.RingSilently(f.id)
	return e
}

// Runner returns the engine that owns the flow. Move changes it.
func (f *Flow) Runner() visits.Runner { return f.Engine() }

// Done is closed when the connection has ended and the upper layer has been notified.
func (f *Flow) Done() <-chan struct{} { return f.done }

// Err returns the error that ended the connection. Err returns nil after an orderly
// close. The result is valid after Done is closed.
func (f *Flow) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Info returns the state of the flow's connection. Info fails with engine.ErrNoFlow
// when the connection has ended.
func (f *Flow) Info(ctx context.Context) (tcp.Info, error) {
	var info tcp.Info
	err := f.inspect(ctx, func(c *tcp.Conn) { info = c.Info() })
	if err != nil {
		return tcp.Info{}, err // info is not valid: the engine may still write to it
	}
	return info, nil
}

// Stats returns the counters of the connection since the take-over. If the connection
// has ended, Stats returns the counters at the end. The error is the cause of ctx's
// end, or the engine's error.
func (f *Flow) Stats(ctx context.Context) (tcp.Stats, error) {
	var s tcp.Stats
	err := f.inspect(ctx, func(c *tcp.Conn) { s = c.Stats() })
	if hasEnded(err) {
		select {
		case <-f.done: // closed now, or as soon as the flow has been removed
			return f.Final(), nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return tcp.Stats{}, err // s is not valid: the engine may still write to it
	}
	return s, nil
}

// Final returns the counters of the connection at its end. The result is valid after
// Done is closed.
func (f *Flow) Final() tcp.Stats {
	<-f.done
	if f.final == nil {
		return tcp.Stats{}
	}
	return *f.final
}

// Close sends a FIN behind all emitted octets. Close waits until both directions are
// closed, but not for TIME-WAIT. Close returns the error that ended the connection.
func (f *Flow) Close(ctx context.Context) error {
	err := f.inspect(ctx, func(c *tcp.Conn) { c.CloseWrite() })
	if err != nil && !hasEnded(err) {
		return err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abort resets the connection.
func (f *Flow) Abort(ctx context.Context) error {
	err := f.inspect(ctx, func(c *tcp.Conn) { c.Abort() })
	if hasEnded(err) {
		return nil
	}
	return err
}

// inspect runs fn with the flow's connection, at the engine that owns it. If the flow
// is being moved, inspect waits for the end of the move. inspect fails with
// engine.ErrNoFlow when the connection has ended.
func (f *Flow) inspect(ctx context.Context, fn func(*tcp.Conn)) error {
	f.moving.RLock()
	defer f.moving.RUnlock()
	return f.Engine().Inspect(ctx, f.id, fn)
}

// hasEnded reports whether err says that the connection has ended, either by itself or
// together with its engine.
func hasEnded(err error) bool {
	return errors.Is(err, engine.ErrNoFlow) || errors.Is(err, engine.ErrStopped)
}

// finish marks the connection as ended.
func (f *Flow) finish(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// dissolve removes the flow's placeholder and then its entry. In this order no socket
// answers segments that the steering lets through. dissolve also lets the kernel forget
// the flow's next hop.
func (f *Flow) dissolve() error {
	n := f.NIC()
	n.hops.leave(f)
	return errors.Join(f.hold.Close(), n.remove(f.key))
}
