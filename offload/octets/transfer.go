package octets

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

var errRunning = errors.New("the connection has not ended")

// Plan describes a Transfer. With the zero Plan, a Transfer sends nothing, closes at
// once, and expects that the peer closes without sending.
type Plan struct {
	Send     uint64  // number of octets to send before CloseWrite
	Seed     Pattern // pattern of the sent octets
	Expect   uint64  // number of octets that the peer must send before it closes
	PeerSeed Pattern // pattern of the expected octets
	Chunk    int     // largest number of octets in one Emit; 0 means MaxEmit

	// Sent and Received say how many octets of Send and Expect were transferred before
	// the Transfer got the connection. The Transfer continues behind those octets.
	Sent, Received uint64
	// Hold keeps the sending direction open until Release.
	Hold bool
}

// Transfer sends a pattern in one direction and checks a pattern in the other. If a
// received octet is missing, superfluous or wrong, the Transfer resets the connection
// at once and ends with an error.
type Transfer struct {
	end

	// Only the goroutine of the connection accesses these fields.
	plan      Plan
	out, in   Sum
	closed    bool
	complaint error
	views     [8][]byte // a field, because a local array in Receive would escape to the heap

	sent, received atomic.Uint64
	released       atomic.Bool
}

// NewTransfer returns a ULP for one connection.
func NewTransfer(p Plan) *Transfer {
	t := &Transfer{end: newEnd(), plan: p}
	t.sent.Store(p.Sent)
	t.received.Store(p.Received)
	t.released.Store(!p.Hold)
	return t
}

// NewSource returns a ULP that sends n octets and expects that the peer closes
// without sending.
func NewSource(n uint64, seed Pattern) *Transfer {
	return NewTransfer(Plan{Send: n, Seed: seed})
}

// NewSink returns a ULP that expects n octets and sends none.
func NewSink(n uint64, seed Pattern) *Transfer {
	return NewTransfer(Plan{Expect: n, PeerSeed: seed})
}

// Release allows a Transfer with Plan.Hold to close when every octet has been sent. The
// caller must ring the connection's doorbell afterwards.
func (t *Transfer) Release() { t.released.Store(true) }

// Sent returns how many octets have been handed to the stream. Any goroutine may call
// it.
func (t *Transfer) Sent() uint64 { return t.sent.Load() }

// Received returns how many correct octets have arrived. Any goroutine may call it.
func (t *Transfer) Received() uint64 { return t.received.Load() }

// Sums returns the checksums of the sent and the received octets. The checksums are
// valid after Done is closed.
func (t *Transfer) Sums() (sent, received uint64) { return t.out.Value(), t.in.Value() }

// Receive implements stream.ULP.
func (t *Transfer) Receive(_ clock.Instant, s stream.Stream) {
	for t.complaint == nil {
		n := s.Views(t.views[:])
		if n == 0 {
			break
		}
		taken := 0
		for _, v := range t.views[:n] {
			t.take(v)
			taken += len(v)
		}
		s.Consume(taken)
	}
	if t.complaint == nil && s.EOF() && t.received.Load() != t.plan.Expect {
		t.complaint = fmt.Errorf("the peer closed after %d of %d octets", t.received.Load(), t.plan.Expect)
	}
	if t.complaint != nil {
		s.Abort()
	}
}

// take checks received octets and counts them if they are correct.
func (t *Transfer) take(b []byte) {
	pos := t.received.Load()
	switch i := t.plan.PeerSeed.Differs(b, pos); {
	case t.complaint != nil:
	case uint64(len(b)) > t.plan.Expect-pos:
		t.complaint = fmt.Errorf("the peer sent more than %d octets", t.plan.Expect)
	case i >= 0:
		t.complaint = fmt.Errorf("received octet %d is wrong", pos+uint64(i))
	default:
		t.in.Add(b)
		t.received.Store(pos + uint64(len(b)))
	}
}

// Transmit implements stream.ULP.
func (t *Transfer) Transmit(_ clock.Instant, s stream.Stream) {
	if t.complaint != nil || t.closed {
		return
	}
	pos := t.sent.Load()
	for pos < t.plan.Send {
		n := s.MaxEmit()
		if t.plan.Chunk != 0 {
			n = min(n, t.plan.Chunk)
		}
		n = int(min(uint64(n), t.plan.Send-pos))
		b := s.Emit(n)
		if b == nil {
			break
		}
		t.plan.Seed.Fill(b, pos)
		t.out.Add(b)
		pos += uint64(n)
	}
	t.sent.Store(pos)
	if pos == t.plan.Send && t.released.Load() {
		t.closed = true
		s.CloseWrite()
	}
}

// Fault implements stream.ULP.
func (t *Transfer) Fault(_ clock.Instant, err error) {
	switch {
	case t.complaint != nil:
		err = t.complaint
	case err == nil && t.sent.Load() != t.plan.Send:
		err = fmt.Errorf("the connection closed after %d of %d octets were sent", t.sent.Load(), t.plan.Send)
	}
	t.finish(err)
}

// Deadline implements stream.ULP.
func (t *Transfer) Deadline() clock.Instant { return clock.Never }
