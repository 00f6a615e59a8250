package nic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
)

// guardEvery is how often the NIC checks whether its program is still there. The kernel
// sends no message when a program is removed.
const guardEvery = 250 * time.Millisecond

// guard checks the program until ctx ends.
func (n *NIC) guard(ctx context.Context) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := n.programGone()
		if err == nil {
			continue
		}
		n.lose(err)
		return
	}
}

// programGone returns an error if the program is not on the interface any more, as
// after stag unload --force. If the interface itself is gone, the engines detect that
// by themselves.
func (n *NIC) programGone() error {
	on, err := n.steer.Attached()
	if err != nil || on {
		return nil
	}
	if _, err := n.net.LookupLink(n.link.Port); errors.Is(err, loader.ErrNoLink) {
		return fmt.Errorf("%s is not in this network namespace any more", n.link.Port)
	}
	return fmt.Errorf("the steering program was detached from %s (stag unload --force does this): open the interface again", n.link.Port)
}

// lose gives the interface up because of cause. Its connections go on at other
// interfaces of the adapter. Without another interface every connection ends, with a
// reset to the peer if packets can still be sent. The NIC takes no other connection
// over. Resources that were opened stay until Close.
func (n *NIC) lose(cause error) {
	n.losing.Do(func() {
		cause = fmt.Errorf("%w: %w", stream.ErrPort, cause)
		n.log.Error("interface lost", "link", n.link.Name, "err", cause)
		n.die(cause)
		n.down.Store(true)
		n.evacuate()
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		open := n.Flows()
		for _, f := range open {
			f.inspect(ctx, func(c *tcp.Conn) { c.AbortFor(cause) }) // inspect fails for a flow that has ended, which needs no abort
		}
		for _, f := range open {
			select {
			case <-f.done:
			case <-ctx.Done():
			}
		}
		n.stop(cause)
		if n.cfg.Lost != nil {
			n.cfg.Lost(cause)
		}
	})
}
