package adapter

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
)

// States of a device, as ibv_devinfo names them.
const (
	portActive = "PORT_ACTIVE"
	portDown   = "PORT_DOWN"
)

// noAddresses is an empty list that is not nil, so that JSON has [] and not null.
var noAddresses = []netip.Prefix{}

// reportPort adds a port to the report: the device, its queues and its flows.
// reportPort calls Look of the connections that the port's engines run.
func (a *Adapter) reportPort(ctx context.Context, p *Port, conns []*Connection, parts report.Parts, r *report.Engine) error {
	var live map[engine.FlowID]*liveFlow
	if parts.Any(report.PartFlows | report.PartQPs | report.PartQueues | report.PartCounters | report.PartCounts | report.PartISCSI | report.PartLUNs | report.PartPorts) {
		var err error
		if live, err = p.connections(ctx, conns, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	flows, err := p.flows(live, a.portAt)
	if err != nil {
		return err
	}
	d := report.Device{
		Name: p.name, MaxFlows: p.nic.MaxFlows(), FlowTable: int(p.nic.Steering().MaxFlows()), Flows: len(flows), Queues: len(p.nic.Engines()),
		VLAN: max(a.cfg.VLAN, p.nic.Link().VLAN),
	}
	if err := a.space.Do(func() error { p.device(&d, a.net); return nil }); err != nil {
		return err
	}
	a.common(&d)
	d.Drained = p.nic.BarredBy(nic.BarDrained)
	r.Devices, r.Flows = append(r.Devices, d), append(r.Flows, flows...)
	r.Ports = append(r.Ports, a.reportMoves(p, &d, live))
	return nil
}

// device fills in the fields that describe the present state of the interface. If the
// interface no longer exists, device does not change these fields. device must run in
// the adapter's namespace.
func (p *Port) device(d *report.Device, space *loader.Net) {
	link, path := p.nic.Link(), p.nic.Path()
	d.State, d.Ifindex, d.MAC, d.MTU = portDown, link.Index, link.MAC.String(), link.MTU
	d.Addresses, d.Path, d.Driver = noAddresses, path.String(), path.Driver
	d.XDP, d.ZeroCopy = path.XDP.String(), path.Memory == afxdp.ModeZeroCopy
	d.Sums = path.Sums
	d.Program, d.Instance = p.nic.Steering().ProgID(), p.nic.Steering().Instance()
	ifc, err := net.InterfaceByIndex(link.Index)
	if err != nil {
		return // the interface is gone, or now in another namespace
	}
	d.MTU, d.MAC = ifc.MTU, ifc.HardwareAddr.String()
	if ifc.Flags&net.FlagUp != 0 && ifc.Flags&net.FlagRunning != 0 {
		d.State = portActive
	}
	if wire, err := net.InterfaceByIndex(link.PortIndex); err == nil { // the present name of the interface below
		d.Speed = space.Speed(wire.Name)
	}
	addrs, _ := ifc.Addrs() // addrs is empty if the interface has been removed meanwhile
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			d.Addresses = append(d.Addresses, prefix)
		}
	}
}

// liveFlow is a connection that an engine runs.
type liveFlow struct {
	key  bpf.FlowKey
	way  nic.Way
	conn *Connection // connection of the flow; nil: no layer knows the connection
	info tcp.Info
	done tcp.Stats
	seen bool // info, done and arrivals are valid

	arrivals engine.Arrivals
}

// connections asks each engine for its own state and for the state of its connections.
func (p *Port) connections(ctx context.Context, conns []*Connection, r *report.Engine) (map[engine.FlowID]*liveFlow, error) {
	of := map[Carrier]*Connection{}
	for _, c := range conns {
		if c.Conn != nil {
			of[c.Conn.carrier] = c
		}
	}
	all := map[engine.FlowID]*liveFlow{}
	engines := p.nic.Engines()
	ids, at := make([][]engine.FlowID, len(engines)), make([][]*liveFlow, len(engines))
	for _, f := range p.nic.Flows() {
		q, here := p.nic.QueueOf(f)
		if !here {
			continue // f is moving to another port, or has come from one
		}
		x := &liveFlow{key: f.Key(), way: f.Way(), conn: of[f]}
		all[f.ID()] = x
		ids[q], at[q] = append(ids[q], f.ID()), append(at[q], x)
	}
	for q := range engines {
		g, err := p.nic.Look(ctx, q, ids[q], func(i int, c *tcp.Conn, a engine.Arrivals) { at[q][i].look(c, a) })
		if err != nil {
			return nil, fmt.Errorf("ask the engine of queue %d: %w", q, err)
		}
		r.Queues = append(r.Queues, reportQueue(p.name, &g))
	}
	return all, nil
}

// look copies the connection's state. look runs on the engine's goroutine.
func (x *liveFlow) look(c *tcp.Conn, a engine.Arrivals) {
	x.info, x.done, x.arrivals, x.seen = c.Info(), c.Stats(), a, true
	if x.conn != nil {
		x.conn.Look()
	}
}

func reportQueue(device string, g *nic.Glance) report.Queue {
	q := report.Queue{
		Device: device, Queue: g.Queue, Mode: g.Mode.String(), FrameSize: g.Limits.FrameSize,
		RxFrames: g.Limits.RxFrames, TxFrames: g.Limits.TxFrames, Flows: g.Flows, Asleep: g.Asleep,
		Counters: report.Fields("engine", g.Counters),
	}
	g.Counters.Each(func(layer, name string, n uint64) {
		q.Counters = append(q.Counters, report.Counter{Layer: layer, Name: name, Value: n})
	})
	q.Counters = append(q.Counters, report.Fields("tcp", g.TCP)...)
	q.Counters = append(q.Counters, report.Fields("xsk", g.Socket)...)
	q.Counters = append(q.Counters, report.Fields("xsk_kernel", g.Socket.Kernel)...)
	return q
}

// flows lists the entries of the map by id, with the state of their connections.
func (p *Port) flows(live map[engine.FlowID]*liveFlow, portAt func(engine.Lane) string) (list []report.Flow, err error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	err = p.nic.Steering().Flows(func(key bpf.FlowKey, e bpf.Flow) bool {
		f := report.Flow{
			Device: p.name, Queue: int(e.Queue), ID: report.FlowID(e.ID), Kind: e.Kind.String(), State: e.State.String(),
			Local: key.LocalAddr(), Remote: key.RemoteAddr(), VLAN: key.VLAN,
			Age: uint64(max(0, now.Nano()-int64(e.Created))) / uint64(time.Second),
		}
		if e.Queue == bpf.NoOwner {
			f.Queue = -1
		}
		if x := live[e.ID]; x != nil && x.key == key {
			x.describe(&f)
			f.Arrives, f.ArrivesPercent = x.arrives(portAt)
		}
		list = append(list, f)
		return true
	})
	slices.SortFunc(list, func(x, y report.Flow) int { return int(x.ID) - int(y.ID) })
	return slices.CompactFunc(list, func(x, y report.Flow) bool { return x.ID == y.ID }), err
}

func (x *liveFlow) describe(f *report.Flow) {
	if x.conn != nil {
		f.QP = x.conn.Stream.QP
	}
	if x.way.NextHop.IsValid() {
		f.NextHop, f.NextHopMAC = x.way.NextHop.String(), x.way.MAC.String()
	}
	if x.way.Err != nil {
		f.Diverted = x.way.Err.Error()
	}
	if !x.seen {
		return
	}
	i := &x.info
	f.TCP = &report.TCP{
		State: i.Phase.String(), ECN: i.ECN, Congestion: i.Congestion, Followed: i.KernelCongestion, Cwnd: i.Cwnd, Ssthresh: ssthresh(i.Ssthresh), SndWnd: i.SndWnd, RcvWnd: i.RcvWnd, MSS: i.EMSS, PMTU: i.MTU,
		SRTT: micros(i.SRTT), RTTVar: micros(i.RTTVar), RTO: micros(i.RTO), Backoff: i.Backoff, Recovering: i.Recovering,
		InFlight: i.Pipe, Unacked: i.Queued, Unread: i.Unread, SndSegs: i.SndSegs, Reordered: i.ReorderFrames, Held: i.RcvFrames,
		Counters: report.Fields("tcp", x.done),
	}
}

// ssthresh returns n for a report. ssthresh returns nil if n is the largest number,
// because then no loss has set a threshold yet.
func ssthresh(n uint32) *uint32 {
	if n == math.MaxUint32 {
		return nil
	}
	return &n
}

func micros(d time.Duration) uint64 { return uint64(max(0, d.Microseconds())) }
