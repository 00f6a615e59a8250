package measure

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// sample is the result of one measurement of a stream.
type sample struct {
	Gbps    float64 // payload that the receiver counted, 10^9 bits per second
	PerCore float64 // payload, 10^9 bits per second of processor time of both ends together
	Busy    float64 // number of cores that were not idle, for any reason
	Octets  uint64  // number of octets of payload
	Sides   [2]work // work of stag's engines
}

// work counts what an engine and its socket did. It is zero for a kernel.
type work struct {
	Steps       uint64 // number of steps of the engine that processed something
	RxPackets   uint64
	TxPackets   uint64
	Acks        uint64 // number of sent packets that carry only an acknowledgement
	Retransmits uint64 // number of sent packets that were retransmissions
	Timeouts    uint64 // number of retransmission timeouts
	Kicks       uint64 // number of system calls to transmit
	Foreign     uint64 // number of received packets that arrived at another port than their connection's
	Passed      uint64 // number of received packets that arrived at another queue of the port than their connection's
	Lost        uint64 // number of packets that the driver refused, or that found no room in the socket
}

// sub returns the work since before.
func (w work) sub(before work) work {
	return work{
		Steps: w.Steps - before.Steps, RxPackets: w.RxPackets - before.RxPackets,
		TxPackets: w.TxPackets - before.TxPackets, Acks: w.Acks - before.Acks,
		Retransmits: w.Retransmits - before.Retransmits, Timeouts: w.Timeouts - before.Timeouts,
		Kicks: w.Kicks - before.Kicks, Lost: w.Lost - before.Lost, Foreign: w.Foreign - before.Foreign, Passed: w.Passed - before.Passed,
	}
}

// traffic is a running stream of payload in one direction.
type traffic interface {
	octets() uint64                                // octets that have arrived at the receiver so far
	work(ctx context.Context) (w [2]work, _ error) // work of both sides so far
	stop() error
}

// start starts a stream from side A to side B on st.
func start(ctx context.Context, st *stage) (traffic, error) {
	if st.raw != notRaw {
		return startRaw(st)
	}
	if st.verb != plainStream {
		return startVerbs(ctx, st)
	}
	return startTransfer(ctx, st)
}

// lastChance is how much longer measure waits for a stream from which nothing has
// arrived.
const lastChance = 5 * time.Second

// measure lets t run for warm, then counts its octets for d.
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

// runStream measures the stream that start starts on a stage of its own.
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
