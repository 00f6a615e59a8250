package rdma

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/adapter"
)

// TestCommEst: an accepted QP that asks for events reports that the initiator's first
// message has come, once. The initiator reports nothing, nor does a QP that does not ask.
func TestCommEst(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		asks := wants{qp: QPConfig{AsyncNotify: true}}
		x, y := r.newEnd(r.a, asks), r.newEnd(r.b, asks)
		r.Must(r.join(x, y, wants{dial: ConnParams{NoPeerToPeer: true}}))
		r.quiet(r.b) // the initiator has sent nothing
		y.receive(RecvWR{}, RecvWR{})
		x.post(SendWR{Op: WRSend}, SendWR{Op: WRSend})
		r.ok(y.got(2))
		if e := r.event(r.b, CommEst); e.QP != y.qp || e.Err != nil {
			t.Errorf("%+v", e)
		}
		silent, other := r.connect(wants{})
		transferBothWays(r, silent, other, 1000)
		x.receive(RecvWR{})
		y.post(SendWR{Op: WRSend})
		r.ok(x.got(1))
		r.quiet(r.a)
		r.quiet(r.b)
	})
}

// quiet demands that an adapter has no event.
func (r *rig) quiet(a *Adapter) {
	r.Helper()
	select {
	case e := <-a.Events():
		r.Errorf("unexpected event %v: %v", e.Type, e.Err)
	default:
	}
}

// TestSQDrained: in a close in good order each end that asks reports that its sends have
// completed. The completions are in the CQ then. A reset drains nothing.
func TestSQDrained(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		asks := wants{qp: QPConfig{AsyncNotify: true}}
		x, y := r.connect(asks)
		r.event(r.b, CommEst)
		for range 10 {
			y.receive(RecvWR{})
			x.post(SendWR{Op: WRSend, Flags: Signaled})
		}
		r.Must(x.qp.Disconnect(r.Ctx()))
		if e := r.event(r.a, SQDrained); e.QP != x.qp || x.send.queue.Len() != 10 {
			t.Errorf("%+v; %d completions", e, x.send.queue.Len())
		}
		y.done()
		if e := r.event(r.b, SQDrained); e.QP != y.qp {
			t.Errorf("%+v", e)
		}
		x, y = r.connect(asks)
		r.event(r.b, CommEst)
		x.qp.Abort()
		x.done()
		y.done()
		r.event(r.b, QPFatal)
		r.quiet(r.a)
		r.quiet(r.b)
	})
}

// TestDeviceFatal: the event follows the loss of the last port.
func TestDeviceFatal(t *testing.T) {
	r := newLoopback(t)
	gone := errors.New("eth8 is gone")
	r.b.notify(adapter.Event{Type: adapter.PortLost, Port: "eth9", Err: errors.New("eth9 is gone")})
	r.event(r.b, PortLost)
	r.quiet(r.b)
	r.b.notify(adapter.Event{Type: adapter.PortLost, Port: "eth8", Err: gone, Last: true})
	r.event(r.b, PortLost)
	if e := r.event(r.b, DeviceFatal); e.Err != gone {
		t.Errorf("%+v", e)
	}
}
