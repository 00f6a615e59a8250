package afxdp

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/stag-rdma/stag/offload/port"
)

// ZeroCopy selects between zero-copy mode and copy mode.
type ZeroCopy uint8

const (
	ZeroCopyAuto    ZeroCopy = iota // zero copy if the driver supports it; Queue.Mode returns the result
	ZeroCopyRequire                 // zero copy; otherwise Open fails
	ZeroCopyOff                     // copy mode
)

func (z ZeroCopy) String() string {
	if z > ZeroCopyOff {
		return fmt.Sprintf("ZeroCopy(%d)", uint8(z))
	}
	return [...]string{"auto", "require", "off"}[z]
}

// Sums says in which modes somebody else completes the TCP checksums of packets
// (port.Frame.Sum). A driver in zero-copy mode completes them only if it reports so. In copy
// mode the kernel always accepts such packets. It leaves the checksum to the device if the
// device's transmit checksum offload is on, and else computes the checksum itself.
type Sums uint8

const (
	SumsCopy     Sums = 1 << iota // in copy mode
	SumsZeroCopy                  // in zero-copy mode
	// SumsKernel makes the kernel compute the checksums in copy mode, even if the device
	// could. It shows whether the kernel understands the metadata. It is not for other uses.
	SumsKernel
)

// Config describes a queue. Only the interface is required. A zero in any other field
// selects the default.
type Config struct {
	// Ifindex and IfName name the interface by index, by name or by both. The interface
	// must be in the network namespace of the thread that calls Open.
	Ifindex int
	IfName  string
	Queue   uint16

	// Port and Lane are the adapter's numbers for the interface and for this queue: see
	// port.Limits. Both are 0 for the only queue of an adapter.
	Port uint16
	Lane port.Lane

	FrameSize uint32 // size of a chunk, 2048 or 4096 octets; 0 means 4096
	RxFrames  uint32 // number of receive chunks; 0 means 4096
	TxFrames  uint32 // number of transmit chunks; 0 means 4096

	// RxRing, TxRing, FillRing and CompRing are the numbers of slots of the rings,
	// powers of two. TxRing 0 means 2048. For each other ring, 0 means a slot for every
	// chunk of the ring's pool. RxRing then has at least 2048 slots, and CompRing at
	// least as many as TxRing.
	RxRing, TxRing, FillRing, CompRing uint32

	ZeroCopy ZeroCopy

	// Sums says in which modes Send accepts packets without a complete TCP checksum, if the
	// kernel has transmit metadata (Linux 6.11). Info.Sums is the result.
	Sums Sums

	// SendBuffer limits the memory that the kernel holds for transmission in copy mode,
	// in octets of the kernel's accounting. 0 means enough for TxFrames.
	SendBuffer uint32

	// Check makes the queue panic when a chunk would get a second owner. The message
	// has the chunk's history. Without Check the queue refuses the frame and counts it.
	// The build tag stagdebug turns Check on for every queue.
	Check bool
}

const (
	defaultFrames = 4096
	defaultRing   = 2048
	minRing       = 32 // the oldest kernels send 32 frames per system call
	maxRing       = 1 << 20
	maxFrames     = 1 << 20
)

// RegionSize returns how many octets of the arena a queue with this
// configuration needs. It returns an error for a configuration that Open refuses.
func (c Config) RegionSize() (uint64, error) {
	c, err := c.fill()
	if err != nil {
		return 0, err
	}
	return c.regionSize(), nil
}

func (c Config) regionSize() uint64 {
	return (uint64(c.RxFrames) + uint64(c.TxFrames)) * uint64(c.FrameSize)
}

// fill returns c with its defaults set. The error describes every fault of c.
func (c Config) fill() (Config, error) {
	setDefault(&c.FrameSize, 4096)
	setDefault(&c.RxFrames, defaultFrames)
	setDefault(&c.TxFrames, defaultFrames)
	setDefault(&c.RxRing, max(defaultRing, ringFor(c.RxFrames)))
	setDefault(&c.TxRing, defaultRing)
	setDefault(&c.FillRing, ringFor(c.RxFrames))
	setDefault(&c.CompRing, max(ringFor(c.TxFrames), c.TxRing))
	c.Check = c.Check || debug

	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("afxdp: "+format, args...))
		}
	}
	bad(c.FrameSize != 2048 && c.FrameSize != 4096, "FrameSize is %d: must be 2048 or 4096", c.FrameSize)
	for _, p := range c.pools() {
		bad(p.n > maxFrames, "%s is %d: must be at most %d", p.name, p.n, maxFrames)
	}
	for _, r := range c.rings() {
		bad(bits.OnesCount32(r.n) != 1 || r.n < minRing || r.n > maxRing,
			"%s is %d: must be a power of two between %d and %d", r.name, r.n, minRing, maxRing)
	}
	bad(c.CompRing < c.TxRing, "CompRing is %d, TxRing %d: a completion ring smaller than the transmit ring stops it", c.CompRing, c.TxRing)
	bad(c.ZeroCopy > ZeroCopyOff, "ZeroCopy is %d: must be auto, require or off", uint8(c.ZeroCopy))
	bad(c.Sums > SumsCopy|SumsZeroCopy|SumsKernel, "Sums is %#x: there is no such mode", uint8(c.Sums))
	bad(c.Ifindex < 0, "Ifindex is %d", c.Ifindex)
	bad(c.SendBuffer > maxSendBuffer, "SendBuffer is %d: must be at most %d", c.SendBuffer, maxSendBuffer)
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, nil
}

// named is a number of the configuration with its name, for error messages.
type named struct {
	name string
	n    uint32
}

func (c Config) pools() []named {
	return []named{{"RxFrames", c.RxFrames}, {"TxFrames", c.TxFrames}}
}

func (c Config) rings() []named {
	return []named{{"RxRing", c.RxRing}, {"TxRing", c.TxRing}, {"FillRing", c.FillRing}, {"CompRing", c.CompRing}}
}

func (c Config) limits() port.Limits {
	return port.Limits{
		Queue:      c.Queue,
		Port:       c.Port,
		Lane:       c.Lane,
		FrameSize:  c.FrameSize,
		RxFrames:   c.RxFrames,
		TxFrames:   c.TxFrames,
		MaxPacket:  c.FrameSize,
		MaxPayload: c.FrameSize - port.Headroom,
	}
}

func setDefault(v *uint32, n uint32) {
	if *v == 0 {
		*v = n
	}
}

// ringFor returns the size of the smallest ring that holds n entries.
func ringFor(n uint32) uint32 {
	if n <= minRing {
		return minRing
	}
	if n > maxFrames {
		return maxRing // fill reports that n is too large
	}
	return 1 << bits.Len32(n-1)
}
