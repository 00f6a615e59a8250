package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/stag-rdma/stag/offload/undo"
)

// stay attaches the program and pins it, so that it stays on the interface. The caller
// must hold the claim on the hook.
//
// If the process is killed, the steps so far leave directories without a link, or a
// file of settings without pins. The next load, unload or Sweep removes them. The link
// is pinned last, so a pinned link means that the pins are complete.
func (s *Steering) stay(n *Net, o Options) (err error) {
	lock, err := lockInstance(o.Pin)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := n.hookFree(s.link); err != nil {
		return err
	}
	var steps undo.Stack
	defer func() {
		if err != nil {
			steps.Run()
		}
	}()
	if err := dropSettings(s.link); err != nil {
		return err
	}
	p := pinsOf(o.Pin, s.link)
	steps.Add(p.remove)
	if err := p.prepare(); err != nil {
		return err
	}
	loadStep("directories")
	var t *tuner
	if o.Tune != TuneNothing {
		if t, err = n.newTuner(s.link, o.Generic, o.Tune); err != nil {
			return err
		}
		steps.Add(t.undo)
	}
	with, err := p.openShared(nil)
	if err != nil {
		return err
	}
	defer with.close()
	if err := s.put(n, o, with); err != nil {
		return err
	}
	loadStep("attached")
	if t != nil {
		if err := t.apply(t.after); err != nil {
			return err
		}
		s.tuned = t.changes()
	}
	s.instance = o.Pin
	return s.pin(p)
}

// dropSettings restores the settings that a killed load has changed.
func dropSettings(l Link) error {
	kept, err := readSettings(settingsPath(l))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := newFinder()
	defer f.close()
	_, err = kept.restore(f, whereabouts{}, false)
	return err
}

// prepare makes the directories, and checks that the instance has the layouts of this
// build. It removes what an interrupted load or unload left.
func (p *pinDir) prepare() error {
	if err := os.MkdirAll(p.instance, 0o700); err != nil {
		return fmt.Errorf("make the directory for pins: %w", err)
	}
	if err := p.checkLayout(); err != nil && !errors.Is(err, ErrNotPinned) {
		return err
	}
	if err := p.removeLeftovers(); err != nil {
		return fmt.Errorf("remove what an interrupted load or unload left behind: %w", err)
	}
	if err := os.Mkdir(p.port, 0o700); err != nil {
		return fmt.Errorf("make the directory for pins: %w", err)
	}
	return nil
}

// removeLeftovers removes the pins of this port and the flows of the pinned program. If
// no other interface of the instance is loaded, it also removes the shared maps. The
// next load then chooses the size of the flow maps.
func (p *pinDir) removeLeftovers() error {
	others, err := p.othersLoaded()
	if err != nil {
		return err
	}
	if !others {
		err := os.RemoveAll(p.port)
		for name := range (&shared{}).byName() {
			err = errors.Join(err, os.RemoveAll(p.inInstance(name)))
		}
		return err
	}
	if id, ok := p.program(); ok {
		l, _ := parsePort(filepath.Base(p.port))
		old := PinnedPort{Dir: p.port, Index: l.PortIndex, ProgID: uint32(id)}
		if err := old.dropFlows(); err != nil {
			return err
		}
	}
	return os.RemoveAll(p.port)
}

// othersLoaded reports whether another interface of the instance is loaded. A load pins
// the link last, so a directory without a link belongs to an interrupted load.
func (p *pinDir) othersLoaded() (bool, error) {
	dirs, err := ports(p.instance)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(dirs, func(d pinDir) bool {
		_, err := os.Stat(d.link())
		return d.port != p.port && !errors.Is(err, os.ErrNotExist)
	}), nil
}

// remove removes the port's pins. It also removes the instance if no other port is
// left.
func (p *pinDir) remove() error {
	if err := os.RemoveAll(p.port); err != nil {
		return err
	}
	ports, err := ports(p.instance)
	if err != nil || len(ports) > 0 {
		return err
	}
	return os.RemoveAll(p.instance)
}

// pin pins the maps and the link.
func (s *Steering) pin(p *pinDir) error {
	if err := p.pinConfig(); err != nil {
		return err
	}
	loadStep("config")
	if err := s.pinShared(p); err != nil {
		return err
	}
	loadStep("shared maps")
	for name, m := range s.maps() {
		if err := (*m).Pin(p.of(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	loadStep("maps")
	if err := s.hook.Pin(p.link()); err != nil {
		return fmt.Errorf("pin the program's link: %w", err)
	}
	loadStep("link")
	return nil
}

// ports returns the directories of an instance's interfaces.
func ports(instance string) (dirs []pinDir, err error) {
	entries, err := os.ReadDir(instance)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if l, ok := parsePort(e.Name()); ok && e.IsDir() {
			dirs = append(dirs, *pinsOf(instance, l))
		}
	}
	return dirs, err
}
