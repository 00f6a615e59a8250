package e2e

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// weighty is an upper layer with memory of its own.
type weighty struct {
	*octets.Transfer
	ballast []byte
}

// TestTimeWaitIsSmall checks connections that the local side closes first. Only a small record stays for the minute of
// TIME-WAIT. The upper layer and its memory are freed. An accepted connection needs no descriptor either.
func TestTimeWaitIsSmall(t *testing.T) {
	for _, w := range ways[:2] {
		t.Run(w.String(), func(t *testing.T) {
			const (
				flows   = 200
				ballast = 256 << 10
				most    = 16 << 10 // octets for each, far below the ballast
			)
			r := newRig(t, setup{})
			r.closeFirst(w, 1, ballast) // the first connection makes one-time allocations
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
			open := fds // the last connections may still be closing
			if !w.accept {
				open += flows
			}
			r.Eventually(fmt.Sprintf("%d descriptors or fewer are open", open), func() bool { return r.traces().descriptors <= open })
		})
	}
}

// TestTimeWaitMakesRoomInTheProgram fills a pinned program with flows in TIME-WAIT of both interfaces of the adapter.
// The oldest of them makes room for another flow.
func TestTimeWaitMakesRoomInTheProgram(t *testing.T) {
	const room = 4
	r := newStage(t, setup{})
	r.secondCable()
	links := []string{r.pair.Ends[ours].Name, "q0"}
	for side, end := range []string{"q0", "q1"} {
		r.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
	}
	for _, link := range links {
		r.stayWith(loader.Options{Link: link, MaxFlows: room}, "room")
	}
	second := r.openBoth()
	first := r.nic
	r.closeFirst(way{}, room, 0)
	if n := r.entries(); n != room {
		t.Fatalf("the program has %d flows, want %d in TIME-WAIT", n, room)
	}
	r.closeFirst(way{}, 1, 0) // on the same interface
	r.peerSends("q1")
	r.ip(ours, "route", "replace", r.addr(theirs, false)+"/32", "dev", "q0", "src", r.addr(ours, false))
	r.nic = second
	r.closeFirst(way{}, room, 0)
	if n := r.entries(); n != room || len(second.Flows()) != room || len(first.Flows()) != 0 {
		t.Errorf("the program has %d flows of the second interface, which has %d, and the first has %d: want %d, %d and 0",
			n, len(second.Flows()), len(first.Flows()), room, room)
	}
	r.nic = first
	r.Must(second.Close())
	r.Must(first.Close())
}

// TestTimeWaitMakesRoomForOne checks that a take-over ends one flow in TIME-WAIT when there is no room, and no more. A
// flow that ended earlier must not make the take-over look for room too early.
func TestTimeWaitMakesRoomForOne(t *testing.T) {
	const room = 4
	r := newRig(t, setup{nic: nic.Config{MaxFlows: room}})
	our, _ := r.connect(way{})
	r.Must(r.take(our, octets.NewEcho()).Abort(r.Ctx()))
	r.Eventually("the first flow is gone", func() bool { return len(r.nic.Flows()) == 0 })
	r.closeFirst(way{}, room, 0)
	for i := range 20 {
		r.closeFirst(way{}, 1, 0)
		if n := len(r.nic.Flows()); n != room {
			t.Errorf("take-over %d: the interface has %d flows, want %d", i, n, room)
		}
	}
}

// closeFirst takes n connections over, one after the other, and closes each before the peer does.
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
