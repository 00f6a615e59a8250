package octets

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
)

// Kinds of the objects that Export returns.
const (
	echoKind     = "octets.echo/1"
	transferKind = "octets.transfer/1"
)

var (
	_ portable.ULP = (*Echo)(nil)
	_ portable.ULP = (*Transfer)(nil)
)

// echoRecord is the state of an Echo.
type echoRecord struct {
	Closed bool
	Echoed uint64
}

// transferRecord is the state of a Transfer.It is followed by the text of the complaint.
type transferRecord struct {
	Send, Seed, Expect, PeerSeed uint64
	Chunk                        int64
	Sent, Received               uint64
	Out, In                      uint64
	Closed, Released             bool
}

// Export implements portable.ULP.
func (e *Echo) Export(clock.Instant) (portable.Object, error) {
	b, err := binary.Append(nil, binary.LittleEndian, echoRecord{e.closed, e.echoed.Load()})
	return portable.Object{Kind: echoKind, Data: b}, err
}

// Export implements portable.ULP. A Transfer that has reset its connection cannot leave.
func (t *Transfer) Export(clock.Instant) (portable.Object, error) {
	if t.complaint != nil {
		return portable.Object{}, fmt.Errorf("the transfer has failed: %w", t.complaint)
	}
	p := &t.plan
	b, err := binary.Append(nil, binary.LittleEndian, transferRecord{
		Send: p.Send, Seed: uint64(p.Seed), Expect: p.Expect, PeerSeed: uint64(p.PeerSeed), Chunk: int64(p.Chunk),
		Sent: t.sent.Load(), Received: t.received.Load(), Out: t.out.Value(), In: t.in.Value(), Closed: t.closed, Released: t.released.Load(),
	})
	return portable.Object{Kind: transferKind, Data: b}, err
}

// Import makes the Echo or the Transfer that Export has returned in another process.
func Import(o portable.Object) (stream.ULP, error) {
	switch o.Kind {
	case echoKind:
		var r echoRecord
		if err := decode(o, &r); err != nil {
			return nil, err
		}
		e := NewEcho()
		e.closed = r.Closed
		e.echoed.Store(r.Echoed)
		return e, nil
	case transferKind:
		var r transferRecord
		if err := decode(o, &r); err != nil {
			return nil, err
		}
		if r.Sent > r.Send || r.Received > r.Expect || r.Chunk < 0 {
			return nil, fmt.Errorf("%s: %d of %d octets sent and %d of %d received", o.Kind, r.Sent, r.Send, r.Received, r.Expect)
		}
		t := NewTransfer(Plan{Send: r.Send, Seed: Pattern(r.Seed), Expect: r.Expect, PeerSeed: Pattern(r.PeerSeed), Chunk: int(r.Chunk),
			Sent: r.Sent, Received: r.Received, Hold: !r.Released})
		t.out, t.in, t.closed = sumOf(r.Out), sumOf(r.In), r.Closed
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q is no upper layer of plain octets", portable.ErrKind, o.Kind)
}

func decode(o portable.Object, record any) error {
	if n, err := binary.Decode(o.Data, binary.LittleEndian, record); err != nil || n != len(o.Data) {
		return fmt.Errorf("%s of %d octets: want %d", o.Kind, len(o.Data), binary.Size(record))
	}
	return nil
}
