package rdma

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	common "github.com/stag-rdma/stag/test/rig"
)

// Adapter.Close returns while other goroutines run every verb that counts objects in the
// protection domain: locks are taken in one order (see Adapter). If a verb took PD.mu
// before the device's lock, this test would hang in one of the first rounds.
func TestCloseBesideVerbs(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	for range 40 {
		r.closeBesideVerbs()
	}
}

func (r *rig) closeBesideVerbs() {
	r.Helper()
	a, err := Open(Config{KernelPort: true, NoControl: true, RegionHeap: 1 << 20})
	r.Must(err)
	pd, err := a.AllocPD()
	r.Must(err)
	cq, err := a.CreateCQ(16)
	r.Must(err)
	_, err = pd.RegMR(make([]byte, 16), 0) // PD.Close fails while this region exists
	r.Must(err)
	buf := make([]byte, 16)
	verbs := []func() error{
		func() error { return closing(pd.RegMR(buf, 0)) },
		func() error { return closing(pd.AllocMR(16, LocalWrite)) },
		func() error { return closing(pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq})) },
		pd.Close,
		pd.Close,
	}
	var all sync.WaitGroup
	for _, verb := range verbs {
		all.Go(func() {
			for err := error(nil); err == nil || errors.Is(err, ErrInUse); {
				err = verb()
				if a.device.Life().Err() != nil {
					return
				}
			}
		})
	}
	over := make(chan error)
	go func() {
		time.Sleep(time.Millisecond)
		err := a.Close()
		all.Wait()
		over <- err
	}()
	select {
	case err := <-over:
		r.Must(err)
	case <-time.After(patience):
		stacks := make([]byte, 1<<16)
		r.Fatalf("Close, or a verb beside it, hangs:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// closing closes what a verb has made.
func closing[T interface{ Close() error }](made T, err error) error {
	if err != nil {
		return err
	}
	return made.Close()
}
