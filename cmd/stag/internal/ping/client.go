package ping

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
)

// client is the end that starts the pings.
type client struct {
	*end
	o            Options
	source, sink *rdma.MR // source has the data for the server; the server writes the data back into sink
	due          <-chan time.Time
}

// Client pings Count times, or until ctx ends. The Result is valid even if there is an
// error.
func Client(ctx context.Context, o Options) (r Result, err error) {
	r = Result{Role: roleClient, Address: o.address(), Size: o.Size, Validated: o.Validate}
	a, err := o.open()
	if err != nil {
		return r, r.finish(ctx, err)
	}
	r.Fields = carrier.Of(a)
	err = o.ping(ctx, a, &r)
	err = errors.Join(err, a.Close())
	return r, r.finish(ctx, err)
}

func (o Options) ping(ctx context.Context, a *rdma.Adapter, r *Result) (err error) {
	c, err := newClient(a, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.qp.Dial(ctx, r.Address, o.params()); err != nil {
		return err
	}
	conn := c.qp.Conn()
	r.Path = conn.Path
	c.step("connected to %v: %s", conn.Remote, conn.Path)
	if o.Interval > 0 {
		ticks := time.NewTicker(o.Interval)
		defer ticks.Stop()
		c.due = ticks.C
	}
	start := time.Now()
	err = c.run(ctx, r)
	r.Seconds = time.Since(start).Seconds()
	if err != nil {
		return err
	}
	c.step("disconnect")
	return c.disconnect(ctx)
}

func newClient(a *rdma.Adapter, o Options) (*client, error) {
	e, err := newEnd(a, o.Debug)
	if err != nil {
		return nil, err
	}
	c := &client{end: e, o: o}
	if c.source, err = c.memory(o.Size, rdma.RemoteRead); err == nil {
		c.sink, err = c.memory(o.Size, rdma.LocalWrite|rdma.RemoteWrite)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// run does the pings. If ctx ends during a ping, run completes that ping.
func (c *client) run(ctx context.Context, r *Result) error {
	long, cancel := lasting(ctx)
	defer cancel()
	t := newTiming()
	defer func() { r.Exchange = t.times() }()
	for n := uint64(0); (c.o.Count == 0 || n < c.o.Count) && c.pause(ctx, n); n++ {
		fill(c.source.Bytes(), n)
		start := time.Now()
		if err := c.exchange(long, n); errors.Is(err, errLeft) {
			return fmt.Errorf("the server has closed the connection before ping %d was done", n)
		} else if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
		took := time.Since(start)
		if c.o.Validate {
			if err := compare(c.sink.Bytes(), c.source.Bytes(), n); err != nil {
				return err
			}
		}
		t.add(took)
		r.Pings++
		r.Octets += uint64(c.o.Size)
		if err := c.print(n, took); err != nil {
			return err
		}
	}
	return nil
}

// pause waits until ping n is due, and reports whether to do it.
func (c *client) pause(ctx context.Context, n uint64) bool {
	if c.o.Interval == 0 || n == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-c.due:
		return true
	case <-ctx.Done():
		return false
	}
}

// print prints the data of ping n and its duration, as far as the options ask for them.
func (c *client) print(n uint64, took time.Duration) error {
	if c.o.Data != nil {
		if _, err := fmt.Fprintf(c.o.Data, "ping data: %s\n", printable(c.sink.Bytes())); err != nil {
			return err
		}
	}
	if c.o.Each != nil {
		if _, err := fmt.Fprintf(c.o.Each, "ping %d: %d octets, %.1f us\n", n, c.o.Size, micros(took)); err != nil {
			return err
		}
	}
	return nil
}

// exchange does ping n: it offers both regions, and waits for the go-ahead of each.
func (c *client) exchange(ctx context.Context, n uint64) error {
	for _, mr := range []*rdma.MR{c.source, c.sink} {
		c.step("send: %v", infoOf(mr))
		if err := c.post(message(infoOf(mr))); err != nil {
			return err
		}
		if _, err := c.hear(ctx); err != nil {
			return err
		}
		c.step("received: go ahead")
	}
	return nil
}
