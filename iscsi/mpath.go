package iscsi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/rdma"
)

// multipath is a logical unit that several sessions reach. Each path is a session that ends
// with its connection, and a goroutine that makes the next one. The goroutine of manage
// repeats commands whose path has died.
//
// Locks are taken in this order: mu, then that of a pathQueue. Neither is held while
// something waits.
type multipath struct {
	cfg    Config // filled
	undo   func() bool
	own    *rdma.Adapter // adapter that DialMultipath opened; nil: the program's
	device *adapter.Adapter
	paths  []*unitPath
	calls  pathCalls

	life    context.Context // ends when the disk is closed or lost
	die     context.CancelCauseFunc
	running sync.WaitGroup // goroutines of the paths
	gone    chan struct{}  // closed when all commands have completed
	poke    chan struct{}  // to manage: there is something to do

	choice  atomic.Pointer[[]*pathLink] // where commands may go, the best first
	turn    atomic.Uint32               // of round robin
	dirty   atomic.Bool                 // commands wait until the unit is reset; see protect
	changed atomic.Bool                 // the access states of all paths are to be asked for

	checks  sync.RWMutex // held by those who ask the unit, and for writing during a reset
	round   atomic.Pointer[round]
	telling sync.Mutex // held while the program gets an event

	noting  sync.Mutex // guards the next field
	notices []notice

	mu     sync.Mutex // guards the fields below, and link and err of the paths
	queues []*pathQueue
	depth  int   // commands of the queues of the program
	unit   *Disk // the unit as the first path has found it
	closed bool
}

// pathLink is the present session of a path.
type pathLink struct {
	path    *unitPath
	session *Session
	disk    *Disk // the unit through this session; its commands go before all others
	flying  atomic.Int64
	suspect atomic.Bool   // no command may go this way until its access state is known
	ask     chan struct{} // its access state may have changed

	explicit bool        // the unit takes SET TARGET PORT GROUPS
	implicit bool        // the unit has target port groups
	group    uint16      // target port group of the path
	access   AccessState // of the group; multipath.mu guards it and the next fields
	prefer   bool
	known    bool // the size is that of the unit
}

// DialMultipath logs in to one logical unit over several paths, one for each URL, and returns
// it as a Disk. The identity of the unit (VPD page 83h) must be the same on all paths.
// A command whose path dies is repeated on another path, by the rules of sessions: nothing
// is executed twice that must not be (ErrUncertain), and the unit is reset before, so that
// the target does not execute a lost write late. Paths that die are made again.
//
// The URLs may have path= and policy= too, as for Dial. DialMultipath needs one path that works. The others may come later: see Disk.Paths and
// Config.Events. If no path works for Config.RecoveryTimeout, the commands complete with
// ErrSessionLost. The caller must close the Disk.
func DialMultipath(ctx context.Context, urls []string, c Config) (*Disk, error) {
	var parsed []URL
	for _, url := range urls {
		u, err := parseUnitURL(url)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, u.spread()...)
	}
	return dialMultipath(ctx, parsed, c)
}

// parseUnitURL reads the URL of a logical unit.
func parseUnitURL(url string) (URL, error) {
	u, err := ParseURL(url)
	if err == nil && u.Target == "" {
		err = errNoTarget
	}
	return u, err
}

// maxPaths limits the paths of a disk.
const maxPaths = 32

func dialMultipath(ctx context.Context, urls []URL, c Config) (*Disk, error) {
	m, err := newMultipath(urls, c)
	if err != nil {
		return nil, fmt.Errorf("iscsi: %w", err)
	}
	for _, p := range m.paths {
		m.running.Go(p.run)
	}
	go m.manage()
	d, err := m.arrived(ctx)
	if err != nil {
		return nil, fmt.Errorf("iscsi: dial %d paths: %w", len(urls), errors.Join(err, m.close()))
	}
	return d, nil
}

func newMultipath(urls []URL, c Config) (*multipath, error) {
	c, err := c.fill()
	if err != nil {
		return nil, err
	}
	for _, u := range urls {
		if u.policed {
			c.Policy = u.policy
		}
	}
	if len(urls) == 0 || len(urls) > maxPaths {
		return nil, fmt.Errorf("%d paths: give 1 to %d URLs", len(urls), maxPaths)
	}
	m := &multipath{cfg: c, gone: make(chan struct{}), poke: make(chan struct{}, 1)}
	m.life, m.die = context.WithCancelCause(context.Background())
	m.choice.Store(&[]*pathLink{})
	m.round.Store(newRound())
	if c.Adapter == nil {
		if m.own, err = rdma.Open(ownAdapter(urls[0], 2*len(urls)*(c.Depth+2*callSlots+controlSlots))); err != nil {
			return nil, err
		}
		m.cfg.Adapter = m.own
	}
	m.device = m.cfg.Adapter.Device().(*adapter.Adapter)
	for i, u := range urls {
		p, err := m.newPath(i, u)
		if err != nil {
			return nil, errors.Join(err, m.letGo())
		}
		m.paths = append(m.paths, p)
	}
	m.calls.init(m)
	m.undo = context.AfterFunc(m.device.Life(), func() { m.die(ErrClosed) })
	return m, nil
}

// graceTime is how long a dial waits for the other paths when one works.
const graceTime = 3 * time.Second

// arrived waits until all paths have been tried, and returns the disk.
func (m *multipath) arrived(ctx context.Context) (*Disk, error) {
	var late <-chan time.Time
	for _, p := range m.paths {
		for tried := false; !tried; {
			select {
			case <-p.tried:
				tried = true
			case <-late:
				return m.disk()
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(50 * time.Millisecond):
			}
			if late == nil && len(*m.choice.Load()) != 0 {
				late = time.After(graceTime)
			}
		}
	}
	return m.disk()
}

// disk returns the disk, if a path works and no path leads elsewhere.
func (m *multipath) disk() (*Disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, p := range m.paths {
		if p.err != nil && (errors.Is(p.err, errOther) || errors.Is(p.err, errNameless)) {
			return nil, fmt.Errorf("path %s: %w", p.name(), p.err)
		}
		if p.err != nil {
			errs = append(errs, fmt.Errorf("path %s: %w", p.name(), p.err))
		}
	}
	if m.unit == nil || len(*m.choice.Load()) == 0 {
		return nil, errors.Join(append(errs, errNoPath)...)
	}
	d := *m.unit
	d.s, d.by, d.paths = nil, nil, m
	return &d, nil
}

// errNoPath: the paths that there are do not give access to the medium.
var errNoPath = errors.New("no path gives access to the unit")

// close ends all paths, and completes all commands.
func (m *multipath) close() error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	m.die(ErrClosed)
	<-m.gone
	if again {
		return nil
	}
	return m.letGo()
}

// letGo closes the adapter that DialMultipath opened.
func (m *multipath) letGo() error {
	if m.own == nil {
		return nil
	}
	return m.own.Close()
}

// lost returns the error of commands that end with the disk.
func (m *multipath) lost() error {
	if cause := context.Cause(m.life); cause != nil {
		return fmt.Errorf("%w: %w", ErrSessionLost, cause)
	}
	return ErrSessionLost
}

// wakeManager tells manage that there is something to do.
func (m *multipath) wakeManager() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// admit lets commands use a link. It returns false if the disk has been closed.
func (m *multipath) admit(l *pathLink) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() != nil {
		return false
	}
	for _, q := range m.queues {
		if err := q.attach(l); err != nil { // impossible: the session has room for all queues
			l.path.err = err
			return false
		}
	}
	l.path.link, l.path.err = l, nil
	m.choose()
	m.wakeManager()
	return true
}

// dismiss takes back the commands of a link whose session has ended.
func (m *multipath) dismiss(l *pathLink, cause error) {
	m.mu.Lock()
	l.path.link, l.path.err = nil, cause
	m.choose()
	queues := slices.Clone(m.queues)
	m.mu.Unlock()
	for _, q := range queues {
		q.detach(l)
	}
	m.wakeManager()
}

// newQueue makes a queue over all paths.
func (m *multipath) newQueue(depth int, fire func()) (*pathQueue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() != nil {
		return nil, m.lost()
	}
	if left := m.cfg.Depth - m.depth; depth < 1 || depth > left {
		return nil, fmt.Errorf("iscsi: a queue of depth %d: the disk has %d of %d commands left: choose fewer, close a queue, or raise Config.Depth", depth, left, m.cfg.Depth)
	}
	q := newPathQueue(m, depth, fire)
	for _, p := range m.paths {
		if p.link == nil {
			continue
		}
		if err := q.attach(p.link); err != nil {
			q.leave()
			return nil, err
		}
	}
	m.depth += depth
	m.queues = append(m.queues, q)
	return q, nil
}

// giveQueue takes back a queue without commands.
func (m *multipath) giveQueue(q *pathQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.depth -= len(q.slots)
	m.queues = slices.DeleteFunc(m.queues, func(x *pathQueue) bool { return x == q })
	q.leave()
}

// all returns the queues.
func (m *multipath) all() []*pathQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.queues)
}

// links returns the sessions of all paths that have one.
func (m *multipath) links() (all []*pathLink) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.paths {
		if p.link != nil {
			all = append(all, p.link)
		}
	}
	return all
}

// finish completes what is left. No path has a session any more.
func (m *multipath) finish(began bool) {
	m.undo()
	for _, q := range m.all() {
		q.drop(flow.Lost, func(*pathSlot) bool { return true })
	}
	if began {
		m.tell(EventLost, nil, context.Cause(m.life))
	}
	close(m.gone)
}
