package measure

import (
	"context"
	"errors"
	"fmt"
	"time"
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
	Lost        uint64 // packets that the driver did not take, or that found no room in the socket
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

// traffic is what is measured: payload in one direction, running.
type traffic interface {
	octets() uint64                                // that the receiver has
	work(ctx context.Context) (w [2]work, _ error) // so far
	stop() error
}

// start lets side A send to side B on st.
func start(ctx context.Context, st *stage) (traffic, error) {
	if st.raw != notRaw {
		return startRaw(st)
	}
	if st.verb != plainStream {
		return startVerbs(ctx, st)
	}
	return startTransfer(ctx, st)
}

// lastChance is how much longer than asked a stream is measured of which nothing
// has arrived.
const lastChance = 5 * time.Second

// measure lets t run on st for warm, and counts for d.
func measure(ctx context.Context, st *stage, t traffic, warm, d time.Duration) (s sample, err error) {
	if err := pause(ctx, warm); err != nil {
		return s, err
	}
	before, err := t.work(ctx)
	if err != nil {
		return s, err
	}
	m, err := startMeter(st.pair, st.threaded)
	if err != nil {
		return s, err
	}
	octets, begin := t.octets(), time.Now()
	for first := true; first || t.octets() == octets && time.Since(begin) < d+lastChance; first = false {
		if err := pause(ctx, d); err != nil {
			return s, err
		}
	}
	octets, took := t.octets()-octets, time.Since(begin)
	used, err := m.since()
	if err != nil {
		return s, err
	}
	after, err := t.work(ctx)
	if err != nil {
		return s, err
	}
	if octets == 0 {
		return s, fmt.Errorf("nothing arrived within %v: the connection broke or stalls (timeouts so far: %d here, %d there)",
			took.Round(time.Millisecond), after[from].Timeouts, after[to].Timeouts)
	}
	bits := float64(octets) * 8 / 1e9
	s = sample{Gbps: bits / took.Seconds(), PerCore: bits / used.own.Seconds(), Busy: used.busy, Octets: octets}
	for side := range s.Sides {
		s.Sides[side] = after[side].sub(before[side])
	}
	return s, nil
}

// runTransfer measures one setting once.
func runTransfer(ctx context.Context, s setting, warm, d time.Duration) (sample, error) {
	return runStream(ctx, s, warm, d, start)
}

// runStream measures what start starts on a stage of its own.
func runStream(ctx context.Context, s setting, warm, d time.Duration, start func(context.Context, *stage) (traffic, error)) (found sample, err error) {
	st, err := newStage(s)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	t, err := start(ctx, st)
	if err != nil {
		return found, err
	}
	found, err = measure(ctx, st, t, warm, d)
	return found, errors.Join(err, t.stop())
}
