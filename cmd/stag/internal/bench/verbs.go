package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/rdma"
)

// verb is what the payload of a stream travels by.
type verb string

const (
	plainStream verb = ""
	write       verb = "write"
	read        verb = "read"
	send        verb = "send"
)

// What verbs move: messages of 64 KiB in batches, each of which is posted with
// one call and has one completion. depth messages are outstanding: posted and
// not completed; of Sends, the receiver's application has not said that it has
// them. They go from the same memory to the same memory again and again, as in
// perftest, and as much of it as a plain stream has.
const (
	message = 64 << 10 // octets
	batch   = 16       // messages
	depth   = 64       // messages
	slots   = plainBuffer / message
)

// party is one side of a connection: a QP with one CQ, and memory.
type party struct {
	pd *rdma.PD
	cq *rdma.CQ
	qp *rdma.QP
	mr *rdma.MR
}

func newParty(a *rdma.Adapter) (p *party, err error) {
	p = new(party)
	if p.pd, err = a.AllocPD(); err != nil {
		return nil, err
	}
	if p.cq, err = a.CreateCQ(8 * depth); err != nil {
		return nil, err
	}
	p.qp, err = p.pd.CreateQP(rdma.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, SendDepth: 4 * depth, RecvDepth: 4 * depth, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	p.mr, err = p.pd.AllocMR(plainBuffer, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	return p, err
}

// slot is the memory of message i.
func (p *party) slot(i int) rdma.SGE { return p.mr.SGE(i%slots*message, message) }

// verbs is a stream of messages in one direction, running.
type verbs struct {
	*stage
	parties  [2]*party // by side
	received atomic.Uint64
	running  []chan error // one for each goroutine
}

// startVerbs connects and lets side A's messages come to side B.
func startVerbs(ctx context.Context, st *stage) (v *verbs, err error) {
	v = &verbs{stage: st}
	for side := range v.parties {
		if v.parties[side], err = newParty(st.adapters[side]); err != nil {
			return nil, err
		}
	}
	return v, v.run(ctx, newRoles(st.verb, v.parties, &v.received))
}

// run connects, and lets the roles be played.
func (v *verbs) run(ctx context.Context, roles [2]role) error {
	for _, r := range roles {
		if r != nil {
			if err := r.prepare(); err != nil {
				return err
			}
		}
	}
	if err := v.join(ctx, v.parties[from].qp, v.parties[to].qp); err != nil {
		return err
	}
	for side, r := range roles {
		if r != nil {
			done := make(chan error, 1)
			v.running = append(v.running, done)
			go func() { done <- v.parties[side].play(ctx, r) }()
		}
	}
	return nil
}

// join connects two QPs: side A's dials.
func (s *stage) join(ctx context.Context, a, b *rdma.QP) error {
	l, err := s.adapters[to].Listen(ctx, net.JoinHostPort(s.pair.Ends[to].V4.Addr().String(), "0"), rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	params := rdma.ConnParams{NoCRC: s.noCRC, IRD: depth, ORD: depth}
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b, params)
		}
		accepted <- err
	}()
	if err := a.Dial(ctx, l.Addr().String(), params); err != nil {
		l.Close()
		return errors.Join(err, <-accepted)
	}
	return <-accepted
}

func (v *verbs) octets() uint64 { return v.received.Load() }

// work reads what the engines have counted so far.
func (v *verbs) work(ctx context.Context) (all [2]work, err error) {
	for side, a := range v.adapters {
		if v.stacks[side] == kernel {
			continue
		}
		c, err1 := a.Counters(ctx)
		p, err2 := a.SocketStats(ctx, v.pair.Ends[side].Name)
		s, err3 := v.parties[side].qp.TCPStats(ctx)
		if err := errors.Join(err1, err2, err3); err != nil {
			return all, err
		}
		all[side] = work{
			Steps: c.Steps, RxPackets: c.RxPackets, TxPackets: c.TxPackets,
			Acks: s.AcksOut, Retransmits: s.Retransmits, Timeouts: s.Timeouts,
			Kicks: p[0].Kicks, Lost: dropped(p[0]),
		}
	}
	return all, nil
}

// stop ends the connection and the goroutines. A connection that broke before
// is an error: its measurement would be of something else.
func (v *verbs) stop() error {
	var errs []error
	for side, p := range v.parties {
		if err := p.qp.Err(); err != nil {
			errs = append(errs, fmt.Errorf("side %v: %w", pair.Side(side), err))
		}
	}
	for _, p := range v.parties {
		p.qp.Close()
		p.cq.Close()
	}
	for _, done := range v.running {
		if err := <-done; err != nil && !errors.Is(err, rdma.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
