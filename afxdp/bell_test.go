package afxdp

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// readable reports whether the bell ends a poll within ms milliseconds. A negative ms
// means no limit.
func readable(b *bell, ms int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, ms)
		if err == nil {
			return n == 1
		}
	}
}

// TestBellCosts checks that ring writes to the eventfd only for an announced sleeper,
// and only once.
func TestBellCosts(t *testing.T) {
	var b bell
	rig.Must(t, b.open())
	defer b.close()
	b.ring()
	if readable(&b, 0) {
		t.Error("written to although nobody sleeps")
	}
	if !b.announce() {
		t.Error("a ring before the sleep was not heard")
	}
	b.awake()
	if b.announce() {
		t.Error("heard twice")
	}
	b.ring()
	b.ring()
	if !readable(&b, 0) {
		t.Fatal("a sleeper was not woken")
	}
	b.drain()
	b.ring() // the sleeper has not read rung yet
	if readable(&b, 0) {
		t.Error("written to twice for one sleep")
	}
	if !b.heard() || b.heard() {
		t.Error("not heard exactly once")
	}
}

// TestBellLosesNothing rings once for each sleep. Nothing else ends the sleep, so a
// lost ring stops the test.
func TestBellLosesNothing(t *testing.T) {
	const rounds = 100_000
	var b bell
	rig.Must(t, b.open())
	defer b.close()
	var posted, seen atomic.Int64
	var stop atomic.Bool
	go func() {
		for n := int64(1); n <= rounds; n++ {
			posted.Store(n)
			b.ring()
			for seen.Load() < n && !stop.Load() {
				runtime.Gosched()
			}
		}
	}()
	defer stop.Store(true)
	watchdog := time.NewTimer(30 * time.Second)
	defer watchdog.Stop()
	for seen.Load() < rounds {
		if !b.announce() {
			for !readable(&b, 5000) {
				select {
				case <-watchdog.C:
					t.Fatalf("asleep after %d of %d rounds", seen.Load(), rounds)
				default:
				}
			}
			b.drain()
			b.heard()
		}
		b.awake()
		seen.Store(posted.Load())
	}
}
