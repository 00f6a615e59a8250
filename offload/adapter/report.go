package adapter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// Report describes the current state of the adapter and of its objects. Parts that the
// caller does not ask for cost nothing. Report makes few and short calls to each
// engine, between the engine's steps. Report fails with ErrClosed from the moment when
// Close begins.
func (a *Adapter) Report(ctx context.Context, parts report.Parts) (report.Engine, error) {
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
	// Only Close takes busy for writing. A report must not wait for Close.
	if a.life.Err() != nil || !a.busy.TryRLock() {
		return report.Engine{}, ErrClosed
	}
	defer a.busy.RUnlock()
	ctx, stop := a.While(ctx)
	defer stop()
	r := report.Engine{
		Schema: report.Schema, PID: os.Getpid(), Program: program(), Adapter: a.number, Started: a.began, Netns: a.cookie,
		Devices: []report.Device{}, Flows: []report.Flow{}, Queues: []report.Queue{}, Ports: []report.Port{}, QPs: []report.QP{}, CQs: []report.CQ{}, SRQs: []report.SRQ{}, ISCSI: []report.Session{}, LUNs: []report.LUN{}, Clients: []report.Client{},
	}
	layers, conns := a.snapshots()
	for _, p := range a.Ports() {
		if err := a.reportPort(ctx, p, conns, parts, &r); err != nil {
			return r, err
		}
	}
	if a.cfg.KernelPort {
		r.Devices = append(r.Devices, a.reportKernelPort(conns))
	}
	if parts.Any(report.PartMRs) {
		r.MRs = a.reportMRs()
	}
	if parts.Any(report.PartCounts) {
		r.Counts = a.count(&r)
	}
	for _, l := range layers {
		l.Describe(&r, parts)
	}
	err := a.reportCounters(layers, &r)
	leaveOut(&r, parts)
	return r, err
}

// snapshots begins a report of every layer. snapshots calls Look of the connections
// that no engine runs. Each engine later calls Look of all its connections at once.
func (a *Adapter) snapshots() (layers []Snapshot, conns []*Connection) {
	for _, l := range a.reporters() {
		s := l.Snapshot()
		layers = append(layers, s)
		list := s.Connections()
		for i := range list {
			conns = append(conns, &list[i])
		}
	}
	for _, c := range conns {
		if c.Conn == nil {
			continue
		}
		if k, ok := c.Conn.carrier.(interruptible); ok {
			k.Between(c.Look)
		}
	}
	return layers, conns
}

// program returns the name of this process.
func program() string {
	if path, err := os.Executable(); err == nil {
		return filepath.Base(path)
	}
	return filepath.Base(os.Args[0])
}

// netns returns the cookie of the adapter's namespace. netns returns 0 if the kernel
// has no cookies (before Linux 5.14).
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

// reportKernelPort returns the device that stands for the kernel's TCP.
func (a *Adapter) reportKernelPort(conns []*Connection) report.Device {
	d := report.Device{Name: report.KernelDevice, State: portActive, Addresses: noAddresses, Path: kernelPath}
	for _, c := range conns {
		if c.Conn != nil && !c.Ended {
			d.Flows++
		}
	}
	a.common(&d)
	return d
}

// common sets the fields that are the same for all devices of the adapter.
func (a *Adapter) common(d *report.Device) {
	d.Carrier, d.Why = a.choice.Carrier.String(), a.choice.Why
	d.HeapSize, d.HeapFree = a.heap.Size(), a.heap.Left()
	d.MaxMRs = int(a.table.Stats().Entries)
}

// refusalNames are the names of the counters for the faults of the table.
var refusalNames = [tpt.Faults]string{
	tpt.BadSTag:     "bad_stag",
	tpt.WrongPD:     "wrong_pd",
	tpt.NoRight:     "no_right",
	tpt.Wrap:        "wrap",
	tpt.OutOfBounds: "out_of_bounds",
	tpt.Bound:       "bound",
	tpt.NoSpace:     "no_space",
	tpt.Unresolved:  "stag_unresolved",
}

// reportCounters adds the counters that belong to no queue.
func (a *Adapter) reportCounters(layers []Snapshot, r *report.Engine) error {
	for _, p := range a.Ports() {
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
	if len(a.Ports()) > 1 || a.moves.any() {
		for _, p := range a.Ports() {
			m := a.moves.get(p.name)
			r.Counters = append(r.Counters, m.counters(p.name)...)
		}
	}
	for fault, n := range a.table.Refusals() {
		if fault := tpt.Fault(fault); fault != tpt.OK {
			r.Counters = append(r.Counters, report.Counter{Layer: "tpt", Name: refusalNames[fault], Value: n})
		}
	}
	r.Counters = append(r.Counters, a.sharingCounters()...)
	for _, l := range layers {
		r.Counters = append(r.Counters, l.Counters()...)
	}
	var captured captureCounters
	captured.Packets, captured.Lost = a.Captured()
	r.Counters = append(r.Counters, report.Fields("capture", captured)...)
	return nil
}

// captureCounters counts packets of all captures since Open.
type captureCounters struct {
	Packets uint64 // packets handed to captures
	Lost    uint64 // packets that captures lost because they were too slow
}
