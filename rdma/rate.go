package rdma

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/rdmap"
)

func checkRate(rate uint64) error {
	if rate > rdmap.MaxRate {
		return fmt.Errorf("a Rate of %d: choose up to %d, or 0 for no limit", rate, uint64(rdmap.MaxRate))
	}
	return nil
}

// SetRate changes the limit of the QP's transmission to rate octets of payload per second,
// at most 10^12 (ibv_modify_qp_rate_limit). 0 means no limit. QPConfig.Rate says what
// counts. SetRate works in every state of the QP, and does not wait. The adapter's next
// step for the QP keeps the new rate, also for requests that are posted already.
func (qp *QP) SetRate(rate uint64) error {
	if err := qp.adapter.refuse("set rate"); err != nil {
		return err
	}
	if err := checkRate(rate); err != nil {
		return fmt.Errorf("set rate of QP %d: %w", qp.Number(), err)
	}
	defer qp.adapter.still()()
	qp.machine.SetRate(rate)
	qp.ring()
	return nil
}

// Rate returns the present limit of the QP's transmission in octets of payload per second.
// 0 means no limit.
func (qp *QP) Rate() uint64 { return qp.machine.Rate() }
