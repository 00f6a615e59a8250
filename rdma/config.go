package rdma

import (
	"context"
	"log/slog"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader/choice"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/upgrade"
)

// Config is the configuration of an adapter. Exactly one of Ports, KernelPort and Daemon
// must be set, unless Carrier says otherwise. Every other field may stay zero.
type Config struct {
	// Ports are the network interfaces whose connections are taken over. "eth0.100" is
	// VLAN 100 of eth0. The name of a bond stands for its members: connections leave
	// through the member that the bond uses. Ports need CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, and CAP_IPC_LOCK
	// or enough memlock. If `stag load` has put a program on an interface, Open adopts
	// the program in the mode in which it was loaded, and Close leaves the program on
	// the interface.
	Ports []string

	// KernelPort runs every connection over the kernel's own TCP instead. This reaches any
	// destination and needs no capability. It is the same as CarrierKernel.
	KernelPort bool

	// Carrier says what carries the connections: AF_XDP on the Ports, or the kernel's TCP.
	// With the zero value the other fields say it: AF_XDP with Ports, the kernel's TCP with
	// KernelPort. If For is set, the zero value means CarrierAuto. Open never falls back to
	// another carrier than that which it was told to use or has chosen: it fails, and says
	// what to do. Adapter.Carrier, Adapter.Report and the log say which carrier is used and
	// why. The two ends of a connection may have different carriers.
	Carrier Carrier
	// For says what the connections shall be best at. CarrierAuto weighs it.
	For Wish

	// Daemon is the path of the socket of `stag daemon`. The adapter then has no ports of its
	// own. Its objects are in the daemon, which shares its ports with any number of programs,
	// and posts and polls go by shared memory. DefaultDaemon is the usual path. What a daemon
	// cannot do returns ErrThroughDaemon: SRQs, windows, page lists, shared and reserved
	// regions, limits of the rate, registrations through the send queue. Ports and KernelPort
	// must not be set, and Carrier and For are the daemon's.
	Daemon string

	// Groups are sets of ports that are watched together. If a port of a group does not
	// work any more, its connections go on over another port of the group, and the group
	// may move its addresses. Without a group, connections still follow the kernel's
	// routes from port to port.
	Groups []Group

	// RegionHeap is the size in octets of the heap from which AllocMR takes memory. The
	// heap is mapped at once, but a page takes memory only when it is used. 0 means 256
	// MiB.
	RegionHeap uint64
	// MaxRegions is how many regions can be registered at a time. 0 means 65535. The
	// number of table entries is a power of two, and one entry is not used. Attributes
	// returns the resulting number.
	MaxRegions int
	// MaxRegionsPerPD is how many regions one protection domain can have. With a limit,
	// a PD that serves one peer cannot take all entries of the table. 0 means no limit.
	MaxRegionsPerPD int
	// MaxPages is how many pages the page lists of RegMRPages can have together, 512 to
	// 268435456. Each 512 pages of a long list take one more. Shared regions count once.
	// The pages take 8 octets each, at once. 0 means as many pages as the table has
	// entries, and at least 1024.
	MaxPages int
	// MaxPagesPerPD is how many of MaxPages the regions of one protection domain can have,
	// so that a PD that serves one peer cannot take all. Here each shared region counts.
	// 0 means no limit.
	MaxPagesPerPD int

	// MemoryGroup is the name of a group of processes of this user that share registered memory:
	// 1 to 32 letters, digits and -_. A peer of one process can then access memory of
	// another, if both processes have the protection domain in common (AllocSharedPD).
	// Each process must have the same MaxRegions, at most 1048575, and the group has room
	// for 16 processes. Open needs CAP_BPF, with KernelPort too. "" means no group. See
	// docs/groups.md.
	MemoryGroup string

	// Progress says which goroutines do the adapter's work. ProgressAuto means
	// ProgressInline, unless Spin is set and there are more cores than engines.
	Progress Progress
	// Spin is how long an engine looks for more work before it sleeps. With
	// ProgressInline a Wait looks for work as long. If Spin is 0, an engine sleeps at
	// once. A Wait then looks about as long as it takes to fall asleep and wake up.
	Spin time.Duration

	// The fields below apply to Ports and not to KernelPort.

	// Generic attaches the program in generic (SKB) mode. This mode is slower and works
	// with drivers without native XDP. Open never chooses this mode by itself.
	Generic bool
	// VLAN is the 802.1Q id, 1 to 4094, of the frames of the only port. Set it for a
	// VLAN that the kernel does not know. 0 means that only frames of VLAN links are
	// tagged.
	VLAN uint16
	// Queues is the number of receive queues to serve on each port. 0 means all. Any
	// other number must be the number of queues that the port has.
	Queues int
	// FrameSize is the size of an AF_XDP chunk in octets, 2048 or 4096. 0 means 4096.
	FrameSize uint32
	// RxFrames and TxFrames are the numbers of chunks of each queue, powers of two.
	// 0 means 4096.
	RxFrames, TxFrames uint32
	// ZeroCopy says whether the driver's zero-copy mode is used.
	ZeroCopy ZeroCopy
	// MaxFlows is how many connections a port can have. 0 means 4096, or fewer if the
	// port was loaded with room for fewer.
	MaxFlows int
	// Partial says whether a port accepts segments with an incomplete TCP checksum. A
	// kernel sends such segments if it leaves the checksum to a device, and the device
	// (a veth) does not compute the checksum.
	Partial Partial
	// Congestion is the congestion control of the connections that are taken over:
	// "cubic" or "reno". With "", a connection keeps the algorithm that the kernel has
	// chosen if it is one of these two. Otherwise the connection gets CUBIC.
	Congestion string

	// NoControl makes no control socket. Without the socket, `stag show`, `stag dump`
	// and `stag metrics` do not see the adapter. Without NoControl, Open makes a socket
	// in /run/stag. For ordinary users, the socket is in $XDG_RUNTIME_DIR/stag or in the
	// user's own directory for temporary files. Open fails if it cannot make the socket.
	NoControl bool

	// Upgrade is called when somebody asks for an upgrade of the program (`stag upgrade`). It
	// usually is
	//
	//	func(ctx context.Context, progress func(string)) (rdma.HandedOver, error) {
	//		return a.Restart(ctx, rdma.HandOver{...}, progress)
	//	}
	//
	// and the program must close the adapter and end afterwards. With Upgrade the region heap
	// is a file in memory, so that another process can map it (Adapter.HandOver). If Upgrade
	// is nil, the program cannot be upgraded.
	Upgrade func(ctx context.Context, progress func(step string)) (HandedOver, error)

	// Log gets a line when an object is made or closed. At debug level it also gets the
	// steps in between and the clients of the control socket. If Log is nil, the
	// adapter logs nothing.
	Log *slog.Logger
}

// device returns the configuration of the device.
func (c *Config) device() adapter.Config {
	return adapter.Config{
		Ports: c.Ports, KernelPort: c.KernelPort, Carrier: choice.Carrier(c.Carrier), For: choice.Wish(c.For), Groups: groups(c.Groups),
		RegionHeap: c.RegionHeap, MaxRegions: c.MaxRegions, MaxRegionsPerPD: c.MaxRegionsPerPD, MaxPages: c.MaxPages, MaxPagesPerPD: c.MaxPagesPerPD,
		MemoryGroup: c.MemoryGroup, Progress: adapter.Progress(c.Progress), Spin: c.Spin,
		Generic: c.Generic, VLAN: c.VLAN, Queues: c.Queues, FrameSize: c.FrameSize, RxFrames: c.RxFrames, TxFrames: c.TxFrames,
		ZeroCopy: afxdp.ZeroCopy(c.ZeroCopy), MaxFlows: c.MaxFlows, Partial: nic.Partial(c.Partial), Congestion: c.Congestion,
		NoControl: c.NoControl, Log: c.Log, Upgrade: c.upgrade(),
	}
}

// upgrade returns Upgrade for the device.
func (c *Config) upgrade() func(context.Context, func(string)) (upgrade.Result, error) {
	if c.Upgrade == nil {
		return nil
	}
	return func(ctx context.Context, progress func(string)) (upgrade.Result, error) {
		h, err := c.Upgrade(ctx, progress)
		return upgrade.Result{PID: h.PID, Flows: h.Connections, Lost: h.Lost, Frozen: h.Frozen, Waiting: h.Prepared}, err
	}
}

// Partial says whether a segment is accepted whose TCP checksum field holds the sum
// of the pseudo-header alone. A kernel sends such segments over veth unless its
// transmit checksum offload is off (ethtool -K IFACE tx off).
//
// If a port refuses such segments and a peer sends no others, the connection ends
// within a second with ErrUnsummed.
type Partial uint8

const (
	// PartialOnVeth accepts such segments on a veth and refuses them on every other
	// interface. The other end of a veth is on this host, so that the segments come
	// from this host's memory without a wire. Linux also takes such segments for
	// verified. The CRC of MPA protects the payload in any case.
	PartialOnVeth Partial = iota
	// PartialAccepted accepts such segments on every port. The CRC of MPA is then the
	// only protection of the payload. The TCP header has no protection.
	PartialAccepted
	// PartialRefused refuses such segments on every port.
	PartialRefused
)

// ZeroCopy says whether the driver's zero-copy mode is used. In that mode the card
// writes into and reads from the frames of AF_XDP itself.
type ZeroCopy uint8

const (
	ZeroCopyAuto    ZeroCopy = iota // zero copy if the driver can; Port.Path says which mode is used
	ZeroCopyRequire                 // zero copy; Open fails if the driver cannot
	ZeroCopyOff                     // no zero copy; the kernel copies
)

func (z ZeroCopy) String() string { return afxdp.ZeroCopy(z).String() }
