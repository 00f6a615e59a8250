package rdmap

import (
	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// where says where the memory of pieces is. The highest value of all pieces counts.
type where uint8

const (
	atHome  where = iota // in the region heap, or in a work request
	outside              // elsewhere in this process, where an access may fault
	farAway              // in another process
)

// whereIs returns where memory outside of the region heap is.
func whereIs(mem []byte) where {
	if reach.Foreign(mem) {
		return farAway
	}
	return outside
}

// pieces is the memory of the payload of one segment, in order. The list grows when a
// connection first needs a longer one.
type pieces struct {
	list  [][]byte
	where where
	used  int // greatest length of list since forget
}

// drop empties the list for another segment.
func (p *pieces) drop() {
	p.used, p.list = max(p.used, len(p.list)), p.list[:0]
	p.where = atHome
}

// forget drops references to memory that may be gone after this step.
func (p *pieces) forget() {
	p.drop()
	clear(p.list[:p.used])
	p.used = 0
}

// add adds octets of the QP's own memory.
func (p *pieces) add(mem []byte) { p.list = append(p.list, mem) }

// found adds the pieces of the access that m has checked. mem is the first piece.
func (p *pieces) found(m *tpt.Memo, mem []byte) {
	if m.External() {
		p.where = max(p.where, whereIs(mem))
	}
	for ; len(mem) != 0; mem = m.Next() {
		p.list = append(p.list, mem)
	}
}

// before returns how many octets lie before the i-th piece.
func (p *pieces) before(i int) (n uint32) {
	for _, mem := range p.list[:i] {
		n += uint32(len(mem))
	}
	return n
}

// gather finds the memory of the next n octets of payload.
func (q *QP) gather(n int) bool {
	o := &q.out
	at := o.msg.Sent()
	switch {
	case n == 0:
	case o.nfixed != 0:
		o.mem.add(o.fixed[at : int(at)+n])
	case o.what == aResponse:
		return q.gatherResponse(at, n)
	default:
		w := o.wr
		if w.Inline {
			o.mem.add(q.sq.Small(o.pos, at, n))
			return true
		}
		if len(o.whole) == n { // n is then the whole payload
			o.mem.found(&q.known().own, o.whole)
			o.whole = nil
			return true
		}
		if f := q.collect(&o.mem, q.cfg.PD, w.SGL, at, n, tpt.LocalRead); f != tpt.OK {
			q.failSend(o.pos, localStatus(f))
			return false
		}
	}
	return true
}

// collect adds the memory of n octets at offset off of sgl to p. The regions must be of
// the protection domain pd.
func (q *QP) collect(p *pieces, pd tpt.PD, sgl []work.SGE, off uint32, n int, right tpt.Rights) tpt.Fault {
	for i := 0; n > 0; i++ {
		e := &sgl[i]
		if off >= e.Length {
			off -= e.Length
			continue
		}
		k := min(uint32(n), e.Length-off)
		mem, f := q.known().own.Check(q.cfg.Table, tpt.Access{
			STag: e.LKey, PD: pd, QP: q.cfg.Number, Right: right, TO: e.Addr + uint64(off), Len: k,
		})
		if f != tpt.OK {
			return f
		}
		p.found(&q.known().own, mem)
		off, n = 0, n-int(k)
	}
	return tpt.OK
}

// gatherResponse finds the memory that the peer reads. The program may have revoked the
// region after the Read was accepted. The Terminate then quotes the part of the Request
// that is still unanswered.
func (q *QP) gatherResponse(at uint32, n int) bool {
	r := q.irq.front()
	mem, f := q.source(r.sourceSTag, r.sourceTO+uint64(at), uint32(n))
	if f != tpt.OK {
		q.lost(f)
		q.terminateRead(readCode(f), r, at)
		return false
	}
	q.out.mem.found(&q.known().peers, mem)
	return true
}
