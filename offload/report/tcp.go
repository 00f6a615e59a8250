package report

import (
	"fmt"
	"slices"
	"strconv"
)

// TCP is the state of one connection: the values that `ss -tin` shows for the kernel's
// connections.
type TCP struct {
	State      string    `json:"state"`                // ESTABLISHED, FIN-WAIT-1, ...
	ECN        bool      `json:"ecn"`                  // both ends agreed on ECN
	Congestion string    `json:"congestion"`           // congestion control: cubic or reno
	Followed   string    `json:"congestion_of_kernel"` // congestion control before the take-over, by the kernel's name
	Cwnd       uint32    `json:"cwnd_bytes"`
	Ssthresh   *uint32   `json:"ssthresh_bytes,omitempty"` // slow start threshold; nil: none yet
	SndWnd     uint32    `json:"snd_wnd"`
	RcvWnd     uint32    `json:"rcv_wnd"`
	MSS        uint32    `json:"mss"`
	PMTU       uint32    `json:"pmtu"`
	SRTT       uint64    `json:"srtt_us"`
	RTTVar     uint64    `json:"rttvar_us"`
	RTO        uint64    `json:"rto_us"` // retransmission timeout without backoff
	Backoff    uint8     `json:"backoff"`
	Recovering bool      `json:"recovering"`
	InFlight   uint32    `json:"in_flight"`
	Unacked    uint32    `json:"unacked"` // octets that were emitted and are not acknowledged
	Unread     uint32    `json:"unread"`  // octets that were received and are not consumed
	SndSegs    uint32    `json:"retransmission_queue_segments"`
	Reordered  int       `json:"reorder_queue_frames"`
	Held       int       `json:"receive_frames_held"`
	Counters   []Counter `json:"counters"` // counters of layer tcp
}

// line returns the fields in the order of ss. Congestion windows are in octets, so their
// names differ from cwnd and ssthresh, which ss prints in segments.
func (t *TCP) line() string {
	if t == nil {
		return ""
	}
	n := func(name string) uint64 {
		i := slices.IndexFunc(t.Counters, func(c Counter) bool { return c.Name == name })
		if i < 0 {
			return 0
		}
		return t.Counters[i].Value
	}
	return Words(when(t.ECN, "ecn"), t.Congestion, t.instead(), "rto:"+ms(t.RTO), Word("backoff:", t.Backoff), fmt.Sprintf("rtt:%s/%s", ms(t.SRTT), ms(t.RTTVar)),
		fmt.Sprint("mss:", t.MSS), fmt.Sprint("pmtu:", t.PMTU), fmt.Sprint("cwnd_bytes:", t.Cwnd), t.ssthresh(),
		Word("bytes_sent:", n("octets_out")), Word("bytes_acked:", n("octets_acked")), Word("bytes_received:", n("octets_in")),
		Word("segs_out:", n("segs_out")), Word("segs_in:", n("segs_in")),
		Word("unacked:", t.SndSegs), Word("retrans:", n("retransmits")), Word("dsack_dups:", n("dup_sacks")),
		Word("rcv_ooopack:", n("out_of_order")), fmt.Sprint("snd_wnd:", t.SndWnd), fmt.Sprint("rcv_wnd:", t.RcvWnd),
		Word("timeouts:", n("timeouts")), Word("recoveries:", n("recoveries")), Word("ecn_cuts:", n("ecn_cuts")), when(t.Recovering, "recovering"))
}

// ssthresh returns the slow-start threshold, or "" before the first loss, as ss does.
func (t *TCP) ssthresh() string {
	if t.Ssthresh == nil {
		return ""
	}
	return fmt.Sprint("ssthresh_bytes:", *t.Ssthresh)
}

// instead returns the kernel's congestion control of the connection, if the connection now
// uses another one. stag implements only cubic and reno.
func (t *TCP) instead() string {
	if t.Followed == t.Congestion {
		return ""
	}
	return Word("instead_of:", t.Followed)
}

// ms returns microseconds as milliseconds.
func ms(us uint64) string { return strconv.FormatFloat(float64(us)/1000, 'f', -1, 64) }
