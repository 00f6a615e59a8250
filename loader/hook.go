package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/stag-rdma/stag/bpf"
)

// hookFree checks that no XDP program is on link's port. If one is, the error says
// which program it is.
func (n *Net) hookFree(l Link) error {
	if l.Bond != "" {
		if _, err := n.Ports(l.Bond); errors.Is(err, ErrForeignProgram) {
			return err
		}
	}
	xdp, err := n.hook(l)
	if err != nil || !xdp.Attached {
		return err
	}
	p, err := n.pinned(l)
	if err != nil {
		return err
	}
	if p == nil {
		if err := notOurs(l, ebpf.ProgramID(xdp.ProgId)); err != nil {
			return err
		}
	}
	// The owner may be this process, because a process claims the queues of an
	// interface before it loads the program.
	if _, owner, found := owners(l); found && (p != nil || owner.PID != os.Getpid()) {
		return fail(ErrAlreadyLoaded, nil, "stag is on %s already, program id %d, in use by %s: %s",
			l.Port, xdp.ProgId, owner, oneProcess)
	}
	if p == nil {
		return fail(ErrAlreadyLoaded, nil, "stag is on %s already, program id %d, and its pins cannot be seen from here: run as root, and where they were made (ip netns exec hides /sys/fs/bpf, nsenter --net does not), or end the process that holds it",
			l.Port, xdp.ProgId)
	}
	return fail(ErrAlreadyLoaded, nil, "stag is on %s already, program id %d, as instance %s: use it, or remove it with stag unload %s",
		l.Port, xdp.ProgId, filepath.Base(p.instance), l.Port)
}

// notOurs returns the error for a program on l that is not stag's or cannot be
// identified. Opening a program by its number needs CAP_SYS_ADMIN. notOurs returns nil
// if the program is stag's.
func notOurs(l Link, id ebpf.ProgramID) error {
	name, err := ProgramName(id)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fail(ErrForeignProgram, nil, "an XDP program is on %s, id %d, and this user may not see its owner: run as root", l.Port, id)
	case err != nil:
		return fail(ErrForeignProgram, err, "an XDP program is on %s, id %d, and its name cannot be read: %v: try again", l.Port, id, err)
	case name == bpf.Program:
		return nil
	default:
		return fail(ErrForeignProgram, nil, "another XDP program is on %s, id %d%s: detach it first (ip link set %s xdp off, or end the process that holds its link: bpftool link)",
			l.Port, id, called(name), l.Port)
	}
}

// hook returns the state of the XDP hook of link's port.
func (n *Net) hook(l Link) (netlink.LinkXdp, error) {
	xdp, _, err := n.programOn(l.PortIndex)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return xdp, n.noLink(l.Port, err)
	}
	if err != nil {
		return xdp, fmt.Errorf("look interface %s up: %w", l.Port, err)
	}
	return xdp, nil
}

// programOn returns the state of the XDP hook of the interface with this index, and the
// interface's name.
func (n *Net) programOn(index int) (netlink.LinkXdp, string, error) {
	port, err := n.nl.LinkByIndex(index)
	if err != nil {
		return netlink.LinkXdp{}, "", err
	}
	if xdp := port.Attrs().Xdp; xdp != nil {
		return *xdp, port.Attrs().Name, nil
	}
	return netlink.LinkXdp{}, port.Attrs().Name, nil
}

// attachedMode returns the mode in which the program on link's port runs.
func (n *Net) attachedMode(l Link) (Mode, error) {
	xdp, err := n.hook(l)
	if xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		return Generic, err
	}
	return Native, err
}

// ProgramName returns the name of a program in the kernel. A program may have no name:
// ProgramName then returns "". The error is os.ErrPermission without CAP_SYS_ADMIN.
func ProgramName(id ebpf.ProgramID) (string, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

// Hook is the state of an interface's XDP hook.
type Hook struct {
	Attached bool
	Pinned   bool  // the program is stag's, and was loaded to stay
	Mode     Mode  // mode of the program, if one is attached
	Usable   error // why stag can neither use the program nor load its own; nil: it can
}

// Hook returns the state of the XDP hook of l's port.
func (n *Net) Hook(l Link) (Hook, error) {
	xdp, err := n.hook(l)
	if err != nil {
		return Hook{}, err
	}
	h := Hook{Attached: xdp.Attached}
	if xdp.Attached && xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		h.Mode = Generic
	}
	p, err := n.pinned(l)
	if err != nil {
		return Hook{}, err
	}
	if h.Pinned = p != nil; !h.Pinned {
		h.Usable = n.hookFree(l)
	}
	return h, nil
}
