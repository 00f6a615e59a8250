package nic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/gate"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/undo"
)

// set is the state that the interfaces of one adapter share: the memory of all frames,
// the directory of flows, and the numbers of lanes.
type set struct {
	// OpenAll sets these fields, and they never change.
	dir   *engine.Directory
	arena *afxdp.Arena

	growing sync.Mutex // lock that is held while an interface is added, or while the set is frozen
	gate    gate.Gate  // take-overs pass it; it is shut while the set is frozen
	transit transit

	mu      sync.RWMutex     // guards the fields below, and all flowMaps
	nics    []*NIC           // interfaces, also closed ones, by number
	engines []*engine.Engine // engines of all interfaces by lane
	maps    []*flowMap
	open    int        // interfaces that are not closed
	undo    undo.Stack // undoes what all interfaces share
}

// transit counts the flows that move between the interfaces of a set. It is safe for
// concurrent use.
type transit struct{ begun, ended atomic.Uint64 }

// since begins to watch the moves. The function that it returns reports whether any flow has
// been moving since then.
func (t *transit) since() func() bool {
	ended := t.ended.Load() // comes before begun, so that it is not ahead
	return func() bool { return t.begun.Load() != ended }
}

// list returns the interfaces of the set.
func (s *set) list() []*NIC {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nics[:len(s.nics):len(s.nics)]
}

// several reports whether the set has more than one interface.
func (s *set) several() bool { return len(s.list()) > 1 }

// nameOf returns the name of the open interface of the set with this index, or "".
func (s *set) nameOf(index int) string {
	if n := s.at(index); n != nil {
		return n.link.Name
	}
	return ""
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
		s.nics = append(s.nics, newNIC(s, i, cfg))
	}
	s.open = len(s.nics)
	if at, err := s.openAll(); err != nil {
		errs := []error{err}
		for i := len(s.nics) - 1; i >= 0; i-- {
			errs = append(errs, s.nics[i].undo.Run())
		}
		return nil, fmt.Errorf("open %s: %w", at.cfg.Link, errors.Join(append(errs, s.undo.Run())...))
	}
	for _, n := range s.nics {
		n.log.Info("interface opened", "link", n.link.Name, "path", n.Path().String())
	}
	return s.nics, nil
}

func newNIC(s *set, number int, cfg Config) *NIC {
	n := &NIC{
		cfg: cfg, set: s, number: number, log: cfg.Log, grace: new(handoff.Grace), pace: newPace(unheardMost),
		ends: newEndQueue(), shifts: newShiftQueue(), freed: make(chan struct{}, 1), flows: map[engine.FlowID]*Flow{},
	}
	n.life, n.die = context.WithCancelCause(context.Background())
	return n
}

// Steps of opening an interface. Every step is done for all interfaces before the next
// one. The steps before share concern one interface alone.
var (
	stepsAlone = []func(*NIC) error{(*NIC).find, (*NIC).checkQueues, (*NIC).checkTags, (*NIC).findSums, (*NIC).count, (*NIC).claim, (*NIC).attach}
	stepsMake  = []func(*NIC) error{(*NIC).prepareQueues, (*NIC).makeEngines}
	stepsBind  = []func(*NIC) error{(*NIC).bindQueues, (*NIC).clear}
)

// openAll prepares all interfaces step by step. If it fails, at is the interface that the
// error concerns.
func (s *set) openAll() (at *NIC, err error) {
	last := s.nics[len(s.nics)-1]
	if at, err := steps(s.nics, stepsAlone); err != nil {
		return at, err
	}
	if err := s.share(); err != nil {
		return last, err
	}
	if err := s.findMaps(s.nics); err != nil {
		return last, err
	}
	if at, err := steps(s.nics, stepsMake); err != nil {
		return at, err
	}
	if err := s.join(); err != nil {
		return last, err
	}
	if ready := s.nics[0].cfg.Ready; ready != nil {
		if err := ready(); err != nil {
			return last, err
		}
	}
	if at, err := steps(s.nics, stepsBind); err != nil {
		return at, err
	}
	return steps(s.nics, []func(*NIC) error{(*NIC).start})
}

// steps does steps for interfaces. If one fails, at is the interface that the error
// concerns.
func steps(nics []*NIC, list []func(*NIC) error) (at *NIC, err error) {
	for _, step := range list {
		for _, n := range nics {
			if err := step(n); err != nil {
				return n, err
			}
		}
	}
	return nil, nil
}

// left undoes what all interfaces share when the last of them is closed.
func (s *set) left() error {
	s.mu.Lock()
	s.open--
	last := s.open == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.undo.Run()
}

// count numbers the lanes of n, after those of the interfaces before it.
func (n *NIC) count() error {
	for _, before := range n.set.list()[:n.number] {
		n.first += engine.Lane(before.cfg.Queues)
	}
	if end := int(n.first) + n.cfg.Queues; end > bpf.Lanes {
		return fmt.Errorf("an adapter of %d receive queues over all its interfaces: it can have %d: use fewer interfaces, or fewer queues (ethtool -L)", end, bpf.Lanes)
	}
	return nil
}

// with returns the program of the first open interface before n. A private program of n
// shares the map of flows of that program. with returns nil if there is no such program.
func (n *NIC) with() *loader.Steering {
	for _, before := range n.set.list()[:n.number] {
		if !before.isClosed() {
			return before.steer
		}
	}
	return nil
}

// room returns how many flows all interfaces of the set may have together.
func (s *set) room() (flows int) {
	for _, n := range s.list() {
		flows += cmp.Or(n.cfg.MaxFlows, defaultFlows)
	}
	return min(flows, engine.MaxFlows)
}

// spareLanes is how many queues Add can open. Their frames take only address space before.
const spareLanes = bpf.Lanes

// share makes the state that all interfaces of the set share. Every interface must have
// its program first.
func (s *set) share() (err error) {
	if s.dir, err = engine.NewDirectory(s.room()); err != nil {
		return err
	}
	size, largest := uint64(0), uint64(0)
	for _, n := range s.nics {
		one, err := n.queueConfig().RegionSize()
		if err != nil {
			return err
		}
		size += one * uint64(n.cfg.Queues)
		largest = max(largest, one)
	}
	if s.arena, err = afxdp.NewGrowingArena(size, size+spareLanes*largest); err != nil {
		return err
	}
	s.undo.Add(s.arena.Close) // the memory stays until the last queue is closed
	return nil
}

// join connects the engines of all interfaces of the set.
func (s *set) join() error {
	for _, n := range s.nics {
		s.engines = append(s.engines, n.engines...)
	}
	if len(s.engines) == 1 {
		return nil
	}
	return engine.Join(s.engines...)
}
