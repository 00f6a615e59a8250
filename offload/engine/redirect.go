package engine

import (
	"context"

	"github.com/stag-rdma/stag/offload/wire"
)

// Heading is how a flow's frames go from now on.
type Heading struct {
	Flow     FlowID
	Dst, Src wire.MAC // the next hop's address on the link, and ours
	MTU      uint16   // of the interface, octets; 0: not known
}

// redirectAtMost is how many flows are redirected between two steps: so few that
// no peer notices.
const redirectAtMost = 256

// Redirect gives flows of this engine other addresses on the link, and another
// bound of what they send at a time. Flows that are gone are skipped. Redirects
// of one caller are done in their order. When ctx ends first, some may still be
// done later.
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
