package perf

import (
	"context"
	"runtime"
	"time"
)

// These are the longest sleeps of a strand while nothing completes. After creditWait the strand looks for a report
// that the peer wrote without a completion. After idleWait it reports to a peer from which nothing arrives any more.
// After longWait it checks that the peer still exists.
const (
	creditWait = 200 * time.Microsecond
	idleWait   = 10 * time.Millisecond
	longWait   = 100 * time.Millisecond
)

// turn sends credits, posts what can be posted, and returns how long to sleep afterwards.
func (x *strand) turn(m *meter) (over bool, limit time.Duration, err error) {
	if err := x.credit(); err != nil {
		return false, 0, err
	}
	if limit, err = x.push(m); err != nil {
		return false, 0, err
	}
	if x.through() {
		m.ended(time.Now())
		return true, 0, nil
	}
	return false, limit, nil
}

// measured returns the number of messages of this end that are complete. If this end only receives, measured returns the
// number of messages that have arrived.
func (x *strand) measured() uint64 {
	if x.l.run.drives() {
		return x.l.completed
	}
	return x.l.received
}

// push posts what can be posted, and returns how long to sleep afterwards.
func (x *strand) push(m *meter) (limit time.Duration, err error) {
	l, run := x.l, x.l.run
	limit = longWait
	if l.received > x.credited {
		limit = idleWait
	}
	if !run.drives() {
		return limit, nil
	}
	for !run.enough(l.posted, l.begun) {
		n := l.room()
		if n == 0 {
			return limit, nil
		}
		if run.Test.op() == rdmaSend && x.underway()+n >= run.window() {
			return creditWait, nil
		}
		m.posting(n)
		if err := l.post(n); err != nil {
			return limit, err
		}
	}
	return limit, l.mark()
}

// through reports whether this end has done its part of the size.
func (x *strand) through() bool {
	l, run := x.l, x.l.run
	if run.drives() && (l.completed < l.posted || !run.enough(l.posted, l.begun)) {
		return false
	}
	if !run.takes() {
		return true
	}
	if run.Duration > 0 { // the client decides when the time has ended
		return x.peer.asked.Load()
	}
	return l.received >= run.Iterations
}

// turns runs one size of a latency test: bounce for write_lat, call and answer for the others.
func (x *strand) turns(ctx context.Context, times *samples, m *meter) error {
	l := x.l
	how := exchange{ping: x.ping, answers: l.run.takes(), over: func() bool { return l.completed >= l.run.Iterations }, limit: longWait}
	switch {
	case l.run.Test == WriteLat:
		return x.bounce(ctx, times, m)
	case l.run.serves():
		return l.answer(ctx, times, m, how)
	}
	return l.call(ctx, times, m, how)
}

func (x *strand) ping() error { return x.l.post(1) }

// bounce runs one size of write_lat. Both ends Write in turn, and the server begins. The last octet of a message is the
// number of the message, and the peer polls that octet. A sample is the time from one message of the peer to the next.
func (x *strand) bounce(ctx context.Context, times *samples, m *meter) error {
	last := x.l.local.mr.Bytes()[:x.l.size][x.l.size-1:]
	begin := time.Time{}
	for n := range x.l.run.Iterations {
		if n > 0 || !x.l.run.serves() {
			if err := x.look(ctx, byte(n+uint64(x.lead()))); err != nil {
				return err
			}
		}
		now := time.Now()
		if n > 0 {
			if err := x.l.run.add(times, m, begin, now); err != nil {
				return err
			}
		}
		last[0] = byte(n + 1)
		begin = now
		if err := x.ping(); err != nil {
			return err
		}
		for x.l.completed < x.l.posted {
			if err := x.l.await(ctx, longWait); err != nil {
				return err
			}
		}
	}
	if x.l.run.serves() {
		return x.look(ctx, byte(x.l.run.Iterations))
	}
	return nil
}

// lead returns by how much the peer's number is ahead when this end must send.
func (x *strand) lead() int {
	if x.l.run.serves() {
		return 0
	}
	return 1
}

// Limits of polling: how long look polls memory without a sleep, and how long it sleeps after that.
const (
	looking   = time.Millisecond
	lookSleep = 50 * time.Microsecond
	lookWell  = 1 << 10 // number of polls between two checks of the connection
)

// look waits until the last octet of the peer's message is want. The peer may change this octet at any time, without a
// completion. The memory is not on the Go heap. look also polls the CQ, so that the connection makes progress.
func (x *strand) look(ctx context.Context, want byte) error {
	octet := x.peer.in.Bytes()[x.l.size-1 : x.l.size]
	x.heard = time.Now()
	for n := 1; octet[0] != want; n++ {
		if n%lookWell == 0 {
			if err := x.quiet(ctx); err != nil && octet[0] != want {
				return err
			}
		}
		if err := x.peek(ctx); err != nil && octet[0] != want {
			return err
		}
		if time.Since(x.heard) < looking {
			runtime.Gosched()
		} else {
			time.Sleep(lookSleep)
		}
	}
	x.l.received++
	return nil
}

// peek takes a completion, if there is one.
func (x *strand) peek(ctx context.Context) error {
	got := x.l.got[:1]
	if x.l.cq.Poll(got) == 0 {
		return nil
	}
	return x.l.handle(ctx, &got[0])
}
