package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader/choice"
	"github.com/stag-rdma/stag/offload/memgroup"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/upgrade"
)

// Config describes an adapter. Ports, KernelPort or Carrier must be set. The zero value of
// every other field is a usable default.
type Config struct {
	Ports      []string // network interfaces whose connections are taken over; "eth0.100" is VLAN 100 of eth0
	KernelPort bool     // every connection stays with the kernel's TCP; the same as Carrier Kernel
	Groups     []Group  // ports that are watched together; nil: no port is watched

	Carrier choice.Carrier // what carries connections; AsNamed: AF_XDP with Ports, unless For is set
	For     choice.Wish    // what Auto weighs

	RegionHeap      uint64 // size of the region heap in octets; 0 means 256 MiB
	MaxRegions      int    // largest number of regions at a time; 0 means 65535
	MaxRegionsPerPD int    // largest number of regions of one protection domain; 0: only MaxRegions limits it
	MaxPages        int    // largest number of pages of all page lists together; 0: as many as the table has entries, and at least 1024
	MaxPagesPerPD   int    // largest number of pages of the regions of one protection domain; 0: only MaxPages limits it

	// MemoryGroup is the name of the group of processes with which the adapter shares memory; "":
	// none. MaxRegions is then the number of regions of each process.
	MemoryGroup string

	Progress Progress
	Spin     time.Duration // how long an engine looks for more work before it sleeps

	// The next fields say how the ports are used. nic.Config describes them.
	Generic            bool
	VLAN               uint16
	Queues             int
	FrameSize          uint32 // size of a frame in octets
	RxFrames, TxFrames uint32
	ZeroCopy           afxdp.ZeroCopy
	MaxFlows           int
	Partial            nic.Partial
	Congestion         string // "cubic", "reno", or "" for the kernel's choice for each connection

	NoControl bool         // make no control socket
	Log       *slog.Logger // log of the adapter; nil: no log

	// Upgrade is called when somebody asks at the control socket for an upgrade of the process
	// (`stag upgrade`). It starts the successor and calls Offer (upgrade.Restart), and then the
	// program must close the adapter and end. progress gets a text for each step. nil: the
	// process cannot be upgraded.
	Upgrade func(ctx context.Context, progress func(step string)) (upgrade.Result, error)

	// Notify is called for events of ports and routes. Notify must not block. nil: the
	// adapter drops events.
	Notify func(Event)
}

// Defaults of a Config.
const (
	DefaultHeap    = 256 << 20
	DefaultRegions = 1<<16 - 1
)

// Largest values of a Config.
const (
	maxHeap    = 1 << 46 // octets
	maxRegions = 1<<24 - 1
	minPages   = 1024 // default with few regions
	maxPages   = 1 << 28
)

// fill sets the defaults of c. fill returns one error with every invalid field in it.
func (c Config) fill() (Config, error) {
	errs := c.choiceMistakes()
	if c.Carrier == choice.Kernel && !(c.KernelPort && len(c.Ports) > 0) {
		c.Ports = nil // an interface may be named beside --carrier
		c.KernelPort = true
	}
	if c.KernelPort {
		c.Carrier = choice.Kernel
	}
	errs = append(errs, c.portMistakes()...)
	errs = append(errs, c.groupMistakes()...)
	if c.RegionHeap == 0 {
		c.RegionHeap = DefaultHeap
	}
	if c.RegionHeap > maxHeap {
		errs = append(errs, fmt.Errorf("RegionHeap is %d octets: choose up to 2^46", c.RegionHeap))
	}
	if c.MaxRegions == 0 {
		c.MaxRegions = DefaultRegions
	}
	if c.MaxRegions < 1 || c.MaxRegions > maxRegions {
		errs = append(errs, fmt.Errorf("MaxRegions is %d: choose 1 to %d", c.MaxRegions, maxRegions))
	}
	if c.MaxRegionsPerPD < 0 || c.MaxRegionsPerPD > maxRegions {
		errs = append(errs, fmt.Errorf("MaxRegionsPerPD is %d: choose 1 to %d, or 0 for all", c.MaxRegionsPerPD, maxRegions))
	}
	if c.MaxPages != 0 && (c.MaxPages < 512 || c.MaxPages > maxPages) {
		errs = append(errs, fmt.Errorf("MaxPages is %d: choose 512 to %d, or 0 for the default", c.MaxPages, maxPages))
	}
	if c.MaxPagesPerPD < 0 || c.MaxPagesPerPD > maxPages {
		errs = append(errs, fmt.Errorf("MaxPagesPerPD is %d: choose 1 to %d, or 0 for all", c.MaxPagesPerPD, maxPages))
	}
	if c.MemoryGroup != "" {
		if err := memgroup.CheckName(c.MemoryGroup); err != nil {
			errs = append(errs, fmt.Errorf("MemoryGroup %q: %w", c.MemoryGroup, err))
		}
	}
	if c.Spin < 0 {
		errs = append(errs, fmt.Errorf("a Spin of %v: choose 0 or more", c.Spin))
	}
	if c.Progress > ProgressInline {
		errs = append(errs, fmt.Errorf("a Progress of %d: choose ProgressAuto, ProgressEngine or ProgressInline", c.Progress))
	}
	if c.Congestion != "" && tcp.Control(c.Congestion) == nil {
		errs = append(errs, fmt.Errorf("a Congestion of %q: choose cubic or reno, or nothing for the kernel's choice", c.Congestion))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}

func (c Config) portMistakes() (errs []error) {
	switch {
	case len(c.Ports) == 0 && c.Carrier == choice.AsNamed && c.For == choice.NoWish:
		errs = append(errs, errors.New("no port: name network interfaces in Ports, or set KernelPort for the kernel's TCP"))
	case len(c.Ports) != 0 && c.KernelPort:
		errs = append(errs, errors.New("both Ports and KernelPort are set: choose one"))
	}
	for i, name := range c.Ports {
		if name == "" {
			errs = append(errs, fmt.Errorf("port %d has no name", i))
		} else if slices.Contains(c.Ports[:i], name) {
			errs = append(errs, fmt.Errorf("port %s is named twice", name))
		}
	}
	if c.VLAN != 0 && len(c.Ports) != 1 {
		errs = append(errs, fmt.Errorf("a VLAN, %d, for %d ports: it can be set for one", c.VLAN, len(c.Ports)))
	}
	if c.Partial > nic.PartialRefused {
		errs = append(errs, fmt.Errorf("a Partial of %d: choose PartialOnVeth, PartialAccepted or PartialRefused", c.Partial))
	}
	return errs
}

// entries returns the length of the table. The table never gives out entry 0. The
// length is at least 64, because fewer entries do not fill a page.
func (c Config) entries() uint32 { return max(64, uint32(1)<<bits.Len(uint(c.MaxRegions))) }

// pages returns how many pages the table has room for.
func (c Config) pages() uint32 {
	if c.MaxPages == 0 {
		return max(minPages, c.entries())
	}
	return uint32(c.MaxPages)
}
