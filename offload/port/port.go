// Package port defines Port, the interface between an engine and a source and sink
// of Ethernet frames. afxdp implements it over an AF_XDP queue, test/simnic over a
// simulated link, and the fault injector over another Port.
package port

import (
	"time"
)

// Lane is a (port, receive queue) pair, numbered over all ports of an adapter: the
// queues of the first port come first. Each lane has one engine and one pool of
// receive frames.
type Lane uint16

// Frame names a packet in memory that the Port's side owns. A Frame is a value. A Frame
// contains no pointer, so that no pointer into frame memory leaves the packages that map it.
type Frame struct {
	// Addr is the offset of the packet's first octet in the adapter's arena. The chunk is the
	// one that contains Addr.
	Addr uint64
	// Len is the packet's length in octets.
	Len uint32
	// Home is the lane whose pool the chunk belongs to. Only the engine of that
	// lane gives the frame back.
	Home Lane
	// Sum leaves the TCP checksum of a packet for Send to the port. Sum is the offset in octets
	// of the TCP header in the packet. The header's checksum field then holds the sum of the
	// pseudo-header. 0 means that the packet's checksum is complete. A received frame has 0.
	Sum uint16
}

// RecordLen is the size in octets of the steering record that the XDP program
// writes directly in front of a packet (bpf/abi.h, struct stag_record).
const RecordLen = 16

// Headroom is the number of octets in front of the Addr of a frame from Take. The engine
// writes Ethernet, IP and TCP headers there: 14 + 4 (VLAN) + 40 + 60. The TCP payload begins
// at Addr. The first Metadata octets of the headroom belong to the port.
const Headroom = 192

// Metadata is the number of octets in front of a packet that Send may write to, if
// Limits.Sums is set.
const Metadata = 16

// Port is one queue of received frames and one queue of frames to send. Only the queue's own
// goroutine, the holder of its ownership token, may call the methods. Sleep, SleepUntilWake
// and Wake are exceptions.
//
// Receive lends received frames to the caller. Recycle gives received frames back. Take lends
// transmit frames to the caller. Free gives transmit frames back. Send lends a transmit frame
// to the kernel as well, until the transmission completes. A transmit frame returns to the
// pool when the caller has freed it and no transmission of it is in flight.
type Port interface {
	// Receive refills the fill ring, fills dst with frames that have arrived and returns how
	// many. The caller holds each frame until the call of Recycle.
	Receive(dst []Frame) int

	// Bytes returns the f.Len octets of packet f, with capacity to the end of the packet's
	// chunk. The octets are valid while the caller holds f. f may also be a frame of another
	// queue of the same arena.
	Bytes(f Frame) []byte

	// Record returns the steering record in front of a received packet, RecordLen octets.
	// Record returns nil if the chunk has no room for a record. The record may be stale. The
	// reader must check the magic number and every value that matters.
	Record(f Frame) []byte

	// Recycle gives received frames of this queue back. Recycle wipes the steering records
	// before the chunks can be filled again.
	Recycle(frames []Frame)

	// Take lends at most len(dst) transmit frames to the caller and returns how many. Take
	// lends fewer if the pool is low. Addr is Headroom octets into the chunk. Len is the room
	// behind Addr in octets.
	Take(dst []Frame) int

	// Free ends the caller's hold on transmit frames.
	Free(frames []Frame)

	// Room returns how many frames Send would take now. Room also reaps completions.
	Room() int

	// InFlight reports whether a transmission of f's chunk has not completed yet. The caller
	// must not write to such a chunk.
	InFlight(f Frame) bool

	// Send queues packets for transmission and returns how many of them it took. Send takes
	// fewer if the transmit ring is full. Addr and Len of each frame cover the whole packet,
	// within a chunk that came from Take. A chunk may be in flight only once at a time.
	Send(frames []Frame) int

	// Flush makes the kernel transmit the queued packets. The engine calls Flush once per
	// step. Flush returns errors of the whole link (ENETDOWN).
	Flush() error

	// Arm prepares for Sleep. After Arm, Wake makes a system call. Arm looks at the rings once
	// more and returns how long Sleep may take: at most d, or 0 if there is something to do
	// already. A negative d sets no limit. Arm returns an error if the interface was removed.
	Arm(d time.Duration) (limit time.Duration, err error)

	// Sleep sleeps until frames have arrived, Wake was called, or the limit that Arm returned
	// has passed. Sleep also returns early on signals. Sleep, SleepUntilWake and Wake need no
	// token: the sleeper may give the token away, and another goroutine may do the queue's
	// work meanwhile.
	Sleep(limit time.Duration) error

	// SleepUntilWake sleeps until Wake was called or limit has passed. Arriving frames do not
	// end the sleep, because other goroutines handle them. SleepUntilWake needs no Arm.
	SleepUntilWake(limit time.Duration) error

	// Wake ends the current Sleep or SleepUntilWake. If the queue's goroutine does not sleep,
	// Wake ends the next one. Any goroutine may call Wake.
	Wake()

	// Limits returns the port's properties. They are fixed before the port's first step.
	Limits() Limits
}

// Watcher is a Port whose sleeps can end for one more reason.
type Watcher interface {
	// Watch makes later sleeps end also when the descriptor fd is readable. The sleeper then
	// calls clear, which makes fd unreadable. fd stays valid as long as anybody sleeps. Any
	// goroutine may call Watch. A sleep that has begun does not watch fd: call Wake.
	Watch(fd int, clear func())
}

// Limits are a Port's fixed properties.
type Limits struct {
	Queue      uint16 // number of the receive queue of the network port
	Port       uint16 // number of the network port in its adapter
	Lane       Lane   // number of the (port, queue) pair in its adapter; its frames have it in Home
	FrameSize  uint32 // size of a chunk in octets
	RxFrames   uint32 // number of receive chunks in the pool
	TxFrames   uint32 // number of transmit chunks in the pool
	MaxPacket  uint32 // length in octets of the largest packet that Send takes
	MaxPayload uint32 // length in octets of the largest TCP payload that a frame of Take holds

	// Sums says that Send accepts frames with Frame.Sum. A queue of package afxdp knows it
	// when it is bound.
	Sums bool
}
