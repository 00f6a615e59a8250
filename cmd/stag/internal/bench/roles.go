package bench

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/rdma"
)

// role is what an application does on one side of a connection.
type role interface {
	prepare() error                    // before there is a connection: receives
	begin() error                      // first thing on the connection
	completed(c rdma.Completion) error // with success
}

// newRoles are who works for a verb, by side; nil where nobody needs to.
func newRoles(v verb, p [2]*party, received *atomic.Uint64) (r [2]role) {
	switch v {
	case read:
		r[to] = &loner{party: p[to], work: requests(v, p[to], p[from]), moved: received}
	case write:
		r[from] = &loner{party: p[from], work: requests(v, p[from], p[to]), moved: received}
	default:
		r[from] = &giver{party: p[from], work: requests(v, p[from], p[to])}
		r[to] = &taker{party: p[to], received: received}
	}
	return r
}

// requests are the work requests of each batch that can be outstanding. Only
// the last of a batch is signaled.
func requests(v verb, p, peer *party) (all [depth / batch][]rdma.SendWR) {
	for i := range depth {
		wr := rdma.SendWR{Op: rdma.WRSend, SGL: []rdma.SGE{p.slot(i)}}
		if v != send {
			there := peer.slot(i)
			wr.Op, wr.RemoteAddr, wr.RKey = rdma.WRWrite, there.Addr, peer.mr.RKey()
		}
		if v == read {
			wr.Op = rdma.WRRead
		}
		all[i/batch] = append(all[i/batch], wr)
	}
	for b := range all {
		all[b][len(all[b])-1].Flags = rdma.Signaled
	}
	return all
}

// giver posts Sends as the taker has room for them.
type giver struct {
	*party
	work    [depth / batch][]rdma.SendWR
	posted  int // batches
	sent    int // of them, those that have completed here
	granted int // and those that the taker has taken
}

func (g *giver) prepare() error { return g.expect(2 * depth / batch) }

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

// taker gets what the giver sends, and says so after each batch.
type taker struct {
	*party
	got      int // Sends
	received *atomic.Uint64
}

func (t *taker) prepare() error {
	for b := range depth / batch {
		if err := t.offer(b); err != nil {
			return err
		}
	}
	return nil
}

func (t *taker) begin() error { return nil }

func (t *taker) completed(c rdma.Completion) error {
	t.received.Add(message)
	if t.got++; t.got%batch != 0 {
		return nil
	}
	if err := t.offer((t.got/batch - 1) % (depth / batch)); err != nil {
		return err
	}
	_, err := t.qp.PostSend(rdma.SendWR{Op: rdma.WRSend})
	return err
}

// offer posts receives for batch b.
func (t *taker) offer(b int) error {
	var wrs [batch]rdma.RecvWR
	var sgl [batch]rdma.SGE
	for i := range wrs {
		sgl[i] = t.slot(b*batch + i)
		wrs[i].SGL = sgl[i : i+1]
	}
	_, err := t.qp.PostRecv(wrs[:]...)
	return err
}

// loner posts Reads or Writes batch after batch; its peer's application does
// nothing. What has completed counts: of a Write that is what has left, at most
// a window ahead of what has been placed.
type loner struct {
	*party
	work  [depth / batch][]rdma.SendWR
	done  int // batches
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
	l.moved.Add(batch * message)
	b := l.done % len(l.work)
	l.done++
	_, err := l.qp.PostSend(l.work[b]...)
	return err
}

// expect posts receives for n messages without octets.
func (p *party) expect(n int) error {
	for range n {
		if _, err := p.qp.PostRecv(rdma.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

// play lets r work until the connection ends.
func (p *party) play(ctx context.Context, r role) error {
	if err := r.begin(); err != nil {
		return err
	}
	var got [depth]rdma.Completion
	for {
		if err := p.cq.Wait(ctx); err != nil {
			return err
		}
		for _, c := range got[:p.cq.Poll(got[:])] {
			switch c.Status {
			case rdma.Success:
			case rdma.Flushed:
				return nil // how the connection ended is the QP's to say
			default:
				return fmt.Errorf("%v: %v", c.Op, c.Status)
			}
			if err := r.completed(c); err != nil {
				return err
			}
		}
	}
}
