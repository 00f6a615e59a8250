package rdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/work"
)

// SRQConfig is the configuration of an SRQ. A zero means the default.
type SRQConfig struct {
	Depth  int // receives that the SRQ can hold, 1 to Limits.MaxSRQDepth; 0 means 128
	MaxSGE int // elements of a receive's list; 0 means 4
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
// iWARP cannot tell the peer to wait. Post more receives in time: the event
// SRQLimitReached says when (SetLimit). A peer that sends without limit takes receives from
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
	mu     sync.Mutex // guards users and the change of closed; held briefly
	users  int        // QPs that use the SRQ
}

// CreateSRQ makes a shared receive queue. The lists of its receives name memory of regions
// of this PD. The QPs that use the SRQ may be of other PDs of the same adapter.
func (pd *PD) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	done, err := pd.adapter.device.Use()
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
	s := &SRQ{pd: pd, cfg: cfg, number: pd.adapter.lastSRQ.Add(1)}
	s.queue.Init(nil, cfg.Depth, cfg.MaxSGE, pd.adapter.board)
	s.queue.Low.Fire = s.low
	pd.adapter.mu.Lock()
	pd.adapter.srqs[s] = struct{}{}
	pd.adapter.mu.Unlock()
	return s, nil
}

// Number returns the SRQ's number in `stag show srqs`. No two SRQs of the adapter have the
// same number.
func (s *SRQ) Number() uint32 { return s.number }

// Config returns the SRQ's configuration with the defaults filled in.
func (s *SRQ) Config() SRQConfig { return s.cfg }

// Posted returns how many receives are posted and have not been taken by a QP.
func (s *SRQ) Posted() int { return s.queue.Len() }

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
	s.posting.Lock()
	good := 0
	for ; good < len(wrs); good++ {
		if err = checkRecv(a.table, &wrs[good], s.cfg.MaxSGE); err != nil {
			break
		}
	}
	n = s.queue.Post(wrs[:good])
	s.posting.Unlock()
	return n, result(s, "post receive", n, good, len(wrs), err)
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
	s.users++
	return nil
}

func (s *SRQ) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// Close closes the SRQ. Receives that are still posted get no completion, and the caller
// owns their memory again when Close returns. Close returns ErrInUse while QPs use the SRQ.
// Close may be called twice, and after the adapter's Close.
func (s *SRQ) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users != 0 {
		return fmt.Errorf("close SRQ: %w by %d QPs: close them first", ErrInUse, s.users)
	}
	if !s.closed.Swap(true) {
		s.pd.leave(&s.pd.srqs)
		s.pd.adapter.mu.Lock()
		delete(s.pd.adapter.srqs, s)
		s.pd.adapter.mu.Unlock()
	}
	return nil
}
