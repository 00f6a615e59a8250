package gate

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/rig"
)

// A gate that is shut lets nobody in, waits for those inside, and opens again or never.
func TestGate(t *testing.T) {
	var g Gate
	ctx := rig.Context(t)
	rig.Must(t, g.Enter(ctx))
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := g.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("shut with somebody inside: %v", err)
	}
	rig.Must(t, g.Enter(ctx)) // open again
	g.Leave()
	g.Leave()
	rig.Must(t, g.Close(ctx))
	if err := g.Enter(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("entered a shut gate: %v", err)
	}
	entered := make(chan error, 1)
	go func() { entered <- g.Enter(ctx) }()
	g.Open(nil)
	rig.Must(t, <-entered)
	g.Leave()
	rig.Must(t, g.Close(ctx))
	gone := errors.New("gone")
	g.Open(gone)
	if err := g.Enter(ctx); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

// While a gate is shut, nobody is inside.
func TestGateExcludes(t *testing.T) {
	var g Gate
	ctx, stop := context.WithCancel(rig.Context(t))
	var inside, passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for g.Enter(ctx) == nil && ctx.Err() == nil {
				inside.Add(1)
				passed.Add(1)
				inside.Add(-1)
				g.Leave()
			}
		})
	}
	for closed := 0; closed < 100 || passed.Load() == 0; closed++ {
		rig.Must(t, g.Close(rig.Context(t)))
		if n := inside.Load(); n != 0 {
			t.Fatalf("%d are inside a shut gate", n)
		}
		g.Open(nil)
		runtime.Gosched() // so that somebody passes on a machine with one processor
	}
	stop()
	all.Wait()
}
