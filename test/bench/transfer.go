package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/tcp"
)

// The sending and the receiving side.
const (
	from = pair.A
	to   = pair.B
)

// sample is what one measurement of a stream found.
type sample struct {
	Gbps    float64 // payload, 10^9 bits a second, as the receiver counts it
	PerCore float64 // payload, 10^9 bits for each second of processor time, both ends together
	Busy    float64 // cores that were not idle, whatever for
	Octets  uint64  // of payload
	Sides   [2]work // what our engines did for it
}

// work is what an engine and its socket did. It is zero for a kernel.
type work struct {
	Steps       uint64 // of the engine that moved something
	RxPackets   uint64
	TxPackets   uint64
	Acks        uint64 // of TxPackets, those with nothing but an acknowledgement
	Retransmits uint64 // of TxPackets, those sent again
	Timeouts    uint64 // retransmission timeouts
	Kicks       uint64 // system calls to transmit
	Lost        uint64 // packets that the driver did not take
}

// sub is what was done since before.
func (w work) sub(before work) work {
	return work{
		Steps: w.Steps - before.Steps, RxPackets: w.RxPackets - before.RxPackets,
		TxPackets: w.TxPackets - before.TxPackets, Acks: w.Acks - before.Acks,
		Retransmits: w.Retransmits - before.Retransmits, Timeouts: w.Timeouts - before.Timeouts,
		Kicks: w.Kicks - before.Kicks, Lost: w.Lost - before.Lost,
	}
}

// transfer is a stream in one direction, running.
type transfer struct {
	stage    *stage
	received *atomic.Uint64 // octets
	flows    [2]*nic.Flow   // by side; nil where the kernel runs the connection
	plain    []*plain
}

// startTransfer connects and lets side A send to side B.
func startTransfer(ctx context.Context, s setting) (t *transfer, err error) {
	t = &transfer{}
	if t.stage, err = newStage(s); err != nil {
		return nil, err
	}
	a, b, err := t.stage.connect(ctx)
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
	if t.stage.stacks[side] == kernel {
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
	f, err := t.stage.take(ctx, side, c, ulp)
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
	return errors.Join(append(errs, t.stage.close())...)
}

// measure lets the stream run for warm, and counts for d.
func (t *transfer) measure(ctx context.Context, warm, d time.Duration) (s sample, err error) {
	time.Sleep(warm)
	before, err := t.work(ctx)
	if err != nil {
		return s, err
	}
	m, err := startMeter(t.stage.pair, t.stage.threaded)
	if err != nil {
		return s, err
	}
	octets, start := t.received.Load(), time.Now()
	time.Sleep(d)
	octets, took := t.received.Load()-octets, time.Since(start)
	used, err := m.since()
	if err != nil {
		return s, err
	}
	after, err := t.work(ctx)
	if err != nil {
		return s, err
	}
	if octets == 0 {
		return s, errors.New("nothing arrived: the connection broke")
	}
	bits := float64(octets) * 8 / 1e9
	s = sample{Gbps: bits / took.Seconds(), PerCore: bits / used.own.Seconds(), Busy: used.busy, Octets: octets}
	for side := range s.Sides {
		s.Sides[side] = after[side].sub(before[side])
	}
	return s, nil
}

// work reads what the engines have counted so far.
func (t *transfer) work(ctx context.Context) (all [2]work, err error) {
	for side, f := range t.flows {
		if f == nil {
			continue
		}
		c, err1 := f.Engine().Counters(ctx)
		p, err2 := t.stage.nics[side].PortStats(ctx)
		var st tcp.Stats
		err3 := f.Engine().Inspect(ctx, f.ID(), func(c *tcp.Conn) { st = c.Stats() })
		if err := errors.Join(err1, err2, err3); err != nil {
			return all, err
		}
		all[side] = work{
			Steps: c.Steps, RxPackets: c.RxPackets, TxPackets: c.TxPackets,
			Acks: st.AcksOut, Retransmits: st.Retransmits, Timeouts: st.Timeouts,
			Kicks: p[0].Kicks, Lost: p[0].Lost,
		}
	}
	return all, nil
}

// runTransfer measures one setting once, and says how packets get to our
// engines.
func runTransfer(ctx context.Context, s setting, warm, d time.Duration) (found sample, path string, err error) {
	t, err := startTransfer(ctx, s)
	if err != nil {
		return found, "", err
	}
	for _, n := range t.stage.nics {
		if n != nil {
			path = n.Path().String()
		}
	}
	found, err = t.measure(ctx, warm, d)
	return found, path, errors.Join(err, t.stop())
}
