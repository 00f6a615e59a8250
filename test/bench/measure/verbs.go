package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// verb is the verb that moves the payload of a stream.
type verb string

const (
	plainStream verb = ""
	write       verb = "write"
	read        verb = "read"
	send        verb = "send"
)

// load says how messages travel. One call posts a batch, which has one completion. A
// message is outstanding from its posting until its completion. A Send is outstanding
// until the receiver's application has acknowledged it.
//
// On each connection the messages go from the same memory to the same memory again and
// again, as in perftest. This memory is as large as the buffer of a plain stream. The
// last Send of a batch is solicited and wakes the receiver. The receiver's answer to a
// batch wakes the sender.
type load struct {
	message     int // octets of a message
	batch       int // number of messages of a batch
	depth       int // number of outstanding messages of each connection, a multiple of batch
	connections int
}

// These are the parts of usual, the default load.
const (
	message = 64 << 10
	batch   = 16
	depth   = 64
)

var usual = load{message, batch, depth, 1}

// memory returns the octets of memory of each connection on either side.
func (l load) memory() int { return max(plainBuffer, l.message) }

// batches returns how many batches of a connection may be outstanding.
func (l load) batches() int { return l.depth / l.batch }

// hub holds the objects that the connections of one side share.
type hub struct {
	load
	pd *rdma.PD
	cq *rdma.CQ
	mr *rdma.MR

	sparing bool // only solicited completions wake the side, which then polls the rest
}

func newHub(a *rdma.Adapter, l load) (h *hub, err error) {
	h = &hub{load: l}
	if h.pd, err = a.AllocPD(); err != nil {
		return nil, err
	}
	if h.cq, err = a.CreateCQ(8 * l.depth * l.connections); err != nil {
		return nil, err
	}
	h.mr, err = h.pd.AllocMR(min(l.connections, mostPlaces)*l.memory(), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	return h, err
}

// mostPlaces limits the memory of a side. With more connections several use the same memory. It
// is more than the caches of a processor hold in any case.
const mostPlaces = 1024

// party is one side of a connection: a QP and its part of the memory.
type party struct {
	*hub
	qp *rdma.QP
	at int // offset of the party's part of the memory
}

// party makes the party with index i.
func (h *hub) party(i int) (p *party, err error) {
	p = &party{hub: h, at: i % mostPlaces * h.memory()}
	p.qp, err = h.pd.CreateQP(rdma.QPConfig{
		SendCQ: h.cq, RecvCQ: h.cq, SendDepth: 4 * h.depth, RecvDepth: 4 * h.depth, MaxSGE: 1,
	})
	return p, err
}

// slot returns the memory of message i.
func (p *party) slot(i int) rdma.SGE {
	return p.mr.SGE(p.at+i%(p.memory()/p.message)*p.message, p.message)
}

// verbs is a running set of streams of messages in one direction.
type verbs struct {
	*stage
	parties  [2][]*party // parties, by side, then by connection; the parties of a side share a hub
	received atomic.Uint64
	running  []chan error // a channel for the error of each goroutine
}

// startVerbs connects the sides and starts the messages from side A to side B.
func startVerbs(ctx context.Context, st *stage) (v *verbs, err error) {
	v = &verbs{stage: st}
	for side, a := range st.adapters {
		h, err := newHub(a, st.load)
		if err != nil {
			return nil, err
		}
		for i := range st.connections {
			p, err := h.party(i)
			if err != nil {
				return nil, err
			}
			v.parties[side] = append(v.parties[side], p)
		}
	}
	roles := make([][2]role, st.connections)
	for i := range roles {
		roles[i] = newRoles(st.verb, [2]*party{v.parties[from][i], v.parties[to][i]}, &v.received)
	}
	return v, v.run(ctx, roles)
}

// run connects the QPs, and starts a goroutine for the roles of each side.
func (v *verbs) run(ctx context.Context, roles [][2]role) error {
	var casts [2]cast
	var qps [2][]*rdma.QP
	for i := range roles {
		for side, r := range roles[i] {
			p := v.parties[side][i]
			qps[side] = append(qps[side], p.qp)
			if r == nil {
				continue
			}
			if err := r.prepare(); err != nil {
				return err
			}
			casts[side].add(p.qp.Number(), r)
		}
	}
	if err := v.joinAll(ctx, qps[from], qps[to]); err != nil {
		return err
	}
	for side, c := range casts {
		if len(c.roles) != 0 {
			done := make(chan error, 1)
			v.running = append(v.running, done)
			go func() { done <- v.parties[side][0].play(ctx, c) }()
		}
	}
	return nil
}

// join connects two QPs. Side A dials.
func (s *stage) join(ctx context.Context, a, b *rdma.QP) error {
	return s.joinAll(ctx, []*rdma.QP{a}, []*rdma.QP{b})
}

// dialling is how many connections are made at the same time.
const dialling = 64

// maxReads is the largest number of outstanding Reads of a connection.
const maxReads = 128

// joinAll connects the QPs of side A with those of side B, in any order. Both sides
// must have the same number of QPs.
func (s *stage) joinAll(ctx context.Context, a, b []*rdma.QP) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l, err := s.adapters[to].Listen(ctx, net.JoinHostPort(s.host(to), "0"), rdma.ListenConfig{Backlog: 2 * dialling})
	if err != nil {
		return err
	}
	defer l.Close()
	reads := min(s.depth, maxReads)
	params := rdma.ConnParams{NoCRC: s.noCRC, IRD: reads, ORD: reads}
	if s.long {
		params.Extensions = rdma.ExtLongFPDUs
	}
	attempt := func(f func() error) {
		if err := f(); err != nil {
			cancel(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		attempt(func() error {
			for _, qp := range b {
				r, err := l.Accept(ctx)
				if err != nil {
					return err
				}
				wg.Go(func() { attempt(func() error { return r.Accept(ctx, qp, params) }) })
			}
			return nil
		})
	})
	places := make(chan struct{}, dialling)
	for _, qp := range a {
		places <- struct{}{}
		wg.Go(func() {
			attempt(func() error { return qp.Dial(ctx, l.Addr().String(), params) })
			<-places
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (v *verbs) octets() uint64 { return v.received.Load() }

// work reads the engines' counts so far.
func (v *verbs) work(ctx context.Context) (all [2]work, err error) {
	for side, a := range v.adapters {
		if v.stacks[side] == kernel {
			continue
		}
		c, err1 := a.Counters(ctx)
		p, err2 := a.SocketStats(ctx, v.port(pair.Side(side)))
		if err := errors.Join(err1, err2); err != nil {
			return all, err
		}
		all[side] = work{
			Steps: c.Steps, RxPackets: c.RxPackets, TxPackets: c.TxPackets,
			Foreign: c.ForeignRx, Passed: c.PassedIn,
		}
		for _, queue := range p {
			all[side].Kicks += queue.Kicks
			all[side].Lost += dropped(queue)
		}
		for _, p := range v.parties[side] {
			s, err := p.qp.TCPStats(ctx)
			if err != nil {
				return all, err
			}
			all[side].Acks += s.AcksOut
			all[side].Retransmits += s.Retransmits
			all[side].Timeouts += s.Timeouts
		}
	}
	return all, nil
}

// stop ends the connections and the goroutines. It returns an error if a connection
// broke before, because the measurement is then invalid.
func (v *verbs) stop() error {
	var errs []error
	for side, all := range v.parties {
		for _, p := range all {
			if err := p.qp.Err(); err != nil {
				errs = append(errs, fmt.Errorf("side %v: %w", pair.Side(side), err))
				break // one error is enough
			}
		}
	}
	for _, all := range v.parties {
		for _, p := range all {
			p.qp.Close()
		}
		if len(all) != 0 {
			all[0].cq.Close()
		}
	}
	for _, done := range v.running {
		if err := <-done; err != nil && !errors.Is(err, rdma.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
