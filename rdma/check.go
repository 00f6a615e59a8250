package rdma

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/tpt"
)

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadWR, fmt.Sprintf(format, args...))
}

// checkSend finds what can be wrong with a work request by itself. Whether its
// memory may be used is found when it is done, which may change meanwhile.
func (qp *QP) checkSend(wr *SendWR) error {
	if err := qp.machine.CheckSend(wr); err != nil {
		return fmt.Errorf("%w: %w", ErrBadWR, err)
	}
	if ord, _ := qp.machine.Depths(); wr.Op == WRRead && ord == 0 && !qp.machine.Dead() {
		return ErrNoReads
	}
	return nil
}

// checkLength makes sure that the message has a length that can be said.
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

// checkRecv finds what can be wrong with a receive by itself. If elements overlapped,
// the contents of the memory would depend on how the message is cut.
func (qp *QP) checkRecv(wr *RecvWR) error {
	if len(wr.SGL) > qp.cfg.MaxSGE {
		return bad("a list of %d elements: this QP takes %d (MaxSGE)", len(wr.SGL), qp.cfg.MaxSGE)
	}
	if err := checkLength(wr.SGL); err != nil {
		return err
	}
	for i := range wr.SGL {
		for j := range i {
			if overlap(qp.adapter.table, wr.SGL[i], wr.SGL[j]) {
				return bad("elements %d and %d of the list overlap", j, i)
			}
		}
	}
	return nil
}

// overlap reports whether x and y have octets in common, in one region or by
// two regions over the same memory. What no region has will fail by itself.
func overlap(t *tpt.Table, x, y SGE) bool {
	if x.Length == 0 || y.Length == 0 {
		return false
	}
	if x.LKey == y.LKey {
		return meet(x.Addr, y.Addr, x.Length, y.Length)
	}
	atX, okX := placeOf(t, x)
	atY, okY := placeOf(t, y)
	return okX && okY && meet(atX, atY, x.Length, y.Length)
}

// placeOf is where e begins, as a number to compare with others.
func placeOf(t *tpt.Table, e SGE) (at uint64, ok bool) {
	mem, start, ok := t.Memory(e.LKey)
	return uint64(heap.Address(mem)) + (e.Addr - start), ok
}

// meet reports whether two stretches of n and m octets at a and b have some in
// common. Their ends are not computed: they may lie beyond the largest number.
func meet(a, b uint64, n, m uint32) bool {
	if a <= b {
		return b-a < uint64(n)
	}
	return a-b < uint64(m)
}
