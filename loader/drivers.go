package loader

import "slices"

// Driver is what stag knows about a network driver. For a driver that stag does not
// know, every field except Name is zero.
type Driver struct {
	// Name is what ethtool -i prints.
	Name string

	// Metadata says that the driver, in native mode, leaves room in front of a packet
	// for the steering record. In generic mode the kernel leaves this room for every
	// driver.
	Metadata bool

	// ZeroCopy says that the driver's documentation promises zero copy. stag uses the
	// field on kernels that do not report zero copy themselves.
	ZeroCopy bool

	// MTU is the largest MTU at which the driver accepts an XDP program in native mode,
	// in octets. 0 means not known. Newer versions of a driver may have no limit.
	MTU int

	// Frame is the length of the longest frame that the driver passes to a program in
	// one piece in native mode, in octets with the Ethernet header. 0 means that only
	// the chunk size limits the frame.
	Frame int

	// Pair says that an interface is one end of a pair whose other end belongs to this
	// machine. No wire lies between the ends. Unless its offloads are off, the sender
	// leaves checksums out and does not segment large packets.
	Pair bool

	// Sums says that the driver completes the checksum of a packet that an AF_XDP socket
	// sends in copy mode, from the offsets in the packet's metadata alone. Such a packet has
	// no other marks of its headers, and some drivers need those. veth does not complete
	// the checksum, and its other end takes the packet for verified.
	Sums bool

	// KeepsTags says that the program sees VLAN tags even if rxvlan is on.
	KeepsTags bool

	// QueuesApart says that ethtool -L counts receive and transmit queues separately.
	QueuesApart bool

	// Tried says that stag's tests run on this driver.
	Tried bool

	// Speed describes the speed to expect, or is "" if the driver is not special.
	Speed string

	// Quirk is a fault that the driver's documentation or other XDP users report. The
	// text continues "driver NAME is said to be one that". Remedy says what to do.
	// IFACE in Remedy stands for the interface. Quirks have not been tried with stag, unless Seen says so.
	Quirk, Remedy string

	// Seen says that stag's tests have seen the quirk.
	Seen bool
}

// drivers holds all driver-specific facts that the Go code knows. To add a quirk of
// another driver, add a row.
var drivers = []Driver{
	{
		Name: "veth", Metadata: true, MTU: maxMTUNative, Frame: pageFrame,
		Pair: true, Sums: true, KeepsTags: true, QueuesApart: true, Tried: true,
		Speed: "veth: about the kernel's TCP at MTU 1500, more with larger ones (README, Numbers); no measure of a network card",
	},
	{
		Name: "virtio_net", Metadata: true, ZeroCopy: true, MTU: maxMTUNative,
		Quirk:  "adds a queue for each processor when a program is attached, if it has so many to spare, and stag refuses that; and that needs receive offloads off, which the host sets",
		Remedy: "ethtool -L IFACE combined N, with N the maximum that ethtool -l shows; on the host guest_csum=off,guest_tso4=off,guest_tso6=off",
		Seen:   true,
	},
	{
		Name: "mlx5_core", Metadata: true, ZeroCopy: true, MTU: 3498,
		Quirk:  "numbers zero-copy queues above its channels in some versions",
		Remedy: "if nothing is received, turn zero copy off",
	},
	{
		Name: "ice", Metadata: true, ZeroCopy: true, MTU: 3046,
		Quirk:  "received nothing in zero copy on old kernels",
		Remedy: "if nothing is received, turn zero copy off",
	},
	{
		Name: "i40e", Metadata: true, ZeroCopy: true, MTU: 3046,
		Quirk:  "redirects to another interface only if that interface has a program, too",
		Remedy: "none is needed: stag sends by sockets",
	},
	{
		Name: "ixgbe", Metadata: true, ZeroCopy: true, MTU: 3050,
		Quirk:  "resets the link when a program is attached, for seconds",
		Remedy: "wait until the link is up again",
	},
	{
		Name: "ena", MTU: 3498,
		Quirk:  "takes XDP with an MTU up to about 3498 and at most half of its channels",
		Remedy: "ethtool -l IFACE; ethtool -L IFACE combined N, with N half of the maximum",
	},
	{Name: "e1000", Quirk: "has no native XDP", Remedy: "ask for generic mode (--generic)"},
	{Name: "e1000e", Quirk: "has no native XDP", Remedy: "ask for generic mode (--generic)"},
	{Name: "igb", Metadata: true, ZeroCopy: true},
	{Name: "igc", Metadata: true, ZeroCopy: true},
	{Name: "nfp", Metadata: true, ZeroCopy: true},
	{Name: "bnxt_en", Metadata: true},
	{Name: "stmmac", ZeroCopy: true},
	{Name: "gve", ZeroCopy: true},
}

// These constants limit the frame that reaches a socket in one piece, in octets with
// the Ethernet header. The kernel reserves chunkFront octets of a chunk in front of the
// packet. A driver that gives a page to each packet reserves chunkFront octets in front
// of the packet and 320 octets behind it.
const (
	chunkFront   = 256
	pageFrame    = 4096 - chunkFront - 320
	ethernetLen  = 14
	maxMTUNative = pageFrame - ethernetLen
)

// Drivers returns a copy of the table of drivers.
func Drivers() []Driver { return slices.Clone(drivers) }

// DriverNamed returns the facts about the driver called name. For an unknown driver it
// sets only Name.
func DriverNamed(name string) Driver {
	if i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == name }); i >= 0 {
		return drivers[i]
	}
	return Driver{Name: name}
}

// Facts returns the facts about the driver of l's port.
func (l Link) Facts() Driver { return DriverNamed(l.Driver) }

// Longest returns the length of the longest frame that reaches a socket on l's port in
// one piece, in octets with the Ethernet header. chunk is the size of a chunk of the
// ring, in octets.
func (l Link) Longest(generic bool, chunk int) int {
	longest := chunk - chunkFront
	if frame := l.Facts().Frame; frame != 0 && !generic {
		longest = min(longest, frame)
	}
	return longest
}

// NativeMTU returns the largest MTU at which the driver of l's port accepts a program
// in native mode, in octets. If the driver's limit is not known, NativeMTU assumes a
// driver that gives a page to each packet.
func (l Link) NativeMTU() int {
	if mtu := l.Facts().MTU; mtu != 0 {
		return mtu
	}
	return maxMTUNative
}
