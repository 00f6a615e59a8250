package rdma

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/wire"
)

// Limits of this implementation.
const (
	maxQPDepth   = 1 << 14
	maxCQDepth   = 1 << 22
	maxSGE       = 32
	maxInline    = 1024
	maxReadDepth = 128 // as Linux siw's
	maxMessage   = 1<<32 - 1
	maxPrivate   = wire.MPAMaxPrivate - wire.MPAEnhancedLen
)

// Attributes are what an adapter has and can do.
type Attributes struct {
	Ports  []Port // of the kernel port one, which has no interface
	Limits Limits

	Progress Progress // ProgressEngine or ProgressInline: what Open has chosen

	HeapSize uint64 // octets of the region heap
	HeapFree uint64 // octets of it that are free, in however many parts
	Regions  int    // that are registered now
	QPs      int    // that there are now
}

// Port is one port of an adapter.
type Port struct {
	Name      string         // of the interface; "" for the kernel's
	Addresses []netip.Prefix // of the interface
	MTU       int            // octets, of the IP packet; 0 for the kernel's
	Path      string         // "kernel port", or how the interface is used

	// NoZeroCopy is why zero copy was tried and is not used; nil otherwise.
	NoZeroCopy error
}

// Limits are what an adapter takes at most.
type Limits struct {
	MaxQPDepth     int    // work requests of a send or receive queue
	MaxCQDepth     int    // completions of a CQ
	MaxSGE         int    // elements of a list
	MaxReadSGE     int    // elements of a Read's list
	MaxInline      int    // octets of inline data
	MaxReadDepth   int    // RDMA Reads at a time, in each direction (IRD and ORD)
	MaxPrivateData int    // octets that Dial, Accept and Reject take; revision 1 takes 4 more
	MaxMessageSize uint64 // octets
	MaxRegions     int    // entries of the table
}

// Attributes asks for what can change; it reads the ports' addresses anew.
func (a *Adapter) Attributes() (Attributes, error) {
	done, err := a.device.Use()
	if err != nil {
		return Attributes{}, err
	}
	defer done()
	table := a.table.Stats()
	at := Attributes{
		Progress: a.progress(),
		Limits: Limits{
			MaxQPDepth: maxQPDepth, MaxCQDepth: maxCQDepth, MaxSGE: maxSGE, MaxReadSGE: 1, MaxInline: maxInline,
			MaxReadDepth: maxReadDepth, MaxPrivateData: maxPrivate, MaxMessageSize: maxMessage, MaxRegions: int(table.Entries),
		},
		HeapSize: a.device.Heap().Size(), HeapFree: a.device.Heap().Left(),
		Regions: int(table.Used), QPs: len(a.allQPs()),
	}
	ports, err := a.device.Describe()
	for _, p := range ports {
		at.Ports = append(at.Ports, Port(p))
	}
	return at, err
}
