package rdma

import "fmt"

// PostSend posts work requests to the send queue, in order, and returns how many it took.
// PostSend rings the doorbell once for all of them. With inline progress it also sends
// everything that may be sent now.
//
// PostSend checks all requests first. If one is malformed, it posts none. If the queue
// has too little room, PostSend posts the requests that fit and returns ErrQueueFull. The
// place of a request is free again when the request has completed and its completion, if
// there is one, has been polled. Other errors: ErrNotConnected, ErrNoReads, ErrBadWR.
//
// The adapter owns the memory that the lists name until the work request's completion, or
// until the completion of a later request of the same QP, because completions come in
// order. The caller may use inline data, and the lists themselves, again at once. The
// completion of a Write or a Send says that the transport is responsible for the
// delivery, not that the peer has the octets. After the end of the connection, PostSend
// still accepts work requests. Such requests complete as Flushed.
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

// PostRecv posts work requests to the receive queue, in order, and returns how many it
// took. Post the first receives before the QP is connected. A Send that finds no receive,
// or a receive that is too small, ends the connection. PostRecv takes as many requests as
// PostSend would, with the same errors. Elements that overlap cause ErrBadWR.
//
// The adapter owns the memory that the lists name until the work request's completion.
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

// posted rings the doorbell for requests that were posted. A receive needs no doorbell,
// unless the connection is ending and the receive must be flushed.
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
