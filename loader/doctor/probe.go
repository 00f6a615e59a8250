package doctor

import (
	"fmt"

	"github.com/stag-rdma/stag/loader"
)

// Topic is the group that a probe belongs to.
type Topic string

// The topics, in the order in which people look. The first four are about the host and
// its network namespace, the others about the interface.
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

// Outcome is what looking at a requirement came to. Its text is the one of reports.
type Outcome string

const (
	// OK: the requirement is met.
	OK Outcome = "OK"
	// Hint: stag works, and something could be better, or only some uses need it.
	Hint Outcome = "hint"
	// Bad: the requirement is not met.
	Bad Outcome = "FAIL"
	// Unknown: the probe could not look. The requirement may be met or not.
	Unknown Outcome = "unknown"
)

// Outcomes are all of them.
var Outcomes = []Outcome{OK, Hint, Bad, Unknown}

// Probe is the result of looking at one requirement.
type Probe struct {
	Topic   Topic
	Name    string // of the requirement
	Outcome Outcome
	Detail  string // what was found, or why the probe could not look; one line
	// Fix is the command or sentence that puts it right, or that makes it known. It
	// is "" if and only if Outcome is OK.
	Fix string
	// Lacks are the capabilities without which the requirement is not met, or cannot
	// be looked at.
	Lacks []string
}

// The capabilities that probes ask for.
const (
	capNetAdmin = "CAP_NET_ADMIN"
	capNetRaw   = "CAP_NET_RAW"
	capBPF      = "CAP_BPF"
	capIPCLock  = "CAP_IPC_LOCK"
	capSysAdmin = "CAP_SYS_ADMIN"
)

func ok(name, format string, args ...any) Probe {
	return Probe{Name: name, Outcome: OK, Detail: fmt.Sprintf(format, args...)}
}

func hint(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, Outcome: Hint, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, Outcome: Bad, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func unknown(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, Outcome: Unknown, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// The command that makes known what /proc says.
const mountProc = "mount -t proc proc /proc"

// wants sets the capabilities that the thread lacks as the reason. If the thread has
// all of them, the reason is another one, and none is set.
func (p Probe) wants(caps ...string) Probe {
	p.Lacks = loader.Lacking(caps...)
	return p
}

// untried is a row that takes rights to fill.
func untried(name string, caps []string, err error) Probe {
	return unknown(name, "run as root to see it", "not looked at: %v", err).wants(caps...)
}

// on puts probes under their topic.
func (t Topic) on(probes ...Probe) []Probe {
	for i := range probes {
		probes[i].Topic = t
	}
	return probes
}
