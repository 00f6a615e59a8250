package daemon

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// qp is a queue pair. Its rings are in memory of the client.
type qp struct {
	client *client
	handle uint64
	qp     *rdma.QP
	rings  *shared
	bit    int
	cookie uint64
	flags  uint32
	cost   charge
	sent   counter

	mu       sync.Mutex // guards the fields below
	attr     proto.QPAttr
	asksSQD  bool          // the client has asked for the event SQ_DRAINED
	attached bool          // the QP has a connection, or somebody is making one
	numbered bool          // it was made by number
	leaving  chan struct{} // closed when the connection has ended after the client's disconnect; nil before it
}

// Numbers of libibverbs.
const (
	typeRC = 2 // IBV_QPT_RC

	stateReset = 0
	stateInit  = 1
	stateRTR   = 2
	stateRTS   = 3
	stateSQD   = 4
	stateErr   = 6

	maskState         = 1 << 0
	maskEnSQDNotify   = 1 << 2
	maskAccess        = 1 << 3
	maskPort          = 1 << 5
	maskAV            = 1 << 7
	maskPathMTU       = 1 << 8
	maskTimeout       = 1 << 9
	maskRetryCnt      = 1 << 10
	maskRNRRetry      = 1 << 11
	maskRQPSN         = 1 << 12
	maskMaxRdAtomic   = 1 << 13
	maskMinRNRTimer   = 1 << 15
	maskSQPSN         = 1 << 16
	maskMaxDestRdAtom = 1 << 17
	maskDestQPN       = 1 << 20
)

// shape is the sizes of a QP.
type shape struct {
	sendDepth, recvDepth, sge, inline int
	recvOffset, sendLen, recvLen      int
}

// mostInline is the largest inline data that a QP can have. A request with Immediate Data has
// one octet for the length.
const mostInline = 255

// shapeOf checks the sizes that a client asks for. The slots of the send ring may have room
// for more inline data than asked for; the QP then takes that much.
func shapeOf(p *proto.QP, l rdma.Limits) (s shape, err error) {
	s.sendDepth, s.recvDepth = max(1, int(p.SendDepth)), max(1, int(p.RecvDepth))
	s.sge, s.inline = max(1, int(p.SendSGE), int(p.RecvSGE)), int(p.InlineLen)
	if s.sendDepth > l.MaxQPDepth || s.recvDepth > l.MaxQPDepth || s.sge > l.MaxSGE || s.inline > mostInline {
		return s, fmt.Errorf("a QP of %d and %d requests with %d elements and %d octets inline: %w", s.sendDepth, s.recvDepth, s.sge, s.inline, unix.EINVAL)
	}
	const fixed, unit, element = 32, 32, 16 // of a slot of a send ring
	body := max(element*s.sge, s.inline)
	s.inline = (fixed+body+unit-1)/unit*unit - fixed
	if s.inline = min(s.inline, mostInline); p.SRQ != 0 {
		s.recvDepth = 0
	} else {
		s.recvLen = rdma.RecvRingLen(s.recvDepth, s.sge)
	}
	s.sendLen = rdma.SendRingLen(s.sendDepth, s.sge, s.inline)
	const line = 64
	s.recvOffset = (s.sendLen + line - 1) / line * line
	return s, nil
}

func (s shape) length() int { return s.recvOffset + s.recvLen }

func (c *client) makeQP(m *proto.Message) (reply, error) {
	p := m.QP()
	if p.Type != typeRC {
		return reply{}, fmt.Errorf("a QP of type %d: %w", p.Type, unix.EOPNOTSUPP)
	}
	cfg, domain, err := c.partsOf(p)
	if err != nil {
		return reply{}, err
	}
	s, err := shapeOf(p, c.daemon.limits)
	if err != nil {
		return reply{}, err
	}
	q := &qp{client: c, cookie: p.Cookie, flags: p.Flags, cost: charge{{ofQPs, 1}, {ofRings, int64(s.length())}}}
	if err := c.account.takeAll(q.cost); err != nil {
		return reply{}, err
	}
	if err := q.open(domain, cfg, s); err != nil {
		c.account.giveAll(q.cost)
		return reply{}, err
	}
	p.SendDepth, p.RecvDepth, p.SendSGE, p.RecvSGE, p.InlineLen = uint32(s.sendDepth), uint32(s.recvDepth), uint32(s.sge), uint32(s.sge), uint32(s.inline)
	p.QPN, p.Bit, p.RecvOffset = q.qp.Number(), uint32(q.bit), uint64(s.recvOffset)
	p.SendLen, p.RecvLen, p.Length = uint64(s.sendLen), uint64(s.recvLen), uint64(s.length())
	m.Handle = q.handle
	if err := c.objects.add(q.handle, q); err != nil {
		q.close()
		return reply{}, err
	}
	return reply{fds: []int{q.rings.fd}, after: q.rings.passed}, nil
}

// partsOf finds the objects that a new QP uses.
func (c *client) partsOf(p *proto.QP) (cfg rdma.QPConfig, domain *pd, err error) {
	if domain, err = named[*pd](&c.objects, p.PD, "PD"); err != nil {
		return cfg, nil, err
	}
	send, err := named[*cq](&c.objects, p.SendCQ, "CQ")
	if err != nil {
		return cfg, nil, err
	}
	recv, err := named[*cq](&c.objects, p.RecvCQ, "CQ")
	if err != nil {
		return cfg, nil, err
	}
	shared, err := optional[*srq](&c.objects, p.SRQ, "SRQ")
	if err != nil {
		return cfg, nil, err
	}
	cfg = rdma.QPConfig{SendCQ: send.cq, RecvCQ: recv.cq, SQSigAll: p.Flags&proto.QPSignalAll != 0, AsyncNotify: true, Client: c.number, ClientFrames: int(c.account.limit[ofFrames]), KeepReceives: p.Flags&proto.QPNoKeep == 0}
	if p.Flags&proto.QPNoHold == 0 {
		cfg.Hold = rdma.HoldForever
	}
	if shared != nil {
		cfg.SRQ = shared.srq
	}
	return cfg, domain, nil
}

func (q *qp) open(domain *pd, cfg rdma.QPConfig, s shape) (err error) {
	c := q.client
	if q.rings, err = newShared("qp", s.length()); err != nil {
		return err
	}
	cfg.SendDepth, cfg.RecvDepth, cfg.MaxSGE, cfg.MaxInline = s.sendDepth, s.recvDepth, s.sge, s.inline
	cfg.Rings = &rdma.Rings{Send: q.rings.memory[:s.sendLen:s.sendLen]}
	if s.recvLen != 0 {
		cfg.Rings.Recv = q.rings.memory[s.recvOffset:][:s.recvLen:s.recvLen]
	}
	if q.qp, err = domain.pd.CreateQP(cfg); err != nil {
		q.rings.free()
		return err
	}
	if q.bit, err = c.bits.add(q.qp); err != nil {
		q.qp.Close()
		q.rings.free()
		return err
	}
	q.handle = c.daemon.handle()
	c.daemon.owners.add(q.qp, q)
	c.mu.Lock()
	c.qps[q.qp.Number()] = q
	c.mu.Unlock()
	return nil
}

func (q *qp) kind() proto.Kind { return proto.KindQP }
func (q *qp) events() uint32   { return q.sent.count() }

func (q *qp) close() error {
	if err := q.qp.Close(); err != nil {
		return err
	}
	c := q.client
	c.mu.Lock()
	delete(c.qps, q.qp.Number())
	c.mu.Unlock()
	c.bits.remove(q.bit)
	c.daemon.owners.remove(q.qp)
	q.rings.free()
	c.account.giveAll(q.cost)
	return nil
}

// numbered returns the client's QP of a number.
func (c *client) numbered(qpn uint32) (*qp, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.qps[qpn]; q != nil {
		return q, nil
	}
	return nil, fmt.Errorf("QP %d is none of this client: %w", qpn, unix.EINVAL)
}

// state returns the state of the QP, as in libibverbs. The caller must hold q.mu.
func (q *qp) state() uint32 {
	select {
	case <-q.qp.Done():
		return stateErr
	default:
	}
	switch s := q.qp.State(); {
	case s == rdma.Terminate || s == rdma.Errored:
		return stateErr
	case s == rdma.Closing:
		return stateSQD
	case !q.numbered && (s == rdma.RTS || s == rdma.Drained):
		return stateRTS
	}
	return q.attr.State
}

// follows says which states a client may ask for in which state. A QP is connected only once,
// so that only a QP without a connection goes back. iWARP has no RTR: a client may leave it out.
var follows = map[uint32][]uint32{
	stateReset: {stateReset, stateInit},
	stateInit:  {stateReset, stateInit, stateRTR, stateRTS},
	stateRTR:   {stateReset, stateRTS},
	stateRTS:   {stateRTS},
	stateSQD:   {stateSQD},
	stateErr:   {},
}

func (c *client) modifyQP(m *proto.Message) (reply, error) {
	q, err := named[*qp](&c.objects, m.Handle, "QP")
	if err != nil {
		return reply{}, err
	}
	return reply{}, q.modify(m.QPAttr())
}

func (q *qp) modify(a *proto.QPAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.state()
	if q.attached && !q.numbered && now != stateErr && a.State != stateErr {
		q.note(a) // the connection manager has made the connection: it goes through no states
		return nil
	}
	if a.Mask&maskState != 0 && a.State != stateErr {
		allowed := false
		for _, s := range follows[now] {
			allowed = allowed || s == a.State && (s != stateReset || !q.attached)
		}
		if !allowed {
			return fmt.Errorf("QP %d cannot go from state %d to %d: %w", q.qp.Number(), now, a.State, unix.EINVAL)
		}
	}
	if a.Mask&maskState != 0 && a.State == stateRTR && a.Mask&(maskAV|maskDestQPN) == maskAV|maskDestQPN {
		if err := q.meet(a); err != nil {
			return err
		}
	}
	q.note(a)
	switch {
	case a.Mask&maskState == 0:
	case a.State == stateErr:
		q.attr.State = stateErr
		q.qp.Fail()
	default:
		q.attr.State = a.State
	}
	return nil
}

// note keeps the attributes that the mask names. The caller must hold q.mu.
func (q *qp) note(a *proto.QPAttr) {
	for _, f := range []struct {
		mask     uint32
		to, from *uint32
	}{
		{maskAccess, &q.attr.Access, &a.Access}, {maskPort, &q.attr.PortNum, &a.PortNum}, {maskPathMTU, &q.attr.PathMTU, &a.PathMTU},
		{maskTimeout, &q.attr.Timeout, &a.Timeout}, {maskRetryCnt, &q.attr.RetryCnt, &a.RetryCnt}, {maskRNRRetry, &q.attr.RNRRetry, &a.RNRRetry},
		{maskRQPSN, &q.attr.RQPSN, &a.RQPSN}, {maskSQPSN, &q.attr.SQPSN, &a.SQPSN}, {maskMinRNRTimer, &q.attr.MinRNRTimer, &a.MinRNRTimer},
		{maskMaxRdAtomic, &q.attr.MaxRdAtomic, &a.MaxRdAtomic}, {maskMaxDestRdAtom, &q.attr.MaxDestRdAtomic, &a.MaxDestRdAtomic},
		{maskDestQPN, &q.attr.DestQPN, &a.DestQPN}, {maskAV, &q.attr.SGIDIndex, &a.SGIDIndex},
	} {
		if a.Mask&f.mask != 0 {
			*f.to = *f.from
		}
	}
	if a.Mask&maskAccess != 0 {
		q.allow(rdma.Access(a.Access))
	}
	if a.Mask&maskAV != 0 {
		q.attr.DGID = a.DGID
	}
	if a.Mask&maskEnSQDNotify != 0 {
		q.asksSQD = true
	}
}

// allow enforces the access flags of the client. Flags that do not concern the peer have no
// effect. A QP whose client gives no flags allows everything.
func (q *qp) allow(access rdma.Access) {
	const remote = rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic
	q.qp.SetPeerAccess(access & remote) // fails for other flags only
}

func (c *client) queryQP(m *proto.Message) (reply, error) {
	q, err := named[*qp](&c.objects, m.Handle, "QP")
	if err != nil {
		return reply{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a, cfg := q.attr, q.qp.Config()
	a.State = q.state()
	a.CurState, a.QPN, a.Flags = a.State, q.qp.Number(), q.flags
	a.SendDepth, a.RecvDepth, a.SendSGE, a.RecvSGE, a.InlineLen = uint32(cfg.SendDepth), uint32(cfg.RecvDepth), uint32(cfg.MaxSGE), uint32(cfg.MaxSGE), uint32(cfg.MaxInline)
	*m.QPAttr() = a
	return reply{}, nil
}
