package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/rdma/proto"
)

// distantQP is the part of a QP that is in the daemon. The machine of such a QP has no stream
// and no requests: it only says in which state the daemon's QP is.
type distantQP struct {
	handle uint64
	bit    int
	memory []byte
	send   *work.SendPoster // the lock sending guards it
	recv   *work.RecvPoster // the lock receiving guards it
	id     *identifier      // QP.mu guards it
	failed atomic.Bool      // this process has asked for the error state

	changing sync.Mutex // guards changes of the machine; held briefly
}

// polled gives back the place of a request whose completion has been polled.
func (d *distantQP) polled(op WCOp) {
	switch op {
	case WCRecv, WCRecvImm:
		d.recv.Polled(1)
	default:
		d.send.Polled(1)
	}
}

// createDistantQP is CreateQP through a daemon. cfg must be filled.
func (pd *PD) createDistantQP(cfg QPConfig) (*QP, error) {
	flags, err := cfg.throughDaemon()
	if err != nil {
		return nil, err
	}
	t := pd.adapter.through
	m := &proto.Message{Op: proto.OpQP}
	*m.QP() = proto.QP{
		PD: pd.distant, SendCQ: cfg.SendCQ.distant.handle, RecvCQ: cfg.RecvCQ.distant.handle, Type: 2, Flags: flags,
		SendDepth: uint32(cfg.SendDepth), RecvDepth: uint32(cfg.RecvDepth),
		SendSGE: uint32(cfg.MaxSGE), RecvSGE: uint32(cfg.MaxSGE), InlineLen: uint32(cfg.MaxInline),
	}
	a, err := t.ask(m, 1)
	if err != nil {
		return nil, err
	}
	qp := &QP{adapter: pd.adapter, pd: pd, cfg: cfg, done: make(chan struct{})}
	qp.machine = rdmap.New(qp.config(a.QP().QPN))
	qp.machine.News.Fire = qp.news
	if qp.distant, err = openDistant(a); err == nil {
		err = qp.enlist()
	}
	if err != nil {
		t.destroy(proto.KindQP, a.Handle)
		return nil, err
	}
	t.mu.Lock()
	t.qps[qp.Number()] = qp
	t.mu.Unlock()
	return qp, nil
}

// throughDaemon returns the flags of a QP in the daemon.
func (c *QPConfig) throughDaemon() (flags uint32, err error) {
	const mostInline = 255 // of the daemon
	switch {
	case c.SRQ != nil, c.RegMR, c.Reactive, c.Rate != 0, c.Rings != nil, c.Hold > 0:
		return 0, fmt.Errorf("SRQ, RegMR, Reactive, Rate, Rings or a limit of Hold: %w", ErrThroughDaemon)
	case c.MaxInline > mostInline:
		return 0, fmt.Errorf("MaxInline is %d: %w: choose at most %d", c.MaxInline, ErrThroughDaemon, mostInline)
	}
	if c.SQSigAll {
		flags |= proto.QPSignalAll
	}
	if c.Hold == 0 {
		flags |= proto.QPNoHold
	}
	if !c.KeepReceives {
		flags |= proto.QPNoKeep
	}
	return flags, nil
}

// openDistant maps the rings of the daemon's QP.
func openDistant(a *answer) (*distantQP, error) {
	p := a.QP()
	memory, err := mapShared(a.fds[0], p.Length)
	if err != nil {
		return nil, err
	}
	d := &distantQP{handle: a.Handle, bit: int(p.Bit), memory: memory}
	if p.SendLen > p.Length || p.RecvOffset > p.Length || p.RecvLen > p.Length-p.RecvOffset {
		err = errors.New("the rings of the daemon's QP are not in its memory")
	}
	if err == nil {
		d.send, err = work.OpenSendRing(memory[:p.SendLen])
	}
	if err == nil {
		d.recv, err = work.OpenRecvRing(memory[p.RecvOffset:][:p.RecvLen])
	}
	if err != nil {
		unix.Munmap(memory)
		return nil, err
	}
	return d, nil
}

// postSend copies requests to the daemon's ring. The caller must hold the queue's lock.
func (qp *QP) postSend(wrs []SendWR) int {
	if qp.distant == nil {
		return qp.machine.PostSend(wrs...)
	}
	if qp.distant.memory == nil {
		return len(wrs) // the QP is closed, and its completions go nowhere
	}
	n := qp.distant.send.Post(wrs)
	qp.tellDaemon(n != 0)
	return n
}

// postRecv is postSend for receives. A receive needs no bell, unless a message waits for it or
// it must be flushed.
func (qp *QP) postRecv(wrs []RecvWR) int {
	if qp.distant == nil {
		return qp.machine.PostRecv(wrs...)
	}
	if qp.distant.memory == nil {
		return len(wrs)
	}
	n, ring := qp.distant.recv.Post(wrs)
	qp.tellDaemon(n != 0 && ring)
	return n
}

// tellDaemon rings the bell of the daemon.
func (qp *QP) tellDaemon(ring bool) {
	if !ring {
		return
	}
	if err := qp.adapter.through.bell.Ring(qp.distant.bit); err != nil {
		qp.adapter.log.Error("cannot wake the daemon", "err", err)
	}
}

// isUp notes that the daemon has connected the QP.
func (qp *QP) isUp(i *identifier, m *proto.Message) {
	e := m.CMEvent()
	local, remote := addrPortOf(e.Src), addrPortOf(e.Dst)
	qp.mu.Lock()
	qp.stage, qp.distant.id = connected, i
	qp.agreed = Conn{
		Local: local, Remote: remote, Initiator: i.dials, Revision: 2, CRC: true, RFC7306: true,
		IRD: int(e.ResponderResources), ORD: int(e.InitiatorDepth), Path: "daemon",
	}
	if i.dials {
		qp.agreed.PrivateData = append([]byte(nil), m.PrivateData[:m.PrivateLen]...)
	} else {
		qp.agreed.PrivateData = i.private
	}
	qp.mu.Unlock()
	qp.distant.changing.Lock()
	if !qp.machine.Dead() {
		qp.machine.Start(mpa.Agreed{
			Initiator: i.dials, Revision: 2, CRC: true, IRD: uint16(e.ResponderResources), ORD: uint16(e.InitiatorDepth), RFC7306: true,
		})
		qp.started.Store(true)
	}
	qp.distant.changing.Unlock()
	qp.adapter.board.Deliver()
}

// endDistant notes that the QP has ended: in good order if err is nil. Only the first call
// counts.
func (qp *QP) endDistant(err error) {
	qp.distant.changing.Lock()
	if !qp.machine.Dead() {
		qp.machine.Ended(err)
	}
	qp.distant.changing.Unlock()
	qp.adapter.board.Deliver()
}

// isDown notes that the connection has ended. status is 0 after an end in good order.
func (qp *QP) isDown(status int32) {
	var err error
	switch {
	case qp.distant.failed.Load():
		err = stream.ErrAborted
	case status != 0:
		err = fmt.Errorf("the connection has ended: %w", unix.Errno(-status))
	}
	qp.endDistant(err)
}

// disconnectDistant is Disconnect through a daemon.
func (qp *QP) disconnectDistant(ctx context.Context) error {
	qp.mu.Lock()
	i := qp.distant.id
	qp.mu.Unlock()
	if i != nil && !qp.machine.Dead() {
		if err := qp.adapter.through.tell(proto.OpDisconnect, i.handle, nil); err != nil && !qp.machine.Dead() {
			return fmt.Errorf("disconnect QP %d: %w", qp.Number(), err)
		}
	}
	select {
	case <-qp.done:
		return qp.Err()
	case <-ctx.Done():
		return fmt.Errorf("disconnect QP %d: the peer has not closed its side yet: %w", qp.Number(), context.Cause(ctx))
	}
}

// failDistant puts the daemon's QP into the error state.
func (qp *QP) failDistant() {
	qp.distant.failed.Store(true)
	const maskState, stateErr = 1, 6 // IBV_QP_STATE, IBV_QPS_ERR
	err := qp.adapter.through.tell(proto.OpModifyQP, qp.distant.handle, func(m *proto.Message) {
		m.QPAttr().Mask, m.QPAttr().State = maskState, stateErr
	})
	if err != nil && !errors.Is(err, ErrDaemonGone) {
		qp.adapter.log.Error("cannot end a QP", "qp", qp.Number(), "err", err)
	}
}

// closeDistant ends the QP in the daemon. When it returns, all its completions are in the CQs.
func (qp *QP) closeDistant() {
	t := qp.adapter.through
	qp.mu.Lock()
	i := qp.distant.id
	qp.mu.Unlock()
	if i != nil {
		i.destroy()
	}
	if err := t.destroy(proto.KindQP, qp.distant.handle); err != nil {
		qp.adapter.log.Error("cannot close a QP", "qp", qp.Number(), "err", err)
	}
	qp.kill(fmt.Errorf("the QP is being %w", ErrClosed))
}

// unmapRings ends all accesses of this process to the rings.
func (qp *QP) unmapRings() {
	t := qp.adapter.through
	t.mu.Lock()
	delete(t.qps, qp.Number())
	t.mu.Unlock()
	qp.sending.Lock()
	defer qp.sending.Unlock()
	qp.receiving.Lock()
	defer qp.receiving.Unlock()
	if err := unix.Munmap(qp.distant.memory); err != nil {
		qp.adapter.log.Error("cannot unmap the rings of a QP", "qp", qp.Number(), "err", err)
	}
	qp.distant.memory = nil
}
