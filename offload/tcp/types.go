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

	// Payload is a slice of Frame. The capacity of Payload extends to the end of the chunk, so that a short segment
	// can be copied behind Payload.
	Payload []byte
	// Frame is the receive frame that contains Payload. The result of Receive says whether the connection keeps it.
	Frame port.Frame
	// CE says that a router marked the packet (RFC 3168 §5).
	CE bool
}

// Memory is the source of a connection's memory. The engine implements it over a Port. All frames are charged to the
// flow.
type Memory interface {
	// Take lends a transmit frame. Len of that frame is the room for payload in octets. Take returns false if the
	// pool or the flow's share is used up. Transmit is called again when there may be a frame.
	Take() (port.Frame, bool)
	// Free returns a frame that Take lent.
	Free(f port.Frame)
	// Bytes returns the f.Len octets of memory of a frame.
	Bytes(f port.Frame) []byte
	// Release gives back a receive frame that Receive kept.
	Release(f port.Frame)
	// Share returns how many receive frames the flow may hold now.
	Share() int

	// Borrow lends a slab: SlabLen octets of memory that does not belong to the port. The id is not 0. Borrow returns
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

// Output sends the segments of a connection.
type Output interface {
	// Send transmits one segment whose payload is the octets [off, off+n) of f. If n is 0, the segment has no payload
	// and f is ignored. The engine fills in the ports. If there is no room, Send returns false and has sent nothing.
	// Transmit is called again when there is room.
	Send(h *wire.TCPFields, f port.Frame, off, n int) bool
	// SendCopy is Send for a payload outside of transmit frames.
	SendCopy(h *wire.TCPFields, payload []byte) bool
}

// LeastMSS is the smallest MSS option in octets that a connection works with, as Linux's tcp_min_snd_mss.
const LeastMSS = 48

// State describes a connection after its handshake. TCP_REPAIR reads a State from a kernel socket. Export reads a
// State from a Conn. New builds a Conn from a State. For a connection that the kernel has had until now, the fields
// from Phase on may be zero.
type State struct {
	// At is when the values were read. TSNow is the clock at that time.
	At clock.Instant

	SndUna seq.Num // oldest unacknowledged octet, or the number after the FIN of this end if that is acknowledged
	SndNxt seq.Num // number after the last octet ever sent, or after the FIN if FinSent
	SndWnd uint32  // window that the peer advertises in octets, scaled
	SndWL1 seq.Num // sequence number of the segment that last updated SndWnd (RFC 9293 §3.10.7.4)
	MaxWnd uint32  // largest window in octets that the peer ever advertised

	RcvNxt seq.Num // next octet expected, or the number after the peer's FIN if Phase says that the FIN has arrived
	RcvWup seq.Num // RCV.NXT at the time of the last ACK that was sent (Last.ACK.sent of RFC 7323 §4.3)
	RcvWnd uint32  // octets from RcvWup to the right edge of the advertised window

	SndScale, RcvScale uint8 // window shifts (RFC 7323 §2), 0..14

	MSS uint16 // the peer's MSS option: the largest segment that it accepts, options included
	MTU uint16 // path MTU in octets, IP header included
	// LocalMSS is the MSS option of this end. The peer's segments are not larger, options included. 0 means the
	// largest that MTU allows.
	LocalMSS uint16
	V6       bool // the IP header takes 40 octets instead of 20

	SACK       bool
	Timestamps bool
	TSNow      uint32        // timestamp clock of this end at At
	TSTick     time.Duration // tick of this end's timestamp clock; 0 means 1 ms
	ECN        bool

	SRTT, RTTVar time.Duration // smoothed round-trip time and its variance; 0: no sample yet
	MinRTT       time.Duration // shortest recent round trip; 0 means SRTT
	RTO          time.Duration // retransmission timeout; 0 means the initial value of RFC 6298 §2.1
	Cwnd         uint32        // congestion window in octets; 0 means the initial window of RFC 6928
	Ssthresh     uint32        // slow-start threshold in octets; 0 or NoThreshold: no loss yet
	// Congestion is the kernel's name of the congestion control that the kernel used for the connection. "" and
	// "reno" mean NewReno. For a name that stag does not have, the connection continues with CUBIC.
	Congestion string

	Keepalive   Keepalive
	UserTimeout time.Duration // R2 of RFC 9293 §3.8.3; 0 means the default
	NoDelay     bool          // Nagle's algorithm is off

	// Queue contains the octets from SndUna on that the application has written. The sent and unacknowledged octets
	// come first, then the unsent ones. New copies them.
	Queue []byte
	// Unread contains the in-order octets before RcvNxt that the application has not read. New copies them. Views
	// returns them first.
	Unread []byte

	// Phase is any phase except Closed. It says whether the FIN of this end is queued, whether that FIN is
	// acknowledged, and whether the peer's FIN has arrived.
	Phase   Phase
	FinSent bool // the FIN of this end has been sent

	// TSRecent is the peer's timestamp to echo (RFC 7323 §4.3), valid if HasTSRecent. TSRecentAge is how long before
	// At it arrived.
	TSRecent    uint32
	HasTSRecent bool
	TSRecentAge time.Duration

	// Lost says that all octets that were sent and not acknowledged are lost. New sends them again as the congestion
	// window allows, without waiting for a timeout.
	Lost bool
	// Fresh says that the connection takes another path from now on. New then forgets the round-trip time and limits
	// the congestion window to four initial windows. New keeps the slow-start threshold.
	Fresh bool

	// Moved is the additional state of a Conn, which TCP_REPAIR cannot read. nil means that the connection does not
	// come from a Conn.
	Moved *Moved
}

// Moved is the part of a State that only another Conn can use. Its instants are of the same clock as State.At.
type Moved struct {
	// Deadlines of the timers. A timer that does not run has clock.Never.
	AckAt, RTOAt, PersistAt, KeepAt clock.Instant
	WaitUntil                       clock.Instant // end of TIME-WAIT, valid in that phase
	ProbeTail                       bool          // a tail-loss probe was due (RFC 8985 §7)

	// How long the peer has been silent, and how often it was probed.
	Backoff, PersistBackoff uint8
	Retries, Probes         uint32
	ProgressAt, HeardAt     clock.Instant
	StalledAt, SentAt       clock.Instant // time when the peer's window closed, and time when data was last sent

	// Recovering: fast recovery is in progress and has reduced the congestion window. Repairing: the losses of a
	// timeout are being repaired. Hole: the peer has SACKed octets, and those before them seem to be lost. FinLost:
	// the FIN of this end must be sent again.
	Recovering, Repairing, Hole, FinLost bool
	// Missing is the number of octets from SndUna on that are lost. The first Resent of them have been sent again.
	Missing, Resent uint32
	DupAcks         uint32 // number of duplicate ACKs counted so far, without SACK

	AckNow  bool // an ACK must be sent at once
	Arrived bool // Arrived has not yet reported octets or a FIN
	Bounds  bool // KeepBoundaries was called

	ECNEcho, ECNReduced, ECNHeld bool // RFC 3168: an ECE is due, a CWR is due, a reduction is not confirmed

	// FirstMTU is the path MTU at the start. LinkMTU is the part of it that the interface allows. WidenAt is when to
	// try a larger MTU next. clock.Never means never. WidenPause is the pause after a trial that fails (RFC 4821
	// §7).
	FirstMTU, LinkMTU uint16
	WidenAt           clock.Instant
	WidenPause        time.Duration

	RcvSize, RcvMost uint32 // size of the receive window in octets, and its upper limit

	// Control is the congestion control. The new Conn takes Control over. The old Conn must not be used any more.
	Control Congestion
	Stats   Stats
}

// Keepalive holds the settings for probing a silent peer (RFC 9293 §3.8.4; TCP_KEEPIDLE, TCP_KEEPINTVL and
// TCP_KEEPCNT of Linux).
type Keepalive struct {
	Idle     time.Duration // silence before the first probe; 0: keepalive is off
	Interval time.Duration // time between two probes
	Count    int           // number of unanswered probes that end the connection
}

// Config holds the engine's settings for a connection. The zero value works.
type Config struct {
	RcvBuf  uint32        // largest receive window in octets; 0 means 16 MiB
	SndBuf  uint32        // largest number of queued octets; 0 means 16 MiB
	SndSegs uint32        // largest number of queued segments, a power of two; 0 means 16384
	RcvSegs uint32        // largest number of held segments, a power of two; 0 means 2048
	MinRTO  time.Duration // shortest RTO; 0 means 200 ms, as Linux (departs from RFC 6298 §2.4)
	MaxRTO  time.Duration // longest RTO; 0 means 120 s
	// UserTimeout is how long the peer may acknowledge nothing (RFC 5482) if State does not say it. 0 means R2 of RFC
	// 9293 §3.8.3, which is 15 timeouts.
	UserTimeout time.Duration
	// Seed makes the challenge-ACK limits unpredictable (RFC 5961 §7). Seed must be secret and different for each
	// connection. An Engine provides such a seed.
	Seed uint64
	// Rings is shared by connections that run on one goroutine. If it is nil, the connection has its own.
	Rings *Rings
	// Congestion makes the congestion control. Its value is a constructor such as Control returns. nil means the
	// constructor for State.Congestion.
	Congestion func(Start) Congestion
}
