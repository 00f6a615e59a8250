package kernelport

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// counting is a ULP that consumes every octet and counts events without any
// synchronization.
type counting struct {
	steps  int
	octets int
	ended  bool
}

func (c *counting) Receive(_ clock.Instant, s stream.Stream) {
	c.steps++
	var view [1][]byte
	for s.Views(view[:]) != 0 {
		c.octets += len(view[0])
		s.Consume(len(view[0]))
	}
	if s.EOF() {
		s.CloseWrite()
	}
}

func (c *counting) Transmit(clock.Instant, stream.Stream) {}
func (c *counting) Fault(clock.Instant, error)            { c.ended = true }
func (c *counting) Deadline() clock.Instant               { return clock.Never }

// TestBetween: fn of Between sees only whole steps, and also the end, and Between
// does not wake Run. The race detector makes this test stronger.
func TestBetween(t *testing.T) {
	a, b := sockets(t)
	ulp := new(counting)
	var steps atomic.Int64
	k := port(t, a, ulp, Config{After: func() { steps.Add(1) }})
	done := make(chan error, 1)
	go func() { done <- k.Run(context.Background()) }()
	var lookers sync.WaitGroup
	over := make(chan struct{})
	for range 3 {
		lookers.Go(func() {
			for last := 0; ; {
				k.Between(func() {
					if ulp.steps < last {
						t.Errorf("%d steps after %d", ulp.steps, last)
					}
					last = ulp.steps
				})
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for range 200 {
		if _, err := b.Write(make([]byte, 10000)); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	lookers.Wait()

	all := false
	for last := int64(-1); !all || last != steps.Load() || !k.asleep.Load(); { // until it has read all, and waits
		last = steps.Load()
		k.Between(func() { all = ulp.octets == 200*10000 })
	}
	before := steps.Load()
	for range 100 {
		k.Between(func() {})
	}
	if now := steps.Load(); now != before {
		t.Errorf("%d steps because somebody looked", now-before)
	}

	b.CloseWrite()
	if err := k.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-done
	k.Between(func() {
		if !ulp.ended || ulp.steps == 0 {
			t.Errorf("%d steps, ended %v", ulp.steps, ulp.ended)
		}
	})
}
