package ddp

import (
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// Message is a message to send. The sender cuts it into segments as the stream has
// room. The zero Message is finished.
type Message struct {
	Tagged bool
	Opcode wire.Opcode

	STag tpt.STag // STag and TO are valid in tagged messages only
	TO   uint64

	Queue, MSN uint32 // these two and Invalidate are valid in untagged messages only
	Invalidate tpt.STag

	Len uint32 // length of the payload in octets

	sent uint32
	open bool // the last segment has not been cut yet
}

// Begin prepares m for its first segment.
func (m *Message) Begin() { m.sent, m.open = 0, true }

// Open reports whether there are segments left to send.
func (m *Message) Open() bool { return m.open }

// Sent returns how many octets of payload have been cut into segments.
func (m *Message) Sent() uint32 { return m.sent }

// HeaderLen returns the length in octets of the header of each segment.
func (m *Message) HeaderLen() int {
	if m.Tagged {
		return wire.TaggedLen
	}
	return wire.UntaggedLen
}

// Next returns how many octets of payload the next segment carries if a ULPDU has room
// for maxULPDU octets. maxULPDU must be more than HeaderLen.
func (m *Message) Next(maxULPDU int) int {
	return int(min(uint64(m.Len-m.sent), uint64(maxULPDU-m.HeaderLen())))
}

// Cut appends the header of the next segment to b. The segment carries n octets of
// payload. Cut advances m past that segment.
func (m *Message) Cut(b []byte, n int) []byte {
	at := m.sent
	m.sent += uint32(n)
	last := m.sent == m.Len
	m.open = !last
	if m.Tagged {
		return wire.TaggedFields{Last: last, Opcode: m.Opcode, STag: m.STag, TO: m.TO + uint64(at)}.Append(b)
	}
	return wire.UntaggedFields{
		Last: last, Opcode: m.Opcode, Invalidate: m.Invalidate, Queue: m.Queue, MSN: m.MSN, MO: at,
	}.Append(b)
}

// Code codes the message, and how much of it has been cut into segments.
func (m *Message) Code(c *pack.Coder) {
	c.Bool(&m.Tagged)
	pack.Uint(c, &m.Opcode)
	pack.Uint(c, &m.STag)
	pack.Uint(c, &m.TO)
	pack.Uint(c, &m.Queue)
	pack.Uint(c, &m.MSN)
	pack.Uint(c, &m.Invalidate)
	pack.Uint(c, &m.Len)
	pack.Uint(c, &m.sent)
	c.Bool(&m.open)
	if m.sent > m.Len {
		c.Fail("%d octets of a message of %d were sent", m.sent, m.Len)
	}
}
