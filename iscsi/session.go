package iscsi

import (
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

// Session is a session with a target, over one connection at a time, or over several
// (Config.Connections). It survives the end of a connection: it logs in again, with all
// connections, and sends the commands again that had no status. A Session is safe for
// concurrent use.
type Session struct {
	// Dial sets these fields, and they never change.
	url     URL
	cfg     Config
	own     *rdma.Adapter // adapter that Dial opened; nil: the program's
	adapter *rdma.Adapter
	device  *adapter.Adapter
	isid    pdu.ISID
	pd      tpt.PD
	conns   []*sessionConn // one, or as many as the leading login has agreed on
	numbers *flow.Numbers  // of commands over several connections; nil: there is one
	bundle  link           // several connections as one; nil: there is one

	turn  atomic.Uint32 // of the connections, for calls
	news  chan struct{} // there are events, or the connection has ended
	asked chan question // to the session's goroutine
	done  chan struct{} // closed when the session has ended and its entries are free

	recovery // of the session's goroutine

	telling sync.Mutex // held while the program gets an event

	mu     sync.Mutex // guards the fields below
	params login.Params
	portal string // where the connection leads
	cause  error  // why the session has ended
	disks  []*Disk
	spare  []*sessionQueue
	next   int // first slot of the next queue at each connection
	closed bool
}

// reserve takes the session's protection domain, and for each of n connections its entries
// of the table.
func (s *Session) reserve(n int) (err error) {
	t := s.device.Table()
	if s.pd, err = t.NewPD(); err != nil {
		return err
	}
	for i := range n {
		c := &sessionConn{s: s, cid: uint16(i)}
		if c.tags, err = reserveTags(s.device, s.pd, s.slots()); err != nil {
			s.freeEntries()
			return err
		}
		s.conns = append(s.conns, c)
	}
	s.next = callSlots + controlSlots
	return nil
}

// reserveTags makes the entries of a session's commands. Only an engine looks them up in the
// table of its adapter.
func reserveTags(a *adapter.Adapter, pd tpt.PD, n int) (*tpt.Tags, error) {
	if a.Config().KernelPort {
		return a.Table().OwnTags(pd, n)
	}
	return a.Table().ReserveTags(pd, n)
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

// Connections returns how many connections the session has: Config.Connections, or fewer if
// the target does not permit as many.
func (s *Session) Connections() int { return len(s.conns) }

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
	for _, c := range s.conns {
		c.tags.Release()
	}
	if err := s.device.Table().FreePD(s.pd); err != nil {
		s.cfg.Log.Error("iscsi session", "err", err)
	}
}
