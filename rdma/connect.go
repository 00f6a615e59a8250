package rdma

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/mpa"
)

// begin reserves the QP for one attempt to connect it, and returns a context
// that ends when the attempt is to be given up. Each begin is followed by one
// settle.
func (qp *QP) begin(ctx context.Context) (context.Context, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	switch {
	case qp.closed:
		return nil, fmt.Errorf("QP %d is %w", qp.Number(), ErrClosed)
	case qp.stage != fresh:
		return nil, fmt.Errorf("QP %d: %w", qp.Number(), ErrConnected)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	qp.stage, qp.cancel, qp.settled = connecting, cancel, make(chan struct{})
	return ctx, nil
}

// settle ends the attempt. Unless the QP has been started it is as before, and
// may be connected by another, if nobody has doomed it meanwhile.
func (qp *QP) settle() {
	qp.mu.Lock()
	qp.cancel(nil)
	qp.cancel = nil // with it go the attempt's contexts
	failed := qp.stage == connecting
	switch {
	case failed && qp.doomed == nil:
		qp.stage = fresh
	case failed:
		qp.stage = connected // nobody can connect it any more
	}
	doomed := qp.doomed
	close(qp.settled)
	qp.settled = nil
	qp.mu.Unlock()
	if failed && doomed != nil {
		qp.kill(doomed)
	}
}

// start tells the machine what was agreed on. From now on the attempt cannot be
// undone: it succeeds, or the QP is dead.
func (qp *QP) start(s *socket, a mpa.Agreed) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.doomed != nil {
		return qp.doomed
	}
	local, remote := qp.a.ends(s.TCPConn)
	qp.conn = Conn{
		Local: local, Remote: remote, Initiator: a.Initiator, Revision: int(a.Revision), CRC: a.CRC,
		SendMarkers: a.SendMarkers, RecvMarkers: a.ReceiveMarkers,
		IRD: int(a.IRD), ORD: int(a.ORD), Depths: a.Enhanced, PeerIRD: int(a.PeerIRD), PeerORD: int(a.PeerORD), PrivateData: a.Private, Path: s.p.path(),
	}
	qp.stage = connected
	qp.m.Start(a)
	qp.started.Store(true)
	return nil
}

// run is the end of every attempt that has come so far: the machine starts, and
// takes the connection over, in which reply, if there is one, is written. On
// error the connection is lost, and the QP is dead if it had been started.
func (qp *QP) run(ctx context.Context, s *socket, a mpa.Agreed, reply []byte) error {
	if err := qp.start(s, a); err != nil {
		s.Close()
		return err
	}
	l, err := s.takeOver(ctx, qp.m, takeOver{kind: bpf.KindRDMA, accepted: !a.Initiator, words: reply})
	if err != nil {
		err = reason(ctx, err)
		qp.kill(err)
		return err
	}
	qp.line.Store(l)
	qp.attach(l.runner)
	l.wake() // for what was posted meanwhile
	qp.a.log.Info("QP connected", "qp", qp.Number(), "remote", qp.conn.Remote, "path", qp.conn.Path)
	return nil
}
