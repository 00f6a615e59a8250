package tcp

// Drop says why a segment, or a part of it, was not used. It is a counter's
// index, not an error: the connection goes on.
type Drop uint8

const (
	DropNone          Drop = iota // used, or an ACK without payload
	DropClosed                    // the connection has ended
	DropTimeWait                  // answered, if need be, from TIME-WAIT
	DropNoTimestamp               // RFC 7323 §3.2: option missing
	DropPAWS                      // RFC 7323 §5: old timestamp
	DropWindow                    // sequence outside the window
	DropDuplicate                 // received before
	DropRSTWindow                 // RFC 5961 §3.2: RST outside the window
	DropRSTChallenged             // RFC 5961 §3.2: RST in the window, not exact
	DropSYN                       // RFC 5961 §4.2: SYN on a synchronized connection
	DropNoACK                     // ACK bit off
	DropBadACK                    // RFC 5961 §5.2: acknowledges what it cannot
	DropBeyondWindow              // text behind the right edge we promised
	DropNoFrames                  // in order, but no memory for it
	DropReorderShare              // out of order, beyond the share of frames
	DropAfterFIN                  // text behind the peer's FIN
	DropTooBigSeq                 // RFC 5927 §4: quoted sequence not in flight
	DropTooBigMTU                 // ICMP too-big with an MTU that is no smaller

	NumDrops // how many reasons there are
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

// String is the counter's name.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}
