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

	// Payload is a slice of Frame. Its capacity extends to the end of the chunk, so that a short segment can be
	// copied in after it.
	Payload []byte
	// Frame is the receive frame that holds Payload. Receive says whether the connection keeps it.
	Frame port.Frame
	// CE says that a router marked the packet (RFC 3168 §5).
	CE bool
}

// Memory is the source of a connection's memory. The engine implements it over a Port. All frames are charged to the
// flow.
type Memory interface {
	// Take lends a transmit frame; its Len is the room for payload. It returns false if the pool or the flow's share
	// is used up: Transmit is called again when there may be one.
	Take() (port.Frame, bool)
	// Free returns a frame that Take lent.
	Free(f port.Frame)
	// Bytes returns the memory of a frame: f.Len octets.
	Bytes(f port.Frame) []byte
	// Release gives back a receive frame that Receive kept.
	Release(f port.Frame)
	// Share returns how many receive frames the flow may hold now.
	Share() int

	// Borrow lends a slab: SlabLen octets of memory that does not belong to the port. Its id is not 0. Borrow returns
	// false if the flow's share is used up.
	Borrow() (id uint32, ok bool)
	// Return returns a slab that Borrow lent.
	Return(id uint32)
	// Slab returns the memory of a slab.
	Slab(id uint32) []byte
	// Spare returns how many more slabs the flow may borrow now.
	Spare() int
}

// SlabLen is the size of a slab in octets.
const SlabLen = 64 << 10

// Output takes a connection's segments.
type Output interface {
	// Send transmits one segment whose payload is the octets [off, off+n) of f (n is 0 for a segment without payload;
	// f is then ignored). The engine fills in the ports. If there is no room, Send returns false and has sent
	// nothing, and Transmit is called again.
	Send(h *wire.TCPFields, f port.Frame, off, n int) bool
	// SendCopy does what Send does, for a payload outside of transmit frames.
	SendCopy(h *wire.TCPFields, payload []byte) bool
}

// LeastMSS is the smallest MSS option that a connection works with, in octets: as
// Linux's tcp_min_snd_mss.
const LeastMSS = 48

// State describes a connection after its handshake: TCP_REPAIR reads it from a kernel socket, Export reads it from a
// Conn, and New builds a Conn from it. The zero values of the fields from Phase on are right for a connection that
// the kernel has had until now.
type State struct {
	// At is when the values were read. TSNow is the clock at that time.
	At clock.Instant

	SndUna seq.Num // oldest unacknowledged octet, or the one after our FIN if that is acknowledged
	SndNxt seq.Num // the octet after the last one ever sent, and after our FIN if FinSent
	SndWnd uint32  // octets, scaled: the window the peer advertises
	SndWL1 seq.Num // segment that last updated SndWnd (RFC 9293 §3.10.7.4)
	MaxWnd uint32  // octets, the largest window the peer ever advertised

	RcvNxt seq.Num // next octet expected, or the one after the peer's FIN if Phase says that it has arrived
	RcvWup seq.Num // RCV.NXT as of the last ACK that was sent (Last.ACK.sent of RFC 7323 §4.3)
	RcvWnd uint32  // octets from RcvWup to the right edge of the window that was advertised

	SndScale, RcvScale uint8 // window shifts (RFC 7323 §2), 0..14

	MSS uint16 // the peer's MSS option: largest segment it takes, options included
	MTU uint16 // path MTU, octets, IP header included
	// LocalMSS is our MSS option: the peer's segments are no larger, options included. 0: the largest that MTU
	// allows.
	LocalMSS uint16
	V6       bool // the IP header takes 40 octets instead of 20

	SACK       bool
	Timestamps bool
	TSNow      uint32        // our timestamp clock at At
	TSTick     time.Duration // of our timestamp clock; 0 means 1 ms
	ECN        bool

	SRTT, RTTVar time.Duration // 0: no sample yet
	MinRTT       time.Duration // the shortest recent round trip; 0: SRTT
	RTO          time.Duration // 0: initial value of RFC 6298 §2.1
	Cwnd         uint32        // octets; 0 means the initial window of RFC 6928
	Ssthresh     uint32        // octets; 0 or NoThreshold: nothing was lost yet
	// Congestion is the kernel's name of the congestion control that was used while the kernel had the connection. ""
	// and "reno" are NewReno. For a name that stag does not have, the connection continues with CUBIC.
	Congestion string

	Keepalive   Keepalive
	UserTimeout time.Duration // RFC 9293 §3.8.3 R2; 0 means the default
	NoDelay     bool          // Nagle's algorithm is off

	// Queue holds the octets from SndUna on that the application has written: first the sent and unacknowledged ones,
	// then the unsent ones. New copies them.
	Queue []byte
	// Unread holds the in-order octets before RcvNxt that the application has not read. New copies them. Views
	// returns them first.
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

	// Lost says that everything sent and not acknowledged is lost: New sends it again as the congestion window
	// allows, without waiting for a timeout.
	Lost bool
	// Fresh says that the connection takes another path from now on: New forgets
	// the round-trip time, bounds the congestion window by four initial windows,
	// and keeps the slow-start threshold.
	Fresh bool

	// Moved is the additional state of a Conn, which TCP_REPAIR cannot read. nil: the connection does not come from a
	// Conn.
	Moved *Moved
}

// Moved is the part of a State that only another Conn can use. Its instants are of the same clock as State.At.
type Moved struct {
	// Deadlines of the timers; clock.Never for those that do not run.
	AckAt, RTOAt, PersistAt, KeepAt clock.Instant
	WaitUntil                       clock.Instant // the end of TIME-WAIT, in that phase
	ProbeTail                       bool          // a tail-loss probe was awaited (RFC 8985 §7)

	// How long the peer has been silent, and how often it was probed.
	Backoff, PersistBackoff uint8
	Retries, Probes         uint32
	ProgressAt, HeardAt     clock.Instant
	StalledAt, SentAt       clock.Instant // when the peer's window closed; when data was last sent

	// Recovering: fast recovery is in progress, and has reduced the congestion window. Repairing: the losses of a
	// timeout are being repaired. Hole: the peer has SACKed octets, and those before them seem to be lost. FinLost:
	// our FIN must be sent again.
	Recovering, Repairing, Hole, FinLost bool
	// Missing octets from SndUna on are lost. The first Resent of them have been sent again.
	Missing, Resent uint32
	DupAcks         uint32 // duplicate ACKs counted so far, without SACK

	AckNow  bool // an ACK must leave at once
	Arrived bool // octets or a FIN that Arrived has not reported

	ECNEcho, ECNReduced, ECNHeld bool // RFC 3168: ECE is due, CWR is due, a reduction is not confirmed

	// FirstMTU is the path MTU at the beginning, and LinkMTU what the interface allows of it. WidenAt is when a
	// larger MTU is tried next, clock.Never for not at all. WidenPause is the pause after a trial that fails (RFC
	// 4821 §7).
	FirstMTU, LinkMTU uint16
	WidenAt           clock.Instant
	WidenPause        time.Duration

	RcvSize, RcvMost uint32 // octets that the receive window has grown to, and may grow to

	// Control is the congestion control, which the new Conn takes over. Its old Conn must not be used any more.
	Control Congestion
	Stats   Stats
}

// Keepalive is how a connection asks a silent peer whether it is still there
// (RFC 9293 §3.8.4; TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT of Linux).
type Keepalive struct {
	Idle     time.Duration // silence before the first probe; 0: keepalive is off
	Interval time.Duration // between probes
	Count    int           // unanswered probes that end the connection
}

// Config is what the engine chooses for a connection. The zero value works.
type Config struct {
	RcvBuf  uint32        // octets of receive window at most; 0 means 16 MiB
	SndBuf  uint32        // octets queued at most; 0 means 16 MiB
	SndSegs uint32        // segments queued at most, a power of two; 0 means 16384
	RcvSegs uint32        // segments held at most, a power of two; 0 means 2048
	MinRTO  time.Duration // 0 means 200 ms, as Linux (departs from RFC 6298 §2.4)
	MaxRTO  time.Duration // 0 means 120 s
	// UserTimeout is how long the peer may acknowledge nothing (RFC 5482) if State does not say it; 0 means R2 of RFC
	// 9293 §3.8.3, which is 15 timeouts.
	UserTimeout time.Duration
	// Seed makes the challenge-ACK limits unpredictable (RFC 5961 §7). It must be secret, and different for each
	// connection. An Engine sees to that.
	Seed uint64
	// Rings is shared by connections that run on one goroutine. nil: the connection has its own.
	Rings *Rings
	// Congestion makes the congestion control: a constructor such as Control returns. nil: the one that
	// State.Congestion names.
	Congestion func(Start) Congestion
}
