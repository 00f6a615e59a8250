package report

import (
	"fmt"
	"strings"
)

// Parts says which members of an Engine a tool asks for. Other members are neither read
// nor sent.
type Parts uint16

// The parts of an Engine have the names of its members. PartCounts is the lengths of
// the lists without the lists.
const (
	PartDevices Parts = 1 << iota
	PartFlows
	PartQPs
	PartMRs
	PartCQs
	PartQueues
	PartCounters
	PartCounts
	PartSRQs
	PartISCSI
	PartLUNs
	PartPorts
	PartClients

	AllParts = PartDevices | PartFlows | PartQPs | PartMRs | PartCQs | PartSRQs | PartQueues | PartCounters | PartCounts | PartISCSI | PartLUNs | PartPorts | PartClients
)

var partNames = []string{"devices", "flows", "qps", "mrs", "cqs", "queues", "counters", "counts", "srqs", "iscsi", "luns", "ports", "clients"}

// Any reports whether p has one of the parts in q.
func (p Parts) Any(q Parts) bool { return p&q != 0 }

// String returns the names with commas between them.
func (p Parts) String() string {
	var names []string
	for i, name := range partNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseParts reverses String.
func ParseParts(text string) (p Parts, err error) {
next:
	for name := range strings.SplitSeq(text, ",") {
		for i, known := range partNames {
			if name == known {
				p |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("a report has no part %q: choose of %s", name, strings.Join(partNames, ","))
	}
	return p, nil
}
