package ping

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/rdma"
)

// caller is the server's end of the connection to one client.
type caller struct {
	*end
	o    Options
	data *rdma.MR // memory that the data of a ping is read into, and written back from
	want []byte   // the expected data of a ping; used with Validate
}

func newCaller(a *rdma.Adapter, o Options) (*caller, error) {
	e, err := newEnd(a, o.Debug)
	if err != nil {
		return nil, err
	}
	c := &caller{end: e, o: o}
	if c.data, err = c.memory(o.Size, rdma.LocalWrite); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if o.Validate {
		c.want = make([]byte, o.Size)
	}
	return c, nil
}

// answers answers pings until the client leaves, until ctx ends, or until it has
// answered Count pings. It calls done after each ping.
func (c *caller) answers(ctx context.Context, done func(octets int)) error {
	long, cancel := lasting(ctx)
	defer cancel()
	for n := uint64(0); ; n++ {
		source, err := c.hear(ctx)
		switch {
		case errors.Is(err, errLeft):
			c.step("the client has left")
			return nil
		case err != nil && ctx.Err() != nil:
			return c.disconnect(ctx)
		case err != nil:
			return err
		case c.o.Count > 0 && n == c.o.Count:
			return fmt.Errorf("it wants more than the %d pings of -C", n)
		}
		if err := c.answer(long, n, source); errors.Is(err, errLeft) {
			return fmt.Errorf("it has left in the middle of ping %d", n)
		} else if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
		done(int(source.octets))
	}
}

// answer does ping n. source is the memory that the client has offered.
func (c *caller) answer(ctx context.Context, n uint64, source info) error {
	if err := c.fetch(ctx, n, source); err != nil {
		return err
	}
	return c.giveBack(ctx, source)
}

// giveBack waits until the client offers the sink, and writes the fetched data into it.
func (c *caller) giveBack(ctx context.Context, source info) error {
	c.step("send: go ahead")
	if err := c.post(message(info{})); err != nil {
		return err
	}
	sink, err := c.hear(ctx)
	if err != nil {
		return err
	}
	if sink.octets < source.octets {
		return fmt.Errorf("the sink has %d octets, the source had %d", sink.octets, source.octets)
	}
	c.step("RDMA Write: %v; send: go ahead", sink)
	return c.post(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{c.data.SGE(0, int(source.octets))},
		RKey: sink.key, RemoteAddr: sink.addr}, message(info{}))
}

// fetch reads the data of ping n from the source.
func (c *caller) fetch(ctx context.Context, n uint64, source info) error {
	if source.octets == 0 || int64(source.octets) > int64(c.o.Size) {
		return fmt.Errorf("the client offers %d octets, this server takes 1 to %d: see -S on both ends", source.octets, c.o.Size)
	}
	octets := int(source.octets)
	c.step("RDMA Read: %v", source)
	err := c.post(rdma.SendWR{Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{c.data.SGE(0, octets)},
		RKey: source.key, RemoteAddr: source.addr})
	if err != nil {
		return err
	}
	if _, err := c.await(ctx, rdma.WCRead); err != nil {
		return err
	}
	data := c.data.Bytes()[:octets]
	if c.o.Validate {
		fill(c.want[:octets], n)
		if err := compare(data, c.want[:octets], n); err != nil {
			return err
		}
	}
	if c.o.Data != nil {
		_, err = fmt.Fprintf(c.o.Data, "server ping data: %s\n", printable(data))
	}
	return err
}
