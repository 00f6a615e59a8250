package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Segment is one received segment whose checksum has been verified.
type Segment struct {
	wire.TCPFields

	// Payload is a view into Frame. Its capacity reaches to the end of the
	// chunk, so that a short neighbour may be copied in behind it.
	Payload []byte
	// Frame is the receive frame that Payload lies in. Receive says whether
	// the connection keeps it.
	Frame port.Frame
	// CE says that a router marked the packet (RFC 3168 §5).
	CE bool
}

// Memory is where a connection's octets live. The engine implements it over a
// Port; all frames are accounted to the flow.
type Memory interface {
	// Take lends a transmit frame; its Len is the room for payload. false
	// when the pool or the flow's share is used up: Transmit is called again
	// when there may be one.
	Take() (port.Frame, bool)
	// Free ends the hold on a frame that Take lent.
	Free(f port.Frame)
	// Bytes is the memory of a frame: f.Len octets.
	Bytes(f port.Frame) []byte
	// Release gives back a receive frame that Receive kept.
	Release(f port.Frame)
	// Share is how many receive frames the flow may hold now.
	Share() int

	// Borrow lends a slab: SlabLen octets of memory that is not the port's. Its id
	// is not 0. false when the flow's share is used up.
	Borrow() (id uint32, ok bool)
	// Return gives back a slab that Borrow lent.
	Return(id uint32)
	// Slab is the memory of a slab.
	Slab(id uint32) []byte
	// Spare is how many slabs more the flow may borrow now.
	Spare() int
}

// SlabLen is how many octets a slab has.
const SlabLen = 64 << 10

// Output is where a connection's segments go.
type Output interface {
	// Send transmits one segment whose payload is the octets [off, off+n) of
	// f (n is 0 for a segment without payload; f is then ignored). Ports are
	// filled in by the engine. false means that there is no room now: nothing
	// was sent, and Transmit is called again.
	Send(h *wire.TCPFields, f port.Frame, off, n int) bool
	// SendCopy is Send for a payload that lies in no transmit frame.
	SendCopy(h *wire.TCPFields, payload []byte) bool
}

// LeastMSS is the smallest MSS option that a connection works with, in octets: as
// Linux's tcp_min_snd_mss.
const LeastMSS = 48

// State is everything that makes an established connection: what TCP_REPAIR
// reads from a kernel socket, and what New builds a Conn from.
type State struct {
	// At is when the values were read; TSNow belongs to it.
	At clock.Instant

	SndUna seq.Num // oldest unacknowledged octet
	SndNxt seq.Num // behind the last octet that was ever sent
	SndWnd uint32  // octets, scaled: the window the peer advertises
	SndWL1 seq.Num // segment that last updated SndWnd (RFC 9293 §3.10.7.4)
	MaxWnd uint32  // octets, the largest window the peer ever advertised

	RcvNxt seq.Num // next octet expected
	RcvWnd uint32  // octets: the window last advertised ...
	RcvWup seq.Num // ... and RCV.NXT when it was; their sum is a promise

	SndScale, RcvScale uint8 // window shifts (RFC 7323 §2), 0..14

	MSS uint16 // the peer's MSS option: largest segment it takes, options included
	MTU uint16 // path MTU, octets, IP header included
	// LocalMSS is our MSS option: the peer's segments are no larger, options
	// included. 0: as large as MTU allows.
	LocalMSS uint16
	V6       bool // the IP header takes 40 octets instead of 20

	SACK       bool
	Timestamps bool
	TSNow      uint32        // our timestamp clock at At
	TSTick     time.Duration // of our timestamp clock; 0 means 1 ms
	ECN        bool

	SRTT, RTTVar time.Duration // 0: no sample yet
	MinRTT       time.Duration // the shortest round trip of late; 0: SRTT
	RTO          time.Duration // 0: initial value of RFC 6298 §2.1
	Cwnd         uint32        // octets; 0 means the initial window of RFC 6928
	Ssthresh     uint32        // octets; 0 or NoThreshold: nothing was lost yet
	// Congestion is the kernel's name of the congestion control that has ruled
	// so far. "" and "reno" are NewReno; all that we do not have goes on as CUBIC.
	Congestion string

	KeepIdle, KeepInterval time.Duration // KeepIdle 0: keepalive is off
	KeepCount              int
	UserTimeout            time.Duration // RFC 9293 §3.8.3 R2; 0 means the default
	NoDelay                bool          // Nagle's algorithm is off

	// Queue holds the octets from SndUna on that the application has written:
	// sent ones that are not acknowledged, then unsent ones. New copies them.
	Queue []byte
	// Unread holds the in-order octets before RcvNxt that nobody has read.
	// New copies them; they are the first octets that Views shows.
	Unread []byte
	// ReadShut and WriteShut are false for everything that can be taken over.
}

// Config is what the engine chooses for a connection. The zero value works.
type Config struct {
	RcvBuf  uint32        // octets of receive window at most; 0 means 16 MiB
	SndBuf  uint32        // octets queued at most; 0 means 16 MiB
	SndSegs uint32        // segments queued at most, a power of two; 0 means 16384
	RcvSegs uint32        // segments held at most, a power of two; 0 means 2048
	MinRTO  time.Duration // 0 means 200 ms, as Linux (departs from RFC 6298 §2.4)
	MaxRTO  time.Duration // 0 means 120 s
	// UserTimeout is how long the peer may acknowledge nothing (RFC 5482) where
	// State does not say; 0 means R2 of RFC 9293 §3.8.3, which is 15 timeouts.
	UserTimeout time.Duration
	// Seed makes challenge-ACK limits unpredictable (RFC 5961 §7), if nobody else
	// knows it and each connection has another. An Engine sees to that.
	Seed uint64
	// Rings is what connections that run on one goroutine share. nil: each has
	// its own.
	Rings *Rings
	// Congestion makes the congestion control, such as Control finds by name.
	// nil: the one that State.Congestion names.
	Congestion func(Start) Congestion
}
