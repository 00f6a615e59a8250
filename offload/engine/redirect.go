package engine

import (
	"context"

	"github.com/stag-rdma/stag/offload/wire"
)

// Heading contains the addresses on the link for a flow's frames, and the MTU.
type Heading struct {
	Flow     FlowID
	Dst, Src wire.MAC // MAC addresses of the next hop and of this interface
	MTU      uint16   // MTU of the interface in octets; 0: not known
}

// redirectAtMost is how many flows are redirected between two steps. redirectAtMost is
// small enough not to delay packets noticeably.
const redirectAtMost = 256

// Redirect gives flows of this engine new MAC addresses, and a new limit for the size
// of their segments. Redirect skips flows that have ended. Redirects of one caller take
// effect in their order. If ctx ends first, some may still take effect later.
func (e *Engine) Redirect(ctx context.Context, list []Heading) error {
	for len(list) > 0 {
		part := list[:min(redirectAtMost, len(list))]
		list = list[len(part):]
		if err := e.call(ctx, func() { e.redirect(part) }); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) redirect(list []Heading) {
	for _, h := range list {
		f := e.flow(h.Flow)
		if f == nil {
			continue
		}
		f.head.SetDstMAC(h.Dst)
		f.head.SetSrcMAC(h.Src)
		if f.conn != nil && h.MTU != 0 {
			f.conn.Limit(e.now, h.MTU)
			e.mark(f)
		}
	}
}
