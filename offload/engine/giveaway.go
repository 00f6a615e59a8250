package engine

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/offload/tcp"
)

// GiveAway gives a running connection to an owner that is no engine. give gets the state of
// the connection. If give returns nil, it has the connection: the upper layer gets the
// error told, and end is the End that Ended would have got. The flow stays parked here
// until Remove.
//
// If give fails, this engine continues the connection, with one exception: if the engine
// has stopped meanwhile, the connection is lost. GiveAway then calls Fault of the upper
// layer with the error, and end is not nil.
//
// GiveAway fails with ErrNoFlow if the flow has no connection, and with tcp.ErrEnded if
// the connection has ended or is in TIME-WAIT.
func (e *Engine) GiveAway(ctx context.Context, id FlowID, give func(*tcp.State) error, told error) (end *End, err error) {
	p, err := e.Detach(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if p.Linger != nil {
		err = fmt.Errorf("give flow %#x away: %w", uint32(id), tcp.ErrEnded)
	} else if err = give(&p.State); err == nil {
		return e.lost(ctx, id, p, told), nil
	}
	if again := e.adopt(ctx, id, p); again != nil {
		err = fmt.Errorf("%w; then the connection was lost: %w", err, again)
		return e.lost(ctx, id, p, err), err
	}
	return nil, err
}
