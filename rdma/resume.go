package rdma

import "fmt"

// Resume lets the send queue of a QP in the state Drained run again. A QP with
// QPConfig.Reactive gets into this state when the table refuses a request (TableErr).
// In that state:
//
//   - The requests before the refused one complete as usual. The refused request
//     completes with TableErr, and every request behind it completes as Flushed.
//   - Receives, the peer's Writes, Reads and Sends, and Terminates work as usual.
//
// The caller repairs the reason, which DrainedBy returns, calls Resume, and posts the
// requests again. The adapter performs requests that are posted after Resume. It flushes
// all requests from before, so that no request overtakes a repair. Resume does not wait.
// It returns ErrNotDrained if the QP is in another state, such as Terminate.
func (qp *QP) Resume() error {
	qp.sending.Lock()
	ok := qp.machine.Resume()
	qp.sending.Unlock()
	if !ok {
		return fmt.Errorf("resume QP %d: %w", qp.Number(), ErrNotDrained)
	}
	qp.ring()
	return nil
}

// DrainedBy returns the table's reason for the state Drained, or nil in another state.
func (qp *QP) DrainedBy() error { return qp.machine.DrainedBy() }
