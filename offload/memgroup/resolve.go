package memgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/tpt"
)

// space is the mapped heap of another member.
type space struct {
	owner uint16
	size  uint64 // octets
	conn  *net.UnixConn
	done  chan struct{} // closed when the heap is not mapped any more
}

// Resolve asks the owner of the STag for its memory, and calls done from another goroutine.
// With true, the caller must check the access again: the memory is there now, or somebody
// else has asked the same owner meanwhile. With false, the memory will not come, and the
// access counts as refused. Resolve never blocks.
func (g *Group) Resolve(s tpt.STag, done func(bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, ok := g.table.RangeOf(s)
	if g.shut || !ok {
		go done(false)
		return
	}
	if waiting, asked := g.asking[i]; asked {
		g.asking[i] = append(waiting, done)
		return
	}
	g.asking[i] = nil
	g.running.Go(func() {
		err := g.resolve(s, i)
		g.mu.Lock()
		waiting := g.asking[i]
		delete(g.asking, i)
		g.mu.Unlock()
		if err != nil {
			g.refuse(s, err)
		}
		done(err == nil)
		for _, f := range waiting {
			f(true)
		}
	})
}

// resolve makes the memory of s in range i usable, or says why it cannot.
func (g *Group) resolve(s tpt.STag, i int) error {
	e, ok := g.table.Foreign(s)
	if !ok {
		return ErrAbsent
	}
	if size := g.mapped(i, e.Owner); size != 0 && itemOf(&e).Why == Shareable {
		if e.Offset > size || e.Length > size-e.Offset {
			return fmt.Errorf("%w: the memory of STag %v is not in the heap", ErrLies, s)
		}
		return nil // somebody else has asked just before
	}
	number, pid, live := g.registry.read(i)
	if !live || number != e.Owner {
		return fmt.Errorf("%w: member %d", ErrGone, e.Owner)
	}
	g.counters.asked.Add(1)
	a, err := ask(g.registry.socket(i), number, pid, g.table.Stats().Entries)
	if err != nil {
		return fmt.Errorf("pid %d: %w", pid, err)
	}
	item, ok := a.list.find(s)
	switch {
	case !ok:
		a.close()
		return fmt.Errorf("pid %d: %w", pid, ErrAbsent)
	case item.Why != Shareable:
		a.close()
		return fmt.Errorf("pid %d: %w: %v", pid, ErrNotShareable, item.Why)
	case item.Length != e.Length || item.Offset != e.Offset || item.PD != e.PD:
		a.close()
		return fmt.Errorf("pid %d: %w: the list and the table disagree about STag %v", pid, ErrLies, s)
	}
	return g.attach(i, a)
}

// mapped returns the size of the heap of the member with this number, or 0 if it is not
// mapped.
func (g *Group) mapped(i int, owner uint16) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.spaces[i]; s != nil && s.owner == owner && g.table.Attached(i) == owner {
		return s.size
	}
	return 0
}

// attach gives the table the heap of the answer, and watches the owner.
func (g *Group) attach(i int, a *answered) error {
	g.mu.Lock()
	old := g.spaces[i]
	g.mu.Unlock()
	if old != nil { // of an owner that has ended, or that has been asked twice
		old.conn.Close()
		<-old.done
	}
	mem, err := a.mapHeap()
	if err = errors.Join(err, a.file.Close()); err != nil {
		return errors.Join(err, a.conn.Close())
	}
	s := &space{owner: a.list.owner, size: uint64(len(mem)), conn: a.conn, done: make(chan struct{})}
	g.mu.Lock()
	shut := g.shut
	if !shut {
		g.spaces[i] = s
		g.table.Attach(i, s.owner, mem)
	}
	g.mu.Unlock()
	if shut {
		return errors.Join(ErrGone, unix.Munmap(mem), a.conn.Close())
	}
	g.counters.mapped.Add(1)
	g.log.Info("memory of another process mapped", "member", s.owner, "octets", len(mem), "stags", len(a.list.items))
	g.running.Go(func() { g.follow(i, s, mem) })
	return nil
}

// follow waits for the end of the owner, and drops its memory.
func (g *Group) follow(i int, s *space, mem []byte) {
	defer close(s.done)
	_ = s.conn.SetDeadline(time.Time{})
	s.conn.Read(make([]byte, 1)) // the owner sends nothing: Read returns when it ends
	s.conn.Close()
	g.table.Detach(i)
	if err := unix.Munmap(mem); err != nil {
		g.log.Error("unmap the memory of another process", "member", s.owner, "err", err)
	}
	g.mu.Lock()
	g.spaces[i] = nil
	g.mu.Unlock()
	g.counters.dropped.Add(1)
	g.log.Info("memory of another process dropped", "member", s.owner)
}

// grumbleEvery limits the warnings about refusals, because a peer can cause them.
const grumbleEvery = time.Second

// refuse counts and logs an access that is refused.
func (g *Group) refuse(s tpt.STag, err error) {
	g.table.Unresolved()
	c := &g.counters
	switch {
	case errors.Is(err, ErrAbsent):
		c.absent.Add(1)
	case errors.Is(err, ErrNotShareable):
		c.notShareable.Add(1)
	case errors.Is(err, ErrLies):
		c.badAnswers.Add(1)
	default:
		c.gone.Add(1)
	}
	g.mu.Lock()
	level := slog.LevelDebug
	if now := time.Now(); now.Sub(g.grumbled) >= grumbleEvery {
		level, g.grumbled = slog.LevelWarn, now
	}
	g.mu.Unlock()
	g.log.Log(g.life, level, "an access to memory of another process is refused", "stag", s, "err", err)
}
