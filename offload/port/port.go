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

// Frame names a packet in memory that the Port's side owns. It is a value: no
// pointer into engine memory leaves the packages that map it.
type Frame struct {
	// Addr is the offset of the packet's first octet in the adapter's arena.
	// Addr alone determines the chunk.
	Addr uint64
	// Len is the packet's length in octets.
	Len uint32
	// Home is the lane whose pool the chunk belongs to. Only the engine of that
	// lane gives the frame back.
	Home Lane
	// Options is reserved for the driver (XDP_PKT_CONTD); zero today.
	Options uint16
}

// RecordLen is the size in octets of the steering record that the XDP program
// writes directly in front of a packet (bpf/abi.h, struct stag_record).
const RecordLen = 16

// Headroom is the number of octets in front of the Addr of a frame from Take. The
// engine writes Ethernet, IP and TCP headers there: 14 + 4 (VLAN) + 40 + 60, rounded
// up. TCP payload begins at Addr.
const Headroom = 128

// Port is one queue of frames in and out. All methods belong to the queue's
// own goroutine (the holder of its ownership token), except Sleep, SleepUntilWake and Wake.
//
// Receive lends a frame to the caller; Recycle gives it back. Take lends a transmit
// frame to the caller; Free gives it back. Send lends the frame to the kernel as
// well, until its transmission completes. The frame returns to the pool when the
// caller has freed it and no transmission of it is in flight.
type Port interface {
	// Receive refills the fill ring, fills dst with frames that have arrived and
	// returns how many. The caller holds each frame until Recycle.
	Receive(dst []Frame) int

	// Bytes returns the f.Len octets of packet f, with capacity to the end of its
	// chunk. They are valid while the caller holds f. f may also be a frame of
	// another queue of the same arena.
	Bytes(f Frame) []byte

	// Record returns the steering record in front of a received packet, RecordLen
	// octets, or nil if there is no room for one in the chunk. The record may be
	// stale: the reader must check the magic and every value that matters.
	Record(f Frame) []byte

	// Recycle gives received frames of this queue back. It wipes their records
	// before the chunks can be filled again.
	Recycle(frames []Frame)

	// Take lends at most len(dst) transmit frames to the caller and returns how
	// many: fewer if the pool is low. Addr is Headroom octets into the chunk, and
	// Len is the room behind it.
	Take(dst []Frame) int

	// Free ends the caller's hold on transmit frames.
	Free(frames []Frame)

	// Room returns how many frames Send would take now. It reaps completions.
	Room() int

	// InFlight reports whether a transmission of f's chunk has not completed yet.
	// The caller must not write to such a chunk.
	InFlight(f Frame) bool

	// Send queues packets for transmission and returns how many of them it took:
	// fewer if the transmit ring is full. Addr and Len of each frame cover the
	// whole packet, within a chunk that came from Take. A chunk may be in flight
	// only once at a time.
	Send(frames []Frame) int

	// Flush makes the kernel transmit the queued packets. The engine calls it once
	// per step. Flush returns errors of the link as a whole (ENETDOWN).
	Flush() error

	// Arm prepares for Sleep. It announces the sleeper, so that Wake makes a system
	// call from now on, and looks at the rings once more. It returns how long Sleep
	// may take: at most d (negative: the caller sets no limit), or 0 if there is
	// something to do already. It returns an error if the interface was removed.
	Arm(d time.Duration) (limit time.Duration, err error)

	// Sleep sleeps until frames have arrived, Wake was called, or the limit that Arm
	// returned has passed. It also returns early on signals. Sleep, SleepUntilWake and Wake
	// need no token: the sleeper may give the token away, and another goroutine may
	// do the queue's work meanwhile.
	Sleep(limit time.Duration) error

	// SleepUntilWake is Sleep for a sleeper that leaves arrivals to other goroutines: arrivals
	// do not end it. It needs no Arm.
	SleepUntilWake(limit time.Duration) error

	// Wake ends a Sleep or SleepUntilWake in progress or, if none is, the next one. Any
	// goroutine may call it.
	Wake()

	// Limits returns the port's fixed properties.
	Limits() Limits
}

// Limits are a Port's fixed properties.
type Limits struct {
	Queue      uint16 // receive queue of the network port
	Port       uint16 // number of the network port in its adapter
	Lane       Lane   // number of the (port, queue) pair in its adapter, also Frame.Home of its frames
	FrameSize  uint32 // octets in a chunk
	RxFrames   uint32 // receive chunks in the pool
	TxFrames   uint32 // transmit chunks in the pool
	MaxPacket  uint32 // largest packet that Send takes, octets
	MaxPayload uint32 // largest TCP payload a Take frame holds, octets
}
