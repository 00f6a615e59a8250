package nic

import (
	"errors"

	"github.com/stag-rdma/stag/offload/bell"
	"github.com/stag-rdma/stag/offload/engine"
)

// AddBell makes an engine of the interface serve a bell (engine.AddBell). With several
// receive queues it is the engine of the first one: a bell names queues of connections at any
// engine, and serving it only rings their doorbells. remove ends it.
func (n *NIC) AddBell(b *bell.Bell, lost func()) (remove func(), err error) {
	err = errors.New("the interface has no engine")
	for _, e := range n.engines {
		if err = e.AddBell(b, lost); err == nil {
			return func() { e.RemoveBell(b) }, nil
		}
		if errors.Is(err, engine.ErrNoWatch) {
			return nil, err
		}
	}
	return nil, err
}
