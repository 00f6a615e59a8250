package doctor

import (
	"fmt"

	"github.com/stag-rdma/stag/loader"
)

// Topic is the group that a probe belongs to.
type Topic string

// The topics are in the order of the report. The first four are about the host and its
// network namespace, the others about the interface.
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

// Topics lists all topics in the order of the report.
var Topics = []Topic{TopicRights, TopicKernel, TopicMachine, TopicNetwork, TopicInterface, TopicQueues, TopicPackets, TopicSpeed}

// Outcome is the result of a probe, as reports print it.
type Outcome string

const (
	// OK means that the requirement is met.
	OK Outcome = "OK"
	// Hint means that stag works, but could work better, or lacks what only some uses
	// need.
	Hint Outcome = "hint"
	// Bad means that the requirement is not met.
	Bad Outcome = "FAIL"
	// Unknown means that the probe could not check. The requirement may be met or not.
	Unknown Outcome = "unknown"
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{OK, Hint, Bad, Unknown}

// Probe is the result of checking one requirement.
type Probe struct {
	Topic   Topic
	Name    string // the requirement's name
	Outcome Outcome
	Detail  string // one line: the finding, or the reason why the probe could not check
	// Fix is a command or a sentence. It says how to meet the requirement or, if
	// Outcome is Unknown, how to check it. Fix is "" if and only if Outcome is OK.
	Fix string
	// Lacks are the missing capabilities that the requirement, or the check, needs.
	Lacks []string
}

// These are the capabilities that probes ask for.
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

// mountProc is the fix of a probe that cannot read /proc.
const mountProc = "mount -t proc proc /proc"

// wants sets Lacks to those of caps that the thread lacks. If the thread has all of
// caps, Lacks stays empty, because then no missing capability is the reason.
func (p Probe) wants(caps ...string) Probe {
	p.Lacks = loader.Lacking(caps...)
	return p
}

// untried returns the row of a probe that lacks the rights to check.
func untried(name string, caps []string, err error) Probe {
	return unknown(name, "run as root to see it", "not looked at: %v", err).wants(caps...)
}

// on sets the topic of the probes.
func (t Topic) on(probes ...Probe) []Probe {
	for i := range probes {
		probes[i].Topic = t
	}
	return probes
}
