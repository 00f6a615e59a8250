package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/tcp"
)

// The sending and the receiving side.
const (
	from = pair.A
	to   = pair.B
)

// transfer is a stream of octets in one direction, running.
type transfer struct {
	*stage
	received *atomic.Uint64 // octets
	flows    [2]*nic.Flow   // by side; nil where the kernel runs the connection
	plain    []*plain
}

// startTransfer connects and lets side A send to side B.
func startTransfer(ctx context.Context, st *stage) (*transfer, error) {
	t := &transfer{stage: st}
	a, b, err := t.connect(ctx)
	if err == nil {
		// The receiver first: what comes before it is ready would be parked.
		err = errors.Join(t.begin(ctx, to, b), t.begin(ctx, from, a))
	}
	if err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

// begin gives a side's connection to whoever runs it.
func (t *transfer) begin(ctx context.Context, side pair.Side, c *net.TCPConn) error {
	if t.stacks[side] == kernel {
		p, err := startPlain(c, side == from)
		if err != nil {
			return fmt.Errorf("side %v: %w", side, err)
		}
		t.plain = append(t.plain, p)
		if side == to {
			t.received = &p.received
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
		t.received = &ulp.received
	}
	return nil
}

func (t *transfer) stop() error {
	var errs []error
	for _, p := range t.plain {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

func (t *transfer) octets() uint64 { return t.received.Load() }

// work reads what the engines have counted so far.
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
