// Package doctor checks what stag needs from a machine and from an interface. It
// reports what is missing and how to get it. The probes try out what they can, and read
// the rest from the kernel. They leave every setting as it was and do not disturb a
// running stag.
package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/choice"
)

// Needs is the configuration that the probes check for.
type Needs struct {
	Memory  uint64 // size of the frames that the kernel must lock, in octets; 0 means 32 MiB
	Engines int    // number of queues that will have an engine; 0 means all queues of the interface
	Chunk   int    // size of a chunk of the ring, 2048 or 4096 octets; 0 means 4096
	Generic bool   // the program will be attached in generic mode
}

// These values replace a zero in Needs.
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

// Host checks what does not depend on an interface, in the network namespace of the
// calling OS thread.
func Host(needs Needs) ([]Probe, error) {
	needs, err := needs.fill()
	if err != nil {
		return nil, err
	}
	return slices.Concat(
		TopicRights.on(
			probeCapabilities(),
			probeMemlock(needs.Memory),
			probeUserSpace(),
			probeUnprivileged(),
			probeConfinement(),
		),
		TopicKernel.on(
			probeLinux(),
			probeProgram(),
			probeSocket(),
			probeSocketMap(),
			probeBudget(),
			probeRepair(),
			probeMembarrier(),
		),
		TopicMachine.on(
			probeMemory(needs.Memory),
			probeFiles(),
			probeBPFFS(),
			probeRuntimeDir(),
			probeClaims(),
			probePins(),
		),
		TopicNetwork.on(
			probeSpace(),
			probeSysfs(),
			probeFilters(),
			probeTCP(),
		),
	), nil
}

// Interface checks one interface in the network namespace of the calling OS thread.
//
// Errors: loader.ErrNoLink, loader.ErrBond or loader.ErrVLANParent if the interface
// cannot be used at all. Unusable turns these errors into a Probe.
func Interface(name string, needs Needs) ([]Probe, error) {
	needs, err := needs.fill()
	if err != nil {
		return nil, err
	}
	v, err := newView()
	if err != nil {
		return nil, err
	}
	defer v.close()
	l, err := v.net.LookupLink(name)
	if err != nil {
		return nil, err
	}
	if needs.Engines == 0 {
		needs.Engines = l.RxQueues
	}
	return v.probe(l, needs), nil
}

// probe runs all probes on l.
func (v *view) probe(l loader.Link, needs Needs) []Probe {
	hook, found := v.probeHook(l)
	driver := v.probeDriver(l, found, needs.Generic)
	return slices.Concat(
		TopicInterface.on(
			probeUp(l),
			v.probeAddress(l),
			v.probeMember(l),
			hook,
			driver,
			probeRDMA(l),
		),
		TopicQueues.on(
			probeQueues(l, needs.Engines),
			probeSockets(l, found),
			probeLost(found),
			v.probeSpread(l),
			v.probeRules(l),
			v.probeMAC(l),
		),
		TopicPackets.on(
			probeMTU(l, needs),
			v.probeVLANOffload(l),
			v.probeChecksum(l),
			v.probeJoining(l),
			v.probeQdisc(l),
		),
		TopicSpeed.on(
			probeZeroCopy(l, needs.Generic),
			v.probeTxChecksum(l),
			probeMetadata(l),
			probeExpectation(l, needs.Generic),
			v.probeCarrier(l, needs, choice.Latency),
			v.probeCarrier(l, needs, choice.Throughput),
			probeCustoms(l),
			probeNAPI(l),
			probeInterrupts(l),
			probeProcessors(needs.Engines),
		),
	)
}

// view gives the probes access to one network namespace.
type view struct {
	net *loader.Net
	nl  *netlink.Handle // a handle for requests that the loader has no function for
}

// newView opens the network namespace of the calling OS thread.
func newView() (*view, error) {
	net, err := loader.Open()
	if err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		net.Close()
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &view{net, handle}, nil
}

func (v *view) close() {
	v.nl.Close()
	v.net.Close()
}

// Unusable turns an error of Interface into a Probe if the error means that the
// interface cannot be used at all. For any other error it returns false.
func Unusable(name string, err error) (Probe, bool) {
	const row = "link"
	fix, note := "", ""
	switch {
	case errors.Is(err, loader.ErrNoLink):
		fix, note = elsewhere(name)
	case errors.Is(err, loader.ErrBond):
		fix = "stag doctor MEMBER; what it says applies to each"
	case errors.Is(err, loader.ErrVLANParent):
		fix = "ip -d link show " + name
	default:
		return Probe{}, false
	}
	p := bad(row, fix, "%v%s", err, note)
	p.Topic = TopicInterface
	return p, true
}

// elsewhere returns the command that checks the interface in another network namespace,
// and a note on where the interface is. If no namespace has the interface, the command
// lists the interfaces.
func elsewhere(name string) (fix, note string) {
	var commands []string
	for _, enter := range loader.SpacesWith(name) {
		commands = append(commands, fmt.Sprintf("%s stag doctor %s", enter, name))
	}
	if len(commands) > 0 {
		return strings.Join(commands, ", or "), "; it is in another network namespace"
	}
	if len(loader.Lacking(capSysAdmin)) > 0 {
		return "ip link show, and run stag doctor as root to have all network namespaces searched", ""
	}
	return "ip link show", "; no other network namespace with a name or a process has it"
}
