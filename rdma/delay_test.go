package rdma

import (
	"testing"
	"time"
)

// TestDelay: with the runners and timers of both paths, the requests behind a Delay leave
// although nothing else happens. All complete in order.
func TestDelay(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		y.receive(RecvWR{ID: 1}, RecvWR{ID: 2}, RecvWR{ID: 3})
		x.post(
			SendWR{ID: 1, Op: WRSend, Flags: Signaled},
			SendWR{ID: 2, Op: WRDelay, Flags: Signaled, Delay: 5 * time.Millisecond},
			SendWR{ID: 3, Op: WRSend, Flags: Signaled},
			SendWR{ID: 4, Op: WRDelay, Delay: 5 * time.Millisecond},
			SendWR{ID: 5, Op: WRSend, Flags: Signaled},
			SendWR{ID: 6, Op: WRDelay, Flags: Signaled, Delay: 24 * time.Hour},
			SendWR{ID: 7, Op: WRSend, Flags: Signaled},
		)
		r.ok(y.got(3))
		for i, c := range r.ok(x.sent(4)) { // the second Delay is unsignaled
			if want := [...]Completion{{ID: 1, Op: WCSend}, {ID: 2, Op: WCDelay}, {ID: 3, Op: WCSend}, {ID: 5, Op: WCSend}}[i]; c.ID != want.ID || c.Op != want.Op {
				r.Errorf("completion %+v, want %+v", c, want)
			}
		}
		r.none(x.send)
		r.Must(x.qp.Close())
		for i, c := range x.sent(2) {
			if c.ID != uint64(i+6) || c.Status != Flushed {
				r.Errorf("completion %+v", c)
			}
		}
		_, err := x.qp.PostSend(SendWR{Op: WRDelay, Delay: -1})
		r.Says(err, ErrBadWR, "Delay of -1ns: choose 0 to 24h0m0s")
	})
}
