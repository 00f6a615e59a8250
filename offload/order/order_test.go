package order

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const patience = 20 * time.Millisecond

// crowd are steps of one line, and what they did in virtual time.
type crowd struct {
	line    *Line
	running sync.WaitGroup
	mu      sync.Mutex
	begun   []int
	waited  []time.Duration
}

// step adds a step that takes some time. Its goroutine begins after a delay.
func (c *crowd) step(ctx context.Context, n int, delay, takes time.Duration) {
	p := c.line.Join()
	c.running.Go(func() {
		defer p.Leave()
		time.Sleep(delay)
		asked := time.Now()
		p.Wait(ctx)
		c.mu.Lock()
		c.begun = append(c.begun, n)
		c.waited = append(c.waited, time.Since(asked))
		c.mu.Unlock()
		time.Sleep(takes)
	})
}

// Steps begin in the order in which they joined, whichever goroutine runs first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{line: &Line{Patience: patience, Most: time.Second}}
		var want []int
		for n := range 40 {
			c.step(t.Context(), n, time.Duration(40-n)*time.Microsecond, 10*time.Millisecond)
			want = append(want, n)
		}
		c.running.Wait()
		if !slices.Equal(c.begun, want) {
			t.Errorf("steps begun: %v", c.begun)
		}
		if c.line.places.Len() != 0 {
			t.Errorf("%d steps are left in the line", c.line.places.Len())
		}
	})
}

// A step that takes too long delays those behind it by Patience, and they keep their order.
func TestSlowStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{line: &Line{Patience: patience, Most: 10 * patience}}
		for n := range 8 {
			takes := time.Millisecond
			if n == 3 {
				takes = time.Hour
			}
			c.step(t.Context(), n, 0, takes)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(c.begun, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("steps begun: %v", c.begun)
		}
		if c.waited[4] != patience+3*time.Millisecond || c.waited[7] != c.waited[4]+3*time.Millisecond {
			t.Errorf("waited: %v", c.waited)
		}
		began := time.Now()
		c.line.Join().Wait(t.Context())
		if d := time.Since(began); d != 0 {
			t.Errorf("a step waits %v for one that the line has left behind", d)
		}
		c.running.Wait()
	})
}

// However many steps take too long, none waits longer than Most.
func TestMost(t *testing.T) {
	for _, most := range []time.Duration{patience / 2, patience, 10 * patience} {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{line: &Line{Patience: patience, Most: most}}
			for n := range 1000 {
				c.step(t.Context(), n, time.Duration(n)*time.Microsecond, time.Hour)
			}
			c.running.Wait()
			if d := slices.Max(c.waited); d > most || len(c.begun) != 1000 {
				t.Errorf("with Most %v, the longest of %d waits took %v", most, len(c.begun), d)
			}
		})
	}
}

// A step that ends before its turn does not let those behind it pass the ones before it.
func TestLeaveBeforeTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Line{Patience: time.Hour, Most: time.Hour}
		a, b, c := l.Join(), l.Join(), l.Join()
		b.Leave()
		b.Leave()
		began := make(chan struct{})
		go func() { c.Wait(t.Context()); close(began) }()
		synctest.Wait()
		select {
		case <-began:
			t.Error("the third step has begun before the first has ended")
		default:
		}
		a.Leave()
		<-began
		c.Leave()
	})
}

// The end of the context ends a wait. The zero Line does not let anybody wait.
func TestNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Line{Patience: time.Hour, Most: time.Hour}
		l.Join()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		l.Join().Wait(ctx)
		if d := time.Since(began); d != time.Second {
			t.Errorf("waited %v", d)
		}
		l = &Line{}
		l.Join()
		l.Join().Wait(t.Context())
		if d := time.Since(began); d != time.Second {
			t.Errorf("the zero Line: waited until %v", d)
		}
	})
}
