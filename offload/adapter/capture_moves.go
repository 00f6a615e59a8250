package adapter

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
)

// Captures tell of moves of connections between ports, so that a trace shows why the
// packets of a connection go on at another port.

// maxMoved is how many moves are kept for captures that have not read them yet.
const maxMoved = 4096

// movedFlow is a move while a capture ran.
type movedFlow struct {
	flow engine.FlowID
	at   clock.Instant
	what report.Move
}

// addMove keeps a move for the running captures.
func (c *captures) addMove(from, to string, m nic.Movement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 || m.Err != nil {
		return
	}
	if len(c.moved) == maxMoved {
		c.moved = c.moved[:copy(c.moved, c.moved[1:])]
		c.before++
	}
	c.moved = append(c.moved, movedFlow{m.Flow.ID(), m.At, report.Move{
		Flow: uint32(m.Flow.ID()), From: from, To: to, Cause: m.Cause.String(), Frozen: uint64(m.Frozen.Microseconds()),
	}})
}

// movesSince returns the moves from number n on, and the number of the next move.
func (c *captures) movesSince(n uint64) (list []movedFlow, next uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = c.before + uint64(len(c.moved))
	if n = max(n, c.before); n < next {
		list = append(list, c.moved[n-c.before:]...)
	}
	return list, next
}

// takeMoves returns the moves since the last call that the filter selects.
func (c *capture) takeMoves() (list []report.Move) {
	all, next := c.adapter.tapped.movesSince(c.nextMove)
	c.nextMove = next
	for _, m := range all {
		if c.flow != 0 && m.flow != c.flow {
			continue
		}
		m.what.At = c.epoch.Add(m.at.Sub(c.zero))
		list = append(list, m.what)
	}
	return list
}
