package rdma

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/foreign"
)

// stranger is one end of a connection whose queues another process has mapped.
type stranger struct {
	r     *rig
	a     *Adapter
	pd    *PD
	cq    *CQ
	srq   *SRQ // nil: the QP has a receive queue of its own
	qp    *QP
	mr    *MR
	bell  *Bell
	heard atomic.Int64 // calls of the CQ's handler

	send foreign.Send
	recv foreign.Recv
	done foreign.CQ
	page foreign.Bell

	unmap []func()
}

const strangerDepth = 8

// stranger makes a stranger's end. With srq, the receives are posted to an SRQ. edit changes
// the configuration of the QP.
func (r *rig) stranger(a *Adapter, srq bool, edit ...func(*QPConfig)) *stranger {
	r.Helper()
	c := &stranger{r: r, a: a}
	var err error
	c.pd, err = a.AllocPD()
	r.Must(err)
	c.mr, err = c.pd.AllocMR(64<<10, all)
	r.Must(err)
	c.cq, err = a.CreateCQ(2*strangerDepth, CQOptions{Memory: c.share(CQRingLen(2*strangerDepth), &c.done.Ring), Handler: func() { c.heard.Add(1) }})
	r.Must(err)
	cfg := QPConfig{SendCQ: c.cq, RecvCQ: c.cq, SendDepth: strangerDepth, MaxSGE: 2, MaxInline: 32}
	cfg.Rings = &Rings{Send: c.share(SendRingLen(strangerDepth, 2, 32), &c.send.Ring)}
	recv := c.share(RecvRingLen(strangerDepth, 2), &c.recv.Ring)
	if srq {
		c.recv.Shared = true
		c.srq, err = c.pd.CreateSRQ(SRQConfig{Depth: strangerDepth, MaxSGE: 2, Rings: &Rings{Recv: recv}})
		r.Must(err)
		cfg.SRQ = c.srq
	} else {
		cfg.RecvDepth, cfg.Rings.Recv = strangerDepth, recv
	}
	for _, f := range edit {
		f(&cfg)
	}
	c.qp, err = c.pd.CreateQP(cfg)
	r.Must(err)
	c.bell, err = a.NewBell(c.share(BellLen, &c.page.Page), func(int) {
		c.qp.Ring()
		if c.srq != nil {
			c.srq.Ring()
		}
	})
	r.Must(err)
	c.page.FD, err = unix.Dup(c.bell.Wake()) // as the other process has it
	r.Must(err)
	r.Cleanup(func() { // before the memory goes
		r.Check(c.bell.Close())
		r.Check(c.qp.Close())
		if c.srq != nil {
			r.Check(c.srq.Close())
		}
		r.Check(c.cq.Close())
		unix.Close(c.page.FD)
	})
	return c
}

// share returns the adapter's mapping of n octets, and stores that of the stranger.
func (c *stranger) share(n int, theirs *[]byte) (ours []byte) {
	c.r.Helper()
	ours, mine, unmap := foreign.Memory(c.r, n)
	*theirs = mine
	c.unmap = append(c.unmap, unmap)
	return ours
}

// close closes everything and unmaps the memory at once.
func (c *stranger) close() {
	c.r.Helper()
	c.leave()
	for _, unmap := range c.unmap {
		unmap()
	}
}

// leave closes everything. The stranger still has its mappings.
func (c *stranger) leave() {
	c.r.Helper()
	c.r.Must(c.bell.Close())
	c.r.Must(c.qp.Close())
	if c.srq != nil {
		c.r.Must(c.srq.Close())
	}
	c.r.Must(c.cq.Close())
}

func (c *stranger) post(wr SendWR) {
	c.r.Helper()
	if !c.send.Post(wr) {
		c.r.Fatal("the send ring is full")
	}
	c.r.Must(c.page.Ring(0))
}

func (c *stranger) receive(wr RecvWR) {
	c.r.Helper()
	if !c.recv.Post(wr) {
		c.r.Fatal("the receive ring is full")
	}
	if c.recv.Waits() {
		c.r.Must(c.page.Ring(0))
	}
}

// next waits for the next completion.
func (c *stranger) next() Completion {
	c.r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		if d, ok := c.done.Next(); ok {
			if d.Op == WCRecv {
				c.recv.Polled++
			} else {
				c.send.Polled++
			}
			return d
		}
	}
	c.r.Fatalf("no completion has come after %d", c.done.Head)
	return Completion{}
}

func (c *stranger) wants(id uint64, op WCOp, status Status) {
	c.r.Helper()
	if d := c.next(); d.ID != id || d.Op != op || d.Status != status || d.QP != c.qp.Number() {
		c.r.Fatalf("completion %+v instead of %d, %v, %v", d, id, op, status)
	}
}

// meet connects two strangers.
func (r *rig) meet(x, y *stranger) {
	r.Helper()
	r.Must(r.join(&end{r: r, a: x.a, qp: x.qp}, &end{r: r, a: y.a, qp: y.qp}, wants{}))
}
