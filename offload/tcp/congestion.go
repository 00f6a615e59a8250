package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// Congestion decides how many octets may be in flight. The connection itself tracks which octets are in flight and
// which were lost (recovery.go). Only the goroutine that runs the connection calls the methods.
type Congestion interface {
	// Name returns the name that the kernel gives to this congestion control.
	Name() string
	// Window returns the congestion window in octets. The window is at least one segment.
	Window() uint32
	// Threshold returns the slow-start threshold in octets.
	Threshold() uint32
	// Acked is called for acknowledgements of new data. Acked is not called during fast recovery, nor for
	// acknowledgements that report congestion.
	Acked(a Ack)
	// Loss is called once when fast recovery begins, and when the peer reports that a router has marked a packet.
	// flight is the outstanding data in octets, without the octets of limited transmit.
	Loss(now clock.Instant, flight uint32)
	// Recovered is called when fast recovery ends.
	Recovered(now clock.Instant, flight uint32)
	// Timeout is called on each retransmission timeout. repeated says that the losses of the previous timeout have
	// not been repaired yet.
	Timeout(now clock.Instant, flight uint32, repeated bool)
	// Undo takes back the last Loss, or the last Timeout and its repetitions. The connection calls Undo when it finds
	// that nothing had been lost.
	Undo(now clock.Instant)
	// Idle is called before data is sent when nothing is outstanding, perhaps several times. periods is the number of
	// retransmission timeouts (RTO) that fit into the time since data was last sent, without those that an earlier
	// call has reported.
	Idle(now clock.Instant, periods int)
	// Resize is called when the effective send MSS has changed.
	Resize(mss uint32)
}

// Start is the initial state of a congestion control.
type Start struct {
	Now       clock.Instant
	MSS       uint32 // effective send MSS in octets
	Cwnd      uint32 // congestion window in octets; never 0
	Threshold uint32 // slow-start threshold in octets; NoThreshold before the first loss
}

// Ack describes an acknowledgement of new data to a congestion control.
type Ack struct {
	Now    clock.Instant
	Octets uint32        // octets that were newly acknowledged
	SRTT   time.Duration // smoothed round-trip time; 0: no sample yet
	// RTT is the time since the last acknowledged segment was sent. RTT is 0 if that segment was sent more than
	// once.
	RTT      time.Duration
	Una, Nxt seq.Num // SND.UNA after this acknowledgement, and SND.NXT
	// Limited says that the congestion window limited the sender. A window that did not limit the sender has not
	// been tested and must not grow (RFC 7661).
	Limited bool
	// Repair says that the octets were acknowledged while the losses of a
	// retransmission timeout were being repaired (RFC 3465 §2.3).
	Repair bool
}

// maxCwnd is the upper limit of every congestion window and threshold, in octets.
const maxCwnd = 1 << 30

// slowStartLimit is L of RFC 3465 §2.2 in segments. doc.go says why it differs from the RFC.
const slowStartLimit = 8

// InitialWindow is the initial congestion window of RFC 6928 §2 in octets.
func InitialWindow(mss uint32) uint32 { return min(10*mss, max(2*mss, 14600)) }

// Control returns the constructor of the congestion control that the kernel calls name. Control returns nil if
// stag does not have that congestion control.
func Control(name string) func(Start) Congestion {
	switch name {
	case "reno":
		return NewReno
	case "cubic":
		return NewCubic
	}
	return nil
}

// follow returns the congestion control for a connection that the kernel has run under name. For a name that stag
// does not have, it returns CUBIC. The kernel's other congestion controls are for paths that NewReno cannot fill.
func follow(name string) func(Start) Congestion {
	if name == "" {
		return NewReno
	}
	if control := Control(name); control != nil {
		return control
	}
	return NewCubic
}

// newCongestion makes the connection's congestion control. The congestion control continues with the windows that the
// kernel had. For a connection that another Conn has run, newCongestion returns the congestion control of that Conn.
func (c *Conn) newCongestion(now clock.Instant, st *State) Congestion {
	mss := c.path.emss()
	if st.Moved != nil && st.Moved.Control != nil {
		st.Moved.Control.Resize(mss)
		return st.Moved.Control
	}
	control := c.cfg.Congestion
	if control == nil {
		control = follow(st.Congestion)
	}
	s := Start{Now: now, MSS: mss, Cwnd: st.Cwnd, Threshold: st.Ssthresh}
	if s.Cwnd == 0 {
		s.Cwnd = InitialWindow(mss)
	}
	s.Cwnd = max(s.Cwnd, mss)
	if s.Threshold == 0 {
		s.Threshold = NoThreshold
	}
	return control(s)
}

// flightSize returns the FlightSize of RFC 5681 §2 from which a reduction starts: its value after the last Transmit.
// The ACKs since then do not count, because this end has not yet sent data in answer to them. Octets that limited
// transmit sent beyond cwnd do not count (§3.2).
func (c *Conn) flightSize() uint32 { return min(c.congestion.flown, c.congestion.cc.Window()) }

// decayed returns the congestion window after an idle time. periods is the length of the idle time in RTOs. Each RTO
// halves cwnd, but not below the initial window (RFC 2861 §3.1; see doc.go).
func decayed(cwnd, mss uint32, periods int) uint32 {
	return max(cwnd>>min(periods, 31), min(cwnd, InitialWindow(mss)))
}

// remembered returns the slow-start threshold after an idle time. The threshold is at least three quarters of cwnd.
// Slow start then brings the window back to three quarters of its size (RFC 2861 §3.1).
func remembered(ssthresh, cwnd uint32) uint32 { return max(ssthresh, cwnd-cwnd/4) }
