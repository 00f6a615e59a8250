package iscsi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/undo"
	"github.com/stag-rdma/stag/rdma"
)

// Server has targets on its portals. A Server is safe for concurrent use.
type Server struct {
	cfg     ServerConfig
	adapter *adapter.Adapter
	portals []*entrance
	pool    *flow.Pool
	targets map[string]*target
	luns    map[*unit.Unit]*lun
	logins  chan struct{} // a place for each login in progress
	asking  chan struct{} // a place for each discovery session
	work    workQueue
	memory  *iser.Memory // of connections of iSER; nil: no portal has them
	undo    undo.Stack

	life    context.Context // ends when Close begins
	die     context.CancelCauseFunc
	running sync.WaitGroup // the goroutine that accepts, logins, workers, ends of sessions

	mu       sync.Mutex
	sessions map[sessionKey]*session
	handle   uint16 // the TSIH that was given last
}

// target is a target with its units.
type target struct {
	TargetConfig
	luns   map[uint64]*lun // by the octets of the LUN
	absent *lun            // for every other LUN
}

// lun is a unit. Begin, and Run of an exclusive task, need state. Run of a task that uses the
// medium needs medium, an exclusive one for writing.
type lun struct {
	id         uint64
	unit       *unit.Unit
	registered bool // the memory that the unit lends is in Server.memory
	state      sync.Mutex
	medium     sync.RWMutex
	aborted    []purging // commands that PREEMPT AND ABORT has just aborted; state guards it
}

// ErrServerClosed is the cause with which a Server ends.
var ErrServerClosed = errors.New("iscsi: the server is closed")

// Serve makes targets available on portals. The caller must close the Server. ctx is
// for the start only.
func Serve(ctx context.Context, c ServerConfig) (*Server, error) {
	s := &Server{targets: map[string]*target{}, luns: map[*unit.Unit]*lun{}, sessions: map[sessionKey]*session{}}
	s.life, s.die = context.WithCancelCause(context.Background())
	if err := c.fill(); err != nil {
		return nil, fmt.Errorf("iscsi: %w", err)
	}
	s.cfg = c
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("iscsi: %w", errors.Join(err, s.undo.Run()))
	}
	s.undo.Add(reportsOf(s.adapter).serve(s))
	s.work.start(s, c.Workers)
	for _, p := range s.portals {
		s.running.Go(func() { p.serve(s) })
	}
	return s, nil
}

// poolGrain is what the size of the pool is rounded up to, in octets.
const poolGrain = 8 << 20

func (s *Server) open(ctx context.Context) error {
	for i := range s.cfg.Targets {
		if err := s.addTarget(&s.cfg.Targets[i]); err != nil {
			return err
		}
	}
	size := (s.cfg.Memory + poolGrain - 1) / poolGrain * poolGrain
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("memory for data: %w", err)
	}
	s.undo.Add(func() error { return unix.Munmap(mem) })
	s.pool = flow.NewPool(mem)
	s.logins = make(chan struct{}, s.cfg.MaxLogins)
	s.asking = make(chan struct{}, s.cfg.MaxSessions)
	if err := s.openAdapter(); err != nil {
		return err
	}
	if s.cfg.hasISER() {
		if err := s.register(mem); err != nil {
			return err
		}
	}
	return s.listen(ctx)
}

// openAdapter finds the adapter, or opens one over the kernel's TCP. The sessions end
// when the adapter closes, because it waits for their connections.
func (s *Server) openAdapter() error {
	if s.cfg.Adapter == nil {
		own, err := rdma.Open(s.cfg.ownAdapter())
		if err != nil {
			return err
		}
		s.cfg.Adapter = own
		s.undo.Add(own.Close)
	}
	s.adapter = s.cfg.Adapter.Device().(*adapter.Adapter)
	stop := context.AfterFunc(s.adapter.Life(), func() {
		s.die(ErrServerClosed)
		s.endSessions()
	})
	s.undo.Add(func() error { stop(); return nil })
	return nil
}

// addTarget makes the units of a target.
func (s *Server) addTarget(c *TargetConfig) error {
	if s.targets[c.Name] != nil {
		return fmt.Errorf("two targets have the name %s", c.Name)
	}
	t := &target{TargetConfig: *c, luns: map[uint64]*lun{}}
	for number, l := range c.LUNs {
		own := &lun{id: uint64(number) << 48}
		u, err := l.newUnit(&s.cfg, c, number, func(n *unit.Nexus) { own.abortNexus(s, n) })
		if err != nil {
			return fmt.Errorf("target %s, LUN %d: %w", c.Name, number, err)
		}
		own.unit = u
		t.luns[own.id], s.luns[u] = own, own
	}
	u, err := unit.New(unit.Config{})
	if err != nil {
		return err
	}
	t.absent = &lun{unit: u}
	s.luns[u] = t.absent
	s.targets[c.Name] = t
	return nil
}

// SetAccess changes the asymmetric access state of a target portal group, for all units.
// Initiators learn it by a unit attention condition. Commands in progress end as if nothing
// had changed.
func (s *Server) SetAccess(group uint16, state AccessState) error {
	var errs []error
	for _, t := range s.targets {
		if t.groups(&s.cfg)[group] {
			errs = append(errs, t.setAccess(group, state))
		}
	}
	if errs == nil {
		return fmt.Errorf("iscsi: set the access state of target portal group %d: no portal has this group", group)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("iscsi: set the access state of target portal group %d: %w", group, err)
	}
	return nil
}

func (t *target) setAccess(group uint16, state AccessState) error {
	var errs []error
	for _, l := range t.luns {
		l.state.Lock()
		errs = append(errs, l.unit.SetAccess(group, state))
		l.state.Unlock()
	}
	return errors.Join(errs...)
}

// Sessions returns the number of sessions.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Close ends all sessions. When Close returns, nobody uses the backends. Close may be
// called twice.
func (s *Server) Close() error {
	s.die(ErrServerClosed)
	err := s.closePortals()
	s.endSessions()
	s.work.stop()
	s.running.Wait()
	return errors.Join(err, s.undo.Run())
}

// endSessions ends all sessions and waits for their ends. No session begins any more.
func (s *Server) endSessions() {
	s.mu.Lock()
	var all []*session
	for _, e := range s.sessions {
		all = append(all, e)
	}
	s.mu.Unlock()
	for _, e := range all {
		e.end()
	}
	for _, e := range all {
		<-e.ended
	}
}
