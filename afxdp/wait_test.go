package afxdp_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// returns fails the test if f does not return.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: sleeps on", what)
	}
}

func TestWakeBeforeWait(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	q := openIn(t, p, pair.A, scant)
	for range 100 {
		q.Wake()
		q.Wake()
		returns(t, "Wait after Wake", func() { rig.Must(t, q.Wait(-1)) })
	}
	// Two calls of ring counted as one, so the next Wait must sleep.
	begin := time.Now()
	rig.Must(t, q.Wait(5*time.Millisecond))
	if slept := time.Since(begin); slept < 4*time.Millisecond {
		t.Errorf("Wait returned after %v for a Wake that was used up", slept)
	}
}

// TestNoWakeIsLost posts one item at a time, from several goroutines. The next item
// follows only after the last was seen. A lost Wake therefore stops the test.
func TestNoWakeIsLost(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	q := openIn(t, p, pair.A, scant)
	const posters, each = 3, 5_000
	var posted [posters]atomic.Int64
	var seen [posters]atomic.Int64
	for i := range posters {
		go func() {
			for n := int64(1); n <= each; n++ {
				posted[i].Store(n)
				q.Wake()
				for seen[i].Load() < n {
					runtime.Gosched()
				}
			}
		}()
	}
	returns(t, "the queue's goroutine", func() {
		for left := posters; left > 0; {
			if err := q.Wait(-1); err != nil {
				t.Error(err)
				return
			}
			left = 0
			for i := range posters {
				n := posted[i].Load()
				seen[i].Store(n)
				if n < each {
					left++
				}
			}
		}
	})
}

func TestWaitReturnsForFrames(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, false)
	tx, rx := openIn(t, p, pair.A, scant), openIn(t, p, pair.B, scant)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	for number := range uint64(300) {
		done := make(chan error)
		go func() {
			_, err := transmit(tx, number, 1, func(uint64) int { return 60 })
			done <- err
		}()
		var got rising
		for got.count == 0 {
			returns(t, "Wait for a frame", func() { rig.Must(t, rx.Wait(-1)) })
			_, err := receive(rx, got.see)
			rig.Must(t, err)
		}
		rig.Must(t, <-done)
	}
}

// TestWaitEndsAShortage checks that a caller without frames or room wakes up when they
// are available again.
func TestWaitEndsAShortage(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	steer(t, p, pair.B, false)
	q := openIn(t, p, pair.A, scant)
	for number := uint64(0); number < 5_000; {
		var lent [64]port.Frame
		n := q.Take(lent[:])
		for i := range lent[:n] {
			lent[i].Len = 60
			write(q.Bytes(lent[i]), number)
		}
		sent := q.Send(lent[:n])
		q.Free(lent[:n])
		number += uint64(sent)
		// The test does not call Flush, so Wait must transmit in copy mode.
		if sent == 0 {
			returns(t, "Wait for room", func() { rig.Must(t, q.Wait(-1)) })
		}
	}
}

// TestWaitTransmits checks that a frame leaves although the test does not call Flush.
func TestWaitTransmits(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, false)
	tx, rx := openIn(t, p, pair.A, scant), openIn(t, p, pair.B, scant)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	var f [1]port.Frame
	tx.Take(f[:])
	f[0].Len = 60
	write(tx.Bytes(f[0]), 7)
	tx.Send(f[:])
	rig.Must(t, tx.Wait(10*time.Millisecond))
	var got rising
	rig.Eventually(t, "the frame arrives", func() bool {
		_, err := receive(rx, got.see)
		rig.Must(t, err)
		return got.next == 8
	})
}
