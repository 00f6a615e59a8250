package iscsi

import (
	"slices"
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
)

// pathQueue is a queue of commands over all paths of a disk. A command keeps its slot from
// post to poll, over as many paths as it needs.
type pathQueue struct {
	m    *multipath
	fire func() // runs when an armed queue gets a completion, or the disk has one for it

	mu    sync.Mutex
	slots []pathSlot
	free  []int32
	lanes []*lane // by path; nil: the path has no session
	held  []int32 // commands that wait for a path
	ready []int32 // commands that have completed, oldest first
	last  uint64  // number of the youngest command
	got   [16]flow.Completion
}

// lane is the part of a pathQueue that one session carries.
type lane struct {
	link *pathLink
	q    *sessionQueue
	rang bool // the session's connection knows of all commands
}

// pathSlot is a command.
type pathSlot struct {
	id       uint64 // the program's
	number   uint64 // commands are repeated in the order of their numbers
	state    slotState
	lane     *lane // of a command in flight
	canceled bool
	replays  uint8

	cdb     [flow.MaxCDB]byte
	length  int // octets of cdb
	lun     uint64
	list    [flow.MaxPieces][]byte
	pieces  int
	out     bool // the pieces are data for the target
	outcome flow.Completion
}

// slotState is where a command is.
type slotState uint8

const (
	slotFree slotState = iota
	slotHeld
	slotFlying
	slotDone
)

func newPathQueue(m *multipath, depth int, fire func()) *pathQueue {
	q := &pathQueue{m: m, fire: fire, slots: make([]pathSlot, depth), lanes: make([]*lane, len(m.paths))}
	for i := range depth {
		q.free = append(q.free, int32(depth-1-i))
	}
	q.held, q.ready = make([]int32, 0, depth), make([]int32, 0, depth)
	return q
}

// attach lets the queue use a link.
func (q *pathQueue) attach(l *pathLink) error {
	f, err := l.session.takeQueue(len(q.slots), q.fire)
	if err != nil {
		return err
	}
	f.Arm()
	q.mu.Lock()
	q.lanes[l.path.index] = &lane{link: l, q: f, rang: true}
	q.mu.Unlock()
	return nil
}

// detach takes back what a session has that has ended.
func (q *pathQueue) detach(l *pathLink) {
	q.mu.Lock()
	if a := q.lanes[l.path.index]; a != nil && a.link == l {
		q.reap(a)
		q.lanes[l.path.index] = nil
	}
	q.mu.Unlock()
	q.fire()
}

// leave gives the queues of the sessions back. No command is in flight.
func (q *pathQueue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, a := range q.lanes {
		if a != nil {
			a.link.session.giveQueue(a.q)
			q.lanes[i] = nil
		}
	}
}

func (q *pathQueue) room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.free)
}

// post takes a command. The caller then calls ring.
func (q *pathQueue) post(c *flow.Command) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.m.life.Err() != nil:
		return 0, flow.ErrEnded
	case len(q.free) == 0:
		return 0, nil
	case len(c.In) > flow.MaxPieces || len(c.Out) > flow.MaxPieces:
		return 0, flow.ErrPieces
	case len(c.CDB) < 6 || len(c.CDB) > flow.MaxCDB:
		return 0, flow.ErrCDB
	case len(c.In) != 0 && len(c.Out) != 0:
		return 0, flow.ErrDirections
	}
	i := q.free[len(q.free)-1]
	q.last++
	q.slots[i].set(c, q.last)
	if err := q.launch(i); err != nil {
		q.slots[i].clear()
		return 0, err
	}
	if q.slots[i].state == slotHeld {
		q.m.wakeManager()
	}
	q.free = q.free[:len(q.free)-1]
	return 1, nil
}

// set makes the slot a command.
func (s *pathSlot) set(c *flow.Command, number uint64) {
	s.id, s.number, s.lun = c.ID, number, c.LUN
	s.canceled, s.replays = false, 0
	s.length = copy(s.cdb[:], c.CDB)
	list := c.In
	if s.out = len(c.Out) != 0; s.out {
		list = c.Out
	}
	s.pieces = copy(s.list[:], list)
}

// clear lets go of the buffers.
func (s *pathSlot) clear() {
	s.state, s.lane = slotFree, nil
	clear(s.list[:s.pieces])
}

// launch sends a command over the path that the policy says, or holds it.
func (q *pathQueue) launch(i int32) error {
	s := &q.slots[i]
	for l := q.m.pick(); l != nil; l = q.m.pick() {
		a := q.lanes[l.path.index]
		if a == nil || a.link != l { // the path has died, or has just come
			break
		}
		c := flow.Command{ID: uint64(i), LUN: s.lun, CDB: s.cdb[:s.length]}
		if s.out {
			c.Out = s.list[:s.pieces]
		} else {
			c.In = s.list[:s.pieces]
		}
		n, err := a.q.Post(c)
		if err == flow.ErrEnded {
			l.suspect.Store(true) // the path's goroutine is about to find out
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 { // impossible: a lane has as many slots as the queue
			break
		}
		s.state, s.lane = slotFlying, a
		l.flying.Add(1)
		a.rang = false
		return nil
	}
	s.state, s.lane = slotHeld, nil
	q.held = append(q.held, i)
	return nil
}

// ring tells the connections of what was posted.
func (q *pathQueue) ring() {
	var buf [maxPaths]*pathLink
	all := buf[:0]
	q.mu.Lock()
	for _, a := range q.lanes {
		if a != nil && !a.rang {
			a.rang = true
			all = append(all, a.link)
		}
	}
	q.mu.Unlock()
	for _, l := range all {
		l.session.link().Post(true)
	}
}

// flush sends the commands that are held, oldest first.
func (q *pathQueue) flush() {
	q.mu.Lock()
	held := slices.Clone(q.held)
	q.held = q.held[:0]
	slices.SortFunc(held, func(a, b int32) int { return int(int64(q.slots[a].number - q.slots[b].number)) })
	for _, i := range held {
		if err := q.launch(i); err != nil { // another target takes less
			q.done(i, &flow.Completion{Why: flow.Rejected})
		}
	}
	completed := len(q.ready) != 0
	q.mu.Unlock()
	q.ring()
	if completed {
		q.fire()
	}
}

// drop completes those commands that are held for which which says so.
func (q *pathQueue) drop(why flow.Reason, which func(*pathSlot) bool) {
	q.mu.Lock()
	q.held = slices.DeleteFunc(q.held, func(i int32) bool {
		if !which(&q.slots[i]) {
			return false
		}
		q.done(i, &flow.Completion{Why: why})
		return true
	})
	q.mu.Unlock()
	q.fire()
}

// harvest takes the completions of all lanes, and returns how many commands are in flight.
func (q *pathQueue) harvest() (flying int) {
	q.mu.Lock()
	q.reapAll()
	for i := range q.slots {
		if q.slots[i].state == slotFlying {
			flying++
		}
	}
	completed := len(q.ready) != 0
	q.mu.Unlock()
	if completed {
		q.fire()
	}
	return flying
}

func (q *pathQueue) reapAll() {
	for _, a := range q.lanes {
		if a != nil {
			q.reap(a)
		}
	}
}

// poll moves completions into dst, oldest first, and returns their number.
func (q *pathQueue) poll(dst []flow.Completion) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reapAll()
	for n < len(dst) && n < len(q.ready) {
		i := q.ready[n]
		s := &q.slots[i]
		dst[n] = s.outcome
		s.clear()
		q.free = append(q.free, i)
		n++
	}
	q.ready = q.ready[:copy(q.ready, q.ready[n:])]
	return n
}

// cancel ends the commands with an ID, as Queue.Cancel does.
func (q *pathQueue) cancel(id uint64) (found bool) {
	var sessions []*Session
	q.mu.Lock()
	for i := range q.slots {
		s := &q.slots[i]
		if s.id != id || s.canceled || s.state != slotHeld && s.state != slotFlying {
			continue
		}
		s.canceled, found = true, true
		if s.state == slotFlying {
			s.lane.q.Cancel(uint64(i))
			sessions = append(sessions, s.lane.link.session)
		}
	}
	q.mu.Unlock()
	if found {
		q.drop(flow.Canceled, func(s *pathSlot) bool { return s.canceled })
	}
	for _, s := range sessions {
		s.wake()
	}
	return found
}
