package nic

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
)

// set is the state that the interfaces of one adapter share: the memory of all frames,
// the directory of flows, and the numbers of lanes.
type set struct {
	nics  []*NIC
	maps  []*flowMap
	dir   *engine.Directory
	arena *afxdp.Arena
}

// Open makes one interface ready to take connections over, as OpenAll does.
func Open(cfg Config) (*NIC, error) {
	all, err := OpenAll(cfg)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// OpenAll makes the interfaces of one adapter ready to take connections over. The
// interfaces belong to the network namespace of the calling thread, and stay bound to that
// namespace. OpenAll needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, and CAP_IPC_LOCK or enough
// memlock.
//
// A segment reaches its connection through any of the interfaces. All interfaces have
// frames of one size.
//
// OpenAll adopts a program of `stag load`, which stays when the NIC is closed. OpenAll
// does not touch anything else on an interface. A foreign XDP program, or a queue that
// another process owns, is an error of package loader or afxdp.
//
// The caller must close each NIC.
func OpenAll(cfgs ...Config) ([]*NIC, error) {
	s := &set{}
	for i, cfg := range cfgs {
		cfg, err := cfg.fill()
		if err != nil {
			return nil, fmt.Errorf("open interface: %w", err)
		}
		n := &NIC{cfg: cfg, set: s, number: i, log: cfg.Log, grace: new(handoff.Grace), pace: newPace(unheardMost), ends: newEndQueue(), freed: make(chan struct{}, 1), flows: map[engine.FlowID]*Flow{}}
		n.life, n.die = context.WithCancelCause(context.Background())
		s.nics = append(s.nics, n)
	}
	if at, err := s.open(); err != nil {
		errs := []error{err}
		for i := len(s.nics) - 1; i >= 0; i-- {
			errs = append(errs, s.nics[i].undo.Run())
		}
		return nil, fmt.Errorf("open %s: %w", at.cfg.Link, errors.Join(errs...))
	}
	for _, n := range s.nics {
		n.log.Info("interface opened", "link", n.link.Name, "path", n.Path().String())
	}
	return s.nics, nil
}

// open prepares all interfaces step by step. If it fails, at is the interface that the
// error concerns.
func (s *set) open() (at *NIC, err error) {
	for _, step := range []func(*NIC) error{
		(*NIC).find, (*NIC).checkQueues, (*NIC).checkTags, (*NIC).count, (*NIC).claim, (*NIC).attach, (*NIC).share,
		(*NIC).openQueues, (*NIC).clear, (*NIC).makeEngines, (*NIC).join, (*NIC).start,
	} {
		for _, n := range s.nics {
			if err := step(n); err != nil {
				return n, err
			}
		}
	}
	return nil, nil
}

// count numbers the lanes of n, after those of the interfaces before it.
func (n *NIC) count() error {
	for _, before := range n.set.nics[:n.number] {
		n.first += engine.Lane(before.cfg.Queues)
	}
	if end := int(n.first) + n.cfg.Queues; end > bpf.Lanes {
		return fmt.Errorf("an adapter of %d receive queues over all its interfaces: it can have %d: use fewer interfaces, or fewer queues (ethtool -L)", end, bpf.Lanes)
	}
	return nil
}

// with returns the program of the first interface. A private program of n shares the map
// of flows of that program. with returns nil if there is no such program.
func (n *NIC) with() *loader.Steering {
	if n.number == 0 {
		return nil
	}
	return n.set.nics[0].steer
}

// room returns how many flows all interfaces of the set may have together.
func (s *set) room() (flows int) {
	for _, n := range s.nics {
		flows += cmp.Or(n.cfg.MaxFlows, defaultFlows)
	}
	return min(flows, engine.MaxFlows)
}

// share makes the state that all interfaces of the set share. Every interface must have
// its program first. share therefore does nothing unless n is the last interface of the
// set.
func (n *NIC) share() (err error) {
	s := n.set
	if n.number != len(s.nics)-1 {
		return nil
	}
	if s.dir, err = engine.NewDirectory(s.room()); err != nil {
		return err
	}
	size := uint64(0)
	for _, n := range s.nics {
		one, err := n.queueConfig().RegionSize()
		if err != nil {
			return err
		}
		size += one * uint64(n.cfg.Queues)
	}
	if s.arena, err = afxdp.NewArena(size); err != nil {
		return err
	}
	n.undo.Add(s.arena.Close) // the memory stays until the last queue is closed
	return s.findMaps(n)
}

// flowMap is a map of flows with its map of lanes. A set has more than one if its
// interfaces are loaded as several instances.
type flowMap struct {
	nics  []*NIC        // interfaces through whose programs the map is reached
	lanes *loader.Lanes // slots of the set's lanes
}

// findMaps finds the maps of flows. findMaps reserves slots for all lanes in each map.
// If a slot gets no socket, it becomes free again when last, the last NIC of s, is closed.
func (s *set) findMaps(last *NIC) (err error) {
	for _, n := range s.nics {
		if m := s.mapOf(n); m != nil {
			m.nics = append(m.nics, n)
			continue
		}
		m := &flowMap{nics: []*NIC{n}}
		if m.lanes, err = n.steer.ReserveLanes(int(last.first) + last.cfg.Queues); err != nil {
			return err
		}
		last.undo.Add(m.lanes.Close)
		s.maps = append(s.maps, m)
	}
	for _, n := range s.nics {
		own := s.mapOf(n)
		n.maps = []*flowMap{own}
		for _, m := range s.maps {
			if m != own {
				n.maps = append(n.maps, m)
			}
		}
	}
	return nil
}

// mapOf returns the map of flows that the program of n reads. mapOf returns nil if the
// map is not known yet.
func (s *set) mapOf(n *NIC) *flowMap {
	for _, m := range s.maps {
		if m.nics[0].steer.SharesFlows(n.steer) {
			return m
		}
	}
	return nil
}

// reach calls do with a program through which n accesses the map. Normally that is n's own
// program. If n's own program does not have the map, reach takes the program of an open
// interface that has the map. If no such interface is open, no program of the set uses the
// map any more, and reach does nothing.
func (m *flowMap) reach(n *NIC, do func(*loader.Steering) error) error {
	if m == n.maps[0] {
		return do(n.steer)
	}
	for _, at := range m.nics {
		if open, err := at.whileSteering(do); open {
			return err
		}
	}
	return nil
}

// whileSteering calls do with n's program, unless n is closed. Close waits for do, so that
// leaveMaps finds the entries that do has made.
func (n *NIC) whileSteering(do func(*loader.Steering) error) (open bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false, nil
	}
	return true, do(n.steer)
}

// entry returns f in the form for this map. The owner of f is a lane. In the map, the
// owner is a slot of the map of lanes.
func (m *flowMap) entry(f bpf.Flow) bpf.Flow {
	f.Owner = m.lanes.Slot(f.Owner)
	return f
}

// join connects the engines of all interfaces of the set. Every interface must have its
// engines first. join therefore does nothing unless n is the last interface of the set.
func (n *NIC) join() error {
	if n.number != len(n.set.nics)-1 {
		return nil
	}
	var all []*engine.Engine
	for _, n := range n.set.nics {
		all = append(all, n.engines...)
	}
	if len(all) == 1 {
		return nil
	}
	return engine.Join(all...)
}

// insert enters a flow in every map of flows. If a map of another instance has no room,
// segments that arrive at that instance's interface do not reach the connection.
func (n *NIC) insert(key bpf.FlowKey, f bpf.Flow) error {
	f.Program = n.steer.ProgID()
	for i, m := range n.maps {
		err := m.reach(n, func(s *loader.Steering) error { return s.Insert(key, m.entry(f)) })
		switch {
		case err == nil:
		case i > 0 && errors.Is(err, loader.ErrFlowsFull):
			n.log.Warn("flow not known to another interface", "key", key, "link", m.nics[0].link.Port, "err", err)
		default:
			for _, done := range n.maps[:i] {
				err = errors.Join(err, done.reach(n, func(s *loader.Steering) error { return s.Delete(key) }))
			}
			return err
		}
	}
	return nil
}

// update replaces a flow's entry in every map of flows.
func (n *NIC) update(key bpf.FlowKey, f bpf.Flow) error {
	f.Program = n.steer.ProgID()
	return n.eachMap(func(m *flowMap, s *loader.Steering) error { return s.Update(key, m.entry(f)) })
}

// remove deletes the entry of a flow from every map of flows.
func (n *NIC) remove(key bpf.FlowKey) error {
	return n.eachMap(func(_ *flowMap, s *loader.Steering) error { return s.Delete(key) })
}

// eachMap calls do for n's own map of flows, and then for the others. If another map has
// had no room for the flow, that is no error.
func (n *NIC) eachMap(do func(*flowMap, *loader.Steering) error) error {
	var errs []error
	for i, m := range n.maps {
		err := m.reach(n, func(s *loader.Steering) error { return do(m, s) })
		if i == 0 || !errors.Is(err, loader.ErrNoFlow) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// leaveMaps removes the flows of the set's other interfaces from n's map of flows when n
// is closed. If another open interface of the set has the map, leaveMaps does nothing,
// because that interface removes the flows later. A closed interface that has the map has
// removed its flows itself. The program of such an interface may have flows of another set
// now.
func (n *NIC) leaveMaps() error {
	if len(n.maps) == 0 {
		return nil // the set was not opened, and has no flows
	}
	var programs []uint32
	for _, other := range n.set.nics {
		switch {
		case other.maps[0] != n.maps[0]:
			programs = append(programs, other.steer.ProgID())
		case other != n && !other.isClosed():
			return nil
		}
	}
	return n.steer.ClearOf(programs...)
}
