package measure

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/rdma"
)

// role is the application on one side of a connection.
type role interface {
	prepare() error                    // called before the connection exists: posts receives
	begin() error                      // called when the connection is established
	completed(c rdma.Completion) error // called for each successful completion
}

// newRoles returns the roles for a verb, by side. A side without an application has
// nil.
func newRoles(v verb, p [2]*party, received *atomic.Uint64) (r [2]role) {
	switch v {
	case read:
		r[to] = &loner{party: p[to], work: requests(v, p[to], p[from]), moved: received}
	case write:
		r[from] = &loner{party: p[from], work: requests(v, p[from], p[to]), moved: received}
	default:
		p[from].sparing, p[to].sparing = true, true
		r[from] = &giver{party: p[from], work: requests(v, p[from], p[to])}
		r[to] = &taker{party: p[to], received: received, wrs: make([]rdma.RecvWR, p[to].batch), sgl: make([]rdma.SGE, p[to].batch)}
	}
	return r
}

// requests returns the work requests of each batch that can be outstanding. Only the
// last work request of a batch is signaled.
func requests(v verb, p, peer *party) [][]rdma.SendWR {
	all := make([][]rdma.SendWR, p.batches())
	for i := range p.depth {
		wr := rdma.SendWR{Op: rdma.WRSend, SGL: []rdma.SGE{p.slot(i)}}
		if v != send {
			there := peer.slot(i)
			wr.Op, wr.RemoteAddr, wr.RKey = rdma.WRWrite, there.Addr, peer.mr.RKey()
		}
		if v == read {
			wr.Op = rdma.WRRead
		}
		all[i/p.batch] = append(all[i/p.batch], wr)
	}
	for b := range all {
		all[b][len(all[b])-1].Flags = v.lastOfBatch()
	}
	return all
}

// lastOfBatch returns the flags of the last work request of a batch. The last Send of a
// batch is solicited, so that it wakes the receiver once for the whole batch.
func (v verb) lastOfBatch() rdma.SendFlags {
	if v == send {
		return rdma.Signaled | rdma.Solicited
	}
	return rdma.Signaled
}

// thanks tells the sender that a batch of Sends has been received.
func (p *party) thanks() error {
	_, err := p.qp.PostSend(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Solicited})
	return err
}

// giver posts Sends as long as the taker has room for them.
type giver struct {
	*party
	work    [][]rdma.SendWR
	posted  int // number of batches posted
	sent    int // number of batches whose Sends have completed
	granted int // number of batches that the taker has received
}

func (g *giver) prepare() error { return g.expect(2 * g.batches()) }

func (g *giver) begin() error { return g.post() }

func (g *giver) completed(c rdma.Completion) error {
	if c.Op != rdma.WCRecv {
		g.sent++
		return g.post()
	}
	g.granted++
	if err := g.expect(1); err != nil {
		return err
	}
	return g.post()
}

// post posts every batch whose memory is free on both sides.
func (g *giver) post() error {
	for g.posted < min(g.sent, g.granted)+len(g.work) {
		if _, err := g.qp.PostSend(g.work[g.posted%len(g.work)]...); err != nil {
			return err
		}
		g.posted++
	}
	return nil
}

// taker receives the giver's Sends and acknowledges each batch.
type taker struct {
	*party
	got      int // number of Sends received
	received *atomic.Uint64
	wrs      []rdma.RecvWR // receives of the batch that offer is posting
	sgl      []rdma.SGE
}

func (t *taker) prepare() error {
	for b := range t.batches() {
		if err := t.offer(b); err != nil {
			return err
		}
	}
	return nil
}

func (t *taker) begin() error { return nil }

func (t *taker) completed(c rdma.Completion) error {
	t.received.Add(uint64(t.message))
	if t.got++; t.got%t.batch != 0 {
		return nil
	}
	if err := t.offer((t.got/t.batch - 1) % t.batches()); err != nil {
		return err
	}
	return t.thanks()
}

// offer posts receives for batch b.
func (t *taker) offer(b int) error {
	for i := range t.wrs {
		t.sgl[i] = t.slot(b*t.batch + i)
		t.wrs[i].SGL = t.sgl[i : i+1]
	}
	_, err := t.qp.PostRecv(t.wrs...)
	return err
}

// loner posts Reads or Writes batch after batch. The peer's application does nothing.
// loner counts the octets of completed batches. A Write completes when its octets have
// left this side. At that time up to a window of these octets has not been placed at
// the peer.
type loner struct {
	*party
	work  [][]rdma.SendWR
	done  int // number of batches completed
	moved *atomic.Uint64
}

func (l *loner) prepare() error { return nil }

func (l *loner) begin() error {
	for b := range l.work {
		if _, err := l.qp.PostSend(l.work[b]...); err != nil {
			return err
		}
	}
	return nil
}

func (l *loner) completed(rdma.Completion) error {
	l.moved.Add(uint64(l.batch * l.message))
	b := l.done % len(l.work)
	l.done++
	_, err := l.qp.PostSend(l.work[b]...)
	return err
}

// expect posts receives for n messages without payload.
func (p *party) expect(n int) error {
	for range n {
		if _, err := p.qp.PostRecv(rdma.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

// cast holds the roles of one side, by QP number.
type cast struct {
	roles []role
	byQP  map[uint32]role
}

func (c *cast) add(qp uint32, r role) {
	if c.byQP == nil {
		c.byQP = make(map[uint32]role)
	}
	c.roles = append(c.roles, r)
	c.byQP[qp] = r
}

// play runs the roles until a connection ends.
func (h *hub) play(ctx context.Context, all cast) error {
	for _, r := range all.roles {
		if err := r.begin(); err != nil {
			return err
		}
	}
	wait := h.cq.Wait
	if h.sparing {
		wait = h.cq.WaitSolicited
	}
	var got [64]rdma.Completion
	for {
		if err := wait(ctx); err != nil {
			return err
		}
		for _, c := range got[:h.cq.Poll(got[:])] {
			switch c.Status {
			case rdma.Success:
			case rdma.Flushed:
				return nil // QP.Err tells how the connection ended
			default:
				return fmt.Errorf("%v: %v", c.Op, c.Status)
			}
			if err := all.byQP[c.QP].completed(c); err != nil {
				return err
			}
		}
	}
}
