package kernelport

import (
	"context"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/contract"
)

func newLot(t testing.TB) *Lot {
	t.Helper()
	l, err := NewLot()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if len(l.conns) != 0 {
			t.Errorf("%d connections are left in the lot", len(l.conns))
		}
	})
	return l
}

func TestContractInALot(t *testing.T) {
	contract.Run(t, func(t testing.TB) contract.Pair { return &realPair{t: t, cfg: Config{Lot: newLot(t)}} })
}

// TestIdleThreads: connections that are idle occupy no threads, no goroutines and no memory for
// buffers, and each wakes up for what arrives, for a doorbell and for its end.
func TestIdleThreads(t *testing.T) {
	const n = 200
	lot := newLot(t)
	var all sync.WaitGroup
	before := runtime.NumGoroutine()
	conns, ulps := make([]*Conn, n), make([]*counting, n)
	peers := make([]interface {
		Write([]byte) (int, error)
		CloseWrite() error
	}, n)
	for i := range conns {
		a, b := sockets(t)
		ulps[i], peers[i] = new(counting), b
		conns[i] = port(t, a, ulps[i], Config{Lot: lot, RcvBuf: 4 << 10, SndBuf: 64 << 10})
		all.Add(1)
		if err := conns[i].Start(all.Done); err != nil {
			t.Fatal(err)
		}
	}
	parked := func() {
		for _, c := range conns {
			for !c.parking.in.Load() {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	parked()
	held := func() (n int) {
		for _, c := range conns {
			c.Between(func() {
				for _, b := range [][]byte{c.rx.buf, c.tx.buf} {
					if b != nil {
						n++
					}
				}
			})
		}
		for _, c := range conns {
			c.mu.Lock()
			if c.eventFD >= 0 {
				n++
			}
			c.mu.Unlock()
		}
		for _, s := range lot.stocks.all {
			s.mu.Lock()
			n += len(s.free)
			s.mu.Unlock()
		}
		return n
	}
	for held() != 0 { // some are parked before the sweep has found all of them idle
		time.Sleep(time.Millisecond)
	}
	// The goroutines of connections that have just begun to wait end on their own.
	for more := n; more > n/10; more = runtime.NumGoroutine() - before {
		time.Sleep(time.Millisecond)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) > n/2 {
		t.Errorf("%d threads for %d idle connections", len(tasks), n)
	}
	for round := range 3 {
		for i, c := range conns {
			if _, err := peers[i].Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			c.Ring()
		}
		for i, c := range conns {
			for got := 0; got <= round; c.Between(func() { got = ulps[i].octets }) {
				time.Sleep(10 * time.Microsecond)
			}
		}
		parked()
	}
	for i, c := range conns {
		if err := peers[i].CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
