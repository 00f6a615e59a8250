package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// mtuTooLarge is the error of a driver that takes no program at this MTU.
func mtuTooLarge(l Link, cause error) error {
	return fail(ErrMTU, cause, "%s has MTU %d, and its driver takes no program with that: ip link set %s mtu %d, at both ends",
		l.Port, l.PortMTU, l.Port, l.NativeMTU())
}

// hookFree checks that no XDP program is on link's port, and says whose it is
// otherwise.
func (n *Net) hookFree(l Link) error {
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
	// Whoever opens an interface has claimed its queues before it comes here.
	if _, owner, found := owners(l); found && (p != nil || owner.PID != os.Getpid()) {
		return fail(ErrAlreadyLoaded, nil, "stag is on %s already, program id %d, in use by %s: an interface belongs to one process at a time: end that one first",
			l.Port, xdp.ProgId, owner)
	}
	if p == nil {
		return fail(ErrAlreadyLoaded, nil, "stag is on %s already, program id %d, and its pins cannot be seen from here: run as root, and where they were made (ip netns exec hides /sys/fs/bpf, nsenter --net does not), or end the process that holds it",
			l.Port, xdp.ProgId)
	}
	return fail(ErrAlreadyLoaded, nil, "stag is on %s already, program id %d, as instance %s: use it, or remove it with stag unload %s",
		l.Port, xdp.ProgId, filepath.Base(p.instance), l.Port)
}

// notOurs is the error for a program on l that is not stag's, or that cannot be
// looked at: it takes CAP_SYS_ADMIN to open a program by its number.
func notOurs(l Link, id ebpf.ProgramID) error {
	switch name := ProgramName(id); name {
	case bpf.Program:
		return nil
	case "":
		return fail(ErrForeignProgram, nil, "an XDP program is on %s, id %d, and whose cannot be seen from here: run as root to be told", l.Port, id)
	default:
		return fail(ErrForeignProgram, nil, "another XDP program is on %s, id %d%s: detach it first (ip link set %s xdp off, or end the process that holds its link: bpftool link)",
			l.Port, id, called(name), l.Port)
	}
}

// hook asks what XDP program is on link's port.
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

// programOn asks what XDP program is on the interface of that index, and what
// the interface is called.
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

// attachedMode is how the program on link's port runs.
func (n *Net) attachedMode(l Link) (Mode, error) {
	xdp, err := n.hook(l)
	if xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		return Generic, err
	}
	return Native, err
}

func called(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" called %q", name)
}

// ProgramName returns the name of a program in the kernel, "" when it cannot be
// told. It takes CAP_SYS_ADMIN.
func ProgramName(id ebpf.ProgramID) string {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// ExplainAttach turns the error that the kernel gave for attaching a program to l
// into one that says what to do: ErrNoNative, ErrMTU, ErrChannels, ErrPermission,
// ErrNoLink, ErrAlreadyLoaded, ErrForeignProgram, or the error itself.
func (n *Net) ExplainAttach(l Link, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		// Somebody was faster.
		if taken := n.hookFree(l); taken != nil {
			return taken
		}
	case errors.Is(err, unix.EINVAL) && l.PortMTU > l.NativeMTU():
		return mtuTooLarge(l, err) // what most drivers say then
	case errors.Is(err, unix.EOPNOTSUPP):
		return fail(ErrNoNative, err, "the driver of %s%s has no native XDP: ask for generic mode (--generic; in a program Config.Generic)", l.Port, called(l.Driver))
	case errors.Is(err, unix.ERANGE):
		return mtuTooLarge(l, err)
	case errors.Is(err, unix.ENOSPC):
		return fail(ErrChannels, err, "%s receives with %d queues, fewer than its peer sends with: ethtool -L %s rx N, with N the peer's number of tx queues",
			l.Port, l.RxQueues, l.Port)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return missing(loadCaps, "attach a program to "+l.Port, err)
	case errors.Is(err, unix.ENODEV):
		return n.noLink(l.Port, err)
	}
	return fmt.Errorf("attach the steering program to %s: %w", l.Port, err)
}

// explainCreate does the same for making the program and its maps.
func (s *Steering) explainCreate(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && len(lacking(loadCaps)) > 0 {
		return missing(loadCaps, "load the steering program", err)
	}
	return fmt.Errorf("load the steering program for %s: %w", s.link.Port, err)
}

// missing names those of the needed capabilities that the calling thread lacks.
func missing(needed []capability, what string, cause error) error {
	lack := lacking(needed)
	if len(lack) == 0 {
		return fail(ErrPermission, cause, "not permitted to %s (%v) although the capabilities are there: see the container's seccomp profile and the security module",
			what, cause)
	}
	return fail(ErrPermission, cause, "not permitted to %s: run with %s, or as root", what, strings.Join(lack, " and "))
}
