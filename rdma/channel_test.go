package rdma

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// channelRig is an adapter with a completion channel and connections whose receive CQs use
// the channel.
type channelRig struct {
	*rig
	ch    *CompChannel
	x, y  []*end // y receives
	place map[*CQ]int
}

func newChannelRig(r *rig, n int) *channelRig {
	r.Helper()
	ch, err := r.b.CreateCompChannel()
	r.Must(err)
	g := &channelRig{rig: r, ch: ch, place: map[*CQ]int{}}
	for i := range n {
		x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
		r.Must(y.qp.Close())
		y.recv, err = r.b.CreateCQ(64, CQOptions{Channel: ch, Context: i})
		r.Must(err)
		y.qp, err = y.pd.CreateQP(QPConfig{SendCQ: y.send, RecvCQ: y.recv})
		r.Must(err)
		r.Must(r.join(x, y, wants{}))
		g.x, g.y, g.place[y.recv] = append(g.x, x), append(g.y, y), i
	}
	return g
}

// send makes connection i receive one message.
func (g *channelRig) send(i int, flags SendFlags) {
	g.Helper()
	g.y[i].receive(RecvWR{})
	g.x[i].post(SendWR{Op: WRSend, Flags: flags})
}

// arrived waits until n completions wait in CQ i, and the step that pushed them is over.
func (g *channelRig) arrived(i, n int) {
	g.Helper()
	g.Eventually("completions have come", func() bool { return g.y[i].recv.queue.Len() == n })
	_, err := g.b.Report(g.Ctx()) // waits for the steps
	g.Must(err)
}

// readable reports whether the descriptor is readable, as epoll sees it.
func (g *channelRig) readable(fd int, wait time.Duration) bool {
	g.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(wait.Milliseconds()))
	g.Must(err)
	return n == 1 && p[0].Revents == unix.POLLIN
}

// TestCompChannel: an armed CQ puts one event into the channel, and none before it is
// armed again. The event names the CQ.
func TestCompChannel(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		g := newChannelRig(r, 3)
		g.send(0, 0)
		g.arrived(0, 1)
		if c := g.ch.TryNext(); c != nil {
			t.Fatalf("an event of CQ %v, which is not armed", c.Context())
		}
		for _, y := range g.y {
			y.recv.Arm(false)
		}
		for _, i := range []int{2, 0, 1} {
			g.send(i, 0)
			c, err := g.ch.Next(r.Ctx())
			r.Must(err)
			if c != g.y[i].recv || c.Context() != i {
				t.Errorf("event of CQ %v, want %d", c.Context(), i)
			}
		}
		g.send(1, 0)
		g.arrived(1, 2)
		if c := g.ch.TryNext(); c != nil {
			t.Errorf("a second event of CQ %v for one Arm", c.Context())
		}
		g.y[2].recv.Arm(true) // for solicited completions only
		g.send(2, 0)
		g.arrived(2, 2)
		if c := g.ch.TryNext(); c != nil {
			t.Errorf("an event of CQ %v without a solicited completion", c.Context())
		}
		g.send(2, Solicited)
		if c, err := g.ch.Next(r.Ctx()); err != nil || c != g.y[2].recv {
			t.Errorf("%v", err)
		}
	})
}

// TestCompChannelDescriptor: the descriptor is readable while an event waits, also if it
// was made after the event.
func TestCompChannelDescriptor(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		g := newChannelRig(r, 2)
		g.y[0].recv.Arm(false)
		g.send(0, 0)
		g.arrived(0, 1)
		r.Eventually("an event waits", func() bool {
			g.ch.mu.Lock()
			defer g.ch.mu.Unlock()
			return len(g.ch.events) == 1
		})
		fd, err := g.ch.FD()
		r.Must(err)
		if again, err := g.ch.FD(); again != fd || err != nil || !g.readable(fd, 0) {
			t.Errorf("descriptor %d, then %d, %v, readable %v", fd, again, err, g.readable(fd, 0))
		}
		for round := range 3 {
			if c := g.ch.TryNext(); c == nil || c != g.y[0].recv || g.readable(fd, 0) {
				t.Fatalf("round %d: event %v, still readable %v", round, c, g.readable(fd, 0))
			}
			g.y[0].recv.Arm(false)
			g.y[1].recv.Arm(false)
			g.send(1, 0)
			if !g.readable(fd, patience) || g.ch.TryNext() != g.y[1].recv {
				t.Fatalf("round %d: no event of CQ 1", round)
			}
			g.send(0, 0)
			if !g.readable(fd, patience) {
				t.Fatalf("round %d: not readable", round)
			}
		}
	})
}

// TestCompChannelSleeps: several goroutines sleep in Next and on Notify, and no wake-up is
// lost: each message comes to one of them.
func TestCompChannelSleeps(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const each = 200
		g := newChannelRig(r, 4)
		done := make(chan error, 3)
		total := make(chan int, 4*each)
		ctx, stop := context.WithCancel(r.Ctx())
		serve := func(c *CQ) {
			for again := true; again; again = c.queue.Ready() {
				var got [4]Completion
				for n := c.Poll(got[:]); n != 0; n = c.Poll(got[:]) {
					r.ok(got[:n])
					total <- n
				}
				c.Arm(false)
			}
		}
		for range 2 {
			go func() {
				for {
					c, err := g.ch.Next(ctx)
					if err != nil {
						done <- err
						return
					}
					serve(c)
				}
			}()
		}
		go func() {
			for {
				select {
				case <-g.ch.Notify():
				case <-ctx.Done():
					done <- context.Cause(ctx)
					return
				}
				for c := g.ch.TryNext(); c != nil; c = g.ch.TryNext() {
					serve(c)
				}
			}
		}()
		for _, y := range g.y {
			y.recv.Arm(false)
		}
		have := 0
		for k := range each {
			for i := range g.y {
				g.send(i, 0)
			}
			for have < 4*(k+1) {
				select {
				case n := <-total:
					have += n
				case <-r.Ctx().Done():
					t.Fatalf("%d of %d messages", have, 4*(k+1))
				}
			}
			for _, x := range g.x {
				x.send.Poll(make([]Completion, 8))
			}
		}
		stop()
		for range 3 {
			r.Says(<-done, context.Canceled)
		}
	})
}

// TestCompChannelClose: a channel that CQs use stays open. A closed CQ takes its event
// along. Close ends every Next, and the adapter's Close does so too.
func TestCompChannelClose(t *testing.T) {
	r := newLoopback(t)
	g := newChannelRig(r, 2)
	fd, err := g.ch.FD()
	r.Must(err)
	g.y[0].recv.Arm(false)
	g.send(0, 0)
	if !g.readable(fd, patience) {
		t.Fatal("no event")
	}
	r.Says(g.ch.Close(), ErrInUse, "close completion channel", "by 2 CQs")
	r.Must(g.y[0].qp.Close())
	r.Must(g.y[0].recv.Close())
	if g.readable(fd, 0) || g.ch.TryNext() != nil {
		t.Error("the event of a closed CQ is still there")
	}
	g.y[1].recv.Arm(false)
	r.Must(g.y[1].qp.Close())
	r.Must(g.y[1].recv.Close())
	ended := make(chan error, 1)
	go func() {
		_, err := g.ch.Next(r.Ctx())
		ended <- err
	}()
	r.Must(g.ch.Close())
	r.Must(g.ch.Close())
	r.Says(<-ended, ErrClosed, "wait for an event")
	_, err = g.ch.FD()
	r.Says(err, ErrClosed)
	_, err = r.b.CreateCQ(4, CQOptions{Channel: g.ch})
	r.Says(err, ErrClosed, "create CQ: the completion channel")
	other, err := r.a.CreateCompChannel()
	r.Must(err)
	_, err = r.b.CreateCQ(4, CQOptions{Channel: other})
	r.Says(err, nil, "another adapter's")
	_, err = r.b.CreateCQ(4, CQOptions{}, CQOptions{})
	r.Says(err, nil, "2 CQOptions: give one")
	_, err = r.a.CreateCQ(4, CQOptions{Channel: other})
	r.Must(err)
	go func() {
		_, err := other.Next(r.Ctx())
		ended <- err
	}()
	r.Must(r.a.Close())
	r.Says(<-ended, ErrClosed)
	r.Must(other.Close())
	if _, err := r.a.CreateCompChannel(); !errors.Is(err, ErrClosed) {
		t.Errorf("after the adapter's Close: %v", err)
	}
}
