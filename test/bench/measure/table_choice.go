package measure

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/rdma"
)

// SleepP50 is the median time of a message if both ends sleep until one arrives, in
// microseconds.
const SleepP50 Figure = "sleep_p50_us"

// way is a way to move data, as a user may choose it. Its functions return the figures of
// the table. A function is nil if the way has no such figure.
type way struct {
	name    string
	stream  setting      // for goodput, rate and what is checked
	polling *latencyCase // both ends poll
	asleep  *latencyCase // both ends sleep
	rated   bool         // the way has a rate of small messages
}

// ways are the rows of the table, for each MTU. UCX stands among them if it is installed.
func ways() []way {
	plain := func(p program) setting {
		return setting{stacks: [2]stack{kernel, kernel}, program: p, load: load{message: longWrite, connections: 1}}
	}
	verbs := func(s stack, v verb, p program) setting {
		return setting{stacks: [2]stack{s, s}, verb: v, program: p}
	}
	polled := func(s setting, make lineUp) *latencyCase {
		s.load, s.progress = load{}, rdma.ProgressInline
		return &latencyCase{of: s, make: make}
	}
	sleeping := func(s setting, make lineUp) *latencyCase {
		s.load, s.verb = load{}, orSend(s.verb)
		return &latencyCase{of: s, make: make}
	}
	var all []way
	for _, w := range []struct {
		name string
		of   setting
	}{
		{socketsName, plain(noXDP)},
		{socketsName + ", XDP pass", plain(passAll)},
		{"kernel port, Write", verbs(kernel, write, noXDP)},
		{"kernel port, Write, XDP pass", verbs(kernel, write, passAll)},
		{"AF_XDP, Write", verbs(offload, write, passAll)},
		{"AF_XDP, Send", verbs(offload, send, passAll)},
	} {
		x := way{name: w.name, stream: w.of, rated: true}
		if w.of.verb == plainStream {
			x.polling, x.asleep = polled(w.of, tcpVolley(polls)), &latencyCase{of: setting{stacks: w.of.stacks, program: w.of.program}, make: tcpVolley(blocks)}
		} else {
			x.polling, x.asleep = polled(w.of, verbVolley(w.of.verb, false)), sleeping(w.of, verbVolley(send, true))
		}
		all = append(all, x)
	}
	return all
}

// orSend returns the verb of a program that sleeps: no completion wakes the target of a
// Write.
func orSend(v verb) verb {
	if v == plainStream {
		return v
	}
	return send
}

// socketsName is the name of the base rows.
const socketsName = "sockets"

func choiceTable(o Options) *Table {
	t := &Table{
		Name:  "choice",
		Title: "What to use: sockets, UCX over TCP, and both carriers of stag",
		About: `One connection. Gb/s, CPU s/GB: messages of 64 KiB in one direction, 64 outstanding;
sockets: blocking calls of 1 MiB. polls: us, half of the time in which 64 octets go
to the other side and come back, both ends poll. asleep: the same, both ends sleep
(blocking calls, CQ.Wait); no completion wakes the target of a Write, so verbs are
Sends there. M/s: messages of 64 octets in one direction. ` + ucxName + `: over the
kernel's TCP. No program is on the pair, except in rows with XDP pass, whose program
passes everything, and those of AF_XDP. NAPI: in threads for Gb/s and M/s, inline
for us. TCP: CUBIC. checked: what somebody computed for each octet. On a pair
without AF_XDP the kernel leaves TCP's checksum to a device that computes none.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {CPUPerGB, "CPU s/GB", 2, true}, {P50, "polls", 1, true}, {P99, "p99", 1, false}, {SleepP50, "asleep", 1, true}, {Rate, "M/s", 2, true}},
		Base:    socketsName,
	}
	for _, mtu := range o.MTUs {
		for _, w := range ways() {
			t.Rows = append(t.Rows, w.row(o, mtu))
			if w.name == socketsName && ucxPerftest.installed() {
				t.Rows = append(t.Rows, ucxWay(o, mtu))
			}
		}
	}
	return t
}

// row returns a row with all figures of a way.
func (w way) row(o Options, mtu int) *Row {
	s := w.stream
	s.mtu, s.threaded, s.control = mtu, true, choiceControl
	stream := s.row(o)
	steps := []func(context.Context) (Values, error){stream.run}
	for _, l := range []struct {
		of    *latencyCase
		names map[Figure]Figure
	}{{w.polling, map[Figure]Figure{P50: P50, P99: P99}}, {w.asleep, map[Figure]Figure{P50: SleepP50}}} {
		if l.of == nil {
			continue
		}
		c := *l.of
		c.of.mtu, c.of.control = mtu, choiceControl
		run := c.row(o, small).run
		steps = append(steps, func(ctx context.Context) (Values, error) { return renamed(run, l.names)(ctx) })
	}
	if w.rated {
		s.load = load{}
		if s.verb == plainStream {
			s.load = load{message: small, connections: 1}
		}
		steps = append(steps, s.rateRow(o).run)
	}
	return &Row{Case: Case{Name: w.name, MTU: mtu}, Checked: s.checked(), run: inTurn(steps)}
}

// choiceControl is the congestion control of all connections of the table. The machine's
// own may pace, such as bbr.
const choiceControl = "cubic"

// inTurn returns a measurement that makes all steps, and joins their figures.
func inTurn(steps []func(context.Context) (Values, error)) func(context.Context) (Values, error) {
	return func(ctx context.Context) (Values, error) {
		all := Values{}
		for _, step := range steps {
			v, err := step(ctx)
			if err != nil {
				return nil, err
			}
			for f, x := range v {
				if _, there := all[f]; !there { // the first stream's figures are those of long messages
					all[f] = x
				}
			}
		}
		return all, nil
	}
}

// renamed returns the figures of run that have a name in names, under that name.
func renamed(run func(context.Context) (Values, error), names map[Figure]Figure) func(context.Context) (Values, error) {
	return func(ctx context.Context) (Values, error) {
		v, err := run(ctx)
		if err != nil {
			return nil, err
		}
		out := Values{}
		for from, to := range names {
			out[to] = v[from]
		}
		return out, nil
	}
}

// ucxWay returns the row of UCX over the kernel's TCP, on a pair without a program.
func ucxWay(o Options, mtu int) *Row {
	t := ucxPerftest
	alike := Case{MTU: mtu, NAPI: napiName(true), Message: small}
	goodput, latency, rate := ucxGoodputRow(t, alike, o), ucxLatencyRow(t, alike, o), ucxRateRow(t, alike)
	long := func(ctx context.Context) (Values, error) { return goodput.run(bare(ctx)) }
	times := func(ctx context.Context) (Values, error) { return latency.run(bare(ctx)) }
	many := func(ctx context.Context) (Values, error) { return rate.run(bare(ctx)) }
	return &Row{Case: Case{Name: ucxName, MTU: mtu}, Checked: checkedNothing, run: inTurn([]func(context.Context) (Values, error){long, times, many})}
}

// bareKey marks the context of a match on a pair without an XDP program.
type bareKey struct{}

// bare returns a context in which a match runs without an XDP program.
func bare(ctx context.Context) context.Context { return context.WithValue(ctx, bareKey{}, true) }

// matchProgram returns the XDP program for a match.
func matchProgram(ctx context.Context) program {
	if ctx.Value(bareKey{}) != nil {
		return noXDP
	}
	return passAll
}

// choiceGoals compares both carriers with sockets on a pair without an XDP program.
func choiceGoals(r *Report) (list []Goal) {
	t := r.table("choice")
	if t == nil {
		return nil
	}
	for _, g := range []struct {
		name, what string
		f          Figure
		want       float64
		most       bool
	}{
		{"kernel port, Write", "goodput", Gbps, 0.85, false},
		{"kernel port, Write", "CPU per GB", CPUPerGB, 1.3, true},
		{"kernel port, Write", "64 octets, polling", P50, 1.2, true},
		{"AF_XDP, Write", "64 octets, polling", P50, 0.5, true},
	} {
		for _, mtu := range t.distinct(func(c Case) int { return c.MTU }) {
			row := t.find(func(c Case) bool { return c.Name == g.name && c.MTU == mtu })
			if row == nil || row.Ratio[g.f] == 0 {
				continue
			}
			list = append(list, Goal{What: g.name + " against " + socketsName + ", " + fmt.Sprint("MTU ", mtu, ": ", g.what), Want: g.want, Most: g.most, Have: row.Ratio[g.f]})
		}
	}
	return list
}
