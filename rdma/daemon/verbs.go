package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// pd is a protection domain of a client.
type pd struct {
	client *client
	pd     *rdma.PD
}

func (c *client) makePD(m *proto.Message) (reply, error) {
	if err := c.account.take(ofPDs, 1); err != nil {
		return reply{}, err
	}
	inner, err := c.daemon.adapter.AllocPD()
	if err != nil {
		c.account.give(ofPDs, 1)
		return reply{}, err
	}
	return reply{}, c.keep(m, &pd{c, inner})
}

// keep gives a new object a handle. If the client has ended, keep closes the object.
func (c *client) keep(m *proto.Message, o object) error {
	m.Handle = c.daemon.handle()
	if err := c.objects.add(m.Handle, o); err != nil {
		o.close()
		return err
	}
	return nil
}

func (p *pd) kind() proto.Kind { return proto.KindPD }

func (p *pd) close() error {
	if err := p.pd.Close(); err != nil {
		return err
	}
	p.client.account.give(ofPDs, 1)
	return nil
}

// mr is a region.
type mr struct {
	client *client
	mr     *rdma.MR
	cost   charge
}

// Flags of libibverbs that change nothing here: pages of any kind are reached, and the order
// of accesses is that of the wire.
const ignoredAccess = 0x40 | 0x80 | 0x3ff00000 // on demand, huge pages, optional flags

func (c *client) makeMR(m *proto.Message) (reply, error) {
	q := m.MR()
	domain, err := named[*pd](&c.objects, q.PD, "PD")
	if err != nil {
		return reply{}, err
	}
	access := rdma.Access(q.Access &^ ignoredAccess)
	if known := rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic | rdma.MWBind | rdma.ZeroBased; access&^known != 0 {
		return reply{}, fmt.Errorf("access %#x: %w", q.Access, unix.EINVAL)
	}
	cost := charge{{ofRegions, 1}, {ofMapped, int64(min(q.Length, 1<<62))}}
	if err := c.account.takeAll(cost); err != nil {
		return reply{}, err
	}
	if q.IOVA == 0 {
		access |= rdma.ZeroBased
	}
	inner, err := domain.pd.RegForeignMR(c.space, q.Addr, q.Length, access, rdma.MROptions{Start: startOf(q.IOVA, access)})
	if err != nil {
		c.account.giveAll(cost)
		return reply{}, err
	}
	q.LKey, q.RKey, q.Reach = uint32(inner.LKey()), uint32(inner.RKey()), proto.ReachCopied
	if why := inner.Unmapped(); why == nil {
		q.Reach = proto.ReachMapped
	} else {
		c.log.Debug("region copied by the kernel", "stag", q.LKey, "reason", why)
	}
	return reply{}, c.keep(m, &mr{c, inner, cost})
}

// startOf returns the tagged offset of the first octet of a region.
func startOf(iova uint64, access rdma.Access) uint64 {
	if access&rdma.ZeroBased != 0 {
		return 0
	}
	return iova
}

func (r *mr) kind() proto.Kind { return proto.KindMR }

func (r *mr) close() error {
	if err := r.mr.Close(); err != nil {
		return err
	}
	r.client.account.giveAll(r.cost)
	return nil
}

// mw is a memory window.
type mw struct {
	client *client
	mw     *rdma.MW
}

func (c *client) makeMW(m *proto.Message) (reply, error) {
	q := m.MW()
	domain, err := named[*pd](&c.objects, q.PD, "PD")
	if err != nil {
		return reply{}, err
	}
	types := map[uint32]rdma.MWType{1: rdma.MWType1, 2: rdma.MWType2A}
	t, ok := types[q.Type]
	if !ok {
		return reply{}, fmt.Errorf("a window of type %d: %w", q.Type, unix.EINVAL)
	}
	if err := c.account.take(ofWindows, 1); err != nil {
		return reply{}, err
	}
	inner, err := domain.pd.AllocMW(t)
	if err != nil {
		c.account.give(ofWindows, 1)
		return reply{}, err
	}
	q.RKey = uint32(inner.RKey())
	return reply{}, c.keep(m, &mw{c, inner})
}

func (w *mw) kind() proto.Kind { return proto.KindMW }

func (w *mw) close() error {
	if err := w.mw.Close(); err != nil {
		return err
	}
	w.client.account.give(ofWindows, 1)
	return nil
}

// cq is a completion queue. Its ring is in memory of the client.
type cq struct {
	client  *client
	handle  uint64
	cq      *rdma.CQ
	ring    *shared
	more    []*shared // rings of RESIZE_CQ
	channel *channel  // nil: none
	cookie  uint64
	cost    charge
	sent    counter

	event [8]byte

	// The next fields are guarded by channel.mu.
	waits  bool // the event is in channel.waiting
	ending bool // the CQ is being destroyed: no event of it is sent
	missed bool // an event came meanwhile
}

func (c *client) makeCQ(m *proto.Message) (reply, error) {
	p := m.CQ()
	h, err := optional[*channel](&c.objects, p.Channel, "completion channel")
	if err != nil {
		return reply{}, err
	}
	depth := int(p.Depth)
	if depth < 1 || depth > c.daemon.limits.MaxCQDepth {
		return reply{}, fmt.Errorf("a CQ of depth %d: %w", depth, unix.EINVAL)
	}
	q := &cq{client: c, channel: h, cookie: p.Cookie, event: eventOf(p.Cookie)}
	length := rdma.CQRingLen(depth)
	q.cost = charge{{ofCQs, 1}, {ofCQSlots, int64(depth)}, {ofRings, int64(length)}}
	if err := c.account.takeAll(q.cost); err != nil {
		return reply{}, err
	}
	if err := q.open(depth, length); err != nil {
		c.account.giveAll(q.cost)
		return reply{}, err
	}
	p.Depth, p.Length = uint32(q.cq.Depth()), uint64(length)
	h.use(1)
	q.handle = c.daemon.handle()
	m.Handle = q.handle
	c.daemon.owners.add(q.cq, q)
	if err := c.objects.add(q.handle, q); err != nil {
		q.close()
		return reply{}, err
	}
	return reply{fds: []int{q.ring.fd}, after: q.ring.passed}, nil
}

func (q *cq) open(depth, length int) (err error) {
	if q.ring, err = newShared("cq", length); err != nil {
		return err
	}
	o := rdma.CQOptions{Memory: q.ring.memory}
	if q.channel != nil {
		o.Handler = func() { q.channel.tell(q) }
	}
	if q.cq, err = q.client.daemon.adapter.CreateCQ(depth, o); err != nil {
		q.ring.free()
	}
	return err
}

// resizeCQ gives the CQ a second ring. The first one stays, because its head and its armed
// word count for all rings of the CQ.
func (c *client) resizeCQ(m *proto.Message) (reply, error) {
	q, err := named[*cq](&c.objects, m.Handle, "CQ")
	if err != nil {
		return reply{}, err
	}
	p := m.CQ()
	depth := int(p.Depth)
	if depth < 1 || depth > c.daemon.limits.MaxCQDepth {
		return reply{}, fmt.Errorf("a CQ of depth %d: %w", depth, unix.EINVAL)
	}
	length := rdma.CQRingLen(depth)
	more := charge{{ofCQSlots, int64(depth)}, {ofRings, int64(length)}}
	if err := c.account.takeAll(more); err != nil {
		return reply{}, err
	}
	ring, err := newShared("cq", length)
	if err == nil {
		p.Cookie, err = q.cq.ResizeIn(ring.memory, depth)
	}
	if err != nil {
		ring.free()
		c.account.giveAll(more)
		return reply{}, err
	}
	q.more, q.cost = append(q.more, ring), append(q.cost, more...)
	p.Depth, p.Length = uint32(q.cq.Depth()), uint64(length)
	return reply{fds: []int{ring.fd}, after: ring.passed}, nil
}

func (q *cq) kind() proto.Kind { return proto.KindCQ }
func (q *cq) events() uint32   { return q.sent.count() }

func (q *cq) close() error {
	q.channel.mute(q, true) // the adapter tells of the end as of a completion
	if err := q.cq.Close(); err != nil {
		q.channel.mute(q, false)
		return err
	}
	q.client.daemon.owners.remove(q.cq)
	q.channel.use(-1)
	for _, ring := range append(q.more, q.ring) {
		ring.free()
	}
	q.client.account.giveAll(q.cost)
	return nil
}

// srq is a shared receive queue.
type srq struct {
	client *client
	handle uint64
	srq    *rdma.SRQ
	ring   *shared
	bit    int
	cookie uint64
	cost   charge
	sent   counter
}

func (c *client) makeSRQ(m *proto.Message) (reply, error) {
	p := m.SRQ()
	domain, err := named[*pd](&c.objects, p.PD, "PD")
	if err != nil {
		return reply{}, err
	}
	depth, sge := max(1, int(p.Depth)), max(1, int(p.SGE))
	if depth > c.daemon.limits.MaxSRQDepth || sge > c.daemon.limits.MaxSGE || int(p.Limit) > depth {
		return reply{}, fmt.Errorf("an SRQ of depth %d with %d elements and limit %d: %w", depth, sge, p.Limit, unix.EINVAL)
	}
	length := rdma.RecvRingLen(depth, sge)
	s := &srq{client: c, cookie: p.Cookie, cost: charge{{ofSRQs, 1}, {ofRings, int64(length)}}}
	if err := c.account.takeAll(s.cost); err != nil {
		return reply{}, err
	}
	if err := s.open(domain, depth, sge, length); err != nil {
		c.account.giveAll(s.cost)
		return reply{}, err
	}
	s.srq.SetLimit(int(p.Limit)) // in range
	p.Depth, p.SGE, p.Bit, p.Length = uint32(depth), uint32(sge), uint32(s.bit), uint64(length)
	s.handle = c.daemon.handle()
	m.Handle = s.handle
	if err := c.objects.add(s.handle, s); err != nil {
		s.close()
		return reply{}, err
	}
	return reply{fds: []int{s.ring.fd}, after: s.ring.passed}, nil
}

func (s *srq) open(domain *pd, depth, sge, length int) (err error) {
	if s.ring, err = newShared("srq", length); err != nil {
		return err
	}
	if s.srq, err = domain.pd.CreateSRQ(rdma.SRQConfig{Depth: depth, MaxSGE: sge, Rings: &rdma.Rings{Recv: s.ring.memory}}); err != nil {
		s.ring.free()
		return err
	}
	if s.bit, err = s.client.bits.add(s); err != nil {
		s.srq.Close()
		s.ring.free()
		return err
	}
	s.client.daemon.owners.add(s.srq, s)
	return nil
}

// Ring is called when the client has posted receives.
func (s *srq) Ring() { s.srq.Ring() }

func (c *client) modifySRQ(m *proto.Message) (reply, error) {
	p := m.SRQ()
	s, err := named[*srq](&c.objects, m.Handle, "SRQ")
	switch {
	case err != nil:
		return reply{}, err
	case p.Mask&^(proto.SRQDepth|proto.SRQLimit) != 0:
		return reply{}, unix.EINVAL
	case p.Mask&proto.SRQDepth != 0 && int(p.Depth) != s.srq.Config().Depth:
		return reply{}, unix.EOPNOTSUPP
	case p.Mask&proto.SRQLimit != 0:
		return reply{}, s.srq.SetLimit(int(p.Limit))
	}
	return reply{}, nil
}

func (c *client) querySRQ(m *proto.Message) (reply, error) {
	s, err := named[*srq](&c.objects, m.Handle, "SRQ")
	if err != nil {
		return reply{}, err
	}
	cfg := s.srq.Config()
	*m.SRQ() = proto.SRQ{Cookie: s.cookie, Depth: uint32(cfg.Depth), SGE: uint32(cfg.MaxSGE), Limit: uint32(s.srq.Limit()), Bit: uint32(s.bit)}
	return reply{}, nil
}

func (s *srq) kind() proto.Kind { return proto.KindSRQ }
func (s *srq) events() uint32   { return s.sent.count() }

func (s *srq) close() error {
	if err := s.srq.Close(); err != nil {
		return err
	}
	s.client.bits.remove(s.bit)
	s.client.daemon.owners.remove(s.srq)
	s.ring.free()
	s.client.account.giveAll(s.cost)
	return nil
}
