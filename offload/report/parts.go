package report

import (
	"fmt"
	"strings"
)

// Parts says which members of an Engine are asked for. What nobody asks for
// costs nothing: neither to find out nor to send.
type Parts uint16

// The parts of an Engine, called as its members are. PartCounts is how many of
// each there are, without the list of them.
const (
	PartDevices Parts = 1 << iota
	PartFlows
	PartQPs
	PartMRs
	PartCQs
	PartQueues
	PartCounters
	PartCounts

	AllParts = PartDevices | PartFlows | PartQPs | PartMRs | PartCQs | PartQueues | PartCounters | PartCounts
)

var partNames = []string{"devices", "flows", "qps", "mrs", "cqs", "queues", "counters", "counts"}

// Any reports whether one of those in q is asked for.
func (p Parts) Any(q Parts) bool { return p&q != 0 }

// String is the names with commas between them.
func (p Parts) String() string {
	var names []string
	for i, name := range partNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseParts is the reverse of String.
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
