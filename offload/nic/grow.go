package nic

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
)

// Add opens one more interface for the adapter of n, as OpenAll does. Frames must have
// the size of the other interfaces' frames. Connections whose route leads through the
// interface move there, and MoveTo can move others. The adapter keeps its room for flows.
// Lanes of closed interfaces are not used again, so that an adapter can have bpf.Lanes
// receive queues in its life. Add fails with ErrClosed if all interfaces of the adapter
// are closed. An Add that has failed may be tried again.
func (n *NIC) Add(cfg Config) (*NIC, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("open interface: %w", err)
	}
	added, err := n.set.add(cfg)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Link, err)
	}
	added.log.Info("interface opened", "link", added.link.Name, "path", added.Path().String())
	added.attract()
	return added, nil
}

func (s *set) add(cfg Config) (*NIC, error) {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.mu.Lock()
	if s.open == 0 {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	s.open++
	s.mu.Unlock()
	n := newNIC(s, len(s.nics), cfg)
	err := s.openOne(n)
	if err == nil {
		return n, nil
	}
	return nil, errors.Join(err, n.abandon(), s.left())
}

// abandon closes an interface that Add could not open. Its lanes stay taken. Connections that
// have followed their route to it move away. From now on no other interface uses it: neither
// its maps nor its engines.
func (n *NIC) abandon() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.die(ErrClosed)
	n.evacuate()
	return n.undo.Run()
}

// openOne prepares an interface that the set does not contain yet.
func (s *set) openOne(n *NIC) error {
	if _, err := steps([]*NIC{n}, stepsAlone); err != nil {
		return err
	}
	if err := s.findMaps([]*NIC{n}); err != nil {
		return err
	}
	for _, list := range [][]func(*NIC) error{stepsMake, stepsBind} {
		if _, err := steps([]*NIC{n}, list); err != nil {
			return err
		}
	}
	if err := engine.Extend(context.Background(), s.engines, n.engines); err != nil {
		return err
	}
	n.run() // comes before the next step, because a call of an engine that does not run waits for ever
	s.mu.Lock()
	s.nics, s.engines = append(s.nics, n), append(s.engines, n.engines...)
	s.mu.Unlock()
	if err := n.knowFlows(); err != nil {
		return err
	}
	return n.watch()
}

// knowFlows enters the flows of the other interfaces in n's map of flows, if that map is
// n's alone.
func (n *NIC) knowFlows() error {
	m := n.allMaps()[0]
	if len(n.set.nicsOf(m)) > 1 {
		return nil
	}
	for _, other := range n.set.list() {
		for _, f := range other.Flows() {
			entry := f.entry(bpf.Live, f.Engine())
			entry.Program = other.steer.ProgID()
			if err := n.steer.Insert(f.key, m.entry(entry)); err != nil {
				return err
			}
		}
	}
	return nil
}
