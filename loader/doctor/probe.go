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

// Probe is the result of looking at one requirement.
type Probe struct {
	Topic  Topic
	Name   string // of the requirement
	OK     bool
	Detail string // what was found, one line
	// Fix is the command or sentence that puts it right. Where OK is true it
	// is a hint: about something that cannot be seen from here, or that only
	// some uses need.
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
	return Probe{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func hint(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, OK: true, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, fix, format string, args ...any) Probe {
	return Probe{Name: name, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// wants sets the capabilities that the thread lacks as the reason. If the thread has
// all of them, the reason is another one, and none is set.
func (p Probe) wants(caps ...string) Probe {
	p.Lacks = loader.Lacking(caps...)
	return p
}

// untried is a row that takes rights to fill.
func untried(name string, caps []string, err error) Probe {
	return hint(name, "run as root to see it", "not looked at: %v", err).wants(caps...)
}

// on puts probes under their topic.
func (t Topic) on(probes ...Probe) []Probe {
	for i := range probes {
		probes[i].Topic = t
	}
	return probes
}
