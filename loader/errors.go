package loader

import (
	"errors"
	"fmt"
)

// These are the causes of this package's errors, for errors.Is. The text of every such
// error is one line that says what to do.
var (
	ErrNoLink         = errors.New("no such network interface")
	ErrLinkDown       = errors.New("the network interface is down")
	ErrBond           = errors.New("the network interface is a bond")
	ErrVLANParent     = errors.New("the VLAN interface's parent is out of reach")
	ErrAlreadyLoaded  = errors.New("stag's program is on the interface already")
	ErrForeignProgram = errors.New("another XDP program is on the interface")
	ErrLayout         = errors.New("pinned maps have another layout")
	ErrNotPinned      = errors.New("nothing is pinned there")
	ErrNoBPFFS        = errors.New("not a BPF file system")
	ErrNoNative       = errors.New("the driver has no native XDP")
	ErrMTU            = errors.New("the MTU is too large")
	ErrOffload        = errors.New("an offload joins packets, or takes their tags off")
	ErrChannels       = errors.New("too few receive queues")
	ErrPermission     = errors.New("a capability is missing")
	ErrQueueBusy      = errors.New("the queue is in use")
	ErrTableBusy      = errors.New("the table is in use")
	ErrInstanceBusy   = errors.New("the instance is being changed")
	ErrFlowExists     = errors.New("the flow is entered already")
	ErrFlowsFull      = errors.New("no room for another flow")
	ErrNoFlow         = errors.New("no such flow")
	ErrLocal          = errors.New("the destination is on this host")
	ErrNoRoute        = errors.New("no route")
	ErrNoNeighbour    = errors.New("the next hop does not answer")
)

// problem is an error with a cause from the list above. The text includes the texts of
// the cause and of the kernel's error only if the caller of fail wrote them into it.
type problem struct {
	is    error // one of the errors above
	cause error // the kernel's error, or nil
	text  string
}

func (p *problem) Error() string { return p.text }

func (p *problem) Unwrap() []error {
	if p.cause == nil {
		return []error{p.is}
	}
	return []error{p.is, p.cause}
}

func fail(is, cause error, format string, args ...any) error {
	return &problem{is, cause, fmt.Sprintf(format, args...)}
}
