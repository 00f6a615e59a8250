package iser

import (
	"errors"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/rdma"
)

// Message is a control PDU that has arrived. Its memory is the Channel's, until Release.
type Message struct {
	ISER        pdu.ISER
	PDU         *pdu.Header
	AHS, Data   []byte
	Invalidated rdma.STag // that the Send has invalidated; 0: none

	number int
	whole  []byte // the PDU with its header
}

// octets returns the PDU as a stream has it: with a pad, and without digests.
func (m *Message) octets() []byte { return m.whole }

// Event is what Poll returns: a message, or the completion of a work request of the owner.
type Event struct {
	Message Message         // valid if PDU is not nil
	Done    rdma.Completion // otherwise
}

// Errors of messages. The connection cannot go on after them.
var (
	ErrShort  = errors.New("iser: a message ends within the headers of its PDU")
	ErrHeader = errors.New("iser: a message does not begin with the header of a control PDU (RFC 7145 §9.2)")
	ErrLength = errors.New("iser: the length of a message is not that of its PDU")
	ErrOpcode = errors.New("iser: a message has an opcode that iSER does not have, or more than the opcode allows")
)

// ErrRoom is the error of Send if all memory for sends is in use. Room says so before.
var ErrRoom = errors.New("iser: too many control PDUs are on their way")

// parse reads a message.
func parse(b []byte) (m Message, err error) {
	var rest []byte
	var ok bool
	if len(b) < pdu.ISERHeaderLen+pdu.HeaderLen {
		return m, ErrShort
	}
	if m.ISER, rest, ok = pdu.ParseISER(b); !ok || m.ISER.Op() != pdu.ISERControl {
		return m, ErrHeader
	}
	h := (*pdu.Header)(rest)
	rest = rest[pdu.HeaderLen:]
	ahs, n := h.AHSLength(), h.DataLength()
	if len(rest) != ahs+n && len(rest) != ahs+pdu.Padded(n) {
		return m, ErrLength
	}
	info := pdu.InfoOf(h.Opcode())
	switch {
	case info.Name == "", h.Opcode() == pdu.OpDataIn, h.Opcode() == pdu.OpR2T, ahs != 0 && !info.AHS, n != 0 && !info.Data:
		return m, ErrOpcode
	}
	m.PDU, m.AHS, m.Data = h, rest[:ahs:ahs], rest[ahs:ahs+n:ahs+n]
	if end := pdu.ISERHeaderLen + pdu.HeaderLen + ahs + pdu.Padded(n); end <= cap(b) {
		m.whole = b[pdu.ISERHeaderLen:end]
	}
	return m, nil
}

// Poll returns the next message or completion. ok is false if there is none: News then tells
// of the next one. After an error the owner ends the connection. Completions of a connection
// that has ended have a status other than Success.
func (ch *Channel) Poll(e *Event) (ok bool, err error) {
	for {
		if ch.next == ch.n && !ch.refill() {
			return false, nil
		}
		c := &ch.got[ch.next]
		ch.next++
		switch {
		case c.ID < ownIDs:
			e.Message, e.Done = Message{}, *c
			return true, nil
		case c.ID&receives == 0:
			ch.left(c.ID &^ sends)
		case c.Status == rdma.Success:
			i := int(c.ID &^ receives)
			if e.Message, err = parse(ch.in[i].bytes()[:c.Length]); err != nil {
				return false, err
			}
			e.Message.number, e.Message.Invalidated = i, c.Invalidated
			return true, nil
		}
	}
}

// refill polls the CQ. It returns false if the CQ is empty, and armed.
func (ch *Channel) refill() bool {
	ch.next = 0
	if ch.n = ch.cq.Poll(ch.got[:]); ch.n == 0 {
		ch.cq.Arm(false)
		ch.n = ch.cq.Poll(ch.got[:])
	}
	return ch.n != 0
}

// Release gives the memory of a message back, and posts it for another message.
func (ch *Channel) Release(m *Message) error { return ch.post(m.number) }

// Room reports whether Send takes a message with a data segment of n octets, and additional
// header segments of ahs octets. If it does not, there will be News when it does.
func (ch *Channel) Room(ahs, n int) bool {
	return ch.posted-ch.done < uint64(ch.cfg.Sends+ch.cfg.Work) && (fits(ahs, n) || ch.pick(n) >= 0)
}

// The ID of a message that leaves has its number and its place.
const (
	placeBits = 14 // as many as a queue can have
	noPlace   = 1<<placeBits - 1
)

// left takes note of a message that has left: those before it have left too.
func (ch *Channel) left(id uint64) {
	if i := int(id & noPlace); i != noPlace {
		ch.free = append(ch.free, i)
	}
	ch.done = id >> placeBits
}

// send posts a message. One of a few is signaled, so that there is News of room.
func (ch *Channel) send(wr *rdma.SendWR, place int) error {
	number := ch.posted + 1
	wr.ID = sends | number<<placeBits | uint64(place)
	if place != noPlace || number-ch.signaled > uint64(ch.cfg.Sends+ch.cfg.Work)/4 {
		wr.Flags = rdma.Signaled
	}
	list := ch.wr[1:]
	if ch.ahead {
		list = ch.wr[:]
	}
	ch.ahead = false
	if err := ch.postSend(list); err != nil {
		return err
	}
	if ch.posted = number; wr.Flags != 0 {
		ch.signaled = number
	}
	return nil
}

// pick returns the index in free of a place for a data segment of n octets, or -1.
func (ch *Channel) pick(n int) int {
	for i := len(ch.free) - 1; i >= 0; i-- {
		if front+n <= ch.out[ch.free[i]].size {
			return i
		}
	}
	return -1
}

// fits reports whether a message is short.
func fits(ahs, n int) bool { return pdu.ISERHeaderLen+pdu.HeaderLen+ahs+n <= shortLength }

// ErrData is the error of Send if fill fails.
var ErrData = errors.New("iser: the data of a control PDU cannot be read")

// Send sends a control PDU: the iSER header with the fields f, the header, additional header
// segments, and n octets of data, which fill puts into its argument. Send sets the lengths in
// the header. If invalidate is not 0, the message invalidates that STag of the peer.
// The octets are free when Send returns. Errors: ErrRoom, ErrData, and those of QP.PostSend.
func (ch *Channel) Send(f *pdu.ISERFields, h *pdu.Header, ahs []byte, n int, fill func([]byte) bool, invalidate rdma.STag) error {
	h.SetAHSLength(len(ahs))
	h.SetDataLength(n)
	wr := &ch.wr[1]
	*wr = rdma.SendWR{Op: rdma.WRSend}
	if invalidate != 0 {
		wr.Op, wr.Invalidate = rdma.WRSendInvalidate, invalidate
	}
	if fits(len(ahs), n) {
		b, ok := gather(ch.short[:], f, h, ahs, n, fill)
		if !ok {
			return ErrData
		}
		wr.Inline = b
		return ch.send(wr, noPlace)
	}
	at := ch.pick(n)
	if at < 0 {
		return ErrRoom
	}
	i := ch.free[at]
	p := ch.out[i]
	b, ok := gather(p.bytes(), f, h, ahs, n, fill)
	if !ok {
		return ErrData
	}
	ch.sge[0] = p.sge(len(b))
	wr.SGL = ch.sge[:]
	if err := ch.send(wr, i); err != nil {
		return err
	}
	ch.free = append(ch.free[:at], ch.free[at+1:]...)
	return nil
}

// Ahead makes a work request of the owner leave before the message of the next Send, in one
// post with it.
func (ch *Channel) Ahead(wr rdma.SendWR) { ch.wr[0], ch.ahead = wr, true }

// gather writes a message to b, and returns it.
func gather(b []byte, f *pdu.ISERFields, h *pdu.Header, ahs []byte, n int, fill func([]byte) bool) (_ []byte, ok bool) {
	front := append(f.Append(b[:0]), h[:]...)
	front = append(front, ahs...)
	b = b[:len(front)+n]
	return b, n == 0 || fill(b[len(front):])
}
