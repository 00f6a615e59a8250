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

// State is everything that makes a connection whose handshake is over: what
// TCP_REPAIR reads from a kernel socket, what Export reads from a Conn, and what
// New builds a Conn from. The zero values of the fields from Phase on are right
// for a connection that the kernel has had until now.
type State struct {
	// At is when the values were read; TSNow belongs to it.
	At clock.Instant

	SndUna seq.Num // oldest unacknowledged octet, or behind our FIN if that is acknowledged
	SndNxt seq.Num // behind the last octet that was ever sent, and behind our FIN if FinSent
	SndWnd uint32  // octets, scaled: the window the peer advertises
	SndWL1 seq.Num // segment that last updated SndWnd (RFC 9293 §3.10.7.4)
	MaxWnd uint32  // octets, the largest window the peer ever advertised

	RcvNxt seq.Num // next octet expected, or behind the peer's FIN if Phase says that it has arrived
	RcvWup seq.Num // RCV.NXT as of the last ACK that was sent (Last.ACK.sent of RFC 7323 §4.3)
	RcvWnd uint32  // octets from RcvWup to the right edge of the window, which was promised

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
	// Congestion is the kernel's name of the congestion control that ruled while
	// the kernel had the connection. "" and "reno" are NewReno. A name that we do
	// not have goes on as CUBIC.
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

	// Phase is any but Closed. It says whether our FIN is queued, whether it is
	// acknowledged, and whether the peer's FIN has arrived.
	Phase   Phase
	FinSent bool // our FIN has been sent

	// TSRecent is the peer's timestamp that is echoed (RFC 7323 §4.3), if
	// HasTSRecent. TSRecentAge is how long before At it arrived.
	TSRecent    uint32
	HasTSRecent bool
	TSRecentAge time.Duration

	// Lost says that all that was sent and is not acknowledged is lost: New sends
	// it again as the congestion window allows, and waits for no timeout.
	Lost bool
	// Fresh says that the connection takes another path from now on: New forgets
	// the round-trip time, bounds the congestion window by four initial windows,
	// and keeps the slow-start threshold.
	Fresh bool

	// Moved is what a Conn knows besides, and TCP_REPAIR does not tell. nil: the
	// connection does not come from a Conn.
	Moved *Moved
}

// Moved is the part of a State that only another Conn can use. Instants are of the
// clock that State.At is of.
type Moved struct {
	// Deadlines of the timers; clock.Never for those that do not run.
	AckAt, RTOAt, PersistAt, KeepAt clock.Instant
	WaitUntil                       clock.Instant // the end of TIME-WAIT, in that phase
	ProbeTail                       bool          // a tail-loss probe was awaited (RFC 8985 §7)

	// How long the peer has been silent, and how often it was asked.
	Backoff, PersistBackoff uint8
	Retries, Probes         uint32
	ProgressAt, HeardAt     clock.Instant
	StalledAt, SentAt       clock.Instant // when the peer's window closed; when data was last sent

	// Recovering: fast recovery is under way, and has reduced the congestion window.
	// Repairing: a timeout is being repaired. Hole: the peer has SACKed octets, and
	// those before seem to be lost. FinLost: our FIN is to be sent again.
	Recovering, Repairing, Hole, FinLost bool
	// Missing octets from SndUna on are lost. The first Resent of them are sent again.
	Missing, Resent uint32
	DupAcks         uint32 // duplicate ACKs counted so far, without SACK

	AckNow  bool // an ACK must leave at once
	Arrived bool // octets or a FIN of which the upper layer has not heard

	ECNEcho, ECNReduced, ECNHeld bool // RFC 3168: ECE is due, CWR is due, a reduction is not confirmed

	// FirstMTU is the path MTU of the beginning and LinkMTU what the interface
	// allows of it. WidenAt is when a larger MTU is tried next, clock.Never for not
	// at all, and WidenPause the pause after one that fails (RFC 4821 §7).
	FirstMTU, LinkMTU uint16
	WidenAt           clock.Instant
	WidenPause        time.Duration

	RcvSize, RcvMost uint32 // octets that the receive window has grown to, and may grow to

	// Control is the congestion control, which goes on. Its Conn is dead.
	Control Congestion
	Stats   Stats
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
