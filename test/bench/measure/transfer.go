package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/tcp"
)

// These are the sending and the receiving side.
const (
	from = pair.A
	to   = pair.B
)

// transfer is a running set of streams of octets in one direction. With an engine it is
// one stream.
type transfer struct {
	*stage
	received []*atomic.Uint64 // octets received, by connection
	flows    [2]*nic.Flow     // flows of the engines, by side; nil if the kernel runs the connections
	plain    []*plain
}

// startTransfer connects the sides and starts the streams from side A to side B.
func startTransfer(ctx context.Context, st *stage) (*transfer, error) {
	t := &transfer{stage: st}
	var conns [2][]*net.TCPConn // by side
	for range st.connections {
		// All connections are made first. Full streams would delay a handshake.
		a, b, err := t.connect(ctx)
		if err != nil {
			closeAll(conns[from], conns[to])
			return nil, err
		}
		conns[from], conns[to] = append(conns[from], a), append(conns[to], b)
	}
	// The receivers start first. Segments for a receiver that is not ready would be
	// parked.
	for _, side := range []pair.Side{to, from} {
		for i, c := range conns[side] {
			if err := t.begin(ctx, side, c); err != nil {
				closeAll(conns[side][i:], conns[from]) // closing a connection twice does nothing
				return nil, errors.Join(err, t.stop())
			}
		}
	}
	return t, nil
}

// begin starts a stack's use of a side's connection.
func (t *transfer) begin(ctx context.Context, side pair.Side, c *net.TCPConn) error {
	if t.stacks[side] == kernel {
		p, err := startSized(c, side == from, t.message, t.connections == 1)
		if err != nil {
			return fmt.Errorf("side %v: %w", side, err)
		}
		t.plain = append(t.plain, p)
		if side == to {
			t.received = append(t.received, &p.received)
		}
		return nil
	}
	ulp := &blaster{sends: side == from}
	f, err := t.take(ctx, side, c, ulp)
	if err != nil {
		return err
	}
	t.flows[side] = f
	if side == to {
		t.received = append(t.received, &ulp.received)
	}
	return nil
}

func (t *transfer) stop() error {
	return stopPlain(t.plain)
}

func (t *transfer) octets() (sum uint64) {
	for _, r := range t.received {
		sum += r.Load()
	}
	return sum
}

// work reads the engines' counts so far.
func (t *transfer) work(ctx context.Context) (all [2]work, err error) {
	for side, f := range t.flows {
		if f == nil {
			continue
		}
		c, err1 := f.Engine().Counters(ctx)
		p, err2 := t.nics[side].PortStats(ctx)
		var st tcp.Stats
		err3 := f.Engine().Inspect(ctx, f.ID(), func(c *tcp.Conn) { st = c.Stats() })
		if err := errors.Join(err1, err2, err3); err != nil {
			return all, err
		}
		all[side] = work{
			Steps: c.Steps, RxPackets: c.RxPackets, TxPackets: c.TxPackets,
			Acks: st.AcksOut, Retransmits: st.Retransmits, Timeouts: st.Timeouts,
			Kicks: p[0].Kicks, Lost: dropped(p[0]),
		}
	}
	return all, nil
}
