package loader

import (
	"errors"
	"fmt"
)

// Probe is what one requirement of stag's came to on this machine.
type Probe struct {
	Name   string // of the requirement
	OK     bool
	Detail string // what was found, one line
	// Fix is the command or sentence that puts it right. Where OK is true it
	// is a hint: about something that cannot be seen from here, or that only
	// some uses need.
	Fix string
}

// Needs says what the probes compare with.
type Needs struct {
	Memory  uint64 // octets of frames that the kernel must lock; 0 means 32 MiB
	Engines int    // queues that will have an engine; 0 means one for each there is
	Chunk   int    // octets of a chunk of the ring, 2048 or 4096; 0 means 4096
	Generic bool   // the program will be attached in generic mode
}

// What a zero Needs means.
const (
	defaultMemory = 32 << 20
	defaultChunk  = 4096
)

func (n Needs) fill() (Needs, error) {
	if n.Memory == 0 {
		n.Memory = defaultMemory
	}
	if n.Chunk == 0 {
		n.Chunk = defaultChunk
	}
	var errs []error
	if n.Engines < 0 {
		errs = append(errs, fmt.Errorf("%d engines: want 1 or more", n.Engines))
	}
	if n.Chunk != 2048 && n.Chunk != 4096 {
		errs = append(errs, fmt.Errorf("chunks of %d octets: want 2048 or 4096", n.Chunk))
	}
	return n, errors.Join(errs...)
}

func ok(name, format string, args ...any) Probe {
	return Probe{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// ProbeHost looks at what does not depend on an interface, each by trying it,
// in the network namespace of the calling OS thread. Nothing stays changed.
func ProbeHost(needs Needs) ([]Probe, error) {
	needs, err := needs.fill()
	if err != nil {
		return nil, err
	}
	return []Probe{
		probeCapabilities(),
		probeMemlock(needs.Memory),
		probeBPFFS(),
		probeRuntimeDir(),
		probeProgram(),
		probeSocket(),
		probeSocketMap(),
		probeRepair(),
		probeMembarrier(),
	}, nil
}

// ProbeLink looks at one interface in the network namespace of the calling OS
// thread. A stag that runs on it is not disturbed. The error says that the
// interface cannot be used at all: ErrNoLink, ErrBond, ErrVLANParent.
func ProbeLink(name string, needs Needs) ([]Probe, error) {
	needs, err := needs.fill()
	if err != nil {
		return nil, err
	}
	n, err := Open()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	l, err := n.LookupLink(name)
	if err != nil {
		return nil, err
	}
	hook, found := n.probeHook(l)
	if needs.Engines == 0 {
		needs.Engines = l.RxQueues
	}
	return []Probe{
		probeUp(l),
		hook,
		n.probeDriver(l, found, needs.Generic),
		probeMetadata(l),
		probeQueues(l, needs.Engines),
		probeMTU(l, needs),
		n.probeVLANOffload(l),
		n.probeChecksum(l),
	}, nil
}
