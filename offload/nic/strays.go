package nic

import (
	"context"
	"sync"
	"time"
)

// A take-over has seen that segments of the connection pass the program. Later the
// segments may take another way and reach the placeholder, which drops them. The
// connection then receives nothing, so that only the placeholder shows why.

const (
	// strayEvery is how often placeholders are read.
	strayEvery = time.Second
	// strayLines is how many flows the log names in one strayPeriod.
	strayLines  = 10
	strayPeriod = time.Minute
)

// strays counts the segments that placeholders have dropped.
type strays struct {
	mu    sync.Mutex // guards the fields below
	total uint64
	lines int       // lines that may still be logged until renew
	renew time.Time // time when strayLines more lines may be logged
}

// Counters holds the counts since the interface was opened.
type Counters struct {
	Strays uint64 // segments of taken-over connections that bypassed the XDP program, reached the kernel, and were dropped
}

// Counters returns the counters, which are brought up to date every second.
func (n *NIC) Counters() Counters {
	n.strays.mu.Lock()
	defer n.strays.mu.Unlock()
	return Counters{Strays: n.strays.total}
}

// watchStrays reads every placeholder every strayEvery, until ctx ends. It also looks
// whether segments arrive at other interfaces.
func (n *NIC) watchStrays(ctx context.Context) {
	tick := time.NewTicker(strayEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			n.recheckRoutes(now)
			for _, f := range n.Flows() {
				n.lookForStrays(f, now)
			}
		}
	}
}

// lookForStrays reads one placeholder. lookForStrays logs the first strays of a flow,
// unless too many flows have strays. Two interfaces may read the placeholder of a flow
// that moves between them at the same time: each stray is counted once.
func (n *NIC) lookForStrays(f *Flow, now time.Time) {
	s := &n.strays
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := f.hold.Strays()
	if err != nil {
		return // a closed placeholder has no count
	}
	before := f.strays.Load()
	for int32(have-before) > 0 && !f.strays.CompareAndSwap(before, have) {
		before = f.strays.Load()
	}
	if int32(have-before) <= 0 {
		return
	}
	first := before == 0
	s.total += uint64(have - before)
	if now.After(s.renew) {
		s.lines, s.renew = strayLines, now.Add(strayPeriod)
	}
	if !first || s.lines == 0 {
		return
	}
	s.lines--
	n.log.Warn("segments reach the kernel past the XDP program and are lost: has a route, a tag or an address on the way changed?",
		"flow", f.id, "key", f.key, "segments", have)
}
