package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// pinDir is where the pins of one interface are:
//
//	<instance>/config                           which layouts the maps have
//	<instance>/tpt                              the adapter's table
//	<instance>/<netns cookie>-<ifindex>/flows   what one interface has
//	                                   /xsks
//	                                   /stats
//	                                   /link    holds the program on the hook
type pinDir struct {
	instance string
	port     string // directory
}

func pinsOf(instance string, l Link) *pinDir {
	return &pinDir{instance, filepath.Join(instance, fmt.Sprintf("%d-%d", l.Netns, l.PortIndex))}
}

func (p *pinDir) config() string        { return filepath.Join(p.instance, bpf.MapConfig) }
func (p *pinDir) table() string         { return filepath.Join(p.instance, bpf.MapTable) }
func (p *pinDir) link() string          { return filepath.Join(p.port, "link") }
func (p *pinDir) of(name string) string { return filepath.Join(p.port, name) }
func (s *Steering) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{bpf.MapFlows: &s.flows, bpf.MapSocks: &s.socks, bpf.MapStats: &s.stats}
}

// preparePins makes the directories, and checks that what is there was made
// with the same layouts. Leftovers of a load that was interrupted go; whoever
// calls holds the claim on the hook, which is empty.
func preparePins(instance string, l Link) (*pinDir, error) {
	p := pinsOf(instance, l)
	if err := onBPFFS(p.instance); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.instance, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for pins: %w", err)
	}
	if err := p.checkLayout(); err != nil && !errors.Is(err, ErrNotPinned) {
		return nil, err
	}
	if err := os.RemoveAll(p.port); err != nil {
		return nil, fmt.Errorf("remove what an interrupted load left behind: %w", err)
	}
	if err := os.Mkdir(p.port, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for pins: %w", err)
	}
	return p, nil
}

// onBPFFS checks that dir, or the nearest directory above it that there is, can
// hold pins.
func onBPFFS(dir string) error {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	for up := dir; err == unix.ENOENT && up != filepath.Dir(up); {
		up = filepath.Dir(up)
		err = unix.Statfs(up, &fs)
	}
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return fail(ErrNoBPFFS, nil, "%s is not in a BPF file system, where alone programs can be pinned: mount -t bpf bpf /sys/fs/bpf", dir)
	}
	return nil
}

// checkLayout compares the layouts of the instance with this build's. ErrNotPinned
// when the instance has none.
func (p *pinDir) checkLayout() error {
	m, err := ebpf.LoadPinnedMap(p.config(), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return fail(ErrNotPinned, err, "no stag is pinned at %s: stag load does that", p.instance)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.config(), err)
	}
	defer m.Close()
	var have bpf.Config
	want := bpf.Layout()
	// A map of another size has a layout of which not even the version word
	// can be read.
	if m.ValueSize() != uint32(binary.Size(have)) {
		return fail(ErrLayout, nil, "the maps pinned at %s were made by a stag of an unknown layout version, this one has version %d: unload them with the stag that made them",
			p.instance, want.Version)
	}
	if err := m.Lookup(uint32(0), &have); err != nil {
		return fmt.Errorf("read %s: %w", p.config(), err)
	}
	if have != want {
		return fail(ErrLayout, nil, "the maps pinned at %s have layout version %d, this stag has version %d: unload them with the stag that made them, or use its version",
			p.instance, have.Version, want.Version)
	}
	return nil
}

// pin makes everything stay. The link comes last: with it the pins are whole.
func (s *Steering) pin(p *pinDir) (err error) {
	var undo undo
	defer func() {
		if err != nil {
			undo.run()
		}
	}()
	undo.add(func() error { return os.RemoveAll(p.port) })
	if err := p.pinConfig(); err != nil {
		return err
	}
	for name, m := range s.maps() {
		if err := (*m).Pin(p.of(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	if err := s.hook.Pin(p.link()); err != nil {
		return fmt.Errorf("pin the program's link: %w", err)
	}
	return nil
}

// pinConfig writes the layouts down, unless another interface of the instance
// did so before.
func (p *pinDir) pinConfig() error {
	err := p.checkLayout()
	if !errors.Is(err, ErrNotPinned) {
		return err
	}
	spec, err := bpf.Spec()
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(spec.Maps[bpf.MapConfig])
	if err != nil {
		return fmt.Errorf("make map config: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), bpf.Layout()); err != nil {
		return fmt.Errorf("fill map config: %w", err)
	}
	err = m.Pin(p.config())
	if errors.Is(err, os.ErrExist) {
		return p.checkLayout() // another load was faster
	}
	if err != nil {
		return fmt.Errorf("pin map config: %w", err)
	}
	return nil
}

// Adopt opens the program that is pinned at instance for the interface called
// name, in the network namespace of the calling OS thread. Close lets it go on.
// ErrNotPinned when there is none, ErrLayout when another version made it.
func Adopt(instance, name string) (*Steering, error) {
	n, err := Open()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	l, err := n.LookupLink(name)
	if err != nil {
		return nil, err
	}
	p := pinsOf(instance, l)
	if err := p.checkLayout(); err != nil {
		return nil, err
	}
	s := &Steering{link: l}
	if err = s.open(p); err == nil {
		s.mode, err = n.attachedMode(l)
	}
	if err != nil {
		s.undo.run()
		return nil, err
	}
	return s, nil
}

func (s *Steering) open(p *pinDir) (err error) {
	s.hook, err = link.LoadPinnedLink(p.link(), nil)
	if errors.Is(err, os.ErrNotExist) {
		return fail(ErrNotPinned, err, "no stag is pinned at %s for %s: stag load does that", p.instance, s.link.Port)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.link(), err)
	}
	s.undo.add(s.hook.Close)
	for name, m := range s.maps() {
		if *m, err = ebpf.LoadPinnedMap(p.of(name), nil); err != nil {
			return fmt.Errorf("open %s: %w", p.of(name), err)
		}
		s.undo.add((*m).Close)
	}
	info, err := s.hook.Info()
	if err != nil {
		return fmt.Errorf("ask what is pinned at %s: %w", p.link(), err)
	}
	if xdp := info.XDP(); xdp == nil || int(xdp.Ifindex) != s.link.PortIndex {
		return fail(ErrNotPinned, nil, "the program pinned at %s is not on %s any more: stag unload, then stag load", p.port, s.link.Port)
	}
	s.id = info.Program
	return nil
}

// Unload takes the instance off every interface, wherever they are, and removes
// its pins. ErrQueueBusy while a process uses one of the queues, ErrNotPinned
// when there is nothing.
func Unload(instance string) error {
	ports, err := os.ReadDir(instance)
	if errors.Is(err, os.ErrNotExist) {
		return fail(ErrNotPinned, err, "nothing is pinned at %s", instance)
	}
	if err != nil {
		return err
	}
	if err := onBPFFS(instance); err != nil {
		return err
	}
	for _, port := range ports {
		l, ok := parsePort(port.Name())
		if !ok || !port.IsDir() {
			continue
		}
		if queue, owner, found := owners(l); found {
			return fail(ErrQueueBusy, nil, "interface %d queue %s is in use by %s: end that process first", l.PortIndex, queue, owner.name())
		}
	}
	for _, port := range ports {
		if err := unloadPort(filepath.Join(instance, port.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(instance)
}

// parsePort reads the name of an interface's directory.
func parsePort(name string) (Link, bool) {
	cookie, index, ok := strings.Cut(name, "-")
	c, err1 := strconv.ParseUint(cookie, 10, 64)
	i, err2 := strconv.Atoi(index)
	return Link{Netns: c, PortIndex: i}, ok && err1 == nil && err2 == nil
}

// unloadPort detaches the program that is pinned in dir, also when another
// process has it open.
func unloadPort(dir string) error {
	hook, err := link.LoadPinnedLink(filepath.Join(dir, "link"), nil)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Join(dir, "link"), err)
	}
	defer hook.Close()
	// The interface may be gone, and the program with it.
	if err := hook.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detach the program pinned in %s: %w", dir, err)
	}
	return nil
}
