package simnic

import (
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/port"
)

// Side names an end of the link.
type Side uint8

const (
	A Side = iota
	B
)

func (s Side) String() string { return [...]string{"A", "B"}[s] }

// Config describes a link. The zero value is a perfect one: no delay, no limit
// of rate, no loss. Both directions are alike, but draw their luck separately.
type Config struct {
	Seed uint64 // of everything that happens by chance

	Latency time.Duration // from one end to the other
	Rate    uint64        // bits per second of packet octets; 0 means unlimited
	// QueueLen is how many packets may wait for their turn on the link; a
	// packet beyond is lost, and the sender not told. 0 means TxRing, so that
	// a full transmit ring holds the sender back first.
	QueueLen int

	// Probabilities, from 0 to 1, for each packet.
	Loss      float64
	Duplicate float64       // the packet arrives twice
	Reorder   float64       // the packet takes up to ReorderBy longer
	Corrupt   float64       // one bit behind the Ethernet header is inverted
	ReorderBy time.Duration // 0 means Latency, or 100 µs where that is 0

	MTU       uint32 // octets, Ethernet header and tag not included; 0 means 1500
	FrameSize uint32 // octets in a chunk, a power of two; 0 means 4096
	Frames    int    // chunks in each end's receive and transmit pool; 0 means 512
	TxRing    int    // descriptors in a transmit ring; 0 means Frames

	// Check poisons the memory of chunks that nobody holds and looks at it
	// when they are used again, and compares packets at departure with what
	// they were when they were sent. It costs time.
	Check bool

	// Record makes the steering record of a packet that arrives, RecordLen
	// octets or nil for none; it is copied before the next call. A nil hook
	// means that the port has no metadata support.
	Record func(packet []byte) []byte
	// Drop decides about each packet before chance does. A nil hook drops
	// nothing. The packet is valid during the call.
	Drop func(from Side, packet []byte) bool
}

const (
	// rxOffset is where a received packet begins in its chunk, as the kernel
	// has it (XDP_PACKET_HEADROOM).
	rxOffset = 256

	ethernetLen = 14
	maxLink     = 18 // with a VLAN tag
)

// maxPacket is the longest frame the link carries.
func (c Config) maxPacket() uint32 { return c.MTU + maxLink }

// fill puts the defaults in and reports every mistake at once.
func (c Config) fill() (Config, error) {
	orElse(&c.MTU, 1500)
	orElse(&c.FrameSize, 4096)
	orElse(&c.Frames, 512)
	orElse(&c.TxRing, c.Frames)
	orElse(&c.QueueLen, c.TxRing)
	orElse(&c.ReorderBy, c.Latency)
	orElse(&c.ReorderBy, 100*time.Microsecond)

	var bad []error
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	for name, p := range map[string]float64{
		"Loss": c.Loss, "Duplicate": c.Duplicate, "Reorder": c.Reorder, "Corrupt": c.Corrupt,
	} {
		complain(!(p >= 0 && p <= 1), "%s %v is not within 0 to 1", name, p)
	}
	complain(c.Latency < 0 || c.ReorderBy < 0, "a delay is negative")
	complain(c.Frames < 0 || c.TxRing < 0 || c.QueueLen < 0, "a length is negative")
	complain(c.FrameSize&(c.FrameSize-1) != 0, "FrameSize %d is not a power of two", c.FrameSize)
	complain(uint64(c.MTU)+maxLink+rxOffset > uint64(c.FrameSize), "MTU %d does not fit behind %d octets into chunks of %d",
		c.MTU, rxOffset, c.FrameSize)
	complain(c.FrameSize <= port.Headroom, "FrameSize %d is not above the headroom of %d", c.FrameSize, port.Headroom)
	return c, errors.Join(bad...)
}

func orElse[T int | uint32 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}
