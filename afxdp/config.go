package afxdp

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/stag-rdma/stag/offload/port"
)

// ZeroCopy selects whether the driver reads and writes the frames itself.
type ZeroCopy uint8

const (
	ZeroCopyAuto    ZeroCopy = iota // zero copy if the driver can; Queue.Mode returns the result
	ZeroCopyRequire                 // zero copy, or Open fails
	ZeroCopyOff                     // the kernel copies
)

func (z ZeroCopy) String() string {
	if z > ZeroCopyOff {
		return fmt.Sprintf("ZeroCopy(%d)", uint8(z))
	}
	return [...]string{"auto", "require", "off"}[z]
}

// Config describes a queue. Only the interface is required; a zero in any other
// field means the default.
type Config struct {
	// The interface by index, name or both, in the network namespace of the
	// thread that calls Open.
	Ifindex int
	IfName  string
	Queue   uint16

	// Port and Lane are the adapter's numbers for the interface and for this queue:
	// see port.Limits. An adapter's only queue has 0 for both.
	Port uint16
	Lane port.Lane

	FrameSize uint32 // octets in a chunk, 2048 or 4096; 0 means 4096
	RxFrames  uint32 // receive chunks; 0 means 4096
	TxFrames  uint32 // transmit chunks; 0 means 4096

	// Slots of the rings, powers of two. 0 means 2048 for TxRing. For the other
	// rings 0 means room for every chunk of their pool, but at least 2048 for RxRing
	// and at least TxRing for CompRing.
	RxRing, TxRing, FillRing, CompRing uint32

	ZeroCopy ZeroCopy

	// SendBuffer limits what the kernel holds for transmission in copy mode, in
	// octets as the kernel accounts for them; 0 means enough for TxFrames.
	SendBuffer uint32

	// BusyPoll is how long one system call may busy poll, in whole microseconds.
	// Above zero it makes the socket drive the interface's NAPI, which needs
	// napi_defer_hard_irqs and gro_flush_timeout set on the interface.
	BusyPoll time.Duration
	// BusyPollBudget is how many frames one busy poll may take; 0 means 64.
	BusyPollBudget uint16

	// Check makes the queue panic, with the chunk's history, when a chunk would
	// get a second owner. Without Check the queue refuses the frame and counts it.
	// The build tag stagdebug turns Check on for every queue.
	Check bool
}

const (
	defaultFrames = 4096
	defaultRing   = 2048
	minRing       = 32 // frames that one kick moves on the oldest kernels
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

// fill returns c with its defaults set, or an error with every fault of c.
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
	bad(c.Ifindex < 0, "Ifindex is %d", c.Ifindex)
	bad(c.SendBuffer > maxSendBuffer, "SendBuffer is %d: must be at most %d", c.SendBuffer, maxSendBuffer)
	bad(c.BusyPoll < 0 || c.BusyPoll > time.Second || c.BusyPoll%time.Microsecond != 0,
		"BusyPoll is %v: must be whole microseconds, at most a second", c.BusyPoll)
	bad(c.BusyPollBudget != 0 && c.BusyPoll == 0, "BusyPollBudget is %d without BusyPoll", c.BusyPollBudget)
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, nil
}

// named is a number of the configuration and its name, for error messages.
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
		return maxRing // fill reports n itself
	}
	return 1 << bits.Len32(n-1)
}
