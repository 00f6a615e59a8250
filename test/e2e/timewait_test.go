package e2e

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// weighty is an upper layer with memory of its own.
type weighty struct {
	*octets.Transfer
	ballast []byte
}

// TestTimeWaitIsSmall: for connections that we close first, only a small record stays for the minute of TIME-WAIT.
// The upper layer and its memory are freed. An accepted connection needs no descriptor either.
func TestTimeWaitIsSmall(t *testing.T) {
	for _, w := range ways[:2] {
		t.Run(w.String(), func(t *testing.T) {
			const (
				flows   = 200
				ballast = 256 << 10
				most    = 16 << 10 // octets for each, far below the ballast
			)
			r := newRig(t, setup{})
			r.closeFirst(w, 1, ballast) // one-time allocations are made here
			before, fds := heap(), r.traces().descriptors
			r.closeFirst(w, flows, ballast)
			grown := (heap() - before) / flows
			t.Logf("a flow in TIME-WAIT keeps %d octets of heap", grown)
			if grown > most {
				t.Errorf("that is more than %d", most)
			}
			if n := len(r.nic.Flows()); n != flows+1 {
				t.Fatalf("%d flows are in TIME-WAIT", n)
			}
			open := fds // the last ones may be closing still
			if !w.accept {
				open += flows
			}
			r.Eventually(fmt.Sprintf("%d descriptors or fewer are open", open), func() bool { return r.traces().descriptors <= open })
		})
	}
}

// closeFirst takes n connections over, one after the other, and closes them before
// the peer does.
func (r *rig) closeFirst(w way, n, ballast int) {
	r.Helper()
	o := nic.DefaultOptions
	o.Accepted = w.accept
	for range n {
		our, peer := r.connect(w)
		u := &weighty{octets.NewTransfer(octets.Plan{Send: 1000, Seed: seedOurs}), make([]byte, ballast)}
		f, err := r.nic.Take(r.Ctx(), our, u, o)
		r.Must(err)
		_, err = io.Copy(io.Discard, peer)
		r.Must(errors.Join(err, peer.Close()))
		r.Wait(f.Done(), "the end")
		r.Must(f.Err())
	}
}

// heap returns the heap in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
