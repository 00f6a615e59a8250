package metrics

import (
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/loader"
)

// pinned adds the series of programs that are loaded to stay. It leaves out the programs
// in reported, indexed by number, because engines have already reported them.
func (s sheet) pinned(all []loader.Instance, reported map[uint32]bool) {
	for _, i := range all {
		for _, p := range i.Ports {
			at := labels{"device": engines.DeviceName(p), "netns": number(p.Netns)}
			s.set(pinnedInfo, 1, at.and("loaded_as", i.Name, "program_id", number(uint64(p.ProgID)), "state", use(p)))
			if p.Stale == "" && p.Err == nil && i.Err == nil && !reported[p.ProgID] {
				s.program(p, at)
			}
		}
	}
}

// program adds the series of the maps of a pinned program.
func (s sheet) program(p loader.PinnedPort, at labels) {
	for why, n := range p.Stats {
		s.add(steered, float64(n), at.and("reason", bpf.Reason(why).String()))
	}
	s.set(flowsMax, float64(p.MaxFlows), at)
	for _, state := range flowStates {
		s.add(flows, 0, at.and("state", state))
	}
	for _, f := range p.Flows {
		s.add(flows, 1, at.and("state", flowState(f)))
	}
}

// flowState returns the name of a flow entry's state. An entry of a dead process is an
// orphan.
func flowState(f loader.PinnedFlow) string {
	if !f.Alive {
		return bpf.Orphan.String()
	}
	return f.State.String()
}

func use(p loader.PinnedPort) string {
	switch {
	case p.Stale != "":
		return "stale"
	case p.InUse:
		return "used"
	}
	return "unused"
}
