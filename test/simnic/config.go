package simnic

import (
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/port"
)

// Side is an end of the link.
type Side uint8

const (
	A Side = iota
	B
)

func (s Side) String() string { return [...]string{"A", "B"}[s] }

// Config describes a link. The zero value is a perfect link: no delay, no rate limit, no loss. Both directions have
// the same settings, and separate random numbers.
type Config struct {
	Seed uint64 // seed of all random events

	Latency time.Duration // delay from one end to the other
	Rate    uint64        // bits per second of packet octets; 0 means unlimited
	// QueueLen is how many packets may wait for the link. The link drops further
	// packets without an error for the sender. 0 means TxRing, so that a full transmit
	// ring stops the sender first.
	QueueLen int

	// These are probabilities, from 0 to 1, for each packet.
	Loss      float64
	Duplicate float64       // the packet arrives twice
	Reorder   float64       // the packet takes up to ReorderBy longer
	Corrupt   float64       // one bit after the Ethernet header is inverted
	ReorderBy time.Duration // 0 means Latency, or 100 µs if Latency is 0

	Burst    Burst   // model of losses in bursts
	LossAcks float64 // probability that a segment with only an ACK is lost
	// Overtaken is the probability that a packet waits until up to OvertakenBy later
	// packets have passed it. It waits at most for ReorderBy.
	Overtaken   float64
	OvertakenBy int
	// Forge is the probability that two words of a TCP payload change places. No Internet checksum detects that.
	Forge float64
	// Split is the probability that a middlebox splits a data segment in two. Merge is the probability that the
	// middlebox waits for the next segment and merges both. The merged segment may be longer than the MTU, as with
	// segmentation and receive offloads.
	Split, Merge float64
	// Mark is the probability that a router marks an ECN-capable packet (RFC 3168 §5).
	Mark float64
	// PathMTU is the MTU of the path: longer IP packets are dropped without a report. 0 means MTU.
	PathMTU uint32

	MTU       uint32 // octets without the Ethernet header and tag; 0 means 1500
	FrameSize uint32 // octets of a chunk, a power of two; 0 means 4096
	Frames    int    // number of chunks in each end's receive pool and transmit pool; 0 means 512
	TxRing    int    // number of descriptors in a transmit ring; 0 means Frames

	Driver Driver // of both ends

	// Sums says that both ends complete the TCP checksum of a frame with a Sum. They
	// complete it when the packet departs, as a device does, and not in the sender's memory.
	Sums bool

	// Check fills free chunks with poison and verifies the poison when a chunk is used
	// again. It also compares each packet at departure with its octets at the time of
	// Send. Check makes the link slower.
	Check bool

	// Record returns the steering record of an arriving packet, RecordLen octets or nil for none. The record is
	// copied before the next call. If the hook is nil, the port has no metadata support.
	Record func(packet []byte) []byte
	// Drop decides before the random faults whether to drop a packet. A nil Drop drops
	// nothing. The packet is valid only during the call.
	Drop func(from Side, packet []byte) bool
}

// Burst is the loss model of Gilbert and Elliott. The path is good or bad, and may
// change with each packet. With the zero Burst the path is always good.
type Burst struct {
	Enter float64 // probability of a change from good to bad
	Leave float64 // probability of a change from bad to good
	Loss  float64 // probability that a packet is lost while the path is bad
	// For is the longest time that the path stays bad, even if few packets arrive. 0
	// means no limit: a sender of one packet per second may then meet the same burst
	// for minutes.
	For time.Duration
}

const (
	// rxOffset is the offset of a received packet in its chunk, as in the kernel
	// (XDP_PACKET_HEADROOM).
	rxOffset = 256

	ethernetLen = 14
	maxLink     = 18 // Ethernet header with a VLAN tag
)

// maxPacket returns the longest frame that the link carries.
func (c Config) maxPacket() uint32 { return c.MTU + maxLink }

// maxArrival returns the length of the longest frame that can arrive. A middlebox
// merges up to the size of a chunk.
func (c Config) maxArrival() int {
	if c.Merge > 0 {
		return int(c.FrameSize) - rxOffset
	}
	return int(c.maxPacket())
}

// fill replaces zero fields by defaults. Its error describes every mistake.
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
	if err := c.Driver.wrong(c.Frames); err != nil {
		bad = append(bad, err)
	}
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
