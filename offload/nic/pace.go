package nic

import (
	"context"
	"sync"
	"time"
)

// A take-over asks the peer for a segment, and the answers of many at once must
// find room in the ring between the driver and the program: 256 places on a veth.
// Without room they are lost, and Linux answers the same connection again after
// 500 ms only. So no more than unheardMost take-overs are at this point at a time,
// each for unheardLong at most: a peer that takes longer has its answers to itself.
const (
	unheardMost = 128
	unheardLong = 10 * time.Millisecond
)

// pace lets take-overs ask, in their order of arrival. It is safe for concurrent use.
type pace struct{ turns chan struct{} }

func newPace(most int) *pace { return &pace{turns: make(chan struct{}, most)} }

// enter waits for a turn, or returns ctx's error. leave ends the turn, and may be
// called by any goroutine, any number of times.
func (p *pace) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.turns <- struct{}{}:
		return sync.OnceFunc(func() { <-p.turns }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
