// Package tcp is the data path of one established TCP connection as a pure state
// machine. Input is segments and a time. Output is segments and a deadline. The machine
// has no clock, no goroutine and no lock. After New it allocates nothing.
//
// The way of a received segment:
//
//	Receive        rx.go
//	  accept       accept.go      RST, SYN, timestamps, sequence, ACK value
//	  ack          ack.go         SND.UNA, window, round-trip time, ECE (ecn.go)
//	    sackIn     sack.go        scoreboard (marks on queue.go's entries)
//	    assess     recovery.go    enter and leave recovery
//	      findLost rack.go        what is lost: sent before what has arrived
//	      tlp.go, prr.go, spurious.go, frto.go
//	  text         rx.go          trim, place in the inbox, FIN
//	    inbox      reassembly.go  in-order frames; ahead.go: those out of order
//	Views/Consume  stream.go      the upper layer reads
//
// The way of an emitted segment:
//
//	Emit           stream.go      memory in the last unsent entry, or a new one
//	Transmit       tx.go
//	  expire       timers.go      RTO, probe, persist, keepalive, user timeout
//	  sendLost     tx.go          retransmissions
//	  sendTail     tlp.go         a probe of the tail
//	  sendNew      tx.go          new data: window, cwnd, SWS, Nagle
//	  sendFIN, sendProbe, sendAck
//
// A connection can move to another engine. Export (export.go) is the reverse of New.
// resume.go is the part of New for such a connection.
//
// Specifications: RFC 9293 (TCP), 5961 (blind attacks), 7323 (timestamps, scaling),
// 2018 and 2883 (SACK), 8985 (RACK-TLP), 9937 (PRR), 6675 (the pipe of §4), 3522,
// 4015, 3708 and 5682 (spurious losses), 4821 (path MTU), 5681, 6582, 3042, 3465 and
// 6928 (congestion control), 9438 (CUBIC), 9406 (HyStart++), 6298 (RTO), 5927 (ICMP),
// 3168 (ECN), 6191 and 1337 (TIME-WAIT), 6093 (urgent data).
//
// # Departures
//
// Departs from RFC 6298 §2.4: the floor of the RTO is 200 ms, as in Linux.
//
// Departs from RFC 8985 §7.2: a tail-loss probe allows the peer more than two round
// trips, because the peer's program may have to wait for a processor. The extra time is
// 40 ms at first, then the time that was needed recently, and at least 2 ms. The probe
// also allows the longest ACK delay while less than two full segments are in flight,
// not just one segment. Only two full segments make a peer answer at once.
//
// Departs from RFC 7323 §5.3 R2: if the segment that was acknowledged last comes
// again, its timestamp is echoed, as in Linux.
//
// Departs from RFC 7323 §4.1: the round trip of an ACK that reports a duplicate is
// counted from the retransmission.
//
// Departs from RFC 4821 §7.3: the sender tries five fixed sizes instead of a search.
//
// Departs from RFC 9293 §3.10.7.4 in three ways. A segment without text is acceptable
// at the right edge of the window itself, so that a peer which has filled the window
// can still acknowledge. A FIN without text is acceptable at RCV.NXT although the
// window is closed. A segment that exceeds the window on both sides is trimmed instead
// of refused.
//
// Departs from RFC 9293 §3.8.6.1: a zero-window probe carries no octet of new data but
// has SEQ = SND.UNA-1. Every receiver must answer such a segment too. An octet cut off
// the front of a segment would move every following FPDU off its boundary.
//
// Departs from RFC 6582 §3.2: a duplicate ACK lowers the estimate of the octets in
// flight instead of inflating cwnd. The number of octets that may be sent is the same.
//
// Departs from RFC 3465 §2.2: slow start counts up to 8 segments per ACK, not 2 (RFC
// 9406 §4.2), because receivers coalesce ACKs.
//
// Departs from RFC 793's TIME-WAIT of four minutes: it lasts 60 s, as in Linux.
//
// Urgent data is ordinary data. The urgent pointer is ignored, because RFC 6093 §6
// advises against its use and no upper layer here uses it.
//
// Departs from RFC 5681 §4.1: an idle period halves the congestion window for each RTO
// that it lasts, down to the initial window. RFC 5681 goes to the initial window after one
// RTO. Afterwards, slow start leads to three quarters of the old window (RFC 2861, as
// Linux).
//
// Departs from RFC 3168 §6.1.2: ECN does not reduce the congestion window below two
// segments, as in Linux. The sender therefore never has to wait for the timer.
//
// A take-over loses the state of ECN that TCP_REPAIR does not report: a mark that the
// kernel was still echoing, and a reduction that the kernel had not reported yet. Neither
// loss does harm. The peer has already got the echo of the mark once. The peer asks again
// for the report of the reduction.
//
// Part of the API of stag: Stats. Package rdma has an alias of it.
package tcp
