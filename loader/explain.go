package loader

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// mtuTooLarge returns the error for a driver that accepts no program at this MTU.
func mtuTooLarge(l Link, cause error) error {
	return fail(ErrMTU, cause, "%s has MTU %d, and its driver takes no program with that: ip link set %s mtu %d, at both ends",
		l.Port, l.PortMTU, l.Port, l.NativeMTU())
}

func called(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" called %q", name)
}

// ExplainAttach turns the kernel's error for attaching a program to l into an error
// that says what to do. It returns ErrNoNative, ErrMTU, ErrChannels, ErrPermission,
// ErrNoLink, ErrAlreadyLoaded or ErrForeignProgram. If none of these fits, it returns
// err itself.
func (n *Net) ExplainAttach(l Link, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		// Another process attached its program first.
		if taken := n.hookFree(l); taken != nil {
			return taken
		}
	case errors.Is(err, unix.EINVAL) && l.PortMTU > l.NativeMTU():
		return mtuTooLarge(l, err) // most drivers return this error for a large MTU
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

// explainCreate turns the kernel's error for making the program and its maps into one
// that says what to do.
func (s *Steering) explainCreate(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && len(lacking(loadCaps)) > 0 {
		return missing(loadCaps, "load the steering program", err)
	}
	return fmt.Errorf("load the steering program for %s: %w", s.link.Port, err)
}

// missing returns an error that names those of the needed capabilities that the calling
// thread lacks.
func missing(needed []capability, what string, cause error) error {
	lack := lacking(needed)
	if len(lack) == 0 {
		return fail(ErrPermission, cause, "not permitted to %s (%v) although the capabilities are there: see the container's seccomp profile and the security module",
			what, cause)
	}
	return fail(ErrPermission, cause, "not permitted to %s: run with %s, or as root", what, strings.Join(lack, " and "))
}
