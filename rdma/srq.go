package rdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/work"
)

// SRQConfig is the configuration of an SRQ. A zero means the default.
type SRQConfig struct {
	Depth  int // receives that the SRQ can hold, 1 to Limits.MaxSRQDepth; 0 means 128
	MaxSGE int // elements of a receive's list; 0 means 4

	// Rings has memory for the receives, Rings.Recv, that another process maps too, and to
	// which it posts them. nil means memory of the adapter. Rings.Send must be nil.
	Rings *Rings
}

// fill sets the defaults of c, or returns one error with every invalid field in it.
func (c SRQConfig) fill() (SRQConfig, error) {
	if c.Depth == 0 {
		c.Depth = presetDepth
	}
	if c.MaxSGE == 0 {
		c.MaxSGE = presetSGE
	}
	var errs []error
	if c.Depth < 1 || c.Depth > maxSRQDepth {
		errs = append(errs, fmt.Errorf("Depth is %d: choose 1 to %d", c.Depth, maxSRQDepth))
	}
	if c.MaxSGE < 1 || c.MaxSGE > maxSGE {
		errs = append(errs, fmt.Errorf("MaxSGE is %d: choose 1 to %d", c.MaxSGE, maxSGE))
	}
	return c, errors.Join(errs...)
}

// SRQ is a shared receive queue (ibv_create_srq): a queue of receives from which several
// QPs take (QPConfig.SRQ). The memory of receives that wait then depends on the messages
// that arrive and not on the number of connections.
//
// A QP takes the oldest receive when the first segment of a Send arrives. The completion
// comes to the RecvCQ of that QP and has its number. Receives that several QPs have taken
// complete in any order. A place of the SRQ is free again when the completion of its
// receive has been polled. A CQ cannot be overrun if it has room for the Depth of the SRQ
// and for its other queues.
//
// A Send that finds the SRQ empty ends its connection, as with a QP's own receive queue:
// iWARP cannot tell the peer to wait. With QPConfig.Hold it waits for the next post. Post
// more receives in time: the event SRQLimitReached says when (SetLimit). A peer that sends without limit takes receives from
// all other peers of the SRQ (RFC 5042 §6.4.3.1). Peers that do not trust each other need
// SRQs of their own. The completions say which QP has taken how many receives.
//
// When a QP of an SRQ ends, the receives in the SRQ stay posted. The event
// QPLastWQEReached says that the QP has completed the last receive that it took. An SRQ is
// safe for concurrent use.
type SRQ struct {
	pd     *PD
	cfg    SRQConfig
	number uint32
	queue  work.SharedQueue

	posting sync.Mutex // a post holds this lock; no engine takes it

	closed atomic.Bool
	mu     sync.Mutex       // guards users and the change of closed; held briefly
	users  map[*QP]struct{} // QPs that use the SRQ
}

// CreateSRQ makes a shared receive queue. The lists of its receives name memory of regions
// of this PD. The QPs that use the SRQ may be of other PDs of the same adapter.
func (pd *PD) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	if err := pd.adapter.refuse("create SRQ"); err != nil {
		return nil, err
	}
	done, err := pd.adapter.use()
	if err != nil {
		return nil, fmt.Errorf("create SRQ: %w", err)
	}
	defer done()
	cfg, err = cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("create SRQ: %w", err)
	}
	if err := pd.enter(&pd.srqs); err != nil {
		return nil, fmt.Errorf("create SRQ: %w", err)
	}
	ring, err := cfg.layRings()
	if err != nil {
		pd.leave(&pd.srqs)
		return nil, fmt.Errorf("create SRQ: %w", err)
	}
	return pd.newSRQ(pd.adapter.lastSRQ.Add(1), cfg, ring), nil
}

func (pd *PD) newSRQ(number uint32, cfg SRQConfig, ring *work.Ring) *SRQ {
	s := &SRQ{pd: pd, cfg: cfg, number: number, users: map[*QP]struct{}{}}
	s.queue.Init(ring, cfg.Depth, cfg.MaxSGE, pd.adapter.board)
	s.queue.Low.Fire = s.low
	pd.adapter.mu.Lock()
	pd.adapter.srqs[s] = struct{}{}
	pd.adapter.mu.Unlock()
	return s
}

// Number returns the SRQ's number in `stag show srqs`. No two SRQs of the adapter have the
// same number.
func (s *SRQ) Number() uint32 { return s.number }

// Config returns the SRQ's configuration with the defaults filled in.
func (s *SRQ) Config() SRQConfig { return s.cfg }

// Posted returns how many receives are posted and have not been taken by a QP.
func (s *SRQ) Posted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posted()
}

// posted is Posted. The caller must hold s.mu. The memory of a closed SRQ may be gone.
func (s *SRQ) posted() int {
	if s.cfg.Rings != nil && s.closed.Load() {
		return 0
	}
	return s.queue.Len()
}

// PostRecv posts receives, in order, and returns how many it took (ibv_post_srq_recv). Any
// goroutine may call PostRecv at any time, also before a QP uses the SRQ. The receives of
// one call stay together.
//
// If a receive is malformed (ErrBadWR), PostRecv posts those before it. If the SRQ has too
// little room (ErrQueueFull), PostRecv posts the receives that fit. The error is a
// *PostError with the index of the first receive that was not posted. After Close, and
// after the adapter's Close, PostRecv posts nothing (ErrClosed).
//
// The adapter owns the memory that the lists name until the receive's completion, or until
// the SRQ's Close. The right LocalWrite is needed. It is checked when a message arrives: a
// receive without it completes with LocalProtErr or LocalAccessErr, and ends the connection
// of the QP that took it.
func (s *SRQ) PostRecv(wrs ...RecvWR) (n int, err error) {
	a := s.pd.adapter
	if s.closed.Load() || a.device.Life().Err() != nil {
		return 0, unposted(s, "post receive", 0, len(wrs), fmt.Errorf("the SRQ is %w", ErrClosed))
	}
	if s.cfg.Rings != nil {
		return 0, unposted(s, "post receive", 0, len(wrs), ErrMapped)
	}
	s.posting.Lock()
	if a.left.Load() {
		s.posting.Unlock()
		return 0, unposted(s, "post receive", 0, len(wrs), ErrHandedOver)
	}
	good := 0
	for ; good < len(wrs); good++ {
		if err = checkRecv(a.table, &wrs[good], s.cfg.MaxSGE); err != nil {
			break
		}
	}
	n = s.queue.Post(wrs[:good])
	s.posting.Unlock()
	s.wake()
	return n, result(s, "post receive", n, good, len(wrs), err)
}

// Ring says that the tail of the SRQ's Rings has moved. Ring does not block. Any goroutine
// may call it, also the function ring of a Bell.
func (s *SRQ) Ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() { // the memory of a closed SRQ may be gone
		s.wakeAll()
	}
}

// wake wakes the QPs that wait for a receive (QPConfig.Hold), after a post.
func (s *SRQ) wake() {
	if s.queue.Waits() {
		s.Ring()
	}
}

// wakeAll is wake. The caller must hold s.mu. A QP that is woken and finds no receive waits
// again.
func (s *SRQ) wakeAll() {
	if !s.queue.TakeWaits() {
		return
	}
	for qp := range s.users {
		if qp.machine.Holding() != clock.Never {
			qp.ring()
		}
	}
}

// name implements poster.
func (s *SRQ) name() string { return fmt.Sprintf("SRQ %d", s.number) }

// SetLimit asks for the event SRQLimitReached (ibv_modify_srq with IBV_SRQ_LIMIT). The
// event comes once, as soon as fewer than limit receives are posted: at once if that is
// true now. SetLimit then must be called again. 0 asks for no event. limit is 0 to the
// SRQ's Depth.
func (s *SRQ) SetLimit(limit int) error {
	if limit < 0 || limit > s.cfg.Depth {
		return fmt.Errorf("limit of SRQ %d: %d: choose 0 to %d (Depth)", s.number, limit, s.cfg.Depth)
	}
	defer s.pd.adapter.still()()
	s.mu.Lock() // Close waits: the memory of a closed SRQ may be gone
	defer s.mu.Unlock()
	if s.closed.Load() {
		return fmt.Errorf("limit of SRQ %d: the SRQ is %w", s.number, ErrClosed)
	}
	s.queue.Arm(limit)
	s.pd.adapter.board.Deliver()
	return nil
}

// Limit returns the limit of SetLimit, or 0 if the event has come since.
func (s *SRQ) Limit() int { return s.queue.Limit() }

// low runs after a step, or a SetLimit, that has found too few receives. low does not
// block.
func (s *SRQ) low() { s.pd.adapter.events.add(Event{Type: SRQLimitReached, SRQ: s}) }

// join counts one more QP that uses the SRQ.
func (s *SRQ) join(qp *QP) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pd.adapter != qp.adapter:
		return errors.New("the SRQ is another adapter's")
	case s.closed.Load():
		return fmt.Errorf("the SRQ is %w", ErrClosed)
	}
	s.users[qp] = struct{}{}
	return nil
}

func (s *SRQ) leave(qp *QP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, qp)
}

// Close closes the SRQ. Receives that are still posted get no completion, and the caller
// owns their memory again when Close returns. Close returns ErrInUse while QPs use the SRQ.
// Close may be called twice, and after the adapter's Close.
func (s *SRQ) Close() error {
	defer s.pd.adapter.still()()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.users) != 0 {
		return fmt.Errorf("close SRQ: %w by %d QPs: close them first", ErrInUse, len(s.users))
	}
	if !s.closed.Swap(true) {
		s.pd.leave(&s.pd.srqs)
		s.pd.adapter.mu.Lock()
		delete(s.pd.adapter.srqs, s)
		s.pd.adapter.mu.Unlock()
	}
	return nil
}
