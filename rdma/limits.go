package rdma

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/wire"
)

// Limits of this implementation.
const (
	maxQPDepth   = 1 << 14
	maxSRQDepth  = 1 << 16
	maxCQDepth   = 1 << 22
	maxSGE       = 32
	maxInline    = 1024
	maxReadDepth = 128 // the same as Linux siw
	maxMessage   = 1<<32 - 1
	maxPrivate   = wire.MPAMaxPrivate - wire.MPAEnhancedLen
)

// Attributes are the properties and limits of an adapter.
type Attributes struct {
	Ports  []Port // ports of the adapter; with KernelPort, one entry without an interface
	Limits Limits

	Progress Progress // the choice of Open: ProgressEngine or ProgressInline

	HeapSize uint64 // size in octets of the region heap
	HeapFree uint64 // free octets of the region heap, in one or more parts
	Regions  int    // number of registered regions
	QPs      int    // number of open QPs
}

// Port is one port of an adapter.
type Port struct {
	Name      string         // name of the interface; "" for the kernel's port
	Addresses []netip.Prefix // addresses of the interface
	MTU       int            // MTU for IP packets in octets; 0 for the kernel's port
	Path      string         // how the interface is used, "kernel port", or "daemon"

	// NoZeroCopy says why zero copy was tried and is not used. NoZeroCopy is nil otherwise.
	NoZeroCopy error
}

// Limits are the largest values that an adapter accepts.
type Limits struct {
	MaxQPDepth     int    // work requests that a send or receive queue can hold
	MaxSRQDepth    int    // receives that an SRQ can hold
	MaxCQDepth     int    // completions that a CQ can hold
	MaxSGE         int    // elements of a scatter-gather list
	MaxReadSGE     int    // elements of a Read's scatter-gather list
	MaxInline      int    // octets of inline data
	MaxReadDepth   int    // RDMA Reads at a time, in each direction (IRD and ORD)
	MaxPrivateData int    // octets of private data that Dial, Accept and Reject accept; with revision 1, 4 more
	MaxMessageSize uint64 // length of a message in octets
	MaxRegions     int    // entries of the table
}

// Attributes returns the current attributes. Attributes reads the ports' addresses
// anew.
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
			MaxQPDepth: maxQPDepth, MaxSRQDepth: maxSRQDepth, MaxCQDepth: maxCQDepth, MaxSGE: maxSGE, MaxReadSGE: 1, MaxInline: maxInline,
			MaxReadDepth: maxReadDepth, MaxPrivateData: maxPrivate, MaxMessageSize: maxMessage, MaxRegions: int(table.Entries),
		},
		HeapSize: a.device.Heap().Size(), HeapFree: a.device.Heap().Left(),
		Regions: int(table.Used), QPs: len(a.allQPs()),
	}
	if a.through != nil {
		at.Limits.MaxSRQDepth = 0
		at.Ports, err = a.through.describe()
		return at, err
	}
	ports, err := a.device.Describe()
	for _, p := range ports {
		at.Ports = append(at.Ports, Port(p))
	}
	return at, err
}
