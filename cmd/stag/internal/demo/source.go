package demo

import (
	"context"

	"github.com/stag-rdma/stag/rdma"
)

// source fills slots of its memory with the pattern and gives the messages to the sink:
// by a Write, by a Send, or by a note that lets the sink read the message. It uses a
// slot again when the work request of the message has completed and the sink has
// checked the message.
type source struct {
	*party
	plan
	begun   bool   // the sink has begun
	offered uint64 // number of messages that were given to the sink
	free    uint64 // number of offered messages whose work requests have completed
	checked uint64 // number of offered messages that the sink has checked
}

// prepare posts receives for the notes of the sink: one when the sink begins, and one for
// each message that the sink has checked.
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

// offer gives message n to the sink. A Write does not notify the sink. Therefore a Send
// follows the Write. The Send is delivered after the Write has been placed.
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
