// Package port is the frame seam: what a source and sink of Ethernet frames
// offers an engine. afxdp implements it over an AF_XDP queue, test/simnic over
// a simulated link, the capture tap and the fault injector over another Port.
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
	// The chunk it lies in follows from Addr alone.
	Addr uint64
	// Len is the packet's length in octets.
	Len uint32
	// Home is the lane whose pool the chunk belongs to. An engine gives a
	// frame back only at home.
	Home Lane
	// Options is reserved for the driver (XDP_PKT_CONTD); zero today.
	Options uint16
}

// RecordLen is the size in octets of the steering record that the XDP program
// writes directly in front of a packet (bpf/abi.h, struct stag_record).
const RecordLen = 16

// Headroom is the number of octets in front of a transmit frame's Addr, as
// Take lends it, in which the engine writes Ethernet, IP and TCP headers: 14 +
// 4 (VLAN) + 40 + 60, rounded up. Addr itself is where TCP payload begins.
const Headroom = 128

// Port is one queue of frames in and out. All methods belong to the queue's
// own goroutine (the holder of its ownership token), except Sleep, Nap and Wake.
//
// A frame has exactly one owner at a time. Receive lends a frame to the
// caller, Recycle gives it back. Take lends a transmit frame to the caller;
// Send lends it on to the kernel while the caller keeps its own hold, and Free
// ends the caller's hold. The frame returns to the pool when the caller has
// freed it and no transmission of it is in flight.
type Port interface {
	// Receive fills dst with frames that have arrived and reports how many.
	// Each stays the caller's until Recycle. It refills the fill ring first.
	Receive(dst []Frame) int

	// Bytes is the packet that f names, of f.Len octets, with capacity to the
	// end of its chunk. Valid while the caller holds f. It also serves frames
	// of another queue of the same arena.
	Bytes(f Frame) []byte

	// Record is the steering record in front of a received packet, RecordLen
	// octets, or nil where the driver has no metadata support. It may be
	// stale: the reader checks the magic and everything that matters.
	Record(f Frame) []byte

	// Recycle gives received frames of this queue back. Their records are
	// wiped before the chunks can be filled again.
	Recycle(frames []Frame)

	// Take lends transmit frames to the caller, at most len(dst), and reports
	// how many: fewer when the pool is low. Addr is at Headroom octets into
	// the chunk, Len is the room behind it.
	Take(dst []Frame) int

	// Free ends the caller's hold on transmit frames.
	Free(frames []Frame)

	// Room is how many frames Send would accept now. It reaps completions.
	Room() int

	// InFlight reports whether a transmission of the chunk that f lies in has
	// not completed. Such a chunk must not be written to.
	InFlight(f Frame) bool

	// Send queues packets for transmission and reports how many of them it
	// took: fewer when the transmit ring is full. Each f's Addr and Len cover
	// the whole packet, within a chunk that came from Take. A chunk may be in
	// flight only once at a time.
	Send(frames []Frame) int

	// Flush tells the kernel about what was sent. The engine calls it once per
	// step. Errors that concern the link as a whole (ENETDOWN) come back.
	Flush() error

	// Arm prepares for Sleep: it announces the sleeper, so that Wake costs a
	// system call from now on, looks at the rings once more, and reports how
	// long Sleep may take: at most d (negative: no limit of the caller's), 0
	// if there is something to do already. It reports an interface that was
	// removed.
	Arm(d time.Duration) (limit time.Duration, err error)

	// Sleep sleeps until frames have arrived, Wake was called, or limit, as
	// Arm reported it, has passed. It also returns early on signals. Like Nap and
	// Wake it needs no token: whoever sleeps may give the token away, and
	// another goroutine may do the queue's work meanwhile.
	Sleep(limit time.Duration) error

	// Nap is Sleep for who leaves arrivals to others: they do not end it. It
	// needs no Arm.
	Nap(limit time.Duration) error

	// Wake ends a Sleep or Nap in progress or, if none is, the next one. Any
	// goroutine may call it.
	Wake()

	// Limits says what the port can carry.
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
