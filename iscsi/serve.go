package iscsi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/undo"
	"github.com/stag-rdma/stag/rdma"
)

// Server has targets on one portal. A Server is safe for concurrent use.
type Server struct {
	cfg     ServerConfig
	adapter *adapter.Adapter
	socket  *net.TCPListener
	pool    *flow.Pool
	targets map[string]*target
	luns    map[*unit.Unit]*lun
	logins  chan struct{} // a place for each login in progress
	work    workQueue
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

// lun is a unit. Begin, and Run of an exclusive task, need state. Every Run needs medium,
// an exclusive one for writing.
type lun struct {
	id     uint64
	unit   *unit.Unit
	state  sync.Mutex
	medium sync.RWMutex
}

// ErrServerClosed is the cause with which a Server ends.
var ErrServerClosed = errors.New("iscsi: the server is closed")

// Serve makes targets available on a portal. The caller must close the Server. ctx is
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
	s.work.start(s, c.Workers)
	s.running.Go(s.acceptAll)
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
	if err := s.openAdapter(); err != nil {
		return err
	}
	s.socket, err = s.adapter.Listen(ctx, s.cfg.Address, 0)
	return err
}

// openAdapter finds the adapter, or opens one over the kernel's TCP. The sessions end
// when the adapter closes, because it waits for their connections.
func (s *Server) openAdapter() error {
	if s.cfg.Adapter == nil {
		own, err := rdma.Open(rdma.Config{
			KernelPort: true, NoControl: true, RegionHeap: 1 << 20, MaxRegions: s.cfg.MaxSessions * (s.cfg.Depth + spareSlots),
		})
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
		u, err := l.newUnit(c, number, s.abortNexus)
		if err != nil {
			return fmt.Errorf("target %s, LUN %d: %w", c.Name, number, err)
		}
		id := uint64(number) << 48
		t.luns[id] = &lun{id: id, unit: u}
		s.luns[u] = t.luns[id]
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

// Addr returns the address of the portal.
func (s *Server) Addr() netip.AddrPort { return s.adapter.ListenerAddr(s.socket) }

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
	err := s.socket.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
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
