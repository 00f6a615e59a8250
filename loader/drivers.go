package loader

import "slices"

// Driver is what stag knows about a driver of network interfaces. The zero value of a
// field says what holds for a driver that stag does not know.
type Driver struct {
	// Name is what ethtool -i prints.
	Name string

	// Metadata: in native mode the driver leaves room in front of a packet for the
	// steering record. In generic mode the kernel does, for every driver.
	Metadata bool

	// ZeroCopy: the documentation of the driver promises zero copy. It is for kernels
	// that do not say it themselves.
	ZeroCopy bool

	// MTU is the largest MTU at which the driver takes an XDP program in native mode, in
	// octets. 0: not known. Newer versions of a driver may have no limit.
	MTU int

	// Frame is the length of the longest frame that the driver hands to a program in one
	// piece in native mode, in octets with the Ethernet header. 0: the chunk alone limits it.
	Frame int

	// Pair: an interface is one end of a pair, and the other end belongs to this machine,
	// too. No wire lies between the ends, and the sender leaves checksums out and does not
	// cut up large segments unless its offloads are off.
	Pair bool

	// KeepsTags: the program sees VLAN tags whatever rxvlan is set to.
	KeepsTags bool

	// QueuesApart: ethtool -L counts receive and transmit queues apart, not combined.
	QueuesApart bool

	// Tried: the tests of stag run on it.
	Tried bool

	// Speed is what to expect of it, "" if there is nothing particular to say.
	Speed string

	// Quirk is what the driver's documentation, or those who use XDP with it, say of it. It
	// continues "driver NAME is said to be one that". Remedy says what to do; IFACE in it
	// stands for the interface. Nobody has tried them with stag.
	Quirk, Remedy string
}

// drivers has all facts about single drivers that the Go code knows: a quirk of another
// driver is another row.
var drivers = []Driver{
	{
		Name: "veth", Metadata: true, MTU: maxMTUNative, Frame: pageFrame,
		Pair: true, KeepsTags: true, QueuesApart: true, Tried: true,
		Speed: "veth: about the kernel's TCP at MTU 1500, more with larger ones (README, Numbers); no measure of a network card",
	},
	{
		Name: "virtio_net", Metadata: true, ZeroCopy: true, MTU: maxMTUNative,
		Quirk:  "wants a pair of queues more for each processor, and receive offloads off, which the host decides",
		Remedy: "let the host give it queues (mq=on, queues=N), and guest_csum=off,guest_tso4=off,guest_tso6=off",
	},
	{
		Name: "mlx5_core", Metadata: true, ZeroCopy: true, MTU: 3498,
		Quirk:  "has, in some versions, its zero-copy queues numbered above its channels",
		Remedy: "if nothing comes, switch zero copy off",
	},
	{
		Name: "ice", Metadata: true, ZeroCopy: true, MTU: 3046,
		Quirk:  "received nothing in zero copy on old kernels",
		Remedy: "if nothing comes, switch zero copy off",
	},
	{
		Name: "i40e", Metadata: true, ZeroCopy: true, MTU: 3046,
		Quirk:  "sends to another interface only where that has a program, too",
		Remedy: "nothing: stag sends by sockets",
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

// How long a frame may be to reach a socket in one piece, in octets with the Ethernet
// header. The kernel keeps chunkFront octets of a chunk in front of the packet. A driver
// that gives a page to each packet keeps as many in front of it, and 320 behind it.
const (
	chunkFront   = 256
	pageFrame    = 4096 - chunkFront - 320
	ethernetLen  = 14
	maxMTUNative = pageFrame - ethernetLen
)

// Drivers returns what stag knows about all drivers that it knows.
func Drivers() []Driver { return slices.Clone(drivers) }

// DriverNamed returns what stag knows about a driver. Of a driver that it does not know
// only the name is set.
func DriverNamed(name string) Driver {
	if i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == name }); i >= 0 {
		return drivers[i]
	}
	return Driver{Name: name}
}

// Facts returns what stag knows about the driver of l's port.
func (l Link) Facts() Driver { return DriverNamed(l.Driver) }

// Longest returns the length of the longest frame that reaches a socket on l's port in
// one piece, in octets with the Ethernet header, when a chunk of the ring has chunk
// octets.
func (l Link) Longest(generic bool, chunk int) int {
	longest := chunk - chunkFront
	if frame := l.Facts().Frame; frame != 0 && !generic {
		longest = min(longest, frame)
	}
	return longest
}

// NativeMTU returns the largest MTU at which the driver of l's port takes a program in
// native mode, in octets: that of a driver with a page for each packet if no other is
// known.
func (l Link) NativeMTU() int {
	if mtu := l.Facts().MTU; mtu != 0 {
		return mtu
	}
	return maxMTUNative
}
