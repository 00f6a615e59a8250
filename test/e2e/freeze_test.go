package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// TestThawed freezes an interface 20 times under fire, gives its queues up and takes everything
// back. Take-overs that come meanwhile wait.
func TestThawed(t *testing.T) {
	const rounds = 20
	for _, w := range ways[1:3] {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			var all []running
			for range 3 {
				all = append(all, r.openTransfer(w, 256<<20))
			}
			var longest time.Duration
			for range rounds {
				before := all[0].ulp.Received()
				began := time.Now()
				z, err := r.nic.Freeze(r.Ctx())
				r.Must(err)
				if z.Len() != len(all) {
					t.Fatalf("%d connections are frozen, want %d", z.Len(), len(all))
				}
				r.Must(z.Release(r.Ctx()))
				taken := make(chan error, 1)
				our, peer := r.connect(way{})
				go func() {
					f, err := r.nic.Take(context.Background(), our, octets.NewEcho(), nic.DefaultOptions)
					if err == nil {
						err = f.Abort(context.Background())
					}
					taken <- errors.Join(err, peer.Close())
				}()
				select {
				case err := <-taken:
					t.Fatalf("a take-over has not waited: %v", err)
				default:
				}
				r.Must(z.Thaw())
				longest = max(longest, time.Since(began))
				r.Must(<-taken)
				r.Eventually("octets flow again", func() bool { return all[0].ulp.Received() > before })
			}
			t.Logf("frozen for %v at most", longest)
			for _, x := range all {
				x.ulp.Release()
				x.flow.Ring()
				r.Must(x.peer.ends(x.volume))
				r.Wait(x.ulp.Done(), "the end of the transfer")
				r.Must(x.ulp.Err())
			}
		})
	}
}

// TestFrozenLeaves ends a frozen interface as after an upgrade: upper layers and take-overs get
// the error, nobody resets a peer, and the program and the claims stay with the other user.
func TestFrozenLeaves(t *testing.T) {
	r := newRig(t, setup{})
	x := r.openTransfer(way{}, 1<<20)
	i, err := r.nic.Hand()
	r.Must(err)
	defer i.Close()
	z, err := r.nic.Freeze(r.Ctx())
	r.Must(err)
	r.Must(z.Release(r.Ctx()))
	gone := errors.New("gone elsewhere")
	z.Leave(gone)
	r.Wait(x.ulp.Done(), "the upper layer's end")
	r.Says(x.ulp.Err(), gone)
	r.Says(x.flow.Err(), gone)
	our, _ := r.connect(way{})
	_, err = r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
	r.Says(err, gone)
	r.Must(r.nic.Close())
	if l := r.link(ours).Attrs().Xdp; l == nil || !l.Attached {
		t.Error("the program has gone with the old user")
	}
	r.nic = nil
	r.noResets()
}
