package metrics

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// These are the states and kinds of objects. Every state has a series even while no
// object has this state.
var (
	qpStates   = []string{"Idle", "RTS", "Closing", "Terminate", "Error", "Drained"}
	mrKinds    = []string{"region", "window", "iscsi"} // the kind "region" always has a series; every other kind has a series only if there are such objects
	flowStates = []string{"park", "live", "orphan"}
)

// portStates has the numbers that InfiniBand gives to the states of a port. A port that
// is down is also disabled, as for other iWARP devices.
var portStates = map[string]struct{ logical, physical float64 }{
	"PORT_ACTIVE": {4, 5},
	"PORT_DOWN":   {1, 3},
}

// onlyPort is the port number of each device: a device has one port.
const onlyPort = "1"

// damaged has the names of the parser's drop counters for damaged packets. It does not
// have the counters for packets that stag does not support.
var damaged = func() (names []string) {
	for _, r := range []wire.Reason{wire.Short, wire.BadVersion, wire.BadLength, wire.BadQuote, wire.BadTCPHeader,
		wire.BadIPChecksum, wire.BadTCPChecksum, wire.BadICMPChecksum, wire.PartialChecksum} {
		names = append(names, "wire."+report.Snake(r.String()))
	}
	return names
}()

// tcpDrops has the names of the counters of segments that TCP drops, one for each reason.
var tcpDrops = func() map[string]bool {
	names := map[string]bool{}
	for d := tcp.DropNone + 1; d < tcp.NumDrops; d++ {
		names[report.Snake(d.String())] = true
	}
	return names
}()

// engine adds the series of an engine. It also adds the series of the steering program of
// each port for which tells returns true.
func (s sheet) engine(e report.Engine, of labels, tells func(report.Device) bool) {
	s.set(engineInfo, 1, of.and("netns", number(e.Netns)))
	s.set(engineStart, float64(e.Started.UnixNano())/1e9, of)
	s.objects(e, of)
	told := map[string]bool{}
	for _, d := range e.Devices {
		at := of.and("device", d.Name, "port", onlyPort, "netns", number(e.Netns))
		s.device(d, at)
		if told[d.Name] = d.Ifindex != 0 && tells(d); told[d.Name] {
			s.table(e, d, at)
		}
	}
	for _, q := range e.Queues {
		s.queue(q, of.and("device", q.Device, "port", onlyPort, "queue", strconv.Itoa(q.Queue)))
	}
	for _, c := range e.Counters {
		if c.Layer == "steer" && !told[c.Device] {
			continue
		}
		s.count(c, of.and("device", c.Device, "port", onlyPort, "netns", number(e.Netns)))
	}
}

// objects adds the numbers of verbs objects.
func (s sheet) objects(e report.Engine, of labels) {
	n := e.Counts
	if n == nil {
		n = &report.Counts{} // the engine reports no counts
	}
	for _, state := range qpStates {
		s.add(qps, float64(n.QPs[state]), of.and("state", state))
	}
	s.add(cqs, float64(n.CQs), of)
	s.add(cqsOverrun, float64(n.Overrun), of)
	for _, kind := range mrKinds {
		if n.MRs[kind] != 0 || kind == mrKinds[0] {
			s.add(mrs, float64(n.MRs[kind]), of.and("kind", kind))
		}
	}
	s.add(mrBytes, float64(n.Registered), of)
	s.iscsi(n, of)
	if len(e.Devices) > 0 { // the heap and the region table belong to the adapter, and each device reports them
		d := e.Devices[0]
		s.set(heapSize, float64(d.HeapSize), of)
		s.set(heapFree, float64(d.HeapFree), of)
		s.set(mrsMax, float64(d.MaxMRs), of)
	}
}

// iscsi adds the sessions of an engine. An engine without iSCSI has no series.
func (s sheet) iscsi(n *report.Counts, of labels) {
	for role, states := range n.ISCSI {
		for state, k := range states {
			s.set(iscsiSessions, float64(k), of.and("role", role, "state", state))
		}
		s.set(iscsiCommands, float64(n.Commands[role]), of.and("role", role))
	}
}

// iscsiLayer splits the name of a layer of iSCSI into the role of the session and the
// part. The role is "" for other layers.
func iscsiLayer(layer string) (role, part string) {
	name, found := strings.CutPrefix(layer, "iscsi_")
	if !found {
		return "", ""
	}
	role, part, _ = strings.Cut(name, "_")
	return role, part
}

// latencyBound returns the end of a class of latencies in seconds, from its name.
func latencyBound(name string) float64 {
	var us float64
	if n, _ := fmt.Sscanf(name, "below_%gus", &us); n != 1 {
		return math.Inf(1)
	}
	return us / 1e6
}

func (s sheet) device(d report.Device, at labels) {
	s.set(info, 1, at.and("driver", d.Driver, "xdp", d.XDP, "zero_copy", strconv.FormatBool(d.ZeroCopy), "mac", d.MAC, "loaded_as", loadedAs(d.Instance)))
	if state, known := portStates[d.State]; known {
		s.set(stateID, state.logical, at)
		s.set(physicalState, state.physical, at)
	}
	if d.Speed != 0 {
		s.set(rate, float64(d.Speed)/8, at)
	}
	s.set(portFlows, float64(d.Flows), at)
	if d.Ifindex != 0 { // the device of the kernel port is no interface
		s.set(mtu, float64(d.MTU), at)
		s.set(portFlowsMax, float64(d.MaxFlows), at)
		s.set(portDrained, one(d.Drained), at)
	}
}

// table adds the series of the flow table of a port's program.
func (s sheet) table(e report.Engine, d report.Device, at labels) {
	s.set(flowsMax, float64(d.FlowTable), at)
	for _, state := range flowStates {
		n := 0
		if e.Counts != nil {
			n = e.Counts.Flows[d.Name][state]
		}
		s.set(flows, float64(n), at.and("state", state))
	}
	away := 0
	if e.Counts != nil {
		away = e.Counts.Diverted[d.Name]
	}
	s.set(flowsAway, float64(away), at)
}

// loadedAs returns the value of the label for the instance in directory dir. The label is
// not called instance, because Prometheus uses that name for the scraped target.
func loadedAs(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Base(dir)
}

func (s sheet) queue(q report.Queue, at labels) {
	s.set(queueFlows, float64(q.Flows), at)
	s.set(queueAsleep, one(q.Asleep), at)
	for _, c := range q.Counters {
		s.count(c, at)
	}
}

// count adds the value of a counter to all families whose From has the counter.
func (s sheet) count(c report.Counter, at labels) {
	v := float64(c.Value)
	role, part := iscsiLayer(c.Layer)
	if role != "" {
		at = at.and("role", role)
	}
	named := at.and("layer", c.Layer, "reason", c.Name, "name", c.Name, "fault", c.Name, "cause", c.Name)
	list := counted[c.Layer+"."+c.Name]
	for _, f := range list {
		s.add(f, v, named)
	}
	switch {
	case c.Layer == "steer":
		s.add(steered, v, named)
	case c.Layer == "tpt":
		s.add(refusals, v, named)
	case part == "reason":
		s.add(iscsiReasons, v, named)
	case part == "latency":
		s.observe(iscsiTook, latencyBound(c.Name), c.Value, named)
	case role != "" && c.Name == "microseconds":
		s.add(iscsiTook, v/1e6, named)
	case c.Layer == "move_cause":
		s.add(flowsMoved, v, named)
	case c.Layer == "move_frozen":
		s.observe(flowsFrozen, latencyBound(c.Name), c.Value, named)
	case c.Layer == "move" && c.Name == "microseconds":
		s.add(flowsFrozen, v/1e6, named)
	case c.Layer == "wire", c.Layer == "tcp" && tcpDrops[c.Name]:
		s.add(drops, v, named)
	case len(list) == 0:
		s.add(other, v, named)
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
