package afxdp_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestBusyPoll checks that frames arrive when the socket drives NAPI.
func TestBusyPoll(t *testing.T) {
	c := with(scant, func(c *afxdp.Config) { c.BusyPoll, c.BusyPollBudget = 20*time.Microsecond, 32 })
	p := netns.XDPPair(t, pairDefault)
	s := steer(t, p, pair.B, false)
	tx, rx := openIn(t, p, pair.A, c), openIn(t, p, pair.B, c)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	var got rising
	var number uint64
	rig.Eventually(t, "frames arrive", func() bool {
		n, err := transmit(tx, number, 8, func(uint64) int { return 60 })
		rig.Must(t, err)
		number += uint64(n)
		_, err = receive(rx, got.see)
		rig.Must(t, err)
		return got.count > 500
	})
	if s, err := rx.Stats(); err != nil || s.RxKicks == 0 {
		t.Errorf("no system call polled: %+v, %v", s, err)
	}
}
