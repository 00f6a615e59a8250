package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/stag-rdma/stag/rdma"
)

// racket is the common part of players over an adapter. It has a QP with one CQ, memory
// to send messages from, and memory to receive them in.
type racket struct {
	looker
	pd      *rdma.PD
	cq      *rdma.CQ
	qp      *rdma.QP
	out, in *rdma.MR
	size    int
	yields  bool         // the side yields the processor between polls, because engines need a core
	sleep   func() error // a function that waits for a completion; nil if the side polls
	wr      [1]rdma.SendWR
	got     [16]rdma.Completion
}

// volleyDepth is how many work requests may wait until their completions are polled.
const volleyDepth = 64

func newRacket(a *rdma.Adapter, v *volley, size int) (r *racket, err error) {
	r = &racket{looker: looker{v: v}, size: size}
	if r.pd, err = a.AllocPD(); err != nil {
		return nil, err
	}
	if r.cq, err = a.CreateCQ(4 * volleyDepth); err != nil {
		return nil, err
	}
	r.qp, err = r.pd.CreateQP(rdma.QPConfig{SendCQ: r.cq, RecvCQ: r.cq, SendDepth: volleyDepth, RecvDepth: volleyDepth, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	if r.in, err = r.pd.AllocMR(size, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead); err != nil {
		return nil, err
	}
	r.out, err = r.pd.AllocMR(size, rdma.LocalWrite)
	return r, err
}

// verbVolley makes players for a verb. If waits is true, the players sleep in CQ.Wait
// until a completion is there. This needs the verb send, because the other verbs have
// no completion at the receiver. If waits is false, the players poll.
func verbVolley(op verb, waits bool) lineUp {
	return func(ctx context.Context, st *stage, size int) (*volley, error) {
		v := new(volley)
		var r [2]*racket
		for _, side := range sides {
			var err error
			if r[side], err = newRacket(st.adapters[side], v, size); err != nil {
				return nil, err
			}
			r[side].yields = st.progress == rdma.ProgressEngine
			if waits {
				r[side].sleep = func() error { return r[side].cq.Wait(ctx) }
			}
		}
		switch op {
		case write:
			v.players = [2]player{from: newWriter(r[from], r[to]), to: newWriter(r[to], r[from])}
		case send:
			for side := range r {
				s, err := newSender(r[side])
				if err != nil {
					return nil, err
				}
				v.players[side] = s
			}
		default:
			v.players[from] = newReader(r[from], r[to])
		}
		if err := st.join(ctx, r[from].qp, r[to].qp); err != nil {
			return nil, err
		}
		for side := range r {
			v.closing = append(v.closing, func() error { return r[side].end() })
		}
		return v, nil
	}
}

// end closes the connection. It returns an error if the connection broke before.
func (r *racket) end() error {
	err := r.qp.Err()
	var q *rdma.QPError
	if errors.As(err, &q) && q.Remote || r.v.over.Load() && err != nil && r.qp.State() == rdma.Errored {
		err = nil // the other side closed first
	}
	return errors.Join(err, r.qp.Close())
}

// poll takes completions. It returns how many are of receives and how many are of
// sends. With inline progress, a poll of an empty CQ runs the engine.
func (r *racket) poll() (received, sent int, err error) {
	for _, c := range r.got[:r.cq.Poll(r.got[:])] {
		switch {
		case c.Status == rdma.Flushed && r.v.over.Load():
			return 0, 0, errOver
		case c.Status != rdma.Success:
			return 0, 0, fmt.Errorf("%v: %v", c.Op, c.Status)
		case c.Op == rdma.WCRecv:
			received++
		default:
			sent++
		}
	}
	return received, sent, nil
}

// again must be called after each empty poll.
func (r *racket) again() error {
	if r.sleep != nil {
		return r.sleep()
	}
	if r.yields {
		runtime.Gosched()
	}
	return r.inVain()
}

// writer Writes to the other side's memory and polls its own memory. The last octet of
// a message is the message's number. Octets of a message arrive in order here. perftest
// also relies on this order.
type writer struct{ *racket }

func newWriter(r, peer *racket) *writer {
	r.wr[0] = rdma.SendWR{Op: rdma.WRWrite, RKey: peer.in.RKey(), RemoteAddr: peer.in.Addr()}
	r.carry()
	return &writer{racket: r}
}

// carry puts the message into the work request, inline if it is short enough.
func (r *racket) carry() {
	if r.size <= r.qp.Config().MaxInline {
		r.wr[0].Inline = r.out.Bytes()[:r.size]
	} else {
		r.wr[0].SGL = []rdma.SGE{r.out.SGE(0, r.size)}
	}
}

func (w *writer) hit(n uint64) error {
	w.out.Bytes()[w.size-1] = byte(n)
	w.wr[0].Flags = flags(n)
	_, err := w.qp.PostSend(w.wr[:]...)
	return err
}

// flags returns Signaled for some of the messages. The completion of a signaled request
// also frees the slots of all earlier work requests.
func flags(n uint64) rdma.SendFlags {
	if n%(volleyDepth/4) == 0 {
		return rdma.Signaled
	}
	return 0
}

func (w *writer) await(n uint64) error {
	for last := w.in.Bytes()[w.size-1 : w.size]; last[0] != byte(n); {
		if _, _, err := w.poll(); err != nil {
			return err
		}
		if err := w.again(); err != nil {
			return err
		}
	}
	w.came()
	return nil
}

// sender posts Sends and polls for completions.
type sender struct {
	*racket
	received uint64
	recv     [1]rdma.RecvWR
}

func newSender(r *racket) (*sender, error) {
	s := &sender{racket: r}
	r.wr[0] = rdma.SendWR{Op: rdma.WRSend}
	r.carry()
	s.recv[0] = rdma.RecvWR{SGL: []rdma.SGE{r.in.SGE(0, r.size)}}
	for range 4 {
		if _, err := r.qp.PostRecv(s.recv[:]...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sender) hit(n uint64) error {
	s.wr[0].Flags = flags(n)
	_, err := s.qp.PostSend(s.wr[:]...)
	return err
}

func (s *sender) await(n uint64) error {
	for s.received < n {
		got, _, err := s.poll()
		if err != nil {
			return err
		}
		if got == 0 {
			if err := s.again(); err != nil {
				return err
			}
		}
		for range got {
			s.received++
			if _, err := s.qp.PostRecv(s.recv[:]...); err != nil {
				return err
			}
		}
	}
	s.came()
	return nil
}

// reader Reads the other side's memory. The adapter of the other side answers the Read.
type reader struct {
	*racket
	done uint64
}

func newReader(r, peer *racket) *reader {
	r.wr[0] = rdma.SendWR{
		Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{r.out.SGE(0, r.size)}, RKey: peer.in.RKey(), RemoteAddr: peer.in.Addr(),
	}
	return &reader{racket: r}
}

func (r *reader) hit(uint64) error {
	_, err := r.qp.PostSend(r.wr[:]...)
	return err
}

func (r *reader) await(n uint64) error {
	for r.done < n {
		_, done, err := r.poll()
		if err != nil {
			return err
		}
		r.done += uint64(done)
		if done == 0 {
			if err := r.again(); err != nil {
				return err
			}
		}
	}
	r.came()
	return nil
}
