package rdma

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/tpt"
)

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadWR, fmt.Sprintf(format, args...))
}

// checkSend finds every error that shows in the work request alone. The access to the
// request's memory is checked when the request runs, because the rights may change
// until then.
func (qp *QP) checkSend(wr *SendWR) error {
	if err := qp.machine.CheckSend(wr); err != nil {
		return fmt.Errorf("%w: %w", ErrBadWR, err)
	}
	return qp.machine.Refuses(wr)
}

// checkLength returns an error if the message is longer than maxMessage.
func checkLength(sgl []SGE) error {
	var sum uint64
	for i := range sgl {
		sum += uint64(sgl[i].Length)
	}
	if sum > maxMessage {
		return bad("%d octets: a message has at most %d", sum, maxMessage)
	}
	return nil
}

// checkRecv finds every error that shows in a receive alone. most is the largest number of
// elements that the queue takes. checkRecv refuses elements
// that overlap, because with overlapping elements the contents of the memory would
// depend on how the message is divided into segments.
func checkRecv(t *tpt.Table, wr *RecvWR, most int) error {
	if len(wr.SGL) > most {
		return bad("a list of %d elements: this queue takes %d (MaxSGE)", len(wr.SGL), most)
	}
	if err := checkLength(wr.SGL); err != nil {
		return err
	}
	for i := range wr.SGL {
		for j := range i {
			if overlap(t, wr.SGL[i], wr.SGL[j]) {
				return bad("elements %d and %d of the list overlap", j, i)
			}
		}
	}
	return nil
}

// overlap reports whether x and y have octets in common, in one region or in two
// regions over the same memory. An element that lies in no region overlaps nothing.
// Such an element fails later.
func overlap(t *tpt.Table, x, y SGE) bool {
	if x.Length == 0 || y.Length == 0 {
		return false
	}
	if x.LKey == y.LKey {
		return meet(x.Addr, y.Addr, x.Length, y.Length)
	}
	if t == nil {
		return false // only the daemon knows the regions
	}
	var bufX, bufY [4]span
	atX, atY := octetsOf(t, x, bufX[:0]), octetsOf(t, y, bufY[:0])
	if len(atX) > 1 || len(atY) > 1 {
		slices.SortFunc(atX, func(a, b span) int { return cmp.Compare(a.at, b.at) })
		slices.SortFunc(atY, func(a, b span) int { return cmp.Compare(a.at, b.at) })
	}
	for len(atX) != 0 && len(atY) != 0 {
		a, b := atX[0], atY[0]
		switch {
		case meet(a.at, b.at, a.n, b.n):
			return true
		case a.at < b.at:
			atX = atX[1:]
		default:
			atY = atY[1:]
		}
	}
	return false
}

// span is n octets of memory. at is the address of the first octet, as a number to
// compare with others.
type span struct {
	at uint64
	n  uint32
}

// octetsOf appends the memory of e to list. It returns nil if e lies in no region. The
// memory is more than one span if the region is a page list.
func octetsOf(t *tpt.Table, e SGE, list []span) []span {
	found := t.Memory(e.LKey, e.Addr, e.Length, func(mem []byte) {
		list = append(list, span{reach.Address(mem), uint32(len(mem))})
	})
	if !found {
		return nil
	}
	return list
}

// meet reports whether the n octets from a on and the m octets from b on overlap. meet
// does not compute the ends, because they may exceed the largest uint64.
func meet(a, b uint64, n, m uint32) bool {
	if a <= b {
		return b-a < uint64(n)
	}
	return a-b < uint64(m)
}
