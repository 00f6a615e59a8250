package rdma

import "testing"

// TestEagerResponderBegins: with Eager, this end sends first to a peer that sends no
// first message and waits for one.
func TestEagerResponderBegins(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
		x.receive(RecvWR{ID: 1, SGL: []SGE{x.mr.SGE(0, 8)}})
		r.Must(r.join(x, y, wants{dial: ConnParams{NoPeerToPeer: true}, accept: ConnParams{Eager: true}}))
		y.post(SendWR{ID: 2, Op: WRSend, Flags: Signaled, Inline: []byte("first")})
		r.ok(y.sent(1))
		if c := r.ok(x.got(1))[0]; c.ID != 1 || string(x.mr.Bytes()[:c.Length]) != "first" {
			t.Errorf("%+v, %q", c, x.mr.Bytes()[:8])
		}
	})
}
