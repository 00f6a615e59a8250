package rdma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// Report is what the adapter and everything of it is like now: what `stag show`
// and `stag metrics` print. It asks each engine for what belongs to that, in
// few and short calls between steps, and disturbs nobody otherwise. ErrClosed
// from the moment when Close begins.
func (a *Adapter) Report(ctx context.Context) (report.Engine, error) {
	return a.reportParts(ctx, report.AllParts)
}

// reportParts is Report of what is asked for: what is not costs nothing.
func (a *Adapter) reportParts(ctx context.Context, parts report.Parts) (report.Engine, error) {
	r, err := a.report(ctx, parts)
	if err != nil && a.life.Err() != nil {
		err = fmt.Errorf("the adapter is %w", ErrClosed)
	}
	if err != nil {
		return report.Engine{}, fmt.Errorf("report: %w", err)
	}
	return r, nil
}

func (a *Adapter) report(ctx context.Context, parts report.Parts) (report.Engine, error) {
	if ctx.Err() != nil {
		return report.Engine{}, context.Cause(ctx)
	}
	// Close alone writes, and must not be waited for.
	if a.life.Err() != nil || !a.busy.TryRLock() {
		return report.Engine{}, ErrClosed
	}
	defer a.busy.RUnlock()
	ctx, stop := a.while(ctx)
	defer stop()
	r := report.Engine{
		Schema: report.Schema, PID: os.Getpid(), Program: program(), Adapter: a.number, Started: a.began, Netns: a.cookie,
		Devices: []report.Device{}, Flows: []report.Flow{}, Queues: []report.Queue{}, QPs: []report.QP{}, CQs: a.reportCQs(),
	}
	all, counted := a.census()
	qps := connectionsOf(all)
	for _, p := range a.ports {
		if err := a.reportPort(ctx, p, qps, parts, &r); err != nil {
			return r, err
		}
	}
	if a.cfg.KernelPort {
		r.Devices = append(r.Devices, a.reportKernelPort(qps))
	}
	for _, c := range qps {
		if parts.Any(report.PartQPs) {
			r.QPs = append(r.QPs, c.report())
		}
		if device := c.qp.device(); device != "" {
			counted.add(device, &c.stats)
		}
	}
	for _, d := range r.Devices {
		r.Counters = append(r.Counters, counted.counters(d.Name)...)
	}
	if parts.Any(report.PartMRs) {
		r.MRs = a.reportMRs()
	}
	if parts.Any(report.PartCounts) {
		r.Counts = a.count(qps, &r)
	}
	err := a.reportCounters(&r)
	leaveOut(&r, parts)
	return r, err
}

// program is the name of this process.
func program() string {
	if path, err := os.Executable(); err == nil {
		return filepath.Base(path)
	}
	return filepath.Base(os.Args[0])
}

// netns is the cookie of the adapter's namespace; 0 where the kernel, before
// Linux 5.14, has none.
func (a *Adapter) netns() (cookie uint64) {
	if a.net != nil {
		return a.net.Cookie()
	}
	a.space.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	return cookie
}

// reportKernelPort is the device that stands for the kernel's TCP.
func (a *Adapter) reportKernelPort(qps []*connection) report.Device {
	d := report.Device{Name: report.KernelDevice, State: portActive, Addresses: noAddresses, Path: kernelPath}
	for _, c := range qps {
		if c.line != nil && !c.qp.m.Dead() {
			d.Flows++
		}
	}
	a.common(&d)
	return d
}

// common is what all devices of the adapter say alike.
func (a *Adapter) common(d *report.Device) {
	d.HeapSize, d.HeapFree = a.heap.Size(), a.heap.Left()
	d.MaxMRs = int(a.table.Stats().Entries)
}

func (a *Adapter) reportCQs() []report.CQ {
	a.mu.Lock()
	cqs := slices.Collect(maps.Keys(a.cqs))
	a.mu.Unlock()
	list := make([]report.CQ, 0, len(cqs))
	for _, c := range cqs {
		c.mu.Lock()
		users := len(c.users)
		c.mu.Unlock()
		list = append(list, report.CQ{
			Number: c.number, Depth: c.c.Cap(), Ready: c.c.Len(), QPs: users, Overrun: c.c.Overrun(),
		})
	}
	slices.SortFunc(list, func(x, y report.CQ) int { return int(x.Number) - int(y.Number) })
	return list
}

// connection is a QP with what is read about it where its steps run.
type connection struct {
	qp    *QP
	line  *line // nil: not connected
	stats rdmap.Stats
}

// connectionsOf are the QPs by number. What kernel ports run is read here;
// engines are asked later, and all of theirs at once.
func connectionsOf(qps []*QP) []*connection {
	var list []*connection
	for _, qp := range qps {
		c := &connection{qp: qp, line: qp.line.Load()}
		if c.line != nil {
			if k, ok := c.line.carrier.(interruptible); ok {
				k.Between(func() { c.stats = qp.m.Stats() })
			}
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(x, y *connection) int { return int(x.qp.Number()) - int(y.qp.Number()) })
	return list
}

// report is what there is to say when everybody has been asked. No step looks at
// a dead QP any more.
func (c *connection) report() report.QP {
	qp, cfg, conn := c.qp, c.qp.cfg, c.qp.Conn()
	if qp.m.Dead() {
		c.stats = qp.m.Stats()
	}
	r := report.QP{
		Number: qp.Number(), State: stateNames[qp.State()], PD: uint32(qp.pd.pd), SendCQ: cfg.SendCQ.number, RecvCQ: cfg.RecvCQ.number,
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth, MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline,
		Markers: "none", Counters: report.Fields("rdmap", c.stats),
	}
	if err := qp.Err(); err != nil {
		r.Error = err.Error()
	}
	if conn.Remote.IsValid() {
		r.Local, r.Remote = &conn.Local, &conn.Remote
		r.Initiator, r.Revision, r.CRC, r.IRD, r.ORD = conn.Initiator, conn.Revision, conn.CRC, conn.IRD, conn.ORD
		r.Markers = markers(conn)
	}
	if c.line != nil {
		r.Device, r.Flow = c.line.device(), report.FlowID(c.line.flow)
	}
	return r
}

// stateNames are those of the RDMAC verbs.
var stateNames = [...]string{
	rdmap.Idle: "Idle", rdmap.RTS: "RTS", rdmap.Closing: "Closing", rdmap.Terminate: "Terminate", rdmap.Errored: "Error",
}

func markers(c Conn) string {
	switch {
	case c.SendMarkers && c.RecvMarkers:
		return "both"
	case c.SendMarkers:
		return "sent"
	case c.RecvMarkers:
		return "received"
	}
	return "none"
}

// refusalNames are what counters call the faults of the table.
var refusalNames = [tpt.Faults]string{
	tpt.BadSTag:     "bad_stag",
	tpt.WrongPD:     "wrong_pd",
	tpt.NoRight:     "no_right",
	tpt.Wrap:        "wrap",
	tpt.OutOfBounds: "out_of_bounds",
}

// reportCounters adds those that belong to no queue.
func (a *Adapter) reportCounters(r *report.Engine) error {
	for _, p := range a.ports {
		steered, err := p.nic.Steering().Stats()
		if err != nil {
			return err
		}
		for why, n := range steered {
			r.Counters = append(r.Counters, report.Counter{Device: p.name, Layer: "steer", Name: bpf.Reason(why).String(), Value: n})
		}
		for _, c := range report.Fields("placeholder", p.nic.Counters()) {
			c.Device = p.name
			r.Counters = append(r.Counters, c)
		}
	}
	for fault, n := range a.table.Refusals() {
		if fault := tpt.Fault(fault); fault != tpt.OK {
			r.Counters = append(r.Counters, report.Counter{Layer: "tpt", Name: refusalNames[fault], Value: n})
		}
	}
	r.Counters = append(r.Counters, report.Fields("verbs", verbsCounters{EventsLost: a.EventsLost()})...)
	r.Counters = append(r.Counters, report.Fields("capture", captureCounters{Packets: a.tapped.packets.Load(), Lost: a.tapped.lost.Load()})...)
	return nil
}

// verbsCounters are the application's.
type verbsCounters struct {
	EventsLost uint64 // asynchronous events that nobody read in time
}

// captureCounters are those of all captures since Open.
type captureCounters struct {
	Packets uint64 // handed to captures
	Lost    uint64 // that no capture took in time
}

// source is the adapter as the control socket sees it.
type source struct{ *Adapter }

// Report implements control.Source.
func (s source) Report(ctx context.Context, parts report.Parts) (report.Engine, error) {
	r, err := s.reportParts(ctx, parts&^report.PartMRs)
	if errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", control.ErrGone, err)
	}
	return r, err
}

// openControl makes the socket by which tools look into the adapter.
func (a *Adapter) openControl() (err error) {
	a.number, a.cookie = control.Number(), a.netns()
	if a.cfg.NoControl {
		return nil
	}
	path, err := control.Name(a.number)
	if err == nil {
		a.control, err = control.Serve(path, source{a}, a.log)
	}
	if err != nil {
		return fmt.Errorf("%w; or set NoControl in the adapter's Config, and do without `stag show`, `stag dump` and `stag metrics`", err)
	}
	return nil
}

// closeControl ends it. What is under way has a moment to end in good order.
func (a *Adapter) closeControl() error {
	if a.control == nil {
		return nil
	}
	return a.control.Close()
}
