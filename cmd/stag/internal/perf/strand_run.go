package perf

import (
	"context"
	"runtime"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// How long a strand sleeps at most, when nothing completes: until something may
// be in memory that no completion tells of, or until the peer is told that
// nothing comes any more, or to look whether the peer is still there.
const (
	creditNap = 200 * time.Microsecond
	idleNap   = 10 * time.Millisecond
	longNap   = 100 * time.Millisecond
)

// flow is a size of a test of bandwidth.
func (x *strand) flow(ctx context.Context, m *meter) error {
	for {
		if err := x.credit(); err != nil {
			return err
		}
		nap, err := x.push(m)
		if err != nil {
			return err
		}
		if x.through() {
			m.ended(time.Now())
			return nil
		}
		before := x.progressed()
		if err := x.await(ctx, nap); err != nil {
			return err
		}
		if n := x.progressed() - before; n > 0 && m.completed(n, time.Now()) {
			x.inside += n
		}
	}
}

// progressed is what is measured: our messages, or those that come.
func (x *strand) progressed() uint64 {
	if x.drives() {
		return x.completed
	}
	return x.received
}

// push posts what can be posted, and says how long to sleep afterwards.
func (x *strand) push(m *meter) (nap time.Duration, err error) {
	nap = longNap
	if x.received > x.credited {
		nap = idleNap
	}
	if !x.drives() {
		return nap, nil
	}
	for !x.enough(x.posted, x.begun) {
		n := x.list()
		if x.Duration == 0 {
			n = min(n, x.Iterations-x.posted)
		}
		if x.posted+n-x.completed > uint64(x.TxDepth) {
			return nap, nil
		}
		if x.Test.op() == rdmaSend && x.underway()+n >= x.window() {
			return creditNap, nil
		}
		m.posting(n)
		if err := x.post(n); err != nil {
			return nap, err
		}
	}
	return nap, x.mark()
}

// through says whether this end has done its part of the size.
func (x *strand) through() bool {
	if x.drives() && (x.completed < x.posted || !x.enough(x.posted, x.begun)) {
		return false
	}
	if !x.takes() {
		return true
	}
	if x.Duration > 0 { // the client's time
		return x.asked.Load()
	}
	return x.received >= x.Iterations
}

// post posts the next n messages. A completion says how many there were.
func (x *strand) post(n uint64) error {
	x.wrs = x.wrs[:0]
	for range n {
		wr := x.message(x.posted)
		x.posted++
		if x.posted%x.moderation(x.size) == 0 || x.posted == x.Iterations {
			wr.ID, wr.Flags = x.posted, rdma.Signaled
			x.signaled = x.posted
		}
		x.wrs = append(x.wrs, wr)
	}
	_, err := x.qp.PostSend(x.wrs...)
	return err
}

// mark asks for a completion behind the last messages, if none of theirs will
// come: it was not known that they would be the last.
func (x *strand) mark() error {
	if x.signaled == x.posted {
		return nil
	}
	x.signaled = x.posted
	_, err := x.qp.PostSend(rdma.SendWR{ID: x.posted, Op: rdma.WRWrite, Flags: rdma.Signaled})
	return err
}

// message is the work request of message n.
func (x *strand) message(n uint64) rdma.SendWR {
	place := int(n%x.places) * x.stride
	at := x.index*x.area(x.page) + place
	wr := rdma.SendWR{Op: x.Test.op()}
	if wr.Op != rdmaSend {
		wr.RKey, wr.RemoteAddr = rdma.STag(x.theirs.Key), x.theirs.Address+uint64(place)
	}
	if x.size <= x.Inline {
		wr.Inline = x.out.Bytes()[at:][:x.size]
	} else {
		wr.SGL = []rdma.SGE{x.out.SGE(at, x.size)}
	}
	return wr
}

// call is a client's size of send_lat and read_lat: one message at a time.
func (x *strand) call(ctx context.Context, times *samples, m *meter) error {
	for !x.enough(x.posted, x.begun) {
		begin := time.Now()
		if err := x.post(1); err != nil {
			return err
		}
		for x.completed < x.posted || x.takes() && x.received < x.posted {
			if err := x.await(ctx, longNap); err != nil {
				return err
			}
		}
		if err := x.add(times, m, begin, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// answer is a server's size of send_lat. Its times are from a message to the next
// of the client's.
func (x *strand) answer(ctx context.Context, times *samples, m *meter) error {
	var begin time.Time
	for x.completed < x.Iterations {
		if x.posted < x.received {
			now := time.Now()
			if x.posted > 0 {
				if err := x.add(times, m, begin, now); err != nil {
					return err
				}
			}
			begin = now
			if err := x.post(1); err != nil {
				return err
			}
		}
		if err := x.await(ctx, longNap); err != nil {
			return err
		}
	}
	return nil
}

// bounce is a size of write_lat. Both ends Write in turn; the server begins. A
// message's last octet is its number, and the peer waits for that. The times are
// from a message to the next of the peer's.
func (x *strand) bounce(ctx context.Context, times *samples, m *meter) error {
	last := x.out.Bytes()[:x.size][x.size-1:]
	begin := time.Time{}
	for n := range x.Iterations {
		if n > 0 || !x.serves() {
			if err := x.look(ctx, byte(n+uint64(x.lead()))); err != nil {
				return err
			}
		}
		now := time.Now()
		if n > 0 {
			if err := x.add(times, m, begin, now); err != nil {
				return err
			}
		}
		last[0] = byte(n + 1)
		begin = now
		if err := x.post(1); err != nil {
			return err
		}
		for x.completed < x.posted {
			if err := x.await(ctx, longNap); err != nil {
				return err
			}
		}
	}
	if x.serves() {
		return x.look(ctx, byte(x.Iterations))
	}
	return nil
}

// lead is how far the peer's number is ahead when it is our turn.
func (x *strand) lead() int {
	if x.serves() {
		return 0
	}
	return 1
}

// How long memory is looked at without a pause, and the pauses after that.
const (
	looking  = time.Millisecond
	lookNap  = 50 * time.Microsecond
	lookWell = 1 << 10 // looks between two checks of the connection
)

// look waits until the last octet of the peer's message is want. The memory is
// not the Go heap's, and changes as the peer pleases: no completion tells. To
// poll the CQ in between lets the connection work.
func (x *strand) look(ctx context.Context, want byte) error {
	octet := x.in.Bytes()[x.size-1 : x.size]
	x.heard = time.Now()
	for n := 1; octet[0] != want; n++ {
		if n%lookWell == 0 {
			if err := x.check(ctx); err != nil && octet[0] != want {
				return err
			}
		}
		if err := x.peek(ctx); err != nil && octet[0] != want {
			return err
		}
		if time.Since(x.heard) < looking {
			runtime.Gosched()
		} else {
			time.Sleep(lookNap)
		}
	}
	x.received++
	return nil
}

// peek takes a completion, if there is one.
func (x *strand) peek(ctx context.Context) error {
	var got [1]rdma.Completion
	if x.cq.Poll(got[:]) == 0 {
		return nil
	}
	return x.handle(ctx, &got[0])
}
