package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AddPort opens one more interface for the adapter. Connections follow their routes to
// the port from then on, and new connections can be made through it. The adapter keeps its
// room for connections: MaxFlows of the ports that Open has opened. An adapter can have
// 1024 receive queues in its life, of all ports that it has ever had.
//
// AddPort fails if the adapter has the port already, with the errors of Open, and with
// KernelPort.
func (a *Adapter) AddPort(ctx context.Context, port string) error {
	if a.cfg.KernelPort {
		return fmt.Errorf("add port %s: the adapter uses the kernel's TCP: open one with Ports", port)
	}
	a.portsMu.Lock()
	defer a.portsMu.Unlock()
	done, err := a.Use()
	if err != nil {
		return fmt.Errorf("add port %s: %w", port, err)
	}
	defer done()
	if err := ctx.Err(); err != nil {
		return err
	}
	ports := a.Ports()
	if slices.ContainsFunc(ports, func(p *Port) bool { return p.name == port && !p.lost.Load() }) {
		return fmt.Errorf("add port %s: the adapter has it already", port)
	}
	added := &Port{name: port}
	err = a.space.Do(func() (err error) {
		added.nic, err = ports[0].nic.Add(a.nicConfig(port))
		return err
	})
	if err != nil {
		return fmt.Errorf("add port %s: %w", port, err)
	}
	kept := slices.DeleteFunc(slices.Clone(ports), func(p *Port) bool { return p.name == port })
	for _, p := range ports {
		if p.name == port { // an interface of this name was lost, and there is a new one
			err = errors.Join(err, p.nic.Close())
		}
	}
	list := append(kept, added)
	a.ports.Store(&list)
	a.groups.opened(added)
	a.log.Info("port added", "port", port)
	return err
}

// RemovePort drains a port and closes it. If a connection cannot move, the port stays, and
// stays drained. The last port cannot be removed. The segments that the peers still send
// to the port go to the kernel, which drops them: see Drain.
func (a *Adapter) RemovePort(ctx context.Context, port string) error {
	a.portsMu.Lock()
	defer a.portsMu.Unlock()
	done, err := a.Use()
	if err != nil {
		return fmt.Errorf("remove port %s: %w", port, err)
	}
	defer done()
	p, err := a.portNamed(port)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if err := a.Drain(ctx, port); err != nil {
		return fmt.Errorf("remove port %s: %w", port, err)
	}
	list := slices.DeleteFunc(slices.Clone(a.Ports()), func(q *Port) bool { return q == p })
	a.ports.Store(&list)
	a.quiet(p)
	a.log.Info("port removed", "port", port)
	return p.nic.Close()
}

// lateArrivals is how long a port stays open after the last connection has left it, for
// segments that are on their way to it.
const lateArrivals = 50 * time.Millisecond

// quiet waits until the segments that were on their way to a port have arrived.
func (a *Adapter) quiet(p *Port) {
	if p.nic.Down() {
		return
	}
	select {
	case <-time.After(lateArrivals):
	case <-a.life.Done():
	}
}
