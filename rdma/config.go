package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Config says what an adapter is made of. Exactly one of Ports and KernelPort
// must be set; everything else works as it is.
type Config struct {
	// Ports are the network interfaces whose connections are taken over.
	// "eth0.100" is VLAN 100 of eth0. It takes CAP_NET_ADMIN, CAP_NET_RAW,
	// CAP_BPF, and CAP_IPC_LOCK or enough memlock. A program that `stag load` has
	// put there is adopted, in the mode that it was loaded in, and stays after
	// Close.
	Ports []string

	// KernelPort runs every connection over the kernel's own TCP instead:
	// slower, to any destination, and without any rights.
	KernelPort bool

	// RegionHeap is how many octets AllocMR can hand out. They are mapped at
	// once, and take memory when they are used. 0 means 256 MiB.
	RegionHeap uint64
	// MaxRegions is how many regions can be registered at a time. 0 means
	// 65535. The table has a power of two of entries, of which one is not used:
	// Attributes says how many it came to.
	MaxRegions int
	// MaxRegionsPerPD is how many of them one protection domain can have, so that
	// what serves one peer leaves entries of the table to the others. 0 means all.
	MaxRegionsPerPD int

	// Progress says who does the adapter's work. Auto is Inline, unless Spin is
	// set and there are cores for every engine and for the program beside them.
	Progress Progress
	// Spin is how long whoever does the work goes on looking for more before it
	// sleeps: an engine, or with ProgressInline a Wait. 0: an engine sleeps at
	// once, a Wait looks for about as long as falling asleep and waking up take.
	Spin time.Duration

	// The following say how ports are used, and mean nothing to the kernel's.

	// Generic attaches in generic (SKB) mode: slower, for drivers without
	// native XDP. It is never chosen silently.
	Generic bool
	// VLAN is the 802.1Q id, 1 to 4094, that frames of the one port carry
	// although the kernel does not know of it. 0: only VLAN links are tagged.
	VLAN uint16
	// Queues are the receive queues of each port to serve. 0 means all, which
	// any other number must be as well.
	Queues int
	// FrameSize is the size of a chunk in octets, 2048 or 4096. 0 means 4096.
	FrameSize uint32
	// RxFrames and TxFrames are how many chunks each queue has, powers of two.
	// 0 means 4096.
	RxFrames, TxFrames uint32
	// ZeroCopy says whether the driver's zero-copy mode is used.
	ZeroCopy afxdp.ZeroCopy
	// MaxFlows is how many connections a port can have. 0 means 4096, or fewer
	// where the port was loaded with room for fewer.
	MaxFlows int
	// Partial says what becomes of segments whose TCP checksum the peer's kernel
	// has left to a device that has not computed it.
	Partial Partial
	// Congestion is the congestion control of the connections that are taken
	// over: "cubic" or "reno". "" goes on with the one that the kernel has chosen
	// for each, and with CUBIC where that is neither.
	Congestion string

	// NoControl makes no control socket: `stag show`, `stag dump` and
	// `stag metrics` do not see the adapter then. Without it Open makes one in
	// /run/stag or, for ordinary users, in $XDG_RUNTIME_DIR/stag or their own
	// directory for temporary files, and fails where it cannot.
	NoControl bool

	// Log gets a line when an object is born or dies, and at its debug level the
	// steps of it, and who asks at the control socket. nil: no log.
	Log *slog.Logger
}

const (
	defaultHeap    = 256 << 20
	maxHeap        = 1 << 46
	defaultRegions = 1<<16 - 1
	maxRegions     = 1<<24 - 1
)

// fill completes c, or says everything that is wrong with it.
func (c Config) fill() (Config, error) {
	errs := c.portMistakes()
	if c.RegionHeap == 0 {
		c.RegionHeap = defaultHeap
	}
	if c.RegionHeap > maxHeap {
		errs = append(errs, fmt.Errorf("RegionHeap is %d octets: choose up to 2^46", c.RegionHeap))
	}
	if c.MaxRegions == 0 {
		c.MaxRegions = defaultRegions
	}
	if c.MaxRegions < 1 || c.MaxRegions > maxRegions {
		errs = append(errs, fmt.Errorf("MaxRegions is %d: choose 1 to %d", c.MaxRegions, maxRegions))
	}
	if c.MaxRegionsPerPD < 0 || c.MaxRegionsPerPD > maxRegions {
		errs = append(errs, fmt.Errorf("MaxRegionsPerPD is %d: choose 1 to %d, or 0 for all", c.MaxRegionsPerPD, maxRegions))
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
	case len(c.Ports) == 0 && !c.KernelPort:
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
	if c.Partial > PartialRefused {
		errs = append(errs, fmt.Errorf("a Partial of %d: choose PartialOnVeth, PartialAccepted or PartialRefused", c.Partial))
	}
	return errs
}

// Partial says what becomes of a segment whose TCP checksum field holds the sum
// of the pseudo-header alone. A kernel sends such segments over veth unless its
// transmit checksum offload is off (ethtool -K IFACE tx off).
//
// A peer that sends nothing else where they are refused ends the connection
// within a second: ErrUnsummed.
type Partial = nic.Partial

const (
	// PartialOnVeth accepts them on a veth, whose other end is on this host: they
	// come from its memory as they are, and Linux takes them for verified, too.
	// Everywhere else they are refused. The CRC of MPA protects the payload in
	// any case.
	PartialOnVeth = nic.PartialOnVeth
	// PartialAccepted accepts them on every port: the CRC of MPA is then all that
	// protects the payload, and nothing protects the TCP header.
	PartialAccepted = nic.PartialAccepted
	// PartialRefused accepts them nowhere.
	PartialRefused = nic.PartialRefused
)

// entries is the length of the table: entry 0 is never given out, and fewer
// than 64 do not fill a page.
func (c Config) entries() uint32 { return max(64, uint32(1)<<bits.Len(uint(c.MaxRegions))) }
