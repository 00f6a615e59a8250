package loader

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cilium/ebpf"

	"github.com/stag-rdma/stag/bpf"
)

// LoadAgain checks that the program that is pinned for o.Link is as Load would make it.
// Then it sets OrphanWait and the settings that o.Tune asks for. LoadAgain changes
// nothing else, and does not disturb the process that uses the interface. A zero value
// of Pin, MaxFlows, Queues or OrphanWait in o accepts the present value.
//
// Errors: ErrNotPinned if no program is pinned, so that the caller can call Load.
// ErrAlreadyLoaded if the pinned program differs from o. ErrLayout if another version
// made the program. LoadAgain also returns the errors of Load.
func LoadAgain(o Options) (p PinnedPort, changes []Change, err error) {
	n, err := Open()
	if err != nil {
		return p, nil, err
	}
	defer n.Close()
	l, err := n.LookupLink(o.Link)
	if err != nil {
		return p, nil, err
	}
	at, err := n.pinned(l)
	if err != nil {
		return p, nil, err
	}
	if at == nil {
		return p, nil, fail(ErrNotPinned, nil, "no stag is pinned for %s", l.Port)
	}
	lock, err := lockInstance(at.instance)
	if err != nil {
		return p, nil, err
	}
	defer lock.Close()
	i, err := ReadInstance(at.instance)
	ports := i.of(at.port)
	if err != nil || i.Err != nil || len(ports) == 0 {
		return p, nil, errors.Join(err, i.Err)
	}
	p = ports[0]
	if err := o.differs(l, &p); err != nil {
		return p, nil, err
	}
	if err := p.setOrphanWait(o.OrphanWait); err != nil {
		return p, nil, err
	}
	changes, err = n.tuneAgain(l, o)
	return p, changes, err
}

// setOrphanWait gives the program a new OrphanWait. If wait is 0, setOrphanWait changes
// nothing.
func (p *PinnedPort) setOrphanWait(wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	path := filepath.Join(p.Dir, bpf.MapOptions)
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer m.Close()
	p.OrphanWait = max(0, wait)
	return setOrphanWait(m, wait)
}

// differs returns an error that says how the program at p differs from o. It returns
// nil if p suits o.
func (o Options) differs(l Link, p *PinnedPort) error {
	instance := filepath.Dir(p.Dir)
	has := ""
	switch {
	case o.Pin != "" && o.Pin != instance:
		has = "as instance " + filepath.Base(instance)
	case o.Generic != (p.Mode == Generic):
		has = fmt.Sprintf("in %v mode", p.Mode)
	case o.MaxFlows != 0 && o.MaxFlows != p.MaxFlows:
		has = fmt.Sprintf("with room for %d flows", p.MaxFlows)
	case o.Queues != 0 && o.Queues != p.Queues || p.Queues < l.RxQueues:
		has = "for as many queues as " + strconv.Itoa(p.Queues)
	}
	if has == "" {
		return p.Err
	}
	return fail(ErrAlreadyLoaded, nil, "stag is on %s already, %s: to load it otherwise, stag unload %s first", l.Port, has, l.Port)
}

// tuneAgain changes settings of an interface that already has its program.
func (n *Net) tuneAgain(l Link, o Options) ([]Change, error) {
	if o.Tune == TuneNothing {
		return nil, nil
	}
	t, err := n.newTuner(l, o.Generic, o.Tune)
	if err != nil {
		return nil, err
	}
	err = t.apply(t.after)
	return t.changes(), err
}
