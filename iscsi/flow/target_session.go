package flow

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/signal"
)

// MaxConnections is how many connections a session can have.
const MaxConnections = 16

// TargetSession is what the Targets of a session with several connections share: the
// numbers of commands (RFC 7143 §4.2.2.1). Requests arrive over all connections, and their
// turn comes in the order of CmdSN. The steps of the connections run at the same time, and
// none waits for another: a request whose turn has not come waits in its connection, and
// the step that ends its wait wakes that connection.
type TargetSession struct {
	window int
	board  *signal.Board

	exp    atomic.Uint32 // number whose turn is next, ExpCmdSN
	max    atomic.Uint32 // greatest MaxCmdSN that was sent
	busy   atomic.Int32  // numbered requests whose turn has come, and that take a place of the window
	alone  atomic.Bool   // one of them permits no other beside it
	behind atomic.Int32  // immediate requests that wait for the turn of numbered ones

	members [MaxConnections]atomic.Pointer[Target]
	holders []atomic.Uint64 // by number modulo the length: who holds it (see holding); 0: nobody
}

// NewTargetSession makes the shared part of a session. next is the number of the first
// command. window is how many commands may be in progress over all connections.
func NewTargetSession(next seq.Num, window int, board *signal.Board) *TargetSession {
	size := 1
	for size < window {
		size *= 2
	}
	s := &TargetSession{window: window, board: board, holders: make([]atomic.Uint64, size)}
	s.exp.Store(uint32(next))
	s.max.Store(uint32(next.Add(seq.Len(window)) - 1))
	return s
}

// Numbers returns ExpCmdSN and MaxCmdSN. Any goroutine may call it.
func (s *TargetSession) Numbers() (exp, max seq.Num) { return s.next(), seq.Num(s.max.Load()) }

func (s *TargetSession) next() seq.Num { return seq.Num(s.exp.Load()) }

// claim is the result of a look at the turn of a number.
type claim uint8

const (
	turnEarly claim = iota // others are before it
	turnNow                // it is the caller's
	turnLate               // it was there already
)

// claim takes the turn of a number. alone is for a request that runs with no other beside
// it: its turn comes when all before it have ended, and that of the next when it has ended.
func (s *TargetSession) claim(n seq.Num, alone bool) claim {
	switch {
	case n.Before(s.next()):
		return turnLate
	case n != s.next() || s.alone.Load() || alone && s.busy.Load() != 0:
		return turnEarly
	}
	if alone {
		s.alone.Store(true)
	}
	s.busy.Add(1) // before the next number can see its turn
	if !s.exp.CompareAndSwap(uint32(n), uint32(n+1)) {
		s.leave(alone)
		return turnLate
	}
	s.goOn()
	s.wakeBehind()
	return turnNow
}

// leave ends what claim has begun: the request takes no place of the window any more.
func (s *TargetSession) leave(alone bool) {
	if alone {
		s.alone.Store(false)
	}
	s.busy.Add(-1)
	s.goOn()
}

// over holds numbers whose requests have ended.
const over = MaxConnections

// holding is the element of holders for a number that a member holds, or over.
func holding(n seq.Num, member int) uint64 { return uint64(n)<<32 | uint64(member) + 1 }

func (s *TargetSession) holder(n seq.Num) *atomic.Uint64 {
	return &s.holders[int(n)&(len(s.holders)-1)]
}

// hold says that a member has the number, whose turn has not come. The member must claim
// once more afterwards.
func (s *TargetSession) hold(n seq.Num, member int) { s.holder(n).Store(holding(n, member)) }

// drop undoes hold.
func (s *TargetSession) drop(n seq.Num, member int) {
	s.holder(n).CompareAndSwap(holding(n, member), 0)
}

// skip makes a number that no member holds wait for its turn, and end then.
func (s *TargetSession) skip(n seq.Num) {
	if s.holder(n).CompareAndSwap(0, holding(n, over)) {
		s.goOn()
	}
}

// abandon makes skip's number of one that the member holds, whose connection ends.
func (s *TargetSession) abandon(n seq.Num, member int) {
	if s.holder(n).CompareAndSwap(holding(n, member), holding(n, over)) {
		s.goOn()
	}
}

// goOn ends the turns of the numbers that have no request any more, and wakes the member
// that holds the number behind them. While a request runs alone, leave does that.
func (s *TargetSession) goOn() {
	skipped := false
	for {
		n := s.next() // before alone: a turn that comes in between has set that
		h := s.holder(n)
		x := h.Load()
		if x != holding(n, over) {
			if seq.Num(x>>32) == n && x != 0 {
				s.wake(int(uint32(x)) - 1)
			}
			break
		}
		if s.alone.Load() {
			break
		}
		if h.CompareAndSwap(x, 0) {
			s.exp.CompareAndSwap(uint32(n), uint32(n+1))
			skipped = true
		}
	}
	if skipped {
		s.wakeBehind()
	}
}

// wakeBehind wakes those that have immediate requests.
func (s *TargetSession) wakeBehind() {
	if s.behind.Load() == 0 {
		return
	}
	for i := range s.members {
		s.wake(i)
	}
}

func (s *TargetSession) wake(member int) {
	if t := s.members[member].Load(); t != nil {
		s.board.Raise(&t.Turn)
	}
}

// last returns the greatest number that the initiator may send. It never decreases.
// leaving says that the PDU that is being made ends a command of the window.
func (s *TargetSession) last(leaving bool) seq.Num {
	next := s.next() // before busy: a turn that comes in between must not count twice
	free := s.window - int(s.busy.Load())
	if leaving {
		free++
	}
	most := next.Add(seq.Len(max(0, free))) - 1
	for {
		old := s.max.Load()
		if !seq.Num(old).Before(most) || s.max.CompareAndSwap(old, uint32(most)) {
			return seq.Later(seq.Num(old), most)
		}
	}
}

// join makes a Target a member.
func (s *TargetSession) join(t *Target) (number int, ok bool) {
	for i := range s.members {
		if s.members[i].CompareAndSwap(nil, t) {
			return i, true
		}
	}
	return 0, false
}
