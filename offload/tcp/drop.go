package tcp

// Drop says why a segment, or a part of it, was not used. A Drop is the index of a
// counter and not an error, because the connection continues.
type Drop uint8

const (
	DropNone          Drop = iota // used, or an ACK without payload
	DropClosed                    // the connection has ended
	DropTimeWait                  // the connection is in TIME-WAIT, which answers the segment if necessary
	DropNoTimestamp               // RFC 7323 §3.2: the timestamp option is missing
	DropPAWS                      // RFC 7323 §5: the timestamp is old
	DropWindow                    // the sequence number is outside the receive window
	DropDuplicate                 // the octets were received before
	DropRSTWindow                 // RFC 5961 §3.2: RST outside the window
	DropRSTChallenged             // RFC 5961 §3.2: RST within the window, but not at RCV.NXT
	DropSYN                       // RFC 5961 §4.2: SYN on a synchronized connection
	DropNoACK                     // the ACK bit is not set
	DropBadACK                    // RFC 5961 §5.2: the ACK number is outside the acceptable range
	DropBeyondWindow              // data beyond the right edge of the advertised window
	DropNoFrames                  // data in order, but no frame is free to hold it
	DropReorderShare              // data out of order, but the connection's share of frames is used up
	DropAfterFIN                  // data after the peer's FIN
	DropTooBigSeq                 // RFC 5927 §4: the sequence number in the ICMP message is not in flight
	DropTooBigMTU                 // ICMP "too big" with an MTU that is not smaller

	NumDrops // number of reasons
)

var dropNames = [NumDrops]string{
	DropNone:          "none",
	DropClosed:        "closed",
	DropTimeWait:      "time_wait",
	DropNoTimestamp:   "no_timestamp",
	DropPAWS:          "paws",
	DropWindow:        "outside_window",
	DropDuplicate:     "duplicate",
	DropRSTWindow:     "rst_outside_window",
	DropRSTChallenged: "rst_challenged",
	DropSYN:           "syn_challenged",
	DropNoACK:         "no_ack_bit",
	DropBadACK:        "bad_ack",
	DropBeyondWindow:  "beyond_promised_window",
	DropNoFrames:      "no_frames",
	DropReorderShare:  "reorder_share",
	DropAfterFIN:      "after_fin",
	DropTooBigSeq:     "too_big_sequence",
	DropTooBigMTU:     "too_big_mtu",
}

// String returns the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}
