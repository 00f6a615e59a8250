package rdma

import "sync"

// contexts are the QPConfig.Context values of the QPs that use a CQ. A QP without one
// has no entry.
type contexts struct {
	byNumber sync.Map // pointer to the value, by the QP's number

	// left are the QPs that have been closed. Their completions may still be in the CQ.
	// The lock of Poll guards left.
	left []departed
}

// departed is a QP that has been closed.
type departed struct {
	number uint32
	value  *any
	end    uint64 // position in the CQ behind the last completion of the QP
}

// QPContext returns QPConfig.Context of the QP that a completion of this CQ belongs to.
// It returns nil if the QP has none. QPContext costs one look-up in a map by
// Completion.QP, and takes no lock. A program that does not use contexts pays nothing.
//
// The completions that a closed QP has left in the CQ have their context too: until the
// first Poll, Next or Endpoint call that begins after the last of these completions has
// been polled. Requests that are posted to a QP after its Close have no context.
func (c *CQ) QPContext(done Completion) any {
	if value, ok := c.contexts.byNumber.Load(done.QP); ok {
		return *value.(*any)
	}
	return nil
}

// add adds the context of a QP.
func (x *contexts) add(qp *QP) {
	if value := qp.cfg.Context; value != nil {
		x.byNumber.Store(qp.Number(), &value)
	}
}

// depart keeps the context of a closed QP until the poller is past its completions.
func (c *CQ) depart(qp *QP) {
	value, ok := c.contexts.byNumber.Load(qp.Number())
	if !ok {
		return
	}
	if c.mapped || c.distant != nil { // no Poll of this process would forget it
		c.contexts.byNumber.Delete(qp.Number())
		return
	}
	c.polling.Lock()
	defer c.polling.Unlock()
	c.contexts.left = append(c.contexts.left, departed{qp.Number(), value.(*any), c.queue.Pushed()})
}

// forget removes the contexts of closed QPs whose completions have all been polled. The
// caller must hold the lock of Poll.
func (c *CQ) forget() {
	left, head := c.contexts.left, c.queue.Polled()
	for len(left) != 0 && head >= left[0].end {
		c.contexts.byNumber.CompareAndDelete(left[0].number, left[0].value)
		left = left[1:]
	}
	if len(left) == 0 {
		left = nil
	}
	c.contexts.left = left
}
