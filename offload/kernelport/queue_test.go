package kernelport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// TestQueueIsAQueue: connections run in the order in which they came, each as often as it came.
func TestQueueIsAQueue(t *testing.T) {
	var l Lot
	l.queue.workers = 1 << 30 // nobody runs them
	conns := make([]Conn, 500)
	in, out := 0, 0
	r := rand.New(rand.NewPCG(5, 6))
	for out < 20_000 {
		for range r.IntN(200) {
			l.push(&conns[in%len(conns)])
			in++
		}
		for range r.IntN(200) {
			c := l.queue.pop()
			if out == in {
				if c != nil {
					t.Fatal("an empty queue has a connection")
				}
				continue
			}
			if c != &conns[out%len(conns)] {
				t.Fatalf("connection %d is not the next one that came", out%len(conns))
			}
			out++
		}
	}
}

// TestNothingIsLost: connections of a lot that are too many to wait by themselves see all that
// arrives and all doorbells, whoever comes meanwhile and however they end.
func TestNothingIsLost(t *testing.T) {
	const n = 2 * mostInUse
	lot := newLot(t)
	var ended, all sync.WaitGroup
	for i := range n {
		a, b := sockets(t)
		ulp := new(ringing)
		k := port(t, a, ulp, Config{Lot: lot, RcvBuf: 4 << 10, SndBuf: 64 << 10})
		ended.Add(1)
		if err := k.Start(ended.Done); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			var stop atomic.Bool
			var visitors sync.WaitGroup
			visitors.Go(func() {
				for !stop.Load() {
					disturb(k, i)
					time.Sleep(50 * time.Microsecond)
				}
			})
			stimulate(t, k, ulp, b, i)
			if i%2 == 0 {
				b.SetLinger(0)
				b.Close()
				<-k.Done()
			} else {
				b.CloseWrite()
				if err := k.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
			stop.Store(true)
			visitors.Wait()
		})
	}
	all.Wait()
	ended.Wait()
}

// disturb does what a visitor of some kind does.
func disturb(k *Conn, kind int) {
	switch kind % 4 {
	case 1:
		k.Visit(clock.Now())
	case 2:
		k.Doze(never)
		k.Visit(clock.Now())
		k.Watch()
	case 3:
		k.Ring()
	}
}

// stimulate sends octets, rings, and waits until the ULP has seen both.
func stimulate(t *testing.T, k *Conn, ulp *ringing, b interface{ Write([]byte) (int, error) }, seed int) {
	r := rand.New(rand.NewPCG(7, uint64(seed)))
	for round := range 60 {
		time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
		before := ulp.rung.Load()
		if _, err := b.Write([]byte{1}); err != nil {
			t.Error(err)
			return
		}
		if round%2 == 1 {
			k.Ring()
		}
		seen := func() (yes bool) {
			k.Between(func() { yes = ulp.octets > round })
			return yes && (round%2 == 0 || ulp.rung.Load() > before)
		}
		for end := time.Now().Add(20 * time.Second); !seen(); time.Sleep(20 * time.Microsecond) {
			if time.Now().After(end) {
				t.Errorf("connection %d: round %d is lost", seed, round)
				return
			}
		}
	}
}

// TestStartOnce: a connection is started once, and not after Close.
func TestStartOnce(t *testing.T) {
	a, b := sockets(t)
	k := port(t, a, new(counting), Config{Lot: newLot(t)})
	ended := make(chan struct{})
	if err := k.Start(func() { close(ended) }); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(nil); !errors.Is(err, ErrRunning) {
		t.Errorf("Start again: %v", err)
	}
	b.CloseWrite()
	if err := k.Close(context.Background()); err != nil {
		t.Error(err)
	}
	<-ended
	if err := k.Start(nil); !errors.Is(err, ErrRunning) {
		t.Errorf("Start after the end: %v", err)
	}
}
