package rdma

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
)

// PostError is the error of PostSend and of both PostRecvs. The requests before Index have
// been posted, and the request at Index and those behind it have not. bad_wr of
// ibv_post_send and ibv_post_recv names the same request.
type PostError struct {
	Index int // position of the request in the list of the call, from 0

	// Err is the reason: ErrBadWR, ErrQueueFull, ErrNotConnected, ErrNoReads, ErrNoRFC7306,
	// ErrImmediate or (SRQ) ErrClosed, with the details.
	Err error

	what  string // the kind of the post, and the QP or SRQ
	count int    // requests of the call
}

func (e *PostError) Error() string {
	return fmt.Sprintf("%s: request %d of %d: %v", e.what, e.Index, e.count, e.Err)
}

func (e *PostError) Unwrap() error { return e.Err }

// PostSend posts work requests to the send queue, in order, and returns how many it took.
// PostSend rings the doorbell once for all of them. With inline progress it also sends
// everything that may be sent now.
//
// If a request is malformed (ErrBadWR) or not agreed on (ErrNoReads, ErrNoRFC7306,
// ErrImmediate), PostSend posts those before it. If the queue has too little room (ErrQueueFull), PostSend
// posts the requests that fit. The error is a *PostError with the index of the first
// request that was not posted. Before the QP is connected, PostSend posts nothing
// (ErrNotConnected). The place of a request is free again when the request has completed
// and its completion, if there is one, has been polled.
//
// The adapter owns the memory that the lists name until the work request's completion.
// Completions come in order, so that the completion of a later request of the same QP is
// enough. The caller may use inline data, and the lists themselves, again at once. The
// completion of a Write or a Send says that the transport is responsible for the
// delivery, not that the peer has the octets. After the end of the connection, PostSend
// still accepts work requests. Such requests complete as Flushed.
func (qp *QP) PostSend(wrs ...SendWR) (n int, err error) {
	qp.sending.Lock()
	if err := qp.postable(); err != nil {
		qp.sending.Unlock()
		return 0, unposted(qp, "post", 0, len(wrs), err)
	}
	good := 0
	for ; good < len(wrs); good++ {
		if err = qp.checkSend(&wrs[good]); err != nil {
			break
		}
	}
	n = qp.postSend(wrs[:good])
	qp.sending.Unlock()
	qp.posted(true)
	return n, result(qp, "post", n, good, len(wrs), err)
}

// PostRecv posts work requests to the receive queue, in order, and returns how many it
// took. Post the first receives before the QP is connected. A Send that finds no receive
// ends the connection, or waits (QPConfig.Hold). A Send that finds a receive that is too
// small ends the connection. PostRecv takes as many requests as
// PostSend would, with the same errors, but needs no connection. Elements that overlap
// cause ErrBadWR. A QP with an SRQ takes no receive of its own (ErrBadWR).
//
// The adapter owns the memory that the lists name until the work request's completion. The
// regions need the right LocalWrite. The right is checked when a message arrives, and not
// at the post. If the message is longer than the memory, the receive completes with
// LocalLengthErr. If a region is not of the QP's PD or the octets are not in it, the status
// is LocalProtErr, and without the right it is LocalAccessErr. If the message may not
// invalidate the STag that it names, the status is RemoteInvalidErr. Each of these failures
// ends the connection. Receives that found no message complete as Flushed when the peer has
// closed its direction, or when the connection ends.
func (qp *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	if qp.cfg.Rings != nil {
		return 0, unposted(qp, "post receive", 0, len(wrs), ErrMapped)
	}
	if qp.cfg.SRQ != nil {
		return 0, unposted(qp, "post receive", 0, len(wrs), bad("the QP takes its receives from SRQ %d: post them there", qp.cfg.SRQ.number))
	}
	qp.receiving.Lock()
	if qp.adapter.left.Load() {
		qp.receiving.Unlock()
		return 0, unposted(qp, "post receive", 0, len(wrs), ErrHandedOver)
	}
	good := 0
	for ; good < len(wrs); good++ {
		if err = checkRecv(qp.adapter.memory(), &wrs[good], qp.cfg.MaxSGE); err != nil {
			break
		}
	}
	n = qp.postRecv(wrs[:good])
	qp.receiving.Unlock()
	qp.posted(false)
	return n, result(qp, "post receive", n, good, len(wrs), err)
}

// postable returns an error if nothing can be posted to the send queue. The caller must
// hold the queue's lock.
func (qp *QP) postable() error {
	switch {
	case qp.cfg.Rings != nil:
		return ErrMapped
	case qp.adapter.left.Load():
		return ErrHandedOver
	case !qp.started.Load() && !qp.machine.Dead():
		return ErrNotConnected
	}
	return nil
}

// result returns the error of a post of count requests, or nil. The first good requests
// are well formed, err is the error of the next one, and n requests found room.
func result(to poster, what string, n, good, count int, err error) error {
	switch {
	case n < good:
		return unposted(to, what, n, count, ErrQueueFull)
	case err != nil:
		return unposted(to, what, n, count, err)
	}
	return nil
}

// poster is a QP or an SRQ, to which requests are posted.
type poster interface{ name() string }

func (qp *QP) name() string { return fmt.Sprintf("QP %d", qp.Number()) }

func unposted(to poster, what string, index, count int, err error) error {
	return &PostError{Index: index, Err: err, what: what + " to " + to.name(), count: count}
}

// posted rings the doorbell for requests that were posted. A receive needs no doorbell,
// unless a message waits for it, or the connection is ending and the receive must be flushed.
func (qp *QP) posted(send bool) {
	if qp.distant != nil {
		return // the post has rung the bell
	}
	if qp.machine.Dead() {
		qp.machine.FlushDead()
		qp.adapter.board.Deliver()
		return
	}
	if send && qp.silent.Load() || !send && qp.State() <= RTS && qp.machine.Holding() == clock.Never {
		return
	}
	if c := qp.conn.Load(); c != nil {
		c.Post(qp.cfg.SendCQ.runners.Load() != nil)
	}
}
