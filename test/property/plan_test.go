package property

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/work"
)

// These are the regions of a side. The peer has all rights to all regions except the
// local ones. Victims are for invalidation by the peer. The side itself invalidates spare.
const (
	local   = 0
	main    = 1
	victims = 2 // the first victim
	spare   = 5
	regions = 6

	localLen, mainLen, victimLen = 1500, 1500, 80
)

func lengthOf(region int) int {
	if region < 2 {
		return [2]int{localLen, mainLen}[region]
	}
	return victimLen
}

// place is a range of n octets in a region.
type place struct{ region, off, n int }

func (p place) overlaps(q place) bool {
	return p.region == q.region && p.off < q.off+q.n && q.off < p.off+p.n
}

func total(list []place) (n int) {
	for _, p := range list {
		n += p.n
	}
	return n
}

// request is a work request of a side's send queue. Its ID is its index.
type request struct {
	op     work.WROp
	flags  work.SendFlags
	list   []place // local places to gather from, or to put the Read's octets into
	inline []byte  // inline data instead of list
	remote place   // target of a Write, or source of a Read
	victim int     // region of the peer, for a Send with Invalidate
	fault  fault

	operands [4]uint64 // of an atomic operation: CompareAdd, Swap, CompareAddMask, SwapMask
	imm      uint64    // Immediate Data
}

func (r *request) has(f work.SendFlags) bool { return r.flags&f != 0 }
func (r *request) sends() bool {
	return r.op == work.WRSend || r.op == work.WRSendInvalidate || r.immediate()
}
func (r *request) length() int { return max(len(r.inline), total(r.list)) }

func (r *request) String() string {
	return fmt.Sprintf("%v flags %b list %v inline %d remote %v victim %d fault %d", r.op, r.flags, r.list, len(r.inline), r.remote, r.victim, r.fault)
}

// fault is the fault in the last request of a sequence.
type fault int

const (
	none fault = iota
	writeUnknown
	writeOutside
	writeForeign
	readUnknown
	readOutside
	sendTooLong
	sendNoReceive
	invalidateUnknown
	localUnknown
	faults
)

// outcome is the expected result of a fault.
type outcome struct {
	code   rdmap.Code
	local  bool        // the side that posted the request detects the fault
	status work.Status // status of the request
	recv   work.Status // status of the receive that the request uses; Success means that it uses none
}

var outcomes = [faults]outcome{
	writeUnknown:      {code: rdmap.Code{Layer: 1, Type: 1, Code: 0}},
	writeOutside:      {code: rdmap.Code{Layer: 1, Type: 1, Code: 1}},
	writeForeign:      {code: rdmap.Code{Layer: 1, Type: 1, Code: 2}},
	readUnknown:       {code: rdmap.Code{Layer: 0, Type: 1, Code: 0}, status: work.RemoteAccessErr},
	readOutside:       {code: rdmap.Code{Layer: 0, Type: 1, Code: 1}, status: work.RemoteAccessErr},
	sendTooLong:       {code: rdmap.Code{Layer: 1, Type: 2, Code: 5}, recv: work.LocalLengthErr},
	sendNoReceive:     {code: rdmap.Code{Layer: 1, Type: 2, Code: 2}},
	invalidateUnknown: {code: rdmap.Code{Layer: 0, Type: 2, Code: 9}, recv: work.RemoteInvalidErr},
	localUnknown:      {code: rdmap.Code{Layer: 0, Type: 0, Code: 0xff}, local: true, status: work.LocalProtErr},
}

// half is what one side posts.
type half struct {
	requests []request
	receives [][]place
}

// plan is a sequence.
type plan struct {
	halves [2]half
	faulty int // side whose last request has a fault; -1 means none
}

func (p *plan) String() string {
	var b strings.Builder
	for side, h := range p.halves {
		for i := range h.requests {
			fmt.Fprintf(&b, "side %d posts %d: %v\n", side, i, &h.requests[i])
		}
		for i, r := range h.receives {
			fmt.Fprintf(&b, "side %d receives %d: %v\n", side, i, r)
		}
	}
	return b.String()
}

const (
	maxSGE     = 4
	maxInline  = 64
	queueDepth = 16
)

// generator makes plans.
type generator struct {
	*rand.Rand
	reads []request // Reads and atomic operations of this direction since the last fence
	spent bool      // the side has invalidated spare
}

// chance returns true in one of n calls.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g *generator) plan() *plan {
	p := &plan{faulty: -1}
	if g.chance(5) {
		p.faulty = g.IntN(2)
	}
	for side := range p.halves {
		g.direction(p, side)
	}
	return p
}

// direction generates the requests of side and the receives of its peer.
func (g *generator) direction(p *plan, side int) {
	g.reads, g.spent = g.reads[:0], false
	h, peer := &p.halves[side], &p.halves[1-side]
	for range g.IntN(9) {
		r := g.request()
		if r.sends() {
			n := r.length()
			if r.immediate() {
				n = 0
			}
			peer.receives = append(peer.receives, g.receive(n))
		}
		g.fence(&r, peer)
		h.requests = append(h.requests, r)
	}
	if p.faulty == side {
		h.requests = append(h.requests, g.faulty(peer))
	} else {
		for g.chance(2) && len(peer.receives) < queueDepth {
			peer.receives = append(peer.receives, g.receive(0)) // an unused receive
		}
	}
}

// within returns a random place of n octets in a region, or of the whole region if it
// is shorter.
func (g *generator) within(region, n int) place {
	n = min(n, lengthOf(region))
	return place{region, g.IntN(lengthOf(region) - n + 1), n}
}

// own returns a random place of at most n octets that only the side's own requests use.
func (g *generator) own(n int) place {
	if !g.spent && g.chance(4) {
		return g.within(spare, n)
	}
	return g.within(local, n)
}

// size returns a random length, often a special one.
func (g *generator) size() int {
	return [...]int{0, 1, g.IntN(20), g.IntN(200), 180 + g.IntN(30), g.IntN(700)}[g.IntN(6)]
}

func (g *generator) request() request {
	ops := [...]work.WROp{work.WRSend, work.WRWrite, work.WRWrite, work.WRRead, work.WRRead, work.WRSendInvalidate, work.WRSend, work.WRLocalInvalidate}
	r := request{op: ops[g.IntN(len(ops))], flags: work.SendFlags(g.IntN(8)), imm: g.Uint64()}
	if g.chance(3) {
		r.op = extendedOps[g.IntN(len(extendedOps))]
	}
	if !g.chance(4) {
		r.flags &^= work.Fence
	}
	switch {
	case r.op == work.WRLocalInvalidate:
		g.spent = true
	case r.atomic():
		g.operate(&r)
	case r.op == work.WRSendImm:
	case r.op == work.WRRead:
		r.list = []place{g.own(g.size())}
	case g.chance(3):
		r.inline = g.octets(1 + g.IntN(maxInline))
	default:
		for range g.IntN(maxSGE + 1) {
			r.list = append(r.list, g.own(g.size()))
		}
		r.shorten(mainLen)
	}
	switch r.op {
	case work.WRRead:
		r.remote = g.within(main, r.list[0].n)
		r.list[0].n = r.remote.n
		if r.remote.n == 0 && g.chance(2) {
			r.list = nil
		}
	case work.WRWrite, work.WRWriteImm:
		r.remote = g.within(main, r.length())
		r.shorten(r.remote.n)
	case work.WRSendInvalidate:
		r.victim = victims + g.IntN(spare-victims)
	}
	r.plain()
	return r
}

// plain clears the flag that is permitted only for Sends.
func (r *request) plain() {
	if !r.sends() {
		r.flags &^= work.Solicited
	}
}

func (g *generator) octets(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// shorten cuts the list to at most n octets.
func (r *request) shorten(n int) {
	for i := range r.list {
		r.list[i].n = min(r.list[i].n, n)
		n -= r.list[i].n
	}
}

// receive returns a list with room for a message of n octets. No octet is in the list
// twice, because the verbs refuse that.
func (g *generator) receive(n int) (list []place) {
	for range g.IntN(maxSGE) {
		list = appendApart(list, g.within(main, g.size()))
	}
	for total(list) < n {
		longer := appendApart(list, g.within(main, n-total(list)+g.IntN(100)))
		if list = longer; total(list) < n {
			list = list[:len(list)/2] // no free place is left: try again with fewer places
		}
		if len(list) == 0 && n > mainLen/2 {
			return []place{{main, 0, mainLen}}
		}
	}
	return list
}

// appendApart adds p to the list unless p overlaps a place of the list.
func appendApart(list []place, p place) []place {
	for _, q := range list {
		if p.overlaps(q) {
			return list
		}
	}
	return append(list, p)
}

// fence sets the fence of r if r depends on a Read that may still be outstanding.
func (g *generator) fence(r *request, peer *half) {
	for i := range g.reads {
		if g.depends(r, &g.reads[i], peer) {
			r.flags |= work.Fence
		}
	}
	if r.has(work.Fence) {
		g.reads = g.reads[:0]
	}
	if r.answered() {
		g.reads = append(g.reads, *r)
	}
}

// depends reports whether r uses the octets that the Read places, or changes the octets
// that the Read reads.
func (g *generator) depends(r, read *request, peer *half) bool {
	if r.answered() {
		return false // the peer executes and answers these in order
	}
	if read.atomic() || r.op == work.WRLocalInvalidate {
		return true // requests that change memory of the peer are executed in order; a Read may use spare
	}
	for _, p := range r.list {
		for _, sink := range read.list {
			if p.overlaps(sink) {
				return true
			}
		}
	}
	if r.writes() && r.remote.overlaps(read.remote) {
		return true
	}
	if !r.sends() || r.immediate() {
		return false // it changes no memory of a receive
	}
	for _, p := range peer.receives[len(peer.receives)-1] {
		if p.overlaps(read.remote) {
			return true
		}
	}
	return false
}

// faulty returns a request that ends the connection.
func (g *generator) faulty(peer *half) request {
	r := request{fault: fault(1 + g.IntN(int(faults)-1)), flags: work.SendFlags(g.IntN(8))}
	switch r.fault {
	case writeUnknown, writeOutside, writeForeign:
		r.op, r.inline, r.remote = work.WRWrite, g.octets(8), place{main, 0, 8}
	case readUnknown, readOutside:
		r.op, r.list, r.remote = work.WRRead, []place{g.within(local, 8)}, place{main, 0, 8}
	case sendTooLong:
		r.op, r.list = work.WRSend, []place{g.within(local, 1000)}
		peer.receives = append(peer.receives, []place{g.within(main, g.IntN(1000))})
	case sendNoReceive:
		r.op, r.inline = work.WRSend, g.octets(8)
	case invalidateUnknown:
		r.op = work.WRSendInvalidate
		peer.receives = append(peer.receives, nil)
	case localUnknown:
		r.op, r.list = work.WRWrite, []place{{local, 0, 8}}
	}
	r.plain()
	g.fence(&r, &half{receives: append(peer.receives, nil)})
	if len(g.reads) > 0 && r.sends() || slices.ContainsFunc(g.reads, func(q request) bool { return q.atomic() }) {
		r.flags |= work.Fence // no Read may see what this request places, and each atomic operation is executed before it fails
	}
	return r
}
