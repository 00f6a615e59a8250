package rdma

import (
	"testing"
	"time"
)

// TestEagerResponderBegins: with Eager, and with EagerAfter, this end sends first to a peer that sends
// no first message and waits for one.
func TestEagerResponderBegins(t *testing.T) {
	for name, accept := range map[string]ConnParams{"Eager": {Eager: true}, "EagerAfter": {EagerAfter: 10 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) { begins(t, accept) })
	}
}

// begins: the end that accepts with these parameters sends first.
func begins(t *testing.T, accept ConnParams) {
	onBothPaths(t, func(r *rig) {
		x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
		x.receive(RecvWR{ID: 1, SGL: []SGE{x.mr.SGE(0, 8)}})
		r.Must(r.join(x, y, wants{dial: ConnParams{NoPeerToPeer: true}, accept: accept}))
		y.post(SendWR{ID: 2, Op: WRSend, Flags: Signaled, Inline: []byte("first")})
		r.ok(y.sent(1))
		if c := r.ok(x.got(1))[0]; c.ID != 1 || string(x.mr.Bytes()[:c.Length]) != "first" {
			t.Errorf("%+v, %q", c, x.mr.Bytes()[:8])
		}
	})
}
