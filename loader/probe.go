package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Topic is what a probe belongs to.
type Topic string

// Topics, in the order in which people look. The first four are the host's and
// its network namespace's, the others the interface's.
const (
	TopicRights    Topic = "rights"
	TopicKernel    Topic = "kernel"
	TopicMachine   Topic = "machine"
	TopicNetwork   Topic = "network"
	TopicInterface Topic = "interface"
	TopicQueues    Topic = "queues"
	TopicPackets   Topic = "packets"
	TopicSpeed     Topic = "speed"
)

// Topics are all of them.
var Topics = []Topic{TopicRights, TopicKernel, TopicMachine, TopicNetwork, TopicInterface, TopicQueues, TopicPackets, TopicSpeed}

// Probe is what one requirement of stag's came to on this machine.
type Probe struct {
	Topic  Topic
	Name   string // of the requirement
	OK     bool
	Detail string // what was found, one line
	// Fix is the command or sentence that puts it right. Where OK is true it
	// is a hint: about something that cannot be seen from here, or that only
	// some uses need.
	Fix string
	// Lacks is the capabilities for want of which it failed, or could not be
	// looked at.
	Lacks []string
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

func hint(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, OK: true, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// wants names those capabilities that the thread lacks as the reason. Where it
// has them all, something else was.
func (p Probe) wants(caps ...capability) Probe {
	p.Lacks = lacking(caps)
	return p
}

// untried is a row that nobody without rights can fill.
func untried(name string, caps []capability, err error) Probe {
	return hint(name, "run as root to see it", "not looked at: %v", err).wants(caps...)
}

// on puts probes under their topic.
func (t Topic) on(probes ...Probe) []Probe {
	for i := range probes {
		probes[i].Topic = t
	}
	return probes
}

// ProbeHost looks at what does not depend on an interface, each by trying it or
// by reading what the kernel says, in the network namespace of the calling OS
// thread. Nothing stays changed.
func ProbeHost(needs Needs) ([]Probe, error) {
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

// ProbeLink looks at one interface in the network namespace of the calling OS
// thread. A stag that runs on it is not disturbed. The error says that the
// interface cannot be used at all: ErrNoLink, ErrBond, ErrVLANParent; see
// ProbeUnusable.
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
	driver := n.probeDriver(l, found, needs.Generic)
	return slices.Concat(
		TopicInterface.on(
			probeUp(l),
			n.probeAddress(l),
			n.probeMember(l),
			hook,
			driver,
			probeRDMA(l),
		),
		TopicQueues.on(
			probeQueues(l, needs.Engines),
			probeSockets(l, found),
			probeLost(found),
			n.probeSpread(l),
			n.probeRules(l),
			n.probeMAC(l),
		),
		TopicPackets.on(
			probeMTU(l, needs),
			n.probeVLANOffload(l),
			n.probeChecksum(l),
			n.probeJoining(l),
			n.probeQdisc(l),
		),
		TopicSpeed.on(
			probeZeroCopy(l, needs.Generic),
			probeMetadata(l),
			probeExpectation(l, needs.Generic),
			probeCustoms(l),
			probeNAPI(l),
			probeInterrupts(l),
			probeProcessors(needs.Engines),
		),
	), nil
}

// ProbeUnusable is the row for an interface that cannot be used at all, as the
// error of ProbeLink says. It is false for an error that is none of the
// interface's.
func ProbeUnusable(name string, err error) (Probe, bool) {
	const row = "link"
	fix, note := "", ""
	switch {
	case errors.Is(err, ErrNoLink):
		fix, note = elsewhere(name)
	case errors.Is(err, ErrBond):
		fix = "stag doctor MEMBER; what it says applies to each"
	case errors.Is(err, ErrVLANParent):
		fix = "ip -d link show " + name
	default:
		return Probe{}, false
	}
	p := bad(row, fix, "%v%s", err, note)
	p.Topic = TopicInterface
	return p, true
}

// elsewhere is the command that looks at the interface where it is, or at what
// there is, and what else is known.
func elsewhere(name string) (fix, note string) {
	finder := newFinder()
	defer finder.close()
	var commands []string
	for _, s := range finder.others() {
		s.Do(func() error {
			if _, err := LookupLink(name); err == nil || !errors.Is(err, ErrNoLink) {
				commands = append(commands, fmt.Sprintf("%s stag doctor %s", s.enter(), name))
			}
			return nil
		})
	}
	if len(commands) > 0 {
		return strings.Join(commands, ", or "), "; it is in another network namespace"
	}
	if len(lacking([]capability{capSysAdmin})) > 0 {
		return "ip link show, and run stag doctor as root to have all network namespaces searched", ""
	}
	return "ip link show", "; no other network namespace with a name or a process has it"
}

// others are the namespaces but the calling thread's.
func (f *finder) others() []namedSpace {
	return slices.DeleteFunc(slices.Clone(f.spaces), func(s namedSpace) bool { return s.name == "" })
}

// enter is the command that runs another in the namespace. `ip netns exec` is
// not offered, as it hides what is mounted below /sys.
func (s namedSpace) enter() string {
	if name, named := strings.CutPrefix(s.name, "network namespace "); named {
		return "nsenter --net=" + namedSpaces + "/" + name
	}
	var pid int
	fmt.Sscanf(s.name, "the network namespace of pid %d", &pid)
	return fmt.Sprintf("nsenter --net=/proc/%d/ns/net", pid)
}
