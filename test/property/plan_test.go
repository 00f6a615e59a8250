package property

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/work"
)

// Regions of a side. The peer may do everything with all but the local one;
// victims are there to be invalidated.
const (
	local   = 0
	main    = 1
	regions = 5 // the rest are victims

	localLen, mainLen, victimLen = 1500, 1500, 80
)

func lengthOf(region int) int {
	if region < 2 {
		return [2]int{localLen, mainLen}[region]
	}
	return victimLen
}

// place is n octets of a region.
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
	list   []place // local: gathered, or the Read's sink
	inline []byte  // instead of list
	remote place   // Write: where to. Read: where from
	victim int     // Send with Invalidate: the peer's region
	fault  fault
}

func (r *request) has(f work.SendFlags) bool { return r.flags&f != 0 }
func (r *request) sends() bool               { return r.op == work.WRSend || r.op == work.WRSendInvalidate }
func (r *request) length() int               { return max(len(r.inline), total(r.list)) }

func (r *request) String() string {
	return fmt.Sprintf("%v flags %b list %v inline %d remote %v victim %d fault %d", r.op, r.flags, r.list, len(r.inline), r.remote, r.victim, r.fault)
}

// fault is what is wrong with the last request of a sequence.
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

// outcome is what a fault leads to.
type outcome struct {
	code   rdmap.Code
	local  bool        // found by the side that posted it
	status work.Status // of the request
	recv   work.Status // of the receive that meets it; Success: none does
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
	faulty int // the side whose last request has a fault; -1: none
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
	reads []request // of the direction: Reads since the last fence
}

// chance is true once in n times.
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

// direction makes what side posts, and the receives of the other.
func (g *generator) direction(p *plan, side int) {
	g.reads = g.reads[:0]
	h, peer := &p.halves[side], &p.halves[1-side]
	for range g.IntN(9) {
		r := g.request()
		if r.sends() {
			peer.receives = append(peer.receives, g.receive(r.length()))
		}
		g.fence(&r, peer)
		h.requests = append(h.requests, r)
	}
	if p.faulty == side {
		h.requests = append(h.requests, g.faulty(peer))
	} else {
		for g.chance(2) && len(peer.receives) < queueDepth {
			peer.receives = append(peer.receives, g.receive(0)) // for nothing
		}
	}
}

// within is n octets anywhere in a region, or fewer where it is shorter.
func (g *generator) within(region, n int) place {
	n = min(n, lengthOf(region))
	return place{region, g.IntN(lengthOf(region) - n + 1), n}
}

// size is a length: often one that is special.
func (g *generator) size() int {
	return [...]int{0, 1, g.IntN(20), g.IntN(200), 180 + g.IntN(30), g.IntN(700)}[g.IntN(6)]
}

func (g *generator) request() request {
	ops := [...]work.WROp{work.WRSend, work.WRWrite, work.WRWrite, work.WRRead, work.WRRead, work.WRSendInvalidate, work.WRSend}
	r := request{op: ops[g.IntN(len(ops))], flags: work.SendFlags(g.IntN(8))}
	if !g.chance(4) {
		r.flags &^= work.Fence
	}
	switch {
	case r.op == work.WRRead:
		r.list = []place{g.within(local, g.size())}
	case g.chance(3):
		r.inline = g.octets(1 + g.IntN(maxInline))
	default:
		for range g.IntN(maxSGE + 1) {
			r.list = append(r.list, g.within(local, g.size()))
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
	case work.WRWrite:
		r.remote = g.within(main, r.length())
		r.shorten(r.remote.n)
	case work.WRSendInvalidate:
		r.victim = 2 + g.IntN(regions-2)
	}
	r.plain()
	return r
}

// plain takes the flag away that only Sends may have.
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

// shorten makes a list that is longer than n octets that long.
func (r *request) shorten(n int) {
	for i := range r.list {
		r.list[i].n = min(r.list[i].n, n)
		n -= r.list[i].n
	}
}

// receive is a list that a message of n octets fits into. No octet is in it
// twice: the verbs refuse that.
func (g *generator) receive(n int) (list []place) {
	for range g.IntN(maxSGE) {
		list = appendApart(list, g.within(main, g.size()))
	}
	for total(list) < n {
		longer := appendApart(list, g.within(main, n-total(list)+g.IntN(100)))
		if list = longer; total(list) < n {
			list = list[:len(list)/2] // there is no place left: with fewer there is
		}
		if len(list) == 0 && n > mainLen/2 {
			return []place{{main, 0, mainLen}}
		}
	}
	return list
}

// appendApart adds p to the list unless it overlaps what is there.
func appendApart(list []place, p place) []place {
	for _, q := range list {
		if p.overlaps(q) {
			return list
		}
	}
	return append(list, p)
}

// fence makes r wait if it depends on a Read that may not have been answered.
func (g *generator) fence(r *request, peer *half) {
	for i := range g.reads {
		if g.depends(r, &g.reads[i], peer) {
			r.flags |= work.Fence
		}
	}
	if r.has(work.Fence) {
		g.reads = g.reads[:0]
	}
	if r.op == work.WRRead {
		g.reads = append(g.reads, *r)
	}
}

// depends reports whether r uses what the Read brings, or changes what it reads.
func (g *generator) depends(r, read *request, peer *half) bool {
	if r.op == work.WRRead {
		return false // Responses come in order
	}
	for _, p := range r.list {
		for _, sink := range read.list {
			if p.overlaps(sink) {
				return true
			}
		}
	}
	if r.op == work.WRWrite {
		return r.remote.overlaps(read.remote)
	}
	for _, p := range peer.receives[len(peer.receives)-1] {
		if p.overlaps(read.remote) {
			return true
		}
	}
	return false
}

// faulty is a request that ends the connection.
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
	if len(g.reads) > 0 && r.sends() {
		r.flags |= work.Fence // what it places, or not, no Read is to see
	}
	return r
}

// kind is the completion of a request.
func kind(op work.WROp) work.WCOp {
	switch op {
	case work.WRWrite:
		return work.WCWrite
	case work.WRRead:
		return work.WCRead
	}
	return work.WCSend
}
