package rdma

import "fmt"

// PostSend posts work requests to the send queue, in order, and tells the
// connection once for all of them; with inline progress it sends what may be sent
// now. It reports how many it took.
//
// All of them are looked at first: if one is malformed none is posted. Where
// the queue has less room than it takes, those that fit are posted and the
// error is ErrQueueFull. A place is free again when the request has completed,
// and its completion, if there is one, has been polled. Other errors:
// ErrNotConnected, ErrNoReads, ErrBadWR.
//
// What the lists name belongs to the adapter until the work request's
// completion, or until that of a later one of the same QP: completions come in
// order. Inline data, and the lists themselves, may be used again at once.
// That a Write or a Send has completed says that the transport answers for its
// delivery, not that the peer has it. After the end of the connection work
// requests are taken, and completed as Flushed.
func (qp *QP) PostSend(wrs ...SendWR) (n int, err error) {
	qp.sending.Lock()
	if !qp.started.Load() && !qp.machine.Dead() {
		qp.sending.Unlock()
		return 0, fmt.Errorf("post to QP %d: %w", qp.Number(), ErrNotConnected)
	}
	for i := range wrs {
		if err := qp.checkSend(&wrs[i]); err != nil {
			qp.sending.Unlock()
			return 0, fmt.Errorf("post to QP %d: request %d: %w", qp.Number(), i, err)
		}
	}
	n = qp.machine.PostSend(wrs...)
	qp.sending.Unlock()
	qp.posted(true)
	if n < len(wrs) {
		return n, fmt.Errorf("post to QP %d: request %d of %d: %w", qp.Number(), n, len(wrs), ErrQueueFull)
	}
	return n, nil
}

// PostRecv posts work requests to the receive queue, in order, and reports how
// many it took. It is allowed before the QP is connected, and that is the time
// for the first ones: a Send that finds no receive, or one that is too small,
// ends the connection. Whether some are taken, and its errors, are as
// PostSend's; elements that overlap are ErrBadWR.
//
// What the lists name belongs to the adapter until the work request's
// completion.
func (qp *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	qp.receiving.Lock()
	for i := range wrs {
		if err := qp.checkRecv(&wrs[i]); err != nil {
			qp.receiving.Unlock()
			return 0, fmt.Errorf("post receive to QP %d: request %d: %w", qp.Number(), i, err)
		}
	}
	n = qp.machine.PostRecv(wrs...)
	qp.receiving.Unlock()
	qp.posted(false)
	if n < len(wrs) {
		return n, fmt.Errorf("post receive to QP %d: request %d of %d: %w", qp.Number(), n, len(wrs), ErrQueueFull)
	}
	return n, nil
}

// posted rings for what was posted. A receive needs no step, unless the connection is
// ending and the receive is to be flushed.
func (qp *QP) posted(send bool) {
	if qp.machine.Dead() {
		qp.machine.FlushDead()
		qp.adapter.board.Deliver()
		return
	}
	if !send && qp.State() <= RTS {
		return
	}
	if c := qp.conn.Load(); c != nil {
		c.Post(qp.cfg.SendCQ.runners.Load() != nil)
	}
}
