package nic

import (
	"errors"
	"slices"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
)

// flowMap is a map of flows with its map of lanes. A set has more than one if its
// interfaces are loaded as several instances. The set's mu guards it.
type flowMap struct {
	set   *set
	nics  []*NIC          // interfaces through whose programs the map is reached
	lanes []*loader.Lanes // slots of the set's lanes
}

// findMaps finds the maps of flows of interfaces that are being opened. Slots for all
// lanes of the set are reserved in each map. A slot that gets no socket becomes free
// again when the last interface of the set is closed. findMaps forgets the maps whose
// interfaces are all closed.
func (s *set) findMaps(fresh []*NIC) (err error) {
	first, end := fresh[0].first, fresh[len(fresh)-1].end()
	open := slices.DeleteFunc(slices.Clone(s.list()), (*NIC).isClosed) // comes before the set's lock, which is taken after that of a NIC
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps = slices.DeleteFunc(s.maps, func(m *flowMap) bool { return m.through(open) == nil })
	open = append(open, fresh...)
	for _, n := range fresh {
		if m := s.mapOf(n); m != nil {
			m.nics = append(m.nics, n)
			continue
		}
		m := &flowMap{set: s, nics: []*NIC{n}}
		if err := m.reserve(n, 0, end); err != nil {
			return err
		}
		s.maps = append(s.maps, m)
	}
	for _, m := range s.maps {
		if err := m.reserve(m.through(open), first, end); err != nil {
			return err
		}
	}
	return nil
}

// through returns one of the given interfaces that has the map, or nil. The caller holds
// the set's mu.
func (m *flowMap) through(nics []*NIC) *NIC {
	for _, n := range nics {
		if slices.Contains(m.nics, n) {
			return n
		}
	}
	return nil
}

// end returns the number of the lane behind those of n.
func (n *NIC) end() engine.Lane { return n.first + engine.Lane(n.cfg.Queues) }

// reserve makes sure that the lanes from first on have slots in the map, which n has. The
// caller holds the set's mu.
func (m *flowMap) reserve(n *NIC, first, end engine.Lane) error {
	for first < end && m.lanesOf(uint16(first)) != nil { // an Add that failed may have reserved some
		first++
	}
	if first == end {
		return nil
	}
	l, err := n.steer.ReserveLanes(uint16(first), int(end-first))
	if err != nil {
		return err
	}
	m.set.undo.Add(l.Close)
	m.lanes = append(m.lanes, l)
	return nil
}

// lanesOf returns the slots that contain the one of a lane, or nil. The caller holds the
// set's mu.
func (m *flowMap) lanesOf(lane uint16) *loader.Lanes {
	for _, l := range m.lanes {
		if l.Holds(lane) {
			return l
		}
	}
	return nil
}

// slots returns the slots that contain the one of a lane.
func (m *flowMap) slots(lane uint16) *loader.Lanes {
	m.set.mu.RLock()
	defer m.set.mu.RUnlock()
	return m.lanesOf(lane)
}

// mapOf returns the map of flows that the program of n reads. mapOf returns nil if the
// map is not known yet. The caller holds mu.
func (s *set) mapOf(n *NIC) *flowMap {
	for _, m := range s.maps {
		for _, at := range m.nics {
			if at.steer.SharesFlows(n.steer) { // false if the program of at is closed
				return m
			}
		}
	}
	return nil
}

// nicsOf returns the interfaces through whose programs a map is reached.
func (s *set) nicsOf(m *flowMap) []*NIC {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(m.nics)
}

// allMaps returns all maps of the set. That of n comes first. allMaps returns nothing if
// the set was not opened.
func (n *NIC) allMaps() []*flowMap {
	s := n.set
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*flowMap
	for _, m := range s.maps {
		if slices.Contains(m.nics, n) {
			all = slices.Insert(all, 0, m)
		} else {
			all = append(all, m)
		}
	}
	return all
}

// reach calls do with a program through which n accesses the map. Normally that is n's own
// program. If n's own program does not have the map, reach takes the program of an open
// interface that has the map. If no such interface is open, no program of the set uses the
// map any more, and reach does nothing.
func (m *flowMap) reach(n *NIC, do func(*loader.Steering) error) error {
	nics := m.set.nicsOf(m)
	if slices.Contains(nics, n) {
		return do(n.steer)
	}
	for _, at := range nics {
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
	f.Owner = m.slots(f.Owner).Slot(f.Owner)
	return f
}

// insert enters a flow in every map of flows. If a map of another instance has no room,
// segments that arrive at that instance's interface do not reach the connection.
func (n *NIC) insert(key bpf.FlowKey, f bpf.Flow) error {
	f.Program = n.steer.ProgID()
	maps := n.allMaps()
	for i, m := range maps {
		err := m.reach(n, func(s *loader.Steering) error { return s.Insert(key, m.entry(f)) })
		switch {
		case err == nil:
		case i > 0 && errors.Is(err, loader.ErrFlowsFull):
			n.log.Warn("flow not known to another interface", "key", key, "link", n.set.nicsOf(m)[0].link.Port, "err", err)
		default:
			for _, done := range maps[:i] {
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
	for i, m := range n.allMaps() {
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
	if n.left.Load() {
		return nil // they are another process's
	}
	maps := n.allMaps()
	if len(maps) == 0 || !slices.Contains(n.set.nicsOf(maps[0]), n) {
		return nil // n was not opened, and has no flows
	}
	mine := n.set.nicsOf(maps[0])
	var programs []uint32
	for _, other := range n.set.list() {
		switch {
		case !slices.Contains(mine, other):
			programs = append(programs, other.steer.ProgID())
		case other != n && !other.isClosed():
			return nil
		}
	}
	return n.steer.ClearOf(programs...)
}
