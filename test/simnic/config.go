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

	Burst    Burst   // losses that come together
	LossAcks float64 // loss of segments that carry nothing but an ACK
	// Overtaken is how often a packet waits until up to OvertakenBy later ones
	// have gone by, but no longer than ReorderBy.
	Overtaken   float64
	OvertakenBy int
	// Forge is how often two words of a TCP payload change places: no Internet
	// checksum sees that.
	Forge float64
	// Split and Merge are how often a middlebox cuts a data segment in two, and
	// how often it waits for the next one to make one of both, beyond the MTU if
	// need be, as segmentation and receive offloads do.
	Split, Merge float64
	// Mark is how often a router marks a packet that may be marked instead of
	// dropped (RFC 3168 §5).
	Mark float64
	// PathMTU is what the way really carries: longer IP packets vanish, and
	// nobody is told. 0 means MTU.
	PathMTU uint32

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

// Burst is loss by the model of Gilbert and Elliott: the way is good or bad, and
// may change with each packet. The zero Burst is always good.
type Burst struct {
	Enter float64 // probability that it turns bad
	Leave float64 // probability that it turns good
	Loss  float64 // probability that a packet is lost while it is bad
	// For is the longest that it stays bad, however few packets come: without
	// it (0), a sender that sends one packet a second meets the same burst for
	// minutes.
	For time.Duration
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

// maxArrival is the longest frame that can arrive: a middlebox merges as much as
// a chunk has room for.
func (c Config) maxArrival() int {
	if c.Merge > 0 {
		return int(c.FrameSize) - rxOffset
	}
	return int(c.maxPacket())
}

// fill puts the defaults in and reports every mistake at once.
func (c Config) fill() (Config, error) {
	orElse(&c.MTU, 1500)
	orElse(&c.FrameSize, 4096)
	orElse(&c.Frames, 512)
	orElse(&c.TxRing, c.Frames)
	orElse(&c.QueueLen, c.TxRing)
	orElse(&c.ReorderBy, c.Latency)
	orElse(&c.ReorderBy, 100*time.Microsecond)
	orElse(&c.PathMTU, c.MTU)

	var bad []error
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	for name, p := range map[string]float64{
		"Loss": c.Loss, "Duplicate": c.Duplicate, "Reorder": c.Reorder, "Corrupt": c.Corrupt,
		"Burst.Enter": c.Burst.Enter, "Burst.Leave": c.Burst.Leave, "Burst.Loss": c.Burst.Loss, "LossAcks": c.LossAcks,
		"Overtaken": c.Overtaken, "Forge": c.Forge, "Split": c.Split, "Merge": c.Merge, "Mark": c.Mark,
	} {
		complain(!(p >= 0 && p <= 1), "%s %v is not within 0 to 1", name, p)
	}
	complain(c.Latency < 0 || c.ReorderBy < 0 || c.Burst.For < 0, "a delay is negative")
	complain(c.Frames < 0 || c.TxRing < 0 || c.QueueLen < 0, "a length is negative")
	complain(c.Burst.Enter > 0 && c.Burst.Leave == 0, "Burst never leaves the bad state: give it a Leave")
	complain(c.OvertakenBy < 0 || c.OvertakenBy > mostDetained, "OvertakenBy %d is not within 0 to %d", c.OvertakenBy, mostDetained)
	complain(c.Overtaken > 0 && c.OvertakenBy == 0, "Overtaken needs OvertakenBy: how many packets go by")
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
