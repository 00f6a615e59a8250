package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// InstanceOn returns the directory of the instance whose program is on the interface
// called name, in the network namespace of the calling OS thread. It returns "" if no
// pinned program is on the interface.
func InstanceOn(name string) (string, error) {
	n, err := Open()
	if err != nil {
		return "", err
	}
	defer n.Close()
	l, err := n.LookupLink(name)
	if err != nil {
		return "", err
	}
	p, err := n.pinned(l)
	if p == nil {
		return "", err
	}
	return p.instance, nil
}

// Pinned finds the pins of the program on the interface called name, in the network
// namespace of the calling OS thread. It returns the directories of the instance and of
// the interface within it.
//
// Errors: ErrNoLink. ErrNotPinned if there is no program. ErrForeignProgram if the
// program is not stag's. ErrAlreadyLoaded if the program is stag's, but is not pinned
// or has pins that cannot be seen.
func Pinned(name string) (instance, port string, err error) {
	n, err := Open()
	if err != nil {
		return "", "", err
	}
	defer n.Close()
	l, err := n.LookupLink(name)
	if err != nil {
		return "", "", err
	}
	p, err := n.pinned(l)
	switch {
	case err != nil:
		return "", "", err
	case p != nil:
		return p.instance, p.port, nil
	}
	if owner, found := claimant(claimPath(l, hookClaim)); found {
		return "", "", fail(ErrAlreadyLoaded, nil, "the program on %s is %s's own, and goes with it: end that process", l.Port, owner)
	}
	if err := n.hookFree(l); err != nil {
		return "", "", err
	}
	return "", "", fail(ErrNotPinned, nil, "no stag is loaded on %s", l.Port)
}

// pinned finds the pins of the program on link's port by the program's number. The
// number stays the same when the interface is renamed or moved. pinned returns nil if
// no pins can be seen.
func (n *Net) pinned(l Link) (*pinDir, error) {
	xdp, err := n.hook(l)
	if err != nil || !xdp.Attached {
		return nil, err
	}
	dirs, err := filepath.Glob(filepath.Join(Root, "*", "*-*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		p := &pinDir{instance: filepath.Dir(dir), port: dir}
		if id, ok := p.program(); ok && uint32(id) == xdp.ProgId {
			return p, nil
		}
	}
	return nil, nil
}

// program returns the number of the program that the pinned link holds.
func (p *pinDir) program() (ebpf.ProgramID, bool) {
	l, err := link.LoadPinnedLink(p.link(), nil)
	if err != nil {
		return 0, false
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		return 0, false
	}
	return info.Program, true
}

// Adopt opens the program that is pinned for the interface called name, in the network
// namespace of the calling OS thread, for this process alone. Close ends the use of the
// program, which stays on the interface.
//
// Errors: ErrNotPinned if no program is pinned. ErrLayout if another version made the
// program. ErrQueueBusy while another process uses the program. ErrChannels or
// ErrOffload if the interface was changed after the load and no longer suits the
// program.
func Adopt(name string) (*Steering, error) {
	n, err := Open()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	l, err := n.LookupLink(name)
	if err != nil {
		return nil, err
	}
	p, err := n.pinned(l)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fail(ErrNotPinned, nil, "no stag is pinned for %s: stag load %s does that", l.Port, l.Port)
	}
	s := &Steering{link: l, instance: p.instance}
	if err := s.adopt(n, p); err != nil {
		s.undo.Run()
		return nil, err
	}
	return s, nil
}

func (s *Steering) adopt(n *Net, p *pinDir) (err error) {
	if err := p.checkLayout(); err != nil {
		return err
	}
	if err := s.open(p); err != nil {
		return err
	}
	if s.mode, err = n.attachedMode(s.link); err != nil {
		return err
	}
	if has := s.link.RxQueues; s.Queues() < has {
		return fail(ErrChannels, nil, "%s receives with %d queues, and was loaded for %d: stag unload %s, then stag load %s; or ethtool -L back to %d",
			s.link.Port, has, s.Queues(), s.link.Port, s.link.Port, s.Queues())
	}
	return n.CheckOffloads(s.link, s.mode == Generic)
}

// open opens the pinned link and maps, and claims the program for this process.
func (s *Steering) open(p *pinDir) (err error) {
	s.hook, err = link.LoadPinnedLink(p.link(), nil)
	if errors.Is(err, os.ErrNotExist) {
		return p.unloaded(s.link)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.link(), err)
	}
	s.undo.Add(s.hook.Close)
	if err := s.claim(p); err != nil {
		return err
	}
	for name, m := range s.allMaps() {
		path := p.pathOf(name)
		*m, err = ebpf.LoadPinnedMap(path, nil)
		if errors.Is(err, os.ErrNotExist) {
			return p.unloaded(s.link)
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		s.undo.Add((*m).Close)
	}
	return nil
}

func (p *pinDir) unloaded(l Link) error {
	return fail(ErrNotPinned, nil, "%s has been unloaded just now: stag load %s", l.Port, l.Port)
}

// claim claims the program for this process. A process that unloads the program takes
// the same claim. If the link is on no interface any more, such a process had the claim
// first and has unloaded the program, so claim fails.
func (s *Steering) claim(p *pinDir) error {
	info, err := s.hook.Info()
	if err != nil {
		return fmt.Errorf("ask what is pinned at %s: %w", p.link(), err)
	}
	s.id = info.Program
	c, owner, err := claimFile(programClaim(s.id), s.link.Port)
	if err != nil {
		return err
	}
	if c == nil {
		return fail(ErrQueueBusy, nil, "%s is in use by %s: %s", s.link.Port, owner, oneProcess)
	}
	s.undo.Add(c.Close)
	s.claimed = c
	if info, err = s.hook.Info(); err != nil {
		return fmt.Errorf("ask what is pinned at %s: %w", p.link(), err)
	}
	if xdp := info.XDP(); xdp == nil || int(xdp.Ifindex) != s.link.PortIndex {
		return p.unloaded(s.link)
	}
	return nil
}
