package iscsi

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	isession "github.com/stag-rdma/stag/iscsi/session"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/tpt"
)

// Slots of a session besides those of its Queues.
const (
	callSlots    = 16 // Do, ReadAt and the like
	controlSlots = 4  // pings, aborts, logout
)

// Session is a session with a target, over one connection at a time. It survives the end of
// a connection: it logs in again, and sends the commands again that had no status. A
// Session is safe for concurrent use.
type Session struct {
	// Dial sets these fields, and they never change.
	url    URL
	cfg    Config
	own    *rdma.Adapter // adapter that Dial opened; nil: the program's
	device *adapter.Adapter
	isid   pdu.ISID
	pd     tpt.PD
	tags   *tpt.Tags
	flow   *flow.Initiator
	calls  calls
	manage calls // pings, aborts, logout, and the check of the units

	conn  atomic.Pointer[adapter.Conn] // the youngest connection
	news  chan struct{}                // there are events, or the connection has ended
	asked chan question                // to the session's goroutine
	done  chan struct{}                // closed when the session has ended and its entries are free

	recovery // of the session's goroutine

	telling sync.Mutex // held while the program gets an event

	mu     sync.Mutex // guards the fields below
	params login.Params
	portal string // where the connection leads
	cause  error  // why the session has ended
	disks  []*Disk
	spare  []*flow.Queue
	next   int // first slot of the next queue
	closed bool
}

// reserve takes the session's protection domain and entries of the table.
func (s *Session) reserve() (err error) {
	t := s.device.Table()
	if s.pd, err = t.NewPD(); err != nil {
		return err
	}
	if s.tags, err = t.ReserveTags(s.pd, callSlots+controlSlots+s.cfg.Depth); err != nil {
		return errors.Join(err, t.FreePD(s.pd))
	}
	s.next = callSlots + controlSlots
	return nil
}

// Target returns the iSCSI name of the target.
func (s *Session) Target() string { return s.url.Target }

// Portal returns host:port of the target. A target that moves changes it.
func (s *Session) Portal() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.portal
}

// Digests reports which digests the two ends have agreed on in the last login.
func (s *Session) Digests() (header, data bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.params.Digests.Header, s.params.Digests.Data
}

// Stats counts what a session has done.
type Stats struct {
	Commands, Completed uint64 // commands and requests that have left, and that have ended
	PDUsIn, PDUsOut     uint64
	Placed, Sent        uint64 // octets of data that were placed by tag, and that were sent
	Refused, Stale      uint64 // PDUs that were refused, among them those for canceled commands
	DigestErrors        uint64
}

// Err returns why the session has ended, or nil.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.lost()
	default:
		return nil
	}
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// lost returns the error of commands that end with the session.
func (s *Session) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return ErrSessionLost
	}
	return fmt.Errorf("%w: %w", ErrSessionLost, s.cause)
}

// closeTime limits how long Close waits for the target.
const closeTime = 3 * time.Second

// Close logs out, and ends the session. Commands in flight complete with ErrSessionLost.
// Close may be called twice.
func (s *Session) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		<-s.done
		return nil
	}
	s.tell(func(now clock.Instant) { s.leave(now) })
	select {
	case <-s.done:
	case <-time.After(closeTime):
		s.tell(func(now clock.Instant) { s.broken(now, isession.ErrSilent) })
		<-s.done
	}
	return s.letGo()
}

// letGo closes the adapter that Dial opened.
func (s *Session) letGo() error {
	if s.own == nil {
		return nil
	}
	return s.own.Close()
}

// free frees the session's entries. No step runs any more. If the adapter is closed,
// they are gone already.
func (s *Session) free() {
	done, err := s.device.Use()
	if err != nil {
		return
	}
	defer done()
	s.freeEntries()
}

func (s *Session) freeEntries() {
	s.tags.Release()
	if err := s.device.Table().FreePD(s.pd); err != nil {
		s.cfg.Log.Error("iscsi session", "err", err)
	}
}

// takeQueue returns a queue of n slots of the session.
func (s *Session) takeQueue(n int) (*flow.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.spare {
		if q.Depth() == n {
			s.spare = append(s.spare[:i], s.spare[i+1:]...)
			return q, nil
		}
	}
	if left := s.tags.Len() - s.next; n < 1 || n > left {
		return nil, fmt.Errorf("iscsi: a queue of depth %d: the session has %d of %d commands left: choose fewer, close a queue, or raise Config.Depth", n, left, s.cfg.Depth)
	}
	q := s.flow.NewQueue(s.next, n)
	s.next += n
	return q, nil
}

// giveQueue takes back a queue without commands in flight.
func (s *Session) giveQueue(q *flow.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = append(s.spare, q)
}
