package rdma

import (
	"errors"
	"fmt"
)

// maxQPNumber is the largest QP number: 24 bits, as in InfiniBand.
const maxQPNumber = 1<<24 - 1

// qpNumbers allocates the numbers of QPs. The zero value is ready.
type qpNumbers struct {
	last uint32         // number that was allocated last
	used map[uint32]int // numbers in use, with how many open QPs and regions bound to them use each number
}

// next reserves the next number that is free, from 2 to maxQPNumber. 0 and 1 are
// special in InfiniBand. A freed number is used again as late as possible.
func (n *qpNumbers) next() (uint32, error) {
	if n.used == nil {
		n.used = map[uint32]int{}
	}
	if len(n.used) == maxQPNumber-1 {
		return 0, errors.New("every QP number is in use: close some QPs")
	}
	for {
		if n.last++; n.last > maxQPNumber {
			n.last = 2
		}
		if _, taken := n.used[n.last]; !taken && n.last > 1 {
			n.used[n.last] = 1
			return n.last, nil
		}
	}
}

// free removes one use of the number. A number that a daemon has chosen is not in use here.
func (n *qpNumbers) free(number uint32) {
	if n.used[number] == 0 {
		return
	}
	if n.used[number]--; n.used[number] <= 0 {
		delete(n.used, number)
	}
}

func (a *Adapter) reserveNumber() (uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.numbers.next()
}

func (a *Adapter) freeNumber(number uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.numbers.free(number)
}

// holdNumber reserves the QP's number for a region that is bound to the QP. Without the
// reservation, another QP could get the number after the QP's Close, and could then use
// the region. freeNumber ends the reservation. holdNumber returns ErrClosed if the QP
// is closed.
func (a *Adapter) holdNumber(qp *QP) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.qps[qp]; !there {
		return fmt.Errorf("bound to QP %d, which is %w", qp.Number(), ErrClosed)
	}
	a.numbers.used[qp.Number()]++
	return nil
}
