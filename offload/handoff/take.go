package handoff

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/tcp"
)

// Steps are a take-over's effects outside the socket. Take calls them on its
// own goroutine.
type Steps interface {
	// Park makes the connection's segments reach the engine, which holds them
	// (bounded; beyond, they are dropped and the peer retransmits). On error
	// nothing may be left of it.
	Park() error
	// Heard returns a channel that is closed when a segment of the connection has
	// reached an engine since Park. This proves that its segments pass the XDP
	// program.
	Heard() <-chan struct{}
	// Unpark undoes Park: segments reach the kernel again. Parked segments are
	// dropped.
	Unpark()
	// Install makes the engine run the connection from this state, beginning with
	// the parked segments. It owns p from then on. If it returns an error, it must
	// leave nothing but what Unpark undoes, and Take closes p.
	Install(state tcp.State, p *Placeholder) error
}

// Take moves the connection from the kernel to an engine. When it returns nil
// the Socket is used up and the engine owns the Placeholder. On error the
// connection lives on in the kernel as if nothing had been, and the Socket can
// be tried again, unless the error is a *LostError: then the connection is
// gone and the Socket used up.
//
// The program must not read, write or close the connection's socket meanwhile. ctx
// ends the two waits: for the grace period, and for a segment of the peer. The rest
// takes milliseconds.
func (s *Socket) Take(ctx context.Context, st Steps, grace *Grace) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.inject(StepCheck); err != nil {
		return s.failed(StepCheck, err)
	}
	if err := st.Park(); err != nil {
		return s.failed(StepPark, err)
	}
	state, step, err := s.capture(ctx, st, grace)
	if err != nil {
		st.Unpark()
		return s.failed(step, err)
	}
	return s.replace(state, st)
}

// failed adds the step and the connection to err.
func (s *Socket) failed(step Step, err error) error {
	return fmt.Errorf("take over %v to %v: %v: %w", s.tuple.Local, s.tuple.Remote, step, err)
}

// capture waits for a grace period and for a segment, and reads the state: steps
// 3 to 5. When it fails the socket is as it was, and the step says where.
func (s *Socket) capture(ctx context.Context, st Steps, grace *Grace) (state tcp.State, at Step, err error) {
	if err := s.inject(StepPark); err != nil {
		return state, StepPark, err
	}
	// The peer is asked first: its answer arrives during the grace period.
	if err := s.ask(st.Heard()); err != nil {
		return state, StepHear, err
	}
	if err := errors.Join(grace.Wait(ctx), s.inject(StepGrace)); err != nil {
		return state, StepGrace, err
	}
	if err := errors.Join(s.hear(ctx, st.Heard()), s.inject(StepHear)); err != nil {
		return state, StepHear, err
	}
	if err := s.enterRepair(); err != nil {
		return state, StepRepair, err
	}
	at = StepRepair
	if err = s.inject(StepRepair); err == nil {
		at = StepRead
		state, err = s.read()
	}
	if err == nil {
		err = errors.Join(state.Check(), s.inject(StepRead))
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = errors.Join(err, s.leaveRepair())
	}
	return state, at, err
}

// replace gives the kernel's connection up for a placeholder and installs the
// state: steps 6 and 7.
func (s *Socket) replace(state tcp.State, st Steps) error {
	step := StepReplace
	p, err := s.placeholder(state)
	if err == nil {
		step = StepInstall
		if err = s.inject(StepInstall); err == nil {
			err = st.Install(state, p)
		}
	}
	if err == nil {
		return nil
	}
	// First the placeholder, then the steering: what the peer sends next
	// finds no socket, and the kernel resets it.
	if p != nil {
		err = errors.Join(err, p.Close())
	}
	st.Unpark()
	return &LostError{Tuple: s.tuple, Err: fmt.Errorf("%v: %w", step, err)}
}
