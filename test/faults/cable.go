package faults

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
)

// Config describes a cable. The zero value is a cable without faults.
type Config struct {
	MTU  int    // octets; 0 means 1500
	Seed uint64 // seed of the random faults

	// Delay is the delay of a late segment. With Late at 100% it is the delay of the
	// cable. 0 means a random delay of at most MostLate.
	Delay time.Duration

	// Rate is the capacity of a cable with Delay in bits per second, Ethernet headers
	// included. The cable drops a segment that would wait for longer than two Delays
	// and 10 ms. 0 means no limit.
	Rate float64

	// Routed puts a router between the hosts, which are then in two networks. The
	// kernel forwards the packets, and reports packets that are too big. A routed cable
	// cannot deliver a segment twice or late.
	Routed bool

	// Intruder adds a third host. Side A receives everything that this host sends.
	Intruder bool
}

// Cable connects two hosts. Only one goroutine may use it, except for Do.
type Cable struct {
	Ends     [2]pair.End // the hosts, by side
	Intruder pair.End    // the third host, with Config.Intruder

	hosts    [2]place
	inner    [2]place // the other ends of the hosts' interfaces
	stranger place    // the intruder's interface
	ways     [2]*way  // by sending side
	undo     []func() error
}

// New makes a cable. The caller must close it.
func New(c Config) (*Cable, error) {
	k := &Cable{}
	if err := k.build(c); err != nil {
		return nil, errors.Join(fmt.Errorf("lay a cable with faults: %w", err), k.Close())
	}
	return k, nil
}

func (k *Cable) build(c Config) error {
	var err error
	if c.Routed {
		err = k.layRouted(c)
	} else {
		err = k.layDirect(c)
	}
	if err != nil {
		return err
	}
	for side, host := range k.hosts {
		k.Ends[side] = host.End
		// With GRO on, an interface accepts redirected frames even without an XDP program of its own.
		if err := host.do(func() error { return loader.SetGRO(host.Name, true) }); err != nil {
			return err
		}
	}
	if err := k.splice(c); err != nil {
		return err
	}
	if c.Intruder {
		return k.intrude(c)
	}
	return nil
}

// newPair makes a pair that is closed with the cable.
func (k *Cable) newPair(c pair.Config) (*pair.Pair, error) {
	p, err := pair.New(c)
	if err == nil {
		k.undo = append(k.undo, p.Close)
	}
	return p, err
}

// layDirect makes two pairs. The outer ends are the hosts.
func (k *Cable) layDirect(c Config) error {
	for side := range k.hosts {
		p, err := k.newPair(pair.Config{MTU: c.MTU})
		if err != nil {
			return err
		}
		side := pair.Side(side)
		k.hosts[side], k.inner[side] = placeOf(p, side), placeOf(p, side.Other())
	}
	return nil
}

// layRouted makes a pair with a router, which does not limit the rate.
func (k *Cable) layRouted(c Config) error {
	p, err := k.newPair(pair.Config{MTU: c.MTU, Router: &pair.Router{Rate: 2e9, Queue: 1 << 22}})
	if err != nil {
		return err
	}
	for side := range k.hosts {
		k.hosts[side], k.inner[side] = placeOf(p, pair.Side(side)), place{p.Ports[side], p.DoRouter}
	}
	return nil
}

// splice attaches a program to both inner interfaces.
func (k *Cable) splice(c Config) (err error) {
	for side := range k.ways {
		from, to := k.inner[side], k.inner[1-side]
		if k.ways[side], err = k.newWay(from, to, c.Seed+uint64(side)<<32, c.Routed); err != nil {
			return err
		}
	}
	if c.Routed {
		return nil
	}
	late, err := newLatecomers(k.inner[pair.A], k.inner[pair.B], c)
	if err == nil {
		k.undo = append(k.undo, late.close)
	}
	return err
}

// newWay makes a way that is closed with the cable.
func (k *Cable) newWay(from, to place, seed uint64, routed bool) (*way, error) {
	w, err := newWay(from, to, seed, routed)
	if err == nil {
		k.undo = append(k.undo, w.close)
	}
	return w, err
}

// intrude connects a third host.
func (k *Cable) intrude(c Config) error {
	p, err := k.newPair(pair.Config{MTU: c.MTU})
	if err != nil {
		return err
	}
	k.stranger = placeOf(p, pair.A)
	k.Intruder = k.stranger.End
	_, err = k.newWay(placeOf(p, pair.B), k.inner[pair.A], 1, false)
	return err
}

// Do runs f in the namespace of a host, as pair.Pair does.
func (k *Cable) Do(side pair.Side, f func() error) error { return k.hosts[side].do(f) }

// DoIntruder runs f in the intruder's namespace.
func (k *Cable) DoIntruder(f func() error) error { return k.stranger.do(f) }

// Narrow sets the MTU of the hop between the router and side B.
func (k *Cable) Narrow(mtu int) error {
	for _, end := range []place{k.inner[pair.B], k.hosts[pair.B]} {
		err := end.do(func() error {
			l, err := netlink.LinkByName(end.Name)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(l, mtu)
		})
		if err != nil {
			return fmt.Errorf("make the MTU of %s %d: %w", end.Name, mtu, err)
		}
	}
	return nil
}

// Set replaces the plan for the segments that a side sends.
func (k *Cable) Set(side pair.Side, p Plan) error {
	if err := k.ways[side].set(p); err != nil {
		return fmt.Errorf("set the plan for side %v: %w", side, err)
	}
	return nil
}

// Tally returns the counters of the segments that a side sent.
func (k *Cable) Tally(side pair.Side) (Tally, error) {
	t, err := k.ways[side].tally()
	if err != nil {
		return t, fmt.Errorf("read what has happened to side %v: %w", side, err)
	}
	return t, nil
}

// Close removes everything. It may be called twice.
func (k *Cable) Close() error {
	var errs []error
	for len(k.undo) > 0 {
		last := len(k.undo) - 1
		errs = append(errs, k.undo[last]())
		k.undo = k.undo[:last]
	}
	return errors.Join(errs...)
}
