package show

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type flow struct {
	origin
	report.Flow
	LeftBy int `json:"left_by,omitempty"` // pid of the dead process that made the flow entry
}

type flowList []flow

func flows(sources []engines.Source, w want) list {
	l := flowList{}
	for _, s := range sources {
		for _, f := range s.Flows {
			if !w.of(f.Device) || !w.match.flow(f) {
				continue
			}
			row := flow{originOf(s), f, s.LeftBy(f)}
			if row.LeftBy != 0 {
				row.owner = owner{Netns: s.Netns, Space: s.Space}
			}
			l = append(l, row)
		}
	}
	slices.SortStableFunc(l, func(x, y flow) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), x.Local.Compare(y.Local), x.Remote.Compare(y.Remote), x.order(y.owner))
	})
	return l
}

func (l flowList) len() int { return len(l) }

// text prints connections as `ss -tin` does. A word of ss has the same meaning here.
func (l flowList) text(p *page) {
	if len(l) > 0 {
		p.row("Device", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Process")
	}
	for _, f := range l {
		p.row(f.Device, f.state(), f.queued(func(t report.TCP) uint32 { return t.Unread }), f.queued(func(t report.TCP) uint32 { return t.Unacked }),
			f.Local.String(), f.Remote.String(), f.process())
		p.below(words(f.tcp(), f.id()))
		if f.Diverted != "" {
			p.below("diverted: " + f.Diverted)
		}
	}
	p.flush()
}

// state returns the state of the connection, or the state of the flow entry if there is no
// connection yet.
func (f flow) state() string {
	switch {
	case f.TCP == nil:
		return strings.ToUpper(f.State)
	case f.TCP.State == "ESTABLISHED":
		return "ESTAB"
	}
	return f.TCP.State
}

func (f flow) queued(octets func(report.TCP) uint32) string {
	if f.TCP == nil {
		return "-"
	}
	return strconv.FormatUint(uint64(octets(*f.TCP)), 10)
}

func (f flow) process() string {
	switch {
	case f.LeftBy != 0:
		return words(fmt.Sprintf("no engine, left by pid %d", f.LeftBy), word("netns ", f.Space))
	case f.Program == nil:
		return f.String()
	}
	user := ""
	if *f.UID != os.Geteuid() {
		user = fmt.Sprint(",uid=", *f.UID)
	}
	users := fmt.Sprintf("users:((%q,pid=%d%s,adapter=%d%s))", *f.Program, *f.PID, user, *f.Adapter, word(",qp=", f.QP))
	return words(users, word("netns:", f.Space))
}

// id returns the flow id and other facts about the flow. Engines and captures use the same id.
func (f flow) id() string {
	return words(f.Kind, "id:"+f.ID.String(), f.queue(), word("vlan:", f.VLAN), f.via(), fmt.Sprintf("age:%ds", f.Age))
}

// via returns the next hop of the flow's packets.
func (f flow) via() string {
	if f.NextHop == "" {
		return ""
	}
	return "via:" + f.NextHop
}

// queue returns the queue whose engine owns the flow. A new flow has no owner for a moment.
func (f flow) queue() string {
	if f.Queue < 0 {
		return ""
	}
	return fmt.Sprint("queue:", f.Queue)
}

// tcp prints the fields in the order of ss. Congestion windows are in octets, so their
// names differ from cwnd and ssthresh, which ss prints in segments.
func (f flow) tcp() string {
	t := f.TCP
	if t == nil {
		return ""
	}
	n := func(name string) uint64 {
		i := slices.IndexFunc(t.Counters, func(c report.Counter) bool { return c.Name == name })
		if i < 0 {
			return 0
		}
		return t.Counters[i].Value
	}
	return words(when(t.ECN, "ecn"), t.Congestion, instead(t), "rto:"+ms(t.RTO), word("backoff:", t.Backoff), fmt.Sprintf("rtt:%s/%s", ms(t.SRTT), ms(t.RTTVar)),
		fmt.Sprint("mss:", t.MSS), fmt.Sprint("pmtu:", t.PMTU), fmt.Sprint("cwnd_bytes:", t.Cwnd), ssthresh(t),
		word("bytes_sent:", n("octets_out")), word("bytes_acked:", n("octets_acked")), word("bytes_received:", n("octets_in")),
		word("segs_out:", n("segs_out")), word("segs_in:", n("segs_in")),
		word("unacked:", t.SndSegs), word("retrans:", n("retransmits")), word("dsack_dups:", n("dup_sacks")),
		word("rcv_ooopack:", n("out_of_order")), fmt.Sprint("snd_wnd:", t.SndWnd), fmt.Sprint("rcv_wnd:", t.RcvWnd),
		word("timeouts:", n("timeouts")), word("recoveries:", n("recoveries")), word("ecn_cuts:", n("ecn_cuts")), when(t.Recovering, "recovering"))
}

// ssthresh returns the slow-start threshold, or "" before the first loss, as ss does.
func ssthresh(t *report.TCP) string {
	if t.Ssthresh == nil {
		return ""
	}
	return fmt.Sprint("ssthresh_bytes:", *t.Ssthresh)
}

// instead returns the kernel's congestion control of the connection, if the connection now
// uses another one. stag implements only cubic and reno.
func instead(t *report.TCP) string {
	if t.Followed == t.Congestion {
		return ""
	}
	return word("instead_of:", t.Followed)
}

// when returns the word if on is true.
func when(yes bool, name string) string {
	if yes {
		return name
	}
	return ""
}

// ms prints microseconds as milliseconds.
func ms(us uint64) string { return strconv.FormatFloat(float64(us)/1000, 'f', -1, 64) }
