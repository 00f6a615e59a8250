package iser

import (
	"slices"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/tpt"
)

// mostExiles is how many canceled commands may have no answer when a command leaves. With
// the commands of all slots, no more than slots + mostExiles have none.
const mostExiles = 32

// exile is a canceled command that the target has not answered. Its loan leads to memory
// that nobody needs, because an access to an STag that is not valid ends the connection (RFC
// 5040 §7). The exile ends with the answer to the command, or to the request that aborts it.
type exile struct {
	index int     // of the table's loan; noLoan: none
	tag   pdu.Tag // of the command
	by    pdu.Tag // of the request that aborts it; NoTag: it has not left
}

// lend lends the buffers of a command.
func (x *Initiator) lend(d *flow.Departure) (tpt.STag, error) {
	l := &x.lent[d.Slot]
	l.pieces, l.octets, l.receive = d.Buffers, d.Octets, !d.Write
	l.index, x.idle = x.idle[len(x.idle)-1], x.idle[:len(x.idle)-1]
	right := tpt.RemoteRead
	if l.receive {
		right = tpt.RemoteWrite
	}
	pieces := whole(d.Buffers)
	var err error
	if pieces != nil {
		if l.stag, err = x.loans.Lend(l.index, pieces, right); err == nil {
			return l.stag, nil
		}
	}
	l.bounce = make([]byte, d.Octets)
	if d.Write && !flow.Gather(l.bounce, d.Buffers) {
		return 0, ErrData
	}
	l.list[0] = l.bounce
	l.stag, err = x.loans.Lend(l.index, l.list[:], right)
	return l.stag, err
}

// whole returns the pieces that have octets, or nil if no page list can have them: all but
// the first and the last are to be whole pages.
func whole(pieces [][]byte) [][]byte {
	for i, p := range pieces {
		if len(p) == 0 {
			return whole(without(pieces))
		}
		if i != 0 && i != len(pieces)-1 && len(p)%tpt.MinPageSize != 0 {
			return nil
		}
	}
	return pieces
}

func without(pieces [][]byte) (list [][]byte) {
	for _, p := range pieces {
		if len(p) != 0 {
			list = append(list, p)
		}
	}
	return list
}

// Withdraw implements flow.Datamover.
func (x *Initiator) Withdraw(slot int, placed uint32) bool {
	l := &x.lent[slot]
	if l.pieces == nil {
		return true
	}
	x.recall(l.index, x.ended == l.stag && x.ended != 0)
	ok := l.bounce == nil || !l.receive || flow.Scatter(l.pieces, l.bounce[:placed])
	*l = loan{}
	return ok
}

// noLoan is the index of no loan.
const noLoan = -1

// recall ends a loan.
func (x *Initiator) recall(index int, ended bool) {
	x.loans.Recall(index, ended)
	x.idle = append(x.idle, index)
}

// Credit implements flow.Datamover: there are receives for the answers, and loans.
func (x *Initiator) Credit() bool { return len(x.exiles) < mostExiles }

// Divert implements flow.Datamover. If the target has ended the loan itself, its next access
// ends the connection.
func (x *Initiator) Divert(slot int, tag pdu.Tag) {
	l := &x.lent[slot]
	e := exile{l.index, tag, pdu.NoTag}
	switch {
	case l.pieces == nil:
		e.index = noLoan
	case !x.replace(l):
		x.recall(l.index, false)
		e.index = noLoan
	}
	x.exiles = append(x.exiles, e)
	*l = loan{}
}

// replace makes a loan lead to other memory. That of a write has the same octets. What the
// target writes is nobody's, so reads share their memory.
func (x *Initiator) replace(l *loan) bool {
	n := int(l.octets)
	switch {
	case l.bounce != nil:
		return true // it is nobody's buffer
	case !l.receive:
		mem := make([]byte, n)
		return flow.Gather(mem, l.pieces) && x.loans.Replace(l.index, mem)
	case len(x.scrap) < n:
		x.scrap = make([]byte, n)
	}
	return x.loans.Replace(l.index, x.scrap[:n:n])
}

// note takes note of a request that aborts a canceled command.
func (x *Initiator) note(h *pdu.Header) {
	for i := range x.exiles {
		if e := &x.exiles[i]; h.Function() == pdu.AbortTask && e.tag == h.ReferencedTaskTag() {
			e.by = h.InitiatorTaskTag()
		}
	}
}

// pardon ends the loan of a canceled command: the target has answered the command, or the
// request that aborts it.
func (x *Initiator) pardon(tag pdu.Tag) {
	if len(x.exiles) == 0 || tag == pdu.NoTag {
		return
	}
	x.exiles = slices.DeleteFunc(x.exiles, func(e exile) bool {
		over := e.tag == tag || e.by == tag
		if over && e.index != noLoan {
			x.recall(e.index, false)
		}
		return over
	})
}
