package iser

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// Machine is a part of a login, or of a discovery session, of either role.
type Machine interface {
	// Step takes a PDU of the peer, and appends the answer to out.
	Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error)
}

// Converse sends the first PDU, unless first is empty, and then runs the machine with each
// PDU of the peer until the machine is done. If ready is not nil, Converse calls it between
// the end of the machine and its last answer. News must not be set.
func (ch *Channel) Converse(ctx context.Context, first []byte, m Machine, ready func() error) error {
	out := first
	for {
		if err := ch.SendAll(out); err != nil {
			return err
		}
		msg, err := ch.Next(ctx)
		if err != nil {
			return err
		}
		var done bool
		out, done, err = m.Step(msg.PDU, msg.Data, out[:0])
		if err == nil && done && ready != nil {
			err = ready()
		}
		if again := ch.Release(&msg); err == nil {
			err = again
		}
		if sent := ch.SendAll(out); err == nil && done {
			return sent
		}
		if err != nil {
			return err
		}
		out = out[:0]
	}
}

// SendAll sends PDUs without digests, one message each.
func (ch *Channel) SendAll(octets []byte) error {
	for len(octets) != 0 {
		p, rest, ok := pdu.Parse(pdu.Digests{}, octets)
		if !ok {
			return ErrShort
		}
		octets = rest
		data := p.Data()
		err := ch.Send(&pdu.ISERFields{}, p.Header(), p.AHS(), len(data), func(b []byte) bool { copy(b, data); return true }, 0)
		if err != nil {
			return err
		}
	}
	return nil
}

// Next waits for the next message. News must not be set.
func (ch *Channel) Next(ctx context.Context) (Message, error) {
	for {
		var e Event
		switch ok, err := ch.Poll(&e); {
		case err != nil:
			return Message{}, err
		case ok && e.Message.PDU != nil:
			return e.Message, nil
		case ok:
			continue
		}
		select {
		case <-ch.wake:
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		case <-ch.qp.Done():
			return Message{}, ch.ended()
		}
	}
}

// ended returns the error of a connection that has ended.
func (ch *Channel) ended() error {
	if err := ch.qp.Err(); err != nil {
		return fmt.Errorf("iser: the connection has ended: %w", err)
	}
	return errors.New("iser: the peer has closed the connection")
}
