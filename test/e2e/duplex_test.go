package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
)

// duplex is an upper layer that sends a pattern and checks another one until it is told to
// stop. Then it closes its direction. It can continue in another process.
type duplex struct {
	sent, received atomic.Uint64
	stop           atomic.Bool
	closed         bool
	failed         error
	done           chan struct{}
	err            error
}

const duplexKind = "e2e.duplex/1"

var _ portable.ULP = (*duplex)(nil)

func newDuplex() *duplex { return &duplex{done: make(chan struct{})} }

func (d *duplex) Receive(_ clock.Instant, s stream.Stream) {
	var views [8][]byte
	for n := s.Views(views[:]); n > 0 && d.failed == nil; n = s.Views(views[:]) {
		taken := 0
		for _, v := range views[:n] {
			pos := d.received.Load() + uint64(taken)
			if i := seedTheirs.Differs(v, pos); i >= 0 {
				d.failed = fmt.Errorf("received octet %d is wrong", pos+uint64(i))
				s.Abort()
				return
			}
			taken += len(v)
		}
		s.Consume(taken)
		d.received.Add(uint64(taken))
	}
}

func (d *duplex) Transmit(_ clock.Instant, s stream.Stream) {
	for d.failed == nil && !d.closed && !d.stop.Load() {
		n := s.MaxEmit()
		b := s.Emit(n)
		if b == nil {
			return
		}
		seedOurs.Fill(b, d.sent.Load())
		d.sent.Add(uint64(n))
	}
	if d.stop.Load() && !d.closed {
		d.closed = true
		s.CloseWrite()
	}
}

func (d *duplex) Fault(_ clock.Instant, err error) {
	d.err = errors.Join(err, d.failed)
	close(d.done)
}

func (d *duplex) Deadline() clock.Instant { return clock.Never }

type duplexRecord struct {
	Sent, Received uint64
	Stop, Closed   bool
}

func (d *duplex) Export(clock.Instant) (portable.Object, error) {
	b, err := binary.Append(nil, binary.LittleEndian, duplexRecord{d.sent.Load(), d.received.Load(), d.stop.Load(), d.closed})
	return portable.Object{Kind: duplexKind, Data: b}, errors.Join(err, d.failed)
}

// importULP makes the upper layers of the processes of upgrades.
func importULP(o portable.Object) (stream.ULP, error) {
	if o.Kind != duplexKind {
		return octets.Import(o)
	}
	var r duplexRecord
	if _, err := binary.Decode(o.Data, binary.LittleEndian, &r); err != nil {
		return nil, err
	}
	d := newDuplex()
	d.sent.Store(r.Sent)
	d.received.Store(r.Received)
	d.stop.Store(r.Stop)
	d.closed = r.Closed
	return d, nil
}
