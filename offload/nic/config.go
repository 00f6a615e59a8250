package nic

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/engine"
)

// Config says which interface to use and how. Only Link must be set.
type Config struct {
	// Link is the interface's name. "eth0.100" is VLAN 100 of eth0.
	Link string

	// VLAN is the 802.1Q id, 1 to 4094, that frames of this interface carry although
	// the kernel does not know of it, because a tc rule or the hypervisor's switch adds
	// it. 0: only VLAN links are tagged.
	VLAN uint16

	// Generic attaches the program in generic (SKB) mode: slower, for drivers
	// that have no native XDP. It is never chosen silently. A program that is
	// there already stays as it was loaded.
	Generic bool

	// Queues are the receive queues to serve. 0 means all that the interface
	// has; any other number must be exactly that, as a queue without an
	// engine would lose its segments.
	Queues int

	// FrameSize is the size of a chunk in octets, 2048 or 4096. 0 means 4096.
	FrameSize uint32
	// RxFrames and TxFrames are how many chunks each queue has. 0 means 4096.
	RxFrames, TxFrames uint32
	// ZeroCopy says whether the driver's zero-copy mode is used.
	ZeroCopy afxdp.ZeroCopy

	// Partial says what happens to segments whose TCP checksum has not been computed.
	Partial Partial

	// MaxFlows is how many connections can be open at a time. 0 means 4096, or
	// fewer where the program was loaded with room for fewer.
	MaxFlows int

	// Engine is passed on to every queue's engine, but for Ended, AcceptPartial
	// and Unsummed.
	Engine engine.Config

	// Carrier is called when the port loses its carrier and when it gets it back. It
	// must not block. nil: no call.
	Carrier func(up bool)

	// Diverted is called with flows whose packets the kernel would not send this way
	// any more, and with why: the route leads through another interface, or is gone.
	// The flows continue as before. If why is nil, the route leads through this
	// interface again. It must not block. nil: no call.
	Diverted func(flows []*Flow, why error)

	// Lost is called once, with the reason why the interface is lost for good: it is
	// gone, or the steering program has been taken off. Every connection has ended
	// then, or is about to. It must not block. nil: no call.
	Lost func(err error)

	// Log gets a line when an object begins or ends and, at its debug level, a line for
	// each step of that. nil: no log.
	Log *slog.Logger
}

// defaultFlows stands for a MaxFlows of 0.
const defaultFlows = 4096

// fill completes c, or returns an error with everything that is wrong with it.
func (c Config) fill() (Config, error) {
	var errs []error
	if c.Link == "" {
		errs = append(errs, errors.New("no interface named"))
	}
	if c.VLAN > 4094 {
		errs = append(errs, fmt.Errorf("VLAN %d: choose 1 to 4094", c.VLAN))
	}
	if c.Queues < 0 {
		errs = append(errs, fmt.Errorf("%d queues: choose 1 or more", c.Queues))
	}
	if c.MaxFlows < 0 || c.MaxFlows > engine.MaxFlows {
		errs = append(errs, fmt.Errorf("%d flows: choose 1 to %d", c.MaxFlows, engine.MaxFlows))
	}
	if c.Engine.Ended != nil {
		errs = append(errs, errors.New("Engine.Ended is set by the interface: use Flow.Done"))
	}
	if c.Engine.AcceptPartial {
		errs = append(errs, errors.New("Engine.AcceptPartial is set by the interface: use Partial"))
	}
	if c.Partial > PartialRefused {
		errs = append(errs, fmt.Errorf("a Partial of %d: choose PartialOnVeth, PartialAccepted or PartialRefused", c.Partial))
	}
	if c.FrameSize == 0 {
		c.FrameSize = 4096
	}
	if c.RxFrames == 0 {
		c.RxFrames = 4096
	}
	if c.TxFrames == 0 {
		c.TxFrames = 4096
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
