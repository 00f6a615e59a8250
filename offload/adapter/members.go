package adapter

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/memgroup"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// ErrNoMemoryGroup means that the adapter shares no memory with other processes.
var ErrNoMemoryGroup = errors.New("the adapter is in no group: set MemoryGroup in the adapter's Config")

// openShared makes the heap and the table of a member of a group. Other members can map
// the heap, and the table is the group's.
func (a *Adapter) openShared() (err error) {
	if a.heap, err = heap.NewShared(a.cfg.RegionHeap); err != nil {
		return err
	}
	a.undo.Add(a.heap.Close)
	g, err := memgroup.Join(a.cfg.MemoryGroup, a.cfg.entries(), a.log)
	if err != nil {
		return err
	}
	a.undo.Add(g.Leave)
	c := a.tableConfig()
	c.Memory, c.Owner, c.Group = g.Table()
	c.Entries *= memgroup.Ranges
	if a.table, err = tpt.New(c); err != nil {
		return err
	}
	if err := g.Start(a.table, a.heap); err != nil {
		return err
	}
	a.undo.Add(g.Stop)
	a.sharing = g
	return nil
}

// Resolve asks the owner of an STag of another process for its memory, and calls done from
// another goroutine: see memgroup.Group.Resolve. Resolve never blocks.
func (a *Adapter) Resolve(s tpt.STag, done func(bool)) { a.sharing.Resolve(s, done) }

// Shares reports whether the adapter shares memory with other processes.
func (a *Adapter) Shares() bool { return a.sharing != nil }

// JoinPD makes the protection domain of the group with this name known to the table, and
// returns its number. The caller must have called Use. Errors: ErrNoMemoryGroup, memgroup.ErrName,
// tpt.ErrPD if the adapter has joined it already.
func (a *Adapter) JoinPD(name string) (tpt.PD, error) {
	if a.sharing == nil {
		return 0, ErrNoMemoryGroup
	}
	pd, err := a.sharing.Domain(name)
	if err != nil {
		return 0, err
	}
	if err := a.table.JoinPD(pd); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return pd, nil
}

// groupCounters returns the counters of the group.
func (a *Adapter) sharingCounters() []report.Counter {
	if a.sharing == nil {
		return nil
	}
	return report.Fields("group", a.sharing.Counters())
}
