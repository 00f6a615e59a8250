package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/tpt"
)

// makePD makes the daemon's side of a PD.
func (t *through) makePD() (handle uint64, err error) {
	a, err := t.ask(&proto.Message{Op: proto.OpPD}, 0)
	if err != nil {
		return 0, err
	}
	return a.Handle, nil
}

// distantCQ is the ring of a CQ in the daemon.
type distantCQ struct {
	handle, cookie uint64
	memory         []byte
	poller         *work.Poller
	closed         bool // CQ.polling guards it
}

// makeCQ makes the daemon's side of a CQ.
func (t *through) makeCQ(c *CQ, depth int) (err error) {
	d := new(distantCQ)
	t.mu.Lock()
	d.cookie = t.next()
	t.cqs[d.cookie] = c
	t.mu.Unlock()
	defer func() {
		if err != nil {
			t.forgetCQ(d)
		}
	}()
	m := &proto.Message{Op: proto.OpCQ}
	*m.CQ() = proto.CQ{Channel: t.handles.channel, Cookie: d.cookie, Depth: uint32(depth)}
	a, err := t.ask(m, 1)
	if err != nil {
		return err
	}
	d.handle = a.Handle
	if d.memory, err = mapShared(a.fds[0], a.CQ().Length); err == nil {
		d.poller, err = work.OpenCQ(d.memory)
	}
	if err != nil {
		t.destroy(proto.KindCQ, d.handle)
		return err
	}
	c.distant = d
	return nil
}

func (t *through) forgetCQ(d *distantCQ) {
	t.mu.Lock()
	delete(t.cqs, d.cookie)
	t.mu.Unlock()
}

// poll polls the CQ, and gives the places of the requests back. The caller must hold the lock
// of Poll.
func (t *through) poll(d *distantCQ, dst []Completion) int {
	if d.closed {
		return 0
	}
	n := d.poller.Poll(dst)
	for i := range dst[:n] {
		if qp := t.qpOf(dst[i].QP); qp != nil {
			qp.distant.polled(dst[i].Op)
		}
	}
	return n
}

func (t *through) qpOf(number uint32) *QP {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.qps[number]
}

// closeCQ ends the daemon's side of a CQ.
func (t *through) closeCQ(c *CQ) error {
	d := c.distant
	c.polling.Lock()
	defer c.polling.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	t.forgetCQ(d)
	err := t.destroy(proto.KindCQ, d.handle)
	if failed := unix.Munmap(d.memory); err == nil {
		err = failed
	}
	return err
}

// registerDistant registers mem with the daemon. If p is not nil, mem lies in p, and the
// region takes over the caller's use of p. On error, registerDistant releases p.
func (pd *PD) registerDistant(mem []byte, p *heap.Part, access Access, o []MROptions) (mr *MR, err error) {
	defer func() {
		if err != nil && p != nil {
			p.Release()
		}
	}()
	opts, err := optionsOf(o)
	switch {
	case err != nil:
		return nil, err
	case opts.QP != nil, opts.OnDemand, opts.PageSize != 0, access&OneTouch != 0:
		return nil, fmt.Errorf("MROptions.QP, OnDemand, PageSize or OneTouch: %w", ErrThroughDaemon)
	case access&ZeroBased != 0 && opts.Start != 0:
		return nil, fmt.Errorf("zero-based and beginning at %#x: choose one", opts.Start)
	}
	if _, err := rightsOf(access); err != nil {
		return nil, err
	}
	if err := pd.enter(&pd.mrs); err != nil {
		return nil, err
	}
	t := pd.adapter.through
	m := &proto.Message{Op: proto.OpMR}
	*m.MR() = proto.MR{PD: pd.distant, Addr: reach.Address(mem), Length: uint64(len(mem)), IOVA: opts.Start, Access: uint32(access &^ ZeroBased)}
	a, err := t.ask(m, 0)
	if err != nil {
		pd.leave(&pd.mrs)
		return nil, err
	}
	mr = &MR{pd: pd, stag: STag(a.MR().LKey), start: opts.Start, size: len(mem), part: p, distant: a.Handle}
	if len(mem) != 0 {
		mr.first = &mem[0]
	}
	return mr, nil
}

// closeDistant is Close of a region that the daemon has.
func (m *MR) closeDistant() error {
	done, err := m.pd.adapter.use()
	if err != nil {
		return m.release()
	}
	defer done()
	if err := m.pd.adapter.through.destroy(proto.KindMR, m.distant); err != nil {
		m.closed.Store(false)
		return fmt.Errorf("close region %v: %w", m.LKey(), err)
	}
	m.pd.leave(&m.pd.mrs)
	return m.release()
}

// makeDistantCQ is makeCQ through a daemon.
func (a *Adapter) makeDistantCQ(depth int, o []CQOptions) (*CQ, error) {
	if len(o) != 0 && o[0].Memory != nil {
		return nil, fmt.Errorf("CQOptions.Memory: %w", ErrThroughDaemon)
	}
	c := a.newCQ(a.lastCQ.Add(1), work.NewCQ(1, a.board)) // nobody pushes to this queue
	if err := a.through.makeCQ(c, depth); err != nil {
		return nil, err
	}
	if err := c.choose(o); err != nil {
		return nil, errors.Join(err, a.through.closeCQ(c))
	}
	return c, nil
}

// lookShortly looks for a completion for the time of waitSpin, because a sleep costs more.
func (c *CQ) lookShortly(ctx context.Context) bool {
	for end := clock.Now().Add(c.adapter.waitSpin()); clock.Now() < end && ctx.Err() == nil; {
		if c.ready() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// armDistant is Arm of a CQ in the daemon.
func (c *CQ) armDistant(solicitedOnly bool) {
	c.polling.Lock()
	defer c.polling.Unlock()
	if !c.distant.closed {
		c.distant.poller.Arm(solicitedOnly)
	}
}

// memory returns the table that has the regions of the adapter, or nil if the daemon has it.
func (a *Adapter) memory() *tpt.Table {
	if a.through != nil {
		return nil
	}
	return a.table
}

// describe returns the ports of the daemon.
func (t *through) describe() (ports []Port, err error) {
	for number := range t.ports {
		m := &proto.Message{Op: proto.OpPort}
		m.Port().PortNum = number + 1
		a, err := t.ask(m, 0)
		if err != nil {
			return nil, err
		}
		p := *a.Port()
		name, _, _ := strings.Cut(string(p.Netdev[:]), "\x00")
		port := Port{Name: name, MTU: int(p.MTU), Path: "daemon"}
		for i := range p.GIDs {
			m := &proto.Message{Op: proto.OpGID}
			m.GID().PortNum, m.GID().Index = number+1, i
			switch a, err = t.ask(m, 0); {
			case errors.Is(err, unix.ENODATA):
				continue
			case err != nil:
				return nil, err
			}
			ip := netip.AddrFrom16(a.GID().GID).Unmap()
			port.Addresses = append(port.Addresses, netip.PrefixFrom(ip, ip.BitLen())) // the daemon does not say how long the prefix is
		}
		ports = append(ports, port)
	}
	return ports, nil
}
