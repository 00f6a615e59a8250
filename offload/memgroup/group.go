package memgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/tpt"
)

// Group is the membership of this process in a group. A Group is safe for concurrent use.
type Group struct {
	registry *registry
	seat     seat
	memory   *loader.GroupTable
	log      *slog.Logger
	counters atomicCounters

	// Start sets these fields.
	table *tpt.Table
	heap  *heap.Heap
	life  context.Context
	die   context.CancelFunc
	doors *door

	running sync.WaitGroup // goroutines of the Group

	mu       sync.Mutex
	shut     bool
	asking   map[int][]func(bool) // questions that are being asked, by range: who waits for the answer
	spaces   [Ranges]*space       // heaps of other members that are mapped
	grumbled time.Time            // when the last warning about a refusal was logged
}

// Join makes this process a member of the group with this name, with a range of entries
// entries, a power of two. All members must use the same number. The caller must give
// Memory, Number, Range and Epochs to the table, and call Start, Stop and Leave, in this
// order. Errors: ErrName, ErrFull, those of loader.OpenGroupTable.
func Join(name string, entries uint32, log *slog.Logger) (*Group, error) {
	r, err := newRegistry(name)
	if err != nil {
		return nil, err
	}
	if err := entriesFor(entries); err != nil {
		return nil, fmt.Errorf("join group %s: %w", name, err)
	}
	unlock, err := r.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	g := &Group{registry: r, log: log.With("group", name), asking: map[int][]func(bool){}}
	if err := g.join(entries); err != nil {
		if g.seat.file != nil {
			os.Remove(g.seat.file.Name())
			g.seat.file.Close()
		}
		_ = r.sweep() // what cannot be removed has been reported as the reason
		return nil, fmt.Errorf("join group %s: %w", name, err)
	}
	g.log.Info("group joined", "member", g.seat.number, "range", g.seat.index)
	return g, nil
}

// join takes a seat, and opens the table. The caller must hold the lock.
func (g *Group) join(entries uint32) error {
	s, err := g.registry.load()
	if err != nil {
		return err
	}
	var alone bool
	if g.seat, alone, err = g.registry.sit(&s); err != nil {
		return err
	}
	if alone { // nothing of the members before counts any more
		s.entries, s.pds = entries, nil
	}
	if s.entries != entries {
		return fmt.Errorf("its processes have %d regions each, this one has %d: set the same MaxRegions in all of them", s.entries-1, entries-1)
	}
	g.memory, err = loader.OpenGroupTable(g.registry.name, entries*Ranges, tpt.EpochsLen)
	if err != nil && alone && !errors.Is(err, loader.ErrPermission) && !errors.Is(err, loader.ErrNoBPFFS) {
		if err = loader.RemoveGroupTable(g.registry.name); err == nil {
			g.memory, err = loader.OpenGroupTable(g.registry.name, entries*Ranges, tpt.EpochsLen)
		}
	}
	if err != nil {
		return err
	}
	if err := g.registry.save(s); err != nil {
		return errors.Join(err, g.memory.Close())
	}
	return nil
}

// Table returns what the table of this member needs.
func (g *Group) Table() (memory []byte, number uint16, part *tpt.Group) {
	return g.memory.Memory(), g.seat.number, &tpt.Group{Member: g.seat.index, Members: Ranges, Epochs: g.memory.Epochs(), Pause: pause}
}

// pause sleeps until the engines of other processes have probably ended their steps.
func pause() { time.Sleep(20 * time.Microsecond) }

// Start begins to answer other members, with the regions of the table in the heap, which
// must have a file.
func (g *Group) Start(table *tpt.Table, h *heap.Heap) error {
	g.table, g.heap = table, h
	g.life, g.die = context.WithCancel(context.Background())
	var err error
	if g.doors, err = open(g.registry.socket(g.seat.index), g.answer, g.log); err != nil {
		return fmt.Errorf("join group %s: %w", g.registry.name, err)
	}
	g.running.Go(g.watch)
	return nil
}

// buryEvery is how often a member looks for members that have ended without leaving. An
// invalidation may wait for the engine of such a member until then.
const buryEvery = 500 * time.Millisecond

// watch buries members that have ended.
func (g *Group) watch() {
	t := time.NewTicker(buryEvery)
	defer t.Stop()
	for {
		err := g.registry.bury(g.seat.index, func(i int) {
			g.table.Bury(i)
			g.log.Info("a process of the group has ended without leaving", "range", i)
		})
		if err != nil {
			g.log.Warn("look for processes of the group that have ended", "err", err)
		}
		select {
		case <-g.life.Done():
			return
		case <-t.C:
		}
	}
}

// Stop ends all regions for the other members, drops the memory of the others, and answers
// nobody any more. No connection of the process may run.
func (g *Group) Stop() error {
	g.table.Abandon()
	g.mu.Lock()
	g.shut = true
	for _, s := range g.spaces {
		if s != nil {
			s.conn.Close() // its watcher drops it
		}
	}
	g.mu.Unlock()
	g.die()
	err := g.doors.close()
	g.running.Wait()
	return err
}

// Leave ends the membership. The table must not be used any more.
func (g *Group) Leave() error {
	return errors.Join(g.memory.Close(), g.registry.stand(g.seat))
}

// Domain returns the number of the protection domain with this name. All members of the
// group get the same number. Error: ErrName.
func (g *Group) Domain(name string) (tpt.PD, error) { return g.registry.domain(name) }

// Counters counts what this process asks and answers in its group.
type Counters struct {
	Asked        uint64 // questions to owners of memory for the list of their STags
	Answered     uint64 // questions of other processes that got the list of this one
	Mapped       uint64 // region heaps of other processes that were mapped
	Dropped      uint64 // mapped heaps that were dropped because the owner has ended
	Gone         uint64 // accesses refused because the owner has ended, or does not answer
	Absent       uint64 // accesses refused because the owner does not know the STag any more
	NotShareable uint64 // accesses refused because the owner cannot share the memory
	BadAnswers   uint64 // accesses refused because the answer was malformed or untrue
}

type atomicCounters struct {
	asked, answered, mapped, dropped, gone, absent, notShareable, badAnswers atomic.Uint64
}

// Counters returns the present numbers.
func (g *Group) Counters() Counters {
	c := &g.counters
	return Counters{
		Asked: c.asked.Load(), Answered: c.answered.Load(), Mapped: c.mapped.Load(), Dropped: c.dropped.Load(),
		Gone: c.gone.Load(), Absent: c.absent.Load(), NotShareable: c.notShareable.Load(), BadAnswers: c.badAnswers.Load(),
	}
}
