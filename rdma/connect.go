package rdma

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/mpa"
)

// begin reserves the QP for one attempt to connect it. begin returns a context that
// ends when the attempt must be given up. The caller must call settle once for each
// begin that succeeds.
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

// settle ends the attempt. If the QP has not been started and doom has not been called
// meanwhile, the QP may be connected by another attempt.
func (qp *QP) settle() {
	qp.mu.Lock()
	qp.cancel(nil)
	qp.cancel = nil // the contexts of the attempt can be freed
	failed := qp.stage == connecting
	switch {
	case failed && qp.doomed == nil:
		qp.stage = fresh
	case failed:
		qp.stage = connected // the QP cannot be connected any more
	}
	doomed := qp.doomed
	close(qp.settled)
	qp.settled = nil
	qp.mu.Unlock()
	if failed && doomed != nil {
		qp.kill(doomed)
	}
}

// start gives the machine the result of the negotiation. After start the attempt cannot
// be undone: it succeeds, or the QP is dead.
func (qp *QP) start(s *adapter.Socket, agreed mpa.Agreed) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.doomed != nil {
		return qp.doomed
	}
	local, remote := s.Ends()
	qp.agreed = Conn{
		Local: local, Remote: remote, Initiator: agreed.Initiator, Revision: int(agreed.Revision), CRC: agreed.CRC,
		SendMarkers: agreed.SendMarkers, RecvMarkers: agreed.ReceiveMarkers,
		IRD: int(agreed.IRD), ORD: int(agreed.ORD), Depths: agreed.Enhanced, PeerIRD: int(agreed.PeerIRD), PeerORD: int(agreed.PeerORD), PrivateData: agreed.Private, Extensions: agreed.Extensions, RFC7306: agreed.RFC7306, Path: s.Path(),
	}
	qp.stage = connected
	qp.machine.Start(agreed)
	qp.started.Store(true)
	return nil
}

// run is the last part of Dial and Accept. run starts the machine and takes the
// connection over. If reply is not empty, run writes it during the take-over. On error
// the connection is lost. If the machine has been started, the QP is dead.
func (qp *QP) run(ctx context.Context, s *adapter.Socket, agreed mpa.Agreed, reply []byte) error {
	if err := qp.start(s, agreed); err != nil {
		s.Close()
		return err
	}
	how := adapter.TakeOver{Kind: bpf.KindRDMA, Accepted: !agreed.Initiator, Moved: qp.follow}
	if agreed.Extensions.Has(ExtLongFPDUs) {
		how.Emit = longEmit
	}
	if len(reply) != 0 {
		how.LastWords = func() error { return sendReply(ctx, s, reply) }
	}
	c, err := s.TakeOver(ctx, qp.machine, how)
	if err != nil {
		err = reason(ctx, err)
		qp.kill(err)
		return err
	}
	qp.conn.Store(c)
	qp.follow()
	c.Wake() // some requests may have been posted meanwhile
	qp.adapter.log.Info("QP connected", "qp", qp.Number(), "remote", qp.agreed.Remote, "path", qp.agreed.Path)
	return nil
}

// sendReply writes a responder's MPA Reply to the socket. sendReply fails when ctx
// ends.
func sendReply(ctx context.Context, s *adapter.Socket, reply []byte) error {
	defer bound(ctx, s)()
	if _, err := s.Write(reply); err != nil {
		return fmt.Errorf("send the MPA Reply: %w", err)
	}
	return nil
}
