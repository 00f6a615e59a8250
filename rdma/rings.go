package rdma

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
)

// Rings is memory for the queues of a QP (QPConfig.Rings) or of an SRQ (SRQConfig.Rings). Another process maps the same
// memory and posts work requests by writing to it, so that a post needs no system call. The
// layout is in the comment of offload/work/layout.go, in terms of C11. The adapter clears the
// memory and writes the sizes into it.
//
// Send must have SendRingLen octets for SendDepth, MaxSGE and MaxInline of the QPConfig with
// its defaults. Recv must have RecvRingLen octets for RecvDepth and MaxSGE, and be nil with an
// SRQ. Both must be aligned to 64 octets and stay mapped until the QP's Close has returned.
// Memory that another process maps must be a memfd of full length with the seal F_SEAL_SHRINK.
// Otherwise the other process can end this one with SIGBUS.
//
// The adapter copies and checks each request. A process that writes nonsense ends its own QPs
// (ErrBrokenRing) and nothing else. When it has moved a tail, it rings a Bell, and the
// function ring of the Bell calls QP.Ring. PostSend and PostRecv of such a QP return
// ErrMapped.
type Rings struct{ Send, Recv []byte }

// SendRingLen returns the length in octets of a send ring for depth requests, with at most
// the given number of elements or of octets of inline data each.
func SendRingLen(depth, sge, inline int) int { return work.SendRingLen(depth, sge, inline) }

// RecvRingLen returns the length in octets of a receive ring for depth receives with at most
// the given number of elements each.
func RecvRingLen(depth, sge int) int { return work.RecvRingLen(depth, sge) }

// CQRingLen returns the length in octets of the memory of a CQ for at least depth
// completions.
func CQRingLen(depth int) int { return work.CQRingLen(depth) }

// checkRings checks what layRings cannot.
func (c *QPConfig) checkRings() error {
	if c.SRQ != nil && c.Rings.Recv != nil {
		return errors.New("Rings.Recv and SRQ are set: choose one")
	}
	return nil
}

// layRings lays the memory of Rings out. c must be filled.
func (c *QPConfig) layRings() (send, recv *work.Ring, err error) {
	if c.Rings == nil {
		return nil, nil, nil
	}
	if send, err = work.NewSendRing(c.Rings.Send, c.SendDepth, c.MaxSGE, c.MaxInline); err != nil {
		return nil, nil, fmt.Errorf("Rings.Send: %w", err)
	}
	if c.SRQ != nil {
		return send, nil, nil
	}
	if recv, err = work.NewRecvRing(c.Rings.Recv, c.RecvDepth, c.MaxSGE); err != nil {
		return nil, nil, fmt.Errorf("Rings.Recv: %w", err)
	}
	return send, recv, nil
}

// Ring says that the tail of a ring of the QP has moved (Rings). It rings the doorbell of the
// connection. After the end of the connection it flushes what was posted. Ring does not block.
// Any goroutine may call it, also the function ring of a Bell.
func (qp *QP) Ring() {
	if qp.machine.Dead() {
		qp.flushLate()
		return
	}
	if c := qp.conn.Load(); c != nil {
		c.Post(false)
	}
}

// Fail ends the QP in error (ibv_modify_qp to IBV_QPS_ERR), also before it is connected. A
// connection is reset. Everything that is posted, or is posted later, completes as Flushed.
// The QP cannot be connected any more. Fail does not wait.
func (qp *QP) Fail() {
	defer qp.adapter.still()()
	if qp.distant != nil {
		qp.failDistant()
	}
	qp.doom(fmt.Errorf("the QP was put into the error state: %w", stream.ErrAborted))
	qp.flushKept()
}

// flushKept flushes the receives that the dead QP has kept (QPConfig.KeepReceives). doom must
// have been called.
func (qp *QP) flushKept() {
	if qp.cfg.KeepReceives && qp.machine.Dead() {
		qp.flushLate()
	}
}

// flushLate flushes what was posted to the Rings of the dead QP. After closeRings there is
// nothing to flush.
func (qp *QP) flushLate() {
	qp.flushing.Lock()
	qp.machine.FlushDead()
	qp.flushing.Unlock()
	qp.adapter.board.Deliver()
}

// closeRings ends all accesses to the Rings of the dead QP.
func (qp *QP) closeRings() {
	qp.flushing.Lock()
	defer qp.flushing.Unlock()
	qp.machine.CloseRings()
}

// layRings lays the memory of Rings out. c must be filled.
func (c *SRQConfig) layRings() (*work.Ring, error) {
	switch {
	case c.Rings == nil:
		return nil, nil
	case c.Rings.Send != nil:
		return nil, errors.New("Rings.Send is set: an SRQ has no send ring")
	}
	recv, err := work.NewRecvRing(c.Rings.Recv, c.Depth, c.MaxSGE)
	if err != nil {
		return nil, fmt.Errorf("Rings.Recv: %w", err)
	}
	return recv, nil
}

// inForeignMemory returns the name of an object whose memory another process maps, or "".
func (a *Adapter) inForeignMemory() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for qp := range a.qps {
		if qp.cfg.Rings != nil {
			return qp.name()
		}
	}
	for s := range a.srqs {
		if s.cfg.Rings != nil {
			return s.name()
		}
	}
	for c := range a.cqs {
		if c.mapped {
			return fmt.Sprintf("CQ %d", c.number)
		}
	}
	for c := range a.loose {
		if _, ok := c.(*Bell); ok {
			return "a bell"
		}
	}
	return ""
}
