package engines

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// Unused is the State of a device with a pinned program that no engine uses.
const Unused = "UNUSED"

// addPins adds pinned objects that the engines that answered do not report.
func (r *Answer) addPins(answered map[int]bool, log *slog.Logger) {
	list, err := loader.Instances()
	switch {
	case errors.Is(err, loader.ErrPermission), errors.Is(err, loader.ErrNoBPFFS):
		log.Info("pinned programs cannot be seen", "err", err)
		return
	case err != nil:
		r.note("%v", err)
		return
	}
	for _, i := range list {
		if i.Err != nil {
			r.note("%v", i.Err)
		}
		s, told, err := idle(i, answered)
		if err != nil {
			r.note("%v", err)
		}
		if !told {
			r.Sources = append(r.Sources, s)
		}
		r.explain(i, s)
	}
}

func (r *Answer) note(format string, args ...any) {
	r.Notes = append(r.Notes, Clean(fmt.Sprintf(format, args...)))
}

// explain adds a note for each leftover and each pinned program that no process can use. The note says what to do.
func (r *Answer) explain(i loader.Instance, s Source) {
	for _, p := range i.Ports {
		switch {
		case p.Err != nil:
			r.note("%v", p.Err)
		case p.Stale != "":
			r.note("the program pinned at %s cannot be used, because %s: run stag unload --instance %s to remove it", p.Dir, p.Stale, i.Name)
		}
	}
	lost := map[Left]int{}
	for _, l := range s.Left {
		lost[Left{Device: l.Device, PID: l.PID}]++
	}
	for _, l := range slices.SortedFunc(maps.Keys(lost), byDevice) {
		r.note("%s: %d of its flows belong to pid %d, which has ended: their peers are reset when they send, at the latest when a new engine opens the interface or stag unload --instance %s detaches the program",
			l.Device, lost[l], l.PID, i.Name)
	}
}

func byDevice(x, y Left) int {
	return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(x.PID, y.PID))
}

// idle describes an instance in the types of package report, as far as the instance could be read.
// told is true if engines that answered use all of the instance.
func idle(i loader.Instance, answered map[int]bool) (s Source, told bool, err error) {
	s = Source{Engine: report.Engine{Schema: report.Schema}, Instance: i.Dir}
	told = true
	for _, p := range i.Ports {
		if p.InUse && answered[p.Owner.PID] {
			continue
		}
		told = false
		s.addPort(i, p)
	}
	if t := i.Table; t != nil && !(t.InUse && answered[t.Owner.PID]) {
		err = t.Read(s.addRegions)
	}
	return s, told && len(s.MRs) == 0, err
}

func (s *Source) addPort(i loader.Instance, p loader.PinnedPort) {
	d := report.Device{
		Name: DeviceName(p), State: Unused, Ifindex: p.Index, XDP: p.Mode.String(), Path: path(p),
		Addresses: []netip.Prefix{}, Instance: i.Dir, Program: p.ProgID, Flows: len(p.Flows), FlowTable: int(p.MaxFlows),
	}
	if p.InUse {
		s.PID = p.Owner.PID
	}
	s.Netns = p.Netns
	s.Devices = append(s.Devices, d)
	for _, f := range p.Flows {
		s.addFlow(d.Name, f)
	}
	for why, n := range p.Stats {
		s.Counters = append(s.Counters, report.Counter{Device: d.Name, Layer: "steer", Name: bpf.Reason(why).String(), Value: n})
	}
}

// DeviceName returns the present name of the interface. If the interface cannot be found,
// DeviceName returns the interface index from the time of the load.
func DeviceName(p loader.PinnedPort) string {
	if p.Found {
		return p.Name
	}
	return fmt.Sprintf("if%d", p.Index)
}

// path returns one line about the pinned program of a port that has no engine.
func path(p loader.PinnedPort) string {
	s := "pinned program, " + p.Mode.String() + ", no engine"
	if p.InUse {
		s = fmt.Sprintf("pinned program, %s, used by pid %d, which does not answer", p.Mode, p.Owner.PID)
	}
	switch {
	case p.Stale != "":
		s += ", " + p.Stale
	case !p.Found:
		s += ", in a network namespace that cannot be seen from here"
	case p.Space != "":
		s += ", in " + p.Space
	}
	return s
}

func (s *Source) addFlow(device string, f loader.PinnedFlow) {
	queue := int(f.Queue)
	if f.Queue == bpf.NoOwner {
		queue = -1
	}
	row := report.Flow{
		Device: device, Queue: queue, ID: report.FlowID(f.ID), Kind: f.Kind.String(), State: f.State.String(),
		Local: f.Key.LocalAddr(), Remote: f.Key.RemoteAddr(), VLAN: f.Key.VLAN, Age: age(f.Created),
	}
	if !f.Alive {
		row.State = bpf.Orphan.String()
		s.Left = append(s.Left, Left{device, row.ID, int(f.PID)})
	}
	s.Flows = append(s.Flows, row)
}

// age returns how many seconds have passed since the monotonic clock showed created.
func age(created uint64) uint64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil || uint64(now.Nano()) < created {
		return 0
	}
	return (uint64(now.Nano()) - created) / uint64(time.Second)
}

// addRegions adds the entries of a table.
func (s *Source) addRegions(memory []byte) error {
	view, err := tpt.NewView(memory)
	if err != nil {
		return err
	}
	for n := range view.Len() {
		if info, ok := view.Entry(n); ok {
			s.MRs = append(s.MRs, region(info))
		}
	}
	return nil
}

func region(i tpt.Info) report.MR {
	return report.MR{
		STag: report.STag(uint32(i.STag)), Kind: i.Kind.String(), Valid: i.Valid, PD: uint32(i.PD), QP: i.QP,
		Start: i.Start, Length: i.Length, Rights: report.Rights(i.Rights.String()), Heap: !i.External, Window: i.Window.String(), Parent: i.Parent, Windows: i.Windows,
		OneTouch: i.OneTouch, Touched: i.Touched, PageSize: i.PageSize, Pages: i.Pages,
	}
}
