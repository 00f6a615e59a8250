package ddp

import (
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// Segment is a DDP segment that has arrived. The header is in host form, and the
// payload is still in the receive buffer. A Segment is valid as long as its ULPDU is.
type Segment struct {
	Tagged  bool
	Last    bool // this is the last segment of its message
	Opcode  wire.Opcode
	Version uint8 // version of RDMAP

	STag tpt.STag // STag and TO are valid in tagged segments only
	TO   uint64

	Queue, MSN, MO uint32 // these three and Invalidate are valid in untagged segments only
	Invalidate     tpt.STag

	Payload []byte
	Header  []byte // the DDP header as it arrived: 14 or 18 octets
}

// Len returns the segment's length as a Terminate gives it (RFC 5040 §4.8): header and
// payload, in octets.
func (s *Segment) Len() int { return len(s.Header) + len(s.Payload) }

// Parse reads a ULPDU as a DDP segment. Parse checks the length and the DDP version.
// Queue.Expect checks the numbers of an untagged segment.
func Parse(ulpdu []byte, s *Segment) Fault {
	if wire.IsTagged(ulpdu) {
		return parseTagged(ulpdu, s)
	}
	h, payload, ok := wire.ParseUntagged(ulpdu)
	if !ok {
		return Short
	}
	s.Tagged, s.Last, s.Opcode, s.Version = false, h.Last(), h.Opcode(), h.RDMAPVersion()
	s.STag, s.TO = 0, 0
	s.Queue, s.MSN, s.MO, s.Invalidate = h.Queue(), h.MSN(), h.MO(), h.Invalidate()
	s.Payload, s.Header = payload, h.Bytes()
	if h.DDPVersion() != wire.DDPVersion {
		return UntaggedVersion
	}
	return OK
}

// parseTagged is Parse for a tagged segment. parseTagged writes s field by field,
// because building a Segment and copying it costs more than reading the header.
func parseTagged(ulpdu []byte, s *Segment) Fault {
	h, payload, ok := wire.ParseTagged(ulpdu)
	if !ok {
		return Short
	}
	s.Tagged, s.Last, s.Opcode, s.Version = true, h.Last(), h.Opcode(), h.RDMAPVersion()
	s.STag, s.TO = h.STag(), h.TO()
	s.Queue, s.MSN, s.MO, s.Invalidate = 0, 0, 0, 0
	s.Payload, s.Header = payload, h.Bytes()
	if h.DDPVersion() != wire.DDPVersion {
		return TaggedVersion
	}
	return OK
}

// Queue is the receiving end of one untagged queue. A Queue knows which segment must
// come next (RFC 5041 §4.3, §5.3). Segments must arrive in order, as the stream
// delivers them.
type Queue struct {
	msn   uint32 // MSN of the message that is arriving or comes next
	mo    uint32 // octets of that message that have arrived
	begun bool   // a segment of that message has arrived
}

// NewQueue returns a queue that waits for its first message. The MSN of that message is
// 1.
func NewQueue() Queue { return Queue{msn: 1} }

// Begun reports whether a message has begun to arrive and its last segment is still
// missing.
func (q *Queue) Begun() bool { return q.begun }

// Expect returns OK if s is the segment that must come next. Otherwise it returns the
// fault.
func (q *Queue) Expect(s *Segment) Fault {
	switch {
	case s.MSN != q.msn:
		return BadMSN
	case s.MO != q.mo:
		return BadMO
	case uint64(s.MO)+uint64(len(s.Payload)) > 1<<32-1:
		return TooLong
	}
	return OK
}

// Accept counts s. Expect must have returned OK for s. If s is the last segment of its
// message, Accept returns the message's length in octets and true.
func (q *Queue) Accept(s *Segment) (length uint32, complete bool) {
	q.mo += uint32(len(s.Payload))
	if q.begun = !s.Last; q.begun {
		return 0, false
	}
	length = q.mo
	q.msn, q.mo = q.msn+1, 0
	return length, true
}

// Code codes the state of the queue.
func (q *Queue) Code(c *pack.Coder) {
	pack.Uint(c, &q.msn)
	pack.Uint(c, &q.mo)
	c.Bool(&q.begun)
}
