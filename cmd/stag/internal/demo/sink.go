package demo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/gaps"
	"github.com/stag-rdma/stag/rdma"
)

// sink checks arriving octets against the pattern while further messages are outstanding.
type sink struct {
	*party
	plan
	checked uint64 // number of messages that have been checked
	ended   time.Time

	reached atomic.Uint64 // number of octets that have been checked; watch reads it
	gaps    *gaps.Meter   // measures the gaps between messages; nil: not measured
}

// prepare posts the receives that the source needs: for the messages of a Send, or for the
// notes about messages.
func (s *sink) prepare() error {
	if s.op != rdma.WRSend {
		return s.says(s.expect(s.messages()))
	}
	for n := range min(s.messages(), uint64(s.slots)) {
		if err := s.makeRoomFor(n); err != nil {
			return s.says(err)
		}
	}
	return nil
}

// makeRoomFor posts the receive for message n of a Send.
func (s *sink) makeRoomFor(n uint64) error {
	return s.receive(rdma.RecvWR{ID: n, SGL: s.sge(s.data, n)})
}

func (s *sink) run(ctx context.Context) error {
	if err := s.tell(s.op, 0); err != nil {
		return s.says(err)
	}
	for s.checked < s.messages() || s.outstanding > 0 {
		if err := s.await(ctx, s.handle); err != nil {
			return s.says(err)
		}
	}
	return nil
}

func (s *sink) handle(c *rdma.Completion) error {
	switch {
	case c.Op == rdma.WCRead:
		return s.check(c.ID, c.Length)
	case c.Op != rdma.WCRecv:
		return nil
	case s.op == rdma.WRSend:
		return s.check(c.ID, c.Length)
	}
	done, err := s.note(s.op, c)
	switch {
	case err != nil:
		return err
	case done == 0 || done > s.messages():
		return fmt.Errorf("the note says that %d of %d messages are there", done, s.messages())
	case s.op == rdma.WRRead:
		return s.fetch(done - 1)
	}
	return s.check(done-1, uint32(s.length(done-1)))
}

// fetch posts the Read of message n.
func (s *sink) fetch(n uint64) error {
	return s.send(rdma.SendWR{
		ID: n, Op: rdma.WRRead, Flags: rdma.Signaled, SGL: s.sge(s.data, n),
		RKey: s.theirs.key, RemoteAddr: s.theirs.addr + uint64(s.offset(n)),
	})
}

// check compares the octets of message n with the pattern, and tells the source that
// the slot is free.
func (s *sink) check(n uint64, got uint32) error {
	want := s.length(n)
	switch {
	case n != s.checked:
		return fmt.Errorf("message %d of the %v came instead of message %d", n, s.op, s.checked)
	case int(got) != want:
		return fmt.Errorf("message %d of the %v has %d octets, want %d", n, s.op, got, want)
	}
	if i := s.seed.Differs(s.slot(s.data, n), s.place(n)); i >= 0 {
		return fmt.Errorf("octet %d of the %v is not what was sent", s.place(n)+uint64(i), s.op)
	}
	s.checked++
	s.reached.Add(uint64(want))
	if s.gaps != nil {
		s.gaps.Arrive(uint64(want))
	}
	if s.checked == s.messages() {
		s.ended = time.Now()
	}
	if next := n + uint64(s.slots); s.op == rdma.WRSend && next < s.messages() {
		if err := s.makeRoomFor(next); err != nil {
			return err
		}
	}
	return s.tell(s.op, s.checked)
}
