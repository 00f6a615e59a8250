package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
)

// TestProgramTakenAway unloads an engine's program by force. Its QPs get an event, and calls to Accept, Listen and Dial
// return an error. The peer is reset.
func TestProgramTakenAway(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{})
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{KernelPort: true})
	x, y := r.newVerbs(ours, a), r.newVerbs(theirs, b)
	r.meet(x, y, b, false, rdma.ConnParams{}, rdma.ConnParams{})
	l, err := a.Listen(r.Ctx(), r.addr(ours, false)+":0", rdma.ListenConfig{})
	r.Must(err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept(r.Ctx())
		accepted <- err
	}()
	if _, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true}); err != nil {
		t.Fatal(err)
	}
	r.Wait(x.qp.Done(), "our end")
	r.Wait(y.qp.Done(), "the peer")
	if err := y.qp.Err(); !errors.Is(err, stream.ErrReset) {
		t.Errorf("the peer: %v", err)
	}
	told := func(who string, err error) {
		t.Helper()
		if !errors.Is(err, stream.ErrPort) || !strings.Contains(err.Error(), "detached from "+r.pair.Ends[ours].Name) {
			t.Errorf("%s: %v", who, err)
		}
	}
	told("the QP", x.qp.Err())
	told("Accept", <-accepted)
	_, err = a.Listen(r.Ctx(), r.addr(ours, false)+":0", rdma.ListenConfig{})
	told("Listen", err)
	for found := false; !found; {
		select {
		case e := <-a.Events():
			if found = e.Type == rdma.PortLost; found {
				told("the event", e.Err)
			}
		case <-r.Ctx().Done():
			t.Fatal("no event tells")
		}
	}
	z, w := r.newVerbs(ours, a), r.newVerbs(theirs, b)
	far, err := b.Listen(r.Ctx(), r.addr(theirs, false)+":0", rdma.ListenConfig{})
	r.Must(err)
	defer far.Close()
	go func() {
		if req, err := far.Accept(r.Ctx()); err == nil {
			req.Accept(r.Ctx(), w.qp, rdma.ConnParams{})
		}
	}()
	told("Dial", z.qp.Dial(r.Ctx(), far.Addr().String(), rdma.ConnParams{}))
	for _, v := range []*verbs{x, y, z, w} {
		v.close()
	}
}
