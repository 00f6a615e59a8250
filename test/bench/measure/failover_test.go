package measure

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/gaps"
	"github.com/stag-rdma/stag/offload/adapter"
)

func TestExpand(t *testing.T) {
	got := strings.Join(Expand([]string{"goodput", "failover"}), " ")
	if got != "goodput ports blackouts moves drains evacuations silence" {
		t.Error(got)
	}
	for _, name := range failoverTables {
		if !slices.Contains(TableNames(), name) {
			t.Errorf("no table %s", name)
		}
	}
}

// The tables of failover take long: only their names and --full select them.
func TestFailoverMustBeNamed(t *testing.T) {
	has := func(o Options) (n int) {
		for _, name := range names(t, o) {
			table, _, _ := strings.Cut(name, ":")
			if slices.Contains(failoverTables, table) {
				n++
			}
		}
		return n
	}
	o := good()
	if n := has(o); n != 0 {
		t.Errorf("%d rows without a name", n)
	}
	o.Full = true
	all := has(o)
	o.Full, o.Tables = false, failoverTables
	if n := has(o); n == 0 || n > all {
		t.Errorf("%d rows, and %d with --full", n, all)
	}
}

var errStuck = errors.New("the connection stays")

const netstat = `TcpExt: SyncookiesSent TCPDSACKOldSent TCPDSACKOfoSent
TcpExt: 1 20 300
IpExt: InNoRoutes
IpExt: 7
`

func TestCounters(t *testing.T) {
	n, err := counters(netstat, "TcpExt:", "TCPDSACKOldSent", "TCPDSACKOfoSent")
	if n != 320 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, c := range []struct{ text, group, name, want string }{
		{netstat, "TcpExt:", "InNoRoutes", "no counter InNoRoutes"},
		{netstat, "MPTcpExt:", "x", "no group MPTcpExt:"},
		{"TcpExt: A\nTcpExt: x\n", "TcpExt:", "A", "A: "},
		{"TcpExt: A B\nTcpExt: 1\n", "TcpExt:", "B", "no counter B"},
	} {
		if _, err := counters(c.text, c.group, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q: %v, want %q", c.name, c.text, err, c.want)
		}
	}
}

// An end that receives something else than its peer has sent says so.
func TestEndChecks(t *testing.T) {
	a, b := newEnd(from), newEnd(to)
	octets := make([]byte, 100)
	a.out.Fill(octets, 0)
	b.take(octets[:40], b.arrived.Arrived())
	if err := b.health(); err != nil || b.arrived.Arrived() != 40 {
		t.Errorf("%d octets, %v", b.arrived.Arrived(), err)
	}
	b.take(octets[50:], b.arrived.Arrived()) // ten were lost
	if err := b.health(); err == nil || !strings.Contains(err.Error(), "1 pieces") {
		t.Errorf("%v", err)
	}
	a.sent.Store(100)
	if astray, err := finish(t.Context(), [2]*end{connected(a), connected(b)}, time.Millisecond); astray != 10 || err != nil {
		t.Errorf("%d octets astray, %v", astray, err)
	}
}

// connected gives an end a place for the token of send.
func connected(e *end) *end { e.more = make(chan struct{}, 2); return e }

func TestLedger(t *testing.T) {
	var l ledger
	l.add(adapter.Event{Type: adapter.PathMoved, Frozen: time.Millisecond})
	l.add(adapter.Event{Type: adapter.PortFailed})
	if moves, err := l.moves(); len(moves) != 1 || err != nil || moves[0].at.IsZero() {
		t.Errorf("%v, %v", moves, err)
	}
	l.clear()
	if n := len(l.of(adapter.PortFailed)); n != 0 {
		t.Errorf("%d events after clear", n)
	}
	l.add(adapter.Event{Type: adapter.PathMoved, Err: errStuck})
	if _, err := l.moves(); err != errStuck {
		t.Errorf("%v", err)
	}
}

// pretendedFailover returns a report whose figures meet every goal, if better, or miss every one.
func pretendedFailover(better bool) *Report {
	o := good()
	o.Tables = failoverTables
	r := &Report{Rounds: 2, Conditions: conditions{Control: "bbr"}}
	for _, make := range tables {
		t := make(o)
		if !slices.Contains(failoverTables, t.Name) {
			continue
		}
		for _, row := range t.Rows {
			for round := range 2 {
				v := Values{}
				for _, c := range t.Columns {
					v[c.Figure] = 100 + float64(round)
				}
				v[Gbps] = map[string]float64{onePortName: 4, twoPortsName: 2, crossedName: 1}[row.Name]
				if better {
					v[Gbps] = 4
				}
				for _, f := range []Figure{Blackout, OfRTO, Frozen, Evacuated, Intervals} {
					v[f] = 1000
					if better {
						v[f] = 0.5
					}
				}
				v[Moves], v[Astray], v[CleanPeer] = 2000, 1, 50
				if better {
					v[Astray], v[CleanPeer] = 0, 95+float64(round)
				}
				row.Samples = append(row.Samples, v)
			}
		}
		r.Tables = append(r.Tables, t)
	}
	r.conclude()
	return r
}

// A blackout that began after the report is none of the pulled cable.
func TestReaction(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		from, to, reported int
		want               float64
	}{{0, 30, 10, 20}, {0, 5, 10, 0}, {20, 90, 10, 0}} {
		g := gaps.Gap{Length: at(c.to).Sub(at(c.from)), End: at(c.to)}
		if got := reaction(g, at(c.reported)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestFailoverGoals(t *testing.T) {
	for _, better := range []bool{true, false} {
		list := pretendedFailover(better).Goals
		judged := 0
		for _, g := range list {
			if g.Hoped {
				continue
			}
			judged++
			if g.met() != better {
				t.Errorf("%s: want %g, have %g", g.What, g.Want, g.Have)
			}
		}
		if judged < 11 {
			t.Errorf("%d goals", judged)
		}
	}
	for _, g := range pretendedFailover(false).Goals {
		if strings.Contains(g.What, "4000 moves") && g.Have == 2 {
			return
		}
	}
	t.Error("octets astray are not the sum of the rounds")
}

// Markdown has the range of every figure, and marks the goals that were missed.
func TestMarkdown(t *testing.T) {
	r := pretendedFailover(false)
	var b bytes.Buffer
	if err := r.PrintMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| **ms frozen per move, median, engine, idle** | at most 1 | **1000.00** |\n",
		"| ports, MTU 1500 | Gb/s | per core | busy | resent | foreign | checked |\n|---|---|---|---|---|---|---|\n| write, one port | 4.00 | 100.50 (100.00 to 101.00) |",
		"| engine, cable pulled | 1000.0 |",
		"Medians of 2 interleaved rounds",
		"congestion control cubic in both stacks; the kernel's default is bbr.\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("missing %q in\n%s", want, &b)
		}
	}
	b.Reset()
	if err := pretendedFailover(true).PrintMarkdown(&b); err != nil || strings.Contains(b.String(), "**") {
		t.Errorf("%v\n%s", err, &b)
	}
	f := full(3)
	if err := r.PrintMarkdown(&f); err == nil {
		t.Error("no error of a writer that is full")
	}
}
