package rdma

import (
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
)

// totals is what QPs have counted, by the device of their connection.
type totals map[string]*rdmap.Stats

func (t totals) add(device string, s *rdmap.Stats) {
	if t[device] == nil {
		t[device] = &rdmap.Stats{}
	}
	t[device].Add(s)
}

// copy is one that others may add to.
func (t totals) copy() totals {
	c := make(totals, len(t))
	for device, s := range t {
		c.add(device, s)
	}
	return c
}

// counters are those of a device, also if it has none yet.
func (t totals) counters(device string) []report.Counter {
	s := t[device]
	if s == nil {
		s = &rdmap.Stats{}
	}
	list := report.Fields("rdmap", *s)
	for i := range list {
		list[i].Device = device
	}
	return list
}

// device is what the QP's connection goes, or went, through; "" before it has
// been connected.
func (qp *QP) device() string {
	if c := qp.conn.Load(); c != nil {
		return c.Device()
	}
	return ""
}

// retire takes a QP that is closed out of the adapter, which goes on counting
// what it has counted. Both happen at once, so that no report has it twice or
// not at all.
func (a *Adapter) retire(qp *QP) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.qps[qp]; !there {
		return
	}
	delete(a.qps, qp)
	a.numbers.free(qp.Number())
	if device := qp.device(); device != "" {
		s := qp.machine.Stats()
		a.retired.add(device, &s)
	}
}

// census is all QPs that there are, and what those that are closed have counted.
func (a *Adapter) census() (all []*QP, closed totals) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for qp := range a.qps {
		all = append(all, qp)
	}
	return all, a.retired.copy()
}
