package nic

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
)

// Path describes how packets get between the interface and the engines.
type Path struct {
	Driver string      // driver of the interface
	XDP    loader.Mode // mode of the steering program
	Memory afxdp.Mode  // mode of the sockets: zero copy or copy
	Queues int
	// Instance is the name of the instance whose program was adopted. Instance is "" if
	// the program is the process's own.
	Instance string
	// Sums says that TCP checksums of the packets that stag sends are left to the driver or
	// the kernel.
	Sums bool
	// NoZeroCopy says why zero copy was tried and is not used. NoZeroCopy is nil
	// otherwise.
	NoZeroCopy error
}

func (p Path) String() string {
	plural := "s"
	if p.Queues == 1 {
		plural = ""
	}
	s := fmt.Sprintf("%s, %v XDP, %v, %d queue%s", p.Driver, p.XDP, p.Memory, p.Queues, plural)
	if p.Instance != "" {
		s += ", adopted from instance " + p.Instance
	}
	return s
}

// Path returns the Path that Open has found.
func (n *NIC) Path() Path {
	info := n.queues[0].Info()
	instance := n.steer.Instance()
	if instance != "" {
		instance = filepath.Base(instance)
	}
	return Path{
		Instance: instance,
		Driver:   n.link.Driver, XDP: n.steer.Mode(), Memory: info.Mode,
		Queues: len(n.queues), Sums: info.Sums, NoZeroCopy: info.NoZeroCopy,
	}
}

// PortStats returns the counters of the sockets, by queue.
func (n *NIC) PortStats(ctx context.Context) ([]afxdp.Stats, error) {
	all := make([]afxdp.Stats, len(n.queues))
	for i, q := range n.queues {
		var failed error
		err := n.engines[i].Between(ctx, func() { all[i], failed = q.Stats() })
		if err != nil {
			return nil, err // failed and all are not valid: the engines may still write to them
		}
		if failed != nil {
			return nil, failed
		}
	}
	return all, nil
}

// Link returns the interface.
func (n *NIC) Link() loader.Link { return n.link }

// Steering returns the program on the interface.
func (n *NIC) Steering() *loader.Steering { return n.steer }

// Engines returns the engines, by queue.
func (n *NIC) Engines() []*engine.Engine { return n.engines }
