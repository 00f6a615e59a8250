package nic

import (
	"context"
	"sync"
	"time"
)

// A take-over asks the peer for a segment. The answers to many take-overs at once must
// fit into the ring between the driver and the program, which has 256 places on a veth.
// Answers without room are lost, and Linux answers the same connection again only after
// 500 ms. At most unheardMost take-overs therefore wait for an answer at a time, each
// for unheardLong at most. A take-over whose peer is slower continues to wait without a
// turn.
const (
	unheardMost = 128
	unheardLong = 10 * time.Millisecond
)

// pace limits how many take-overs ask their peers at a time. Take-overs get their turns
// in order of arrival. A pace is safe for concurrent use.
type pace struct{ turns chan struct{} }

func newPace(most int) *pace { return &pace{turns: make(chan struct{}, most)} }

// enter waits for a turn, or returns ctx's error. leave ends the turn. Any goroutine
// may call leave any number of times.
func (p *pace) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.turns <- struct{}{}:
		return sync.OnceFunc(func() { <-p.turns }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
