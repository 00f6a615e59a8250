package nic

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/engine"
)

// Config is the configuration of a NIC. Only Link must be set.
type Config struct {
	// Link is the interface's name. "eth0.100" is VLAN 100 of eth0.
	Link string

	// VLAN is the 802.1Q id, 1 to 4094, of the frames of this interface if the kernel
	// does not know the VLAN. A tc rule or the hypervisor's switch adds such a tag. 0
	// means that only frames of VLAN links are tagged.
	VLAN uint16

	// Generic attaches the program in generic (SKB) mode. This mode is slower and works
	// with drivers that have no native XDP. This mode is never chosen silently. A
	// program that `stag load` has attached keeps its mode.
	Generic bool

	// Queues is the number of receive queues to serve. 0 means all queues of the
	// interface. Any other number must be the number of queues of the interface,
	// because a queue without an engine would lose its segments.
	Queues int

	// FrameSize is the size of a chunk in octets, 2048 or 4096. 0 means 4096.
	FrameSize uint32
	// RxFrames and TxFrames are how many chunks each queue has. 0 means 4096.
	RxFrames, TxFrames uint32
	// ZeroCopy says whether the driver's zero-copy mode is used.
	ZeroCopy afxdp.ZeroCopy

	// Partial says what happens to segments whose TCP checksum has not been computed.
	Partial Partial

	// Sums says in which modes the TCP checksums of sent packets are left to the driver or
	// the kernel. 0 means the modes in which the interface completes them, if its transmit
	// checksum offload is on.
	Sums afxdp.Sums

	// MaxFlows is how many connections can be open at a time. 0 means 4096, or fewer if
	// the program was loaded with room for fewer.
	MaxFlows int

	// Engine is the configuration of every queue's engine. Ended, AcceptPartial and
	// Unsummed are not used.
	Engine engine.Config

	// Carrier is called when the link of the interface goes down and when the link
	// comes up again. Carrier must not block. nil means no call.
	Carrier func(up bool)

	// Flapped is called when the interface has lost its link and has it again, and the
	// kernel has reported neither. Flapped must not block. nil means no call.
	Flapped func()

	// Diverted is called with flows whose packets the kernel would now send another
	// way. why says that the route leads through another interface, or is gone. The
	// flows continue as before. If why is nil, the route leads through this interface
	// again. Diverted must not block. nil means no call.
	Diverted func(flows []*Flow, why error)

	// Moved is called when a connection has moved from this interface to another one, or
	// could not move. Moved must not block. nil means no call.
	Moved func(Movement)

	// Lost is called once when the interface is lost for good. err says that the
	// interface is gone, or that the steering program has been removed. Every
	// connection has moved to another interface of the adapter then, has ended, or is
	// about to end. Lost must not block. nil means no call.
	Lost func(err error)

	// Inherit is what another process hands over for this interface: see Frozen. nil means
	// that the interface is opened anew.
	Inherit *Inheritance
	// Ready is called once, before OpenAll binds the first queue of all interfaces. Only the
	// Ready of the first interface is used. If Ready returns an error, OpenAll fails with it.
	// nil means no call.
	Ready func() error

	// Log gets a line when an object begins or ends. At debug level it also gets a line
	// for each step. nil means no log.
	Log *slog.Logger
}

// defaultFlows is the default of MaxFlows.
const defaultFlows = 4096

// fill sets the defaults of c. fill returns one error with every invalid field in it.
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
