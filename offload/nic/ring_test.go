package nic

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/simnic"
)

// wakened is a port that counts how often it is woken.
type wakened struct {
	port.Port
	times int
}

func (w *wakened) Wake() { w.times++ }

// RingSilently rings at the engine that it returns, and at no other, while the flow moves from one engine to another:
// the caller visits that engine only.
func TestRingSilentlyRingsWhereTheCallerVisits(t *testing.T) {
	const rounds = 300_000
	dir, err := engine.NewDirectory(4)
	if err != nil {
		t.Fatal(err)
	}
	id, err := dir.Reserve(bpf.FlowKey{})
	if err != nil {
		t.Fatal(err)
	}
	link, err := simnic.New(simnic.Config{Frames: 128})
	if err != nil {
		t.Fatal(err)
	}
	ports := map[*engine.Engine]*wakened{}
	var engines [2]*engine.Engine
	for i, end := range []port.Port{link.A(), link.B()} {
		w := &wakened{Port: end}
		if engines[i], err = engine.New(w, dir, engine.Config{}); err != nil {
			t.Fatal(err)
		}
		ports[engines[i]] = w
	}
	f := &Flow{id: id}
	f.at.Store(engines[0])
	var over atomic.Bool
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for i := 1; !over.Load(); i++ {
			f.at.Store(engines[i%2])
			runtime.Gosched()
		}
	}()
	for round := range rounds {
		e := f.RingSilently().(*engine.Engine)
		before := ports[e].times
		if e.Ring(id); ports[e].times != before { // Ring wakes an engine whose doorbell does not ring yet
			t.Errorf("round %d: the doorbell does not ring at the engine to visit", round)
			break
		}
		e.Progress(link.Now())
	}
	over.Store(true)
	<-moved
}
