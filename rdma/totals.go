package rdma

import (
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
)

// totals are the counters of QPs, summed by the device of their connection.
type totals map[string]*rdmap.Stats

func (t totals) add(device string, s *rdmap.Stats) {
	if t[device] == nil {
		t[device] = &rdmap.Stats{}
	}
	t[device].Add(s)
}

// copy returns a copy that the caller may add to.
func (t totals) copy() totals {
	c := make(totals, len(t))
	for device, s := range t {
		c.add(device, s)
	}
	return c
}

// counters returns the counters of a device. All counters are 0 if no QP has had a
// connection of the device.
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

// device returns the device of the QP's connection, also when the connection has ended.
// device returns "" before the QP has been connected.
func (qp *QP) device() string {
	if c := qp.conn.Load(); c != nil {
		return c.Device()
	}
	return ""
}

// retire removes a closed QP from the adapter and adds its counters to those of the
// adapter. Both happen under one lock, so that every report counts the QP exactly once.
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

// census returns all open QPs. closed contains the counters of the closed QPs.
func (a *Adapter) census() (all []*QP, closed totals) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for qp := range a.qps {
		all = append(all, qp)
	}
	return all, a.retired.copy()
}
