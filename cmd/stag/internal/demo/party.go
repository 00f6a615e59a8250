package demo

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// party is one side of the connection that moves octets. Only one goroutine at a time may
// use it.
type party struct {
	side pair.Side
	*host
	data   *rdma.MR // memory with a slot for each message that can be outstanding
	inbox  *rdma.MR // memory with a slot for each note that can be outstanding
	theirs ticket   // region of the other side, if the other side allows access to it

	owed        uint64 // number of expected notes that have no receive yet
	outstanding uint64 // number of sends that have not completed
}

// A note is a short Send. It reports how many messages of an operation its sender has done:
//
//	0            8                16
//	| operation  | messages done  |
const noteLen = 16

func newParty(a *rdma.Adapter, side pair.Side, w window, access rdma.Access) (p *party, err error) {
	p = &party{side: side}
	if p.host, err = newHost(a, 4*w.slots+8, w.slots*w.message, access); err != nil {
		return nil, p.says(err)
	}
	p.data = p.ep.MR
	if p.inbox, err = p.memory(p.ep.PD, (w.slots+1)*noteLen, rdma.LocalWrite); err != nil {
		return nil, p.says(and(err, p.close()))
	}
	return p, nil
}

// says returns err with the name of the side in front.
func (p *party) says(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("side %v: %w", p.side, err)
}

// expect posts a receive for each slot of the inbox, but not more than n receives. n is
// the number of notes that will arrive in total.
func (p *party) expect(n uint64) error {
	room := min(n, uint64(p.inbox.Len()/noteLen))
	p.owed = n - room
	for slot := range room {
		if err := p.makeRoom(slot); err != nil {
			return err
		}
	}
	return nil
}

func (p *party) makeRoom(slot uint64) error {
	return p.receive(rdma.RecvWR{ID: slot, SGL: []rdma.SGE{p.inbox.SGE(int(slot)*noteLen, noteLen)}})
}

func (p *party) receive(wr rdma.RecvWR) error {
	_, err := p.ep.QP.PostRecv(wr)
	return err
}

// note returns the note that arrived with c, and frees its slot.
func (p *party) note(op rdma.WROp, c *rdma.Completion) (done uint64, err error) {
	b := p.inbox.Bytes()[c.ID*noteLen:][:noteLen]
	said := binary.BigEndian.Uint64(b)
	done = binary.BigEndian.Uint64(b[8:])
	if c.Length != noteLen || said != uint64(op) {
		return 0, fmt.Errorf("a note of %d octets about operation %d came instead of a note about %v", c.Length, said, op)
	}
	if p.owed > 0 {
		p.owed--
		err = p.makeRoom(c.ID)
	}
	return done, err
}

// tell reports to the other side how many messages of the operation this side has done.
func (p *party) tell(op rdma.WROp, done uint64) error { return p.send(noteWR(op, done)) }

func noteWR(op rdma.WROp, done uint64) rdma.SendWR {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, noteLen), uint64(op))
	return rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: binary.BigEndian.AppendUint64(b, done)}
}

// send posts requests. Only the last one is signaled, because it completes after the others.
func (p *party) send(wrs ...rdma.SendWR) error {
	_, err := p.ep.QP.PostSend(wrs...)
	if err == nil {
		p.outstanding++
	}
	return err
}

// await sleeps until there are completions, and handles them.
func (p *party) await(ctx context.Context, handle func(*rdma.Completion) error) error {
	if err := p.ep.SendCQ.Wait(ctx); err != nil {
		return err
	}
	var got [16]rdma.Completion
	for i := range got[:p.ep.SendCQ.Poll(got[:])] {
		c := &got[i]
		if c.Status != rdma.Success {
			return p.failed(ctx, c)
		}
		if c.Op != rdma.WCRecv {
			p.outstanding--
		}
		if err := handle(c); err != nil {
			return err
		}
	}
	return nil
}

// failed returns an error with the operation and the status of c, and with the error of
// the connection, which says more than the status.
func (p *party) failed(ctx context.Context, c *rdma.Completion) error {
	select {
	case <-p.ep.QP.Done():
	case <-ctx.Done():
	}
	if err := p.ep.QP.Err(); err != nil {
		return fmt.Errorf("%v: %v: %w", c.Op, c.Status, err)
	}
	return fmt.Errorf("%v: %v: the connection was closed too early", c.Op, c.Status)
}
