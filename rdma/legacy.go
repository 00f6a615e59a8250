package rdma

import (
	"net/netip"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/work"
)

// legacyKind is the kind of the layer's portable.Object.
const legacyKind = "rdma/1"

// legacy is what the layer hands over: every object except the machines of connected QPs,
// which their connections bring.
type legacy struct {
	lastCQ, lastSRQ, lastQP uint32

	pds       []uint32
	mrs       []legacyMR
	mws       []legacyMW
	cqs       []legacyCQ
	srqs      []legacySRQ
	qps       []legacyQP
	listeners []ListenConfig // their sockets are the files of the object
}

type legacyMR struct {
	stag   STag
	pd     uint32
	start  uint64
	size   uint64
	offset uint64 // in the region heap
}

type legacyMW struct {
	rkey STag
	pd   uint32
	kind MWType
}

type legacyCQ struct {
	number uint32
	told   bool
	state  work.CQState
}

type legacySRQ struct {
	number, pd    uint32
	depth, maxSGE int
	state         work.SharedState
}

type legacyQP struct {
	number, pd, sendCQ, recvCQ, srq         uint32 // srq is 0 if there is none
	sendDepth, recvDepth, maxSGE, maxInline int
	sigAll, regMR, reactive, asyncNotify    bool
	fatal, last, heard, empty               bool // events that have been reported
	started                                 bool
	hold                                    time.Duration // this, client and keep: from version 2 on
	client                                  uint32
	keep                                    bool
	access                                  Access // this and frames: from version 3 on
	frames                                  int    // ClientFrames
	stage                                   stage
	agreed                                  Conn
	flow                                    engine.FlowID // the connection, or 0
	image                                   []byte        // of a QP without a connection
}

var legacyFormat = pack.Format{Name: "objects of an adapter", Kind: 0x52444d41, Version: 3}

// Limits of an encoding.
const (
	mostObjects = 1 << 24
	mostImage   = 1 << 30 // octets
	mostText    = 1 << 10 // octets
	mostNumber  = 1 << 30
)

func (l *legacy) code(c *pack.Coder) {
	pack.Uint(c, &l.lastCQ)
	pack.Uint(c, &l.lastSRQ)
	pack.Uint(c, &l.lastQP)
	pack.List(c, &l.pds, mostObjects, func(c *pack.Coder, n *uint32) { pack.Uint(c, n) })
	pack.List(c, &l.mrs, mostObjects, func(c *pack.Coder, m *legacyMR) {
		pack.Uint(c, &m.stag)
		pack.Uint(c, &m.pd)
		pack.Uint(c, &m.start)
		pack.Uint(c, &m.size)
		pack.Uint(c, &m.offset)
	})
	pack.List(c, &l.mws, mostObjects, func(c *pack.Coder, m *legacyMW) {
		pack.Uint(c, &m.rkey)
		pack.Uint(c, &m.pd)
		pack.Uint(c, &m.kind)
	})
	pack.List(c, &l.cqs, mostObjects, func(c *pack.Coder, q *legacyCQ) {
		pack.Uint(c, &q.number)
		c.Bool(&q.told)
		q.state.Code(c)
	})
	pack.List(c, &l.srqs, mostObjects, func(c *pack.Coder, s *legacySRQ) {
		pack.Uint(c, &s.number)
		pack.Uint(c, &s.pd)
		pack.Int(c, &s.depth, 1, maxSRQDepth)
		pack.Int(c, &s.maxSGE, 1, maxSGE)
		s.state.Code(c)
	})
	pack.List(c, &l.qps, maxQPNumber, func(c *pack.Coder, q *legacyQP) { q.code(c) })
	pack.List(c, &l.listeners, mostObjects, func(c *pack.Coder, x *ListenConfig) {
		pack.Int(c, &x.Timeout, 0, 1<<62)
		pack.Int(c, &x.Backlog, 0, mostNumber)
		pack.Int(c, &x.MaxSilent, 0, mostNumber)
		pack.Uint(c, &x.TOS)
	})
}

func (q *legacyQP) code(c *pack.Coder) {
	for _, n := range []*uint32{&q.number, &q.pd, &q.sendCQ, &q.recvCQ, &q.srq} {
		pack.Uint(c, n)
	}
	pack.Int(c, &q.sendDepth, 1, maxQPDepth)
	pack.Int(c, &q.recvDepth, 0, maxQPDepth)
	pack.Int(c, &q.maxSGE, 1, maxSGE)
	pack.Int(c, &q.maxInline, 0, maxInline)
	for _, b := range []*bool{&q.sigAll, &q.regMR, &q.reactive, &q.asyncNotify, &q.fatal, &q.last, &q.heard, &q.empty, &q.started} {
		c.Bool(b)
	}
	if c.Version() >= 2 {
		pack.Int(c, &q.hold, HoldForever, 1<<62)
		pack.Uint(c, &q.client)
		c.Bool(&q.keep)
	}
	if c.Version() >= 3 {
		pack.Uint(c, &q.access)
		pack.Int(c, &q.frames, 0, mostNumber)
	} else {
		q.access = remoteAccess
	}
	pack.Uint(c, &q.stage)
	pack.Uint(c, &q.flow)
	c.Octets(&q.image, mostImage)
	a := &q.agreed
	codeAddress(c, &a.Local)
	codeAddress(c, &a.Remote)
	for _, b := range []*bool{&a.Initiator, &a.CRC, &a.SendMarkers, &a.RecvMarkers, &a.Depths, &a.RFC7306} {
		c.Bool(b)
	}
	for _, n := range []*int{&a.Revision, &a.IRD, &a.ORD, &a.PeerIRD, &a.PeerORD} {
		pack.Int(c, n, 0, mostNumber)
	}
	c.Octets(&a.PrivateData, maxPrivate+4)
	pack.Uint(c, &a.Extensions)
	c.Text(&a.Path, mostText)
	if q.access&^remoteAccess != 0 {
		c.Fail("QP %d with access %v", q.number, q.access)
	}
	if q.stage > connected || q.stage == connecting || q.number < 2 || q.number > maxQPNumber {
		c.Fail("QP %d in stage %d", q.number, q.stage)
	}
}

// codeAddress codes an address and a port, possibly none.
func codeAddress(c *pack.Coder, a *netip.AddrPort) {
	b, err := a.MarshalBinary()
	if err != nil {
		c.Fail("the address %v: %v", a, err)
		return
	}
	if c.Octets(&b, 64); c.Writes() || !c.OK() {
		return
	}
	if err := a.UnmarshalBinary(b); err != nil {
		c.Fail("an address of %d octets", len(b))
	}
}
