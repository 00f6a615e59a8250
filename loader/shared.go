package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/stag-rdma/stag/bpf"
)

// shared holds the maps that the programs on all interfaces of an adapter share: the
// flow maps and the map of the lanes' sockets. In the zero value all are nil.
type shared struct {
	flows4, flows6 *ebpf.Map // one for each address family, with the same room
	lanes          *ebpf.Map
}

// byName returns the shared maps.
func (h *shared) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{bpf.MapFlows4: &h.flows4, bpf.MapFlows6: &h.flows6, bpf.MapLanes: &h.lanes}
}

// shares returns the shared maps of s. It returns the zero value if s is nil.
func (s *Steering) shares() shared {
	if s == nil {
		return shared{}
	}
	return s.shared
}

// SharesFlows reports whether both programs read the same flow maps.
func (s *Steering) SharesFlows(with *Steering) bool {
	a, err1 := s.flows4.Info()
	b, err2 := with.flows4.Info()
	if err1 != nil || err2 != nil {
		return false
	}
	m, ok1 := a.ID()
	n, ok2 := b.ID()
	return ok1 && ok2 && m == n
}

// allMaps returns the maps of one interface and the maps that it shares.
func (s *Steering) allMaps() map[string]**ebpf.Map {
	all := s.maps()
	for name, m := range s.shared.byName() {
		all[name] = m
	}
	return all
}

// room returns how many flows each flow map of a load must have room for. asked is the
// number that the caller asks for. If asked is 0, any size suits.
func (h shared) room(asked uint32) (uint32, error) {
	switch {
	case h.flows4 == nil && asked == 0:
		return defaultFlows, nil
	case h.flows4 == nil:
		return asked, nil
	case asked != 0 && asked != h.flows4.MaxEntries():
		return 0, fail(ErrAlreadyLoaded, nil, "room for %d flows is asked for, and the interfaces that are loaded with it share room for %d: leave the number out, or unload these first",
			asked, h.flows4.MaxEntries())
	}
	return h.flows4.MaxEntries(), nil
}

// replacements returns the shared maps for ebpf.CollectionOptions.
func (h shared) replacements() map[string]*ebpf.Map {
	if h.flows4 == nil {
		return nil
	}
	all := map[string]*ebpf.Map{}
	for name, m := range h.byName() {
		all[name] = *m
	}
	return all
}

func (h shared) close() {
	for _, m := range h.byName() {
		if *m != nil {
			(*m).Close()
		}
	}
}

// inInstance returns the path of a map that all interfaces of the instance share.
func (p *pinDir) inInstance(name string) string { return filepath.Join(p.instance, name) }

// pathOf returns the path of a map.
func (p *pinDir) pathOf(name string) string {
	if _, is := (&shared{}).byName()[name]; is {
		return p.inInstance(name)
	}
	return p.of(name)
}

// openShared opens the maps that the instance's interfaces share. It returns the zero
// value if the instance has none. The caller must close the maps.
func (p *pinDir) openShared(o *ebpf.LoadPinOptions) (h shared, err error) {
	for name, m := range h.byName() {
		*m, err = ebpf.LoadPinnedMap(p.inInstance(name), o)
		if errors.Is(err, os.ErrNotExist) {
			h.close()
			return shared{}, nil
		}
		if err != nil {
			h.close()
			return shared{}, fmt.Errorf("open %s: %w", p.inInstance(name), err)
		}
	}
	return h, nil
}

// pinShared pins the shared maps unless another interface has done so. prepare has
// removed what an interrupted load left.
func (s *Steering) pinShared(p *pinDir) error {
	h, err := p.openShared(nil)
	if err != nil {
		return err
	}
	if h.flows4 != nil {
		h.close()
		return nil
	}
	for name, m := range s.shared.byName() {
		if err := (*m).Pin(p.inInstance(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// dropFlows removes the flows of an interface that is being unloaded from the shared
// flow maps. It leaves maps of another layout unchanged.
func (p *PinnedPort) dropFlows() error {
	h, err := (&pinDir{instance: filepath.Dir(p.Dir)}).openShared(nil)
	if err != nil || h.flows4 == nil {
		return err
	}
	defer h.close()
	s := &Steering{link: Link{Name: p.name()}, shared: h}
	if errors.Is(s.sameShape(), ErrLayout) {
		return nil
	}
	return s.ClearOf(p.ProgID)
}
