package demo

import (
	"context"

	"github.com/stag-rdma/stag/rdma"
)

// source fills memory with the pattern and gives it to the sink: it writes it, sends it,
// or tells the sink to read it. It uses a slot again when its own work request has
// completed and the sink has checked the message.
type source struct {
	*party
	plan
	begun   bool   // the sink has
	offered uint64 // messages
	free    uint64 // of them, those whose work requests have completed
	checked uint64 // of them, those that the sink has checked
}

// prepare posts receives for the notes of the sink: that it begins, and that it has
// checked a message.
func (s *source) prepare() error { return s.says(s.expect(1 + s.messages())) }

func (s *source) run(ctx context.Context) error {
	for s.checked < s.messages() || s.outstanding > 0 {
		for s.begun && s.offered < min(s.messages(), s.free+uint64(s.slots), s.checked+uint64(s.slots)) {
			s.seed.Fill(s.slot(s.data, s.offered), s.place(s.offered))
			if err := s.offer(s.offered); err != nil {
				return s.says(err)
			}
			s.offered++
		}
		if err := s.await(ctx, s.handle); err != nil {
			return s.says(err)
		}
	}
	return nil
}

// offer gives message n to the sink. A Write does not notify the sink: the Send after it
// is delivered when the Write has been placed.
func (s *source) offer(n uint64) error {
	switch s.op {
	case rdma.WRSend:
		return s.send(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, SGL: s.sge(s.data, n)})
	case rdma.WRWrite:
		return s.send(rdma.SendWR{
			Op: rdma.WRWrite, SGL: s.sge(s.data, n),
			RKey: s.theirs.key, RemoteAddr: s.theirs.addr + uint64(s.offset(n)),
		}, noteWR(s.op, n+1))
	}
	return s.tell(s.op, n+1)
}

func (s *source) handle(c *rdma.Completion) error {
	if c.Op != rdma.WCRecv {
		s.free++
		return nil
	}
	done, err := s.note(s.op, c)
	s.begun, s.checked = true, done
	return err
}
