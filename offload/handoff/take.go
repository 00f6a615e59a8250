package handoff

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/tcp"
)

// Steps are the effects of a take-over outside the socket. Take calls the methods on
// its own goroutine.
type Steps interface {
	// Park makes the connection's segments reach the engine. The engine holds a limited
	// number of segments and drops all others. The peer retransmits dropped segments.
	// Before Park returns an error, it must undo all its effects.
	Park() error
	// Heard returns a channel. The channel is closed as soon as the first segment of
	// the connection after Park reaches an engine. That segment proves that the
	// connection's segments pass the XDP program.
	Heard() <-chan struct{}
	// Unpark undoes Park. The connection's segments reach the kernel again. The engine
	// drops parked segments.
	Unpark()
	// Install makes the engine run the connection from this state on. The engine begins
	// with the parked segments. Install takes ownership of p. Before Install returns an
	// error, it must undo all its effects except those that Unpark undoes. Take then
	// closes p.
	Install(state tcp.State, p *Placeholder) error
}

// Take moves the connection from the kernel to an engine. When Take returns nil, the
// Socket is used up and the engine owns the Placeholder. If the error is a *LostError,
// the connection is gone and the Socket is used up. After any other error the kernel
// continues the connection as before, and the caller may try Take again.
//
// The program must not read, write or close the connection's socket during Take. ctx
// limits the two waits: for the grace period, and for a segment of the peer. The rest
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

// capture does steps 3 to 5: it waits for a grace period and for a segment, and reads
// the state. If capture fails, it leaves the socket as it was and returns the step that
// failed.
func (s *Socket) capture(ctx context.Context, st Steps, grace *Grace) (state tcp.State, at Step, err error) {
	if err := s.inject(StepPark); err != nil {
		return state, StepPark, err
	}
	// The probe is sent first, so that the answer arrives during the grace period.
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

// replace does steps 6 and 7: it replaces the kernel's connection by a placeholder and
// installs the state.
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
	// The placeholder closes before the steering ends. The peer's next segment then
	// finds no socket, and the kernel resets the connection.
	if p != nil {
		err = errors.Join(err, p.Close())
	}
	st.Unpark()
	return &LostError{Tuple: s.tuple, Err: fmt.Errorf("%v: %w", step, err)}
}
