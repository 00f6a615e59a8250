package rdma

import (
	"log/slog"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/nic"
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
	ZeroCopy ZeroCopy
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

// device is c in the words of the device.
func (c *Config) device() adapter.Config {
	return adapter.Config{
		Ports: c.Ports, KernelPort: c.KernelPort,
		RegionHeap: c.RegionHeap, MaxRegions: c.MaxRegions, MaxRegionsPerPD: c.MaxRegionsPerPD,
		Progress: adapter.Progress(c.Progress), Spin: c.Spin,
		Generic: c.Generic, VLAN: c.VLAN, Queues: c.Queues, FrameSize: c.FrameSize, RxFrames: c.RxFrames, TxFrames: c.TxFrames,
		ZeroCopy: afxdp.ZeroCopy(c.ZeroCopy), MaxFlows: c.MaxFlows, Partial: nic.Partial(c.Partial), Congestion: c.Congestion,
		NoControl: c.NoControl, Log: c.Log,
	}
}

// Partial says what becomes of a segment whose TCP checksum field holds the sum
// of the pseudo-header alone. A kernel sends such segments over veth unless its
// transmit checksum offload is off (ethtool -K IFACE tx off).
//
// A peer that sends nothing else where they are refused ends the connection
// within a second: ErrUnsummed.
type Partial uint8

const (
	// PartialOnVeth accepts them on a veth, whose other end is on this host: they
	// come from its memory as they are, and Linux takes them for verified, too.
	// Everywhere else they are refused. The CRC of MPA protects the payload in
	// any case.
	PartialOnVeth Partial = iota
	// PartialAccepted accepts them on every port: the CRC of MPA is then all that
	// protects the payload, and nothing protects the TCP header.
	PartialAccepted
	// PartialRefused accepts them nowhere.
	PartialRefused
)

// ZeroCopy says whether the driver's zero-copy mode is used: the card writes into and
// reads from the frames of AF_XDP itself.
type ZeroCopy uint8

const (
	ZeroCopyAuto    ZeroCopy = iota // if the driver can; Port.Path tells what came of it
	ZeroCopyRequire                 // or Open fails
	ZeroCopyOff                     // the kernel copies
)

func (z ZeroCopy) String() string { return afxdp.ZeroCopy(z).String() }
