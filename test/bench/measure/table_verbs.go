package measure

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
)

// Figures of programs.
const (
	Typical Figure = "typical_us" // perftest's t_typical: the median of half a round trip
	Jain    Figure = "jain"       // Jain's index of the rates of the programs; 1: all are equal
)

// verbsCases are the tests that the table compares. The first of each block is the base of
// the goals.
var verbsCases = []programCase{
	{test: "write_bw", octets: 64 << 10, pairs: 1},
	{test: "write_bw", octets: 64 << 10, pairs: 1, memory: mapped},
	{test: "write_bw", octets: 64 << 10, pairs: 1, memory: copied},
	{test: "write_bw", octets: 64 << 10, pairs: 1, kernelPort: true},
	{test: "write_bw", octets: 64 << 10, pairs: 1, kernelPort: true, memory: mapped},
	{test: "write_bw", octets: 64 << 10, pairs: 1, kernelPort: true, memory: copied},
	{test: "send_bw", octets: 64 << 10, pairs: 1},
	{test: "send_bw", octets: 64 << 10, pairs: 1, memory: copied},
	{test: "read_bw", octets: 64 << 10, pairs: 1},
	{test: "read_bw", octets: 64 << 10, pairs: 1, memory: copied},
	{test: "write_bw", octets: 64 << 10, pairs: 8, memory: copied},
	{test: "write_lat", octets: 64, pairs: 1},
	{test: "write_lat", octets: 64, pairs: 1, memory: goThrough},
	{test: "write_lat", octets: 64, pairs: 1, memory: mapped},
	{test: "write_lat", octets: 64, pairs: 1, memory: copied},
	{test: "send_lat", octets: 64, pairs: 1},
	{test: "send_lat", octets: 64, pairs: 1, memory: goThrough},
	{test: "send_lat", octets: 64, pairs: 1, memory: copied},
}

func verbsTable(o Options) *Table {
	t := &Table{
		Name:  "verbs",
		Title: "Programs in processes of their own: stag perf with the Go library, perftest with the C libraries",
		About: `Each side has a daemon and, for each pair of programs, one program; with the Go library
there is only the program. Go program through the daemon: stag perf, whose adapter is in the
daemon, with mapped memory. Go library: stag perf. C program: Debian's perftest, unmodified,
over stag's libibverbs and librdmacm. copied: its memory is malloc'ed, and the kernel copies.
mapped: its memory is a file in memory that the daemon maps too. Gb/s is the sum of all
programs. CPU: the whole machine. us: perftest's typical time, half a round trip.`,
		Columns: []Column{{Gbps, "Gb/s", 2, false}, {Typical, "us", 2, false}, {Jain, "Jain", 3, false}, {Busy, "busy", 2, false}, {CPUPerGB, "CPU s/GB", 2, false}},
	}
	for _, c := range verbsCases {
		if _, err := exec.LookPath("ib_write_bw"); err != nil && c.memory.isC() && o.measures(t.Name) {
			continue // missingTools says so
		}
		if !o.Full && !slices.Contains(o.Tables, t.Name) {
			continue // it takes programs that not every machine has
		}
		row := &Row{
			Case:    Case{Name: c.title(), MTU: 1500, NAPI: napiName(false), Message: c.octets, Connections: c.pairs},
			Retries: retries{},
		}
		row.run = func(ctx context.Context) (Values, error) {
			return row.Retries.until(func() (Values, error) { return c.measure(ctx, o) })
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// measure runs the case once.
func (c programCase) measure(ctx context.Context, o Options) (v Values, err error) {
	if err := c.build(ctx); err != nil { // a build takes its time
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*within(whole(o.Time)))
	defer cancel()
	ps, err := c.bed(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ps.close()) }()
	if c.octets <= small {
		lines, err := ps.run(ctx, "-n", "20000")
		if err != nil {
			return nil, err
		}
		if len(lines[0]) < 5 { // octets, iterations, least, most, typical, ...
			return nil, fmt.Errorf("%v: a line of a latency test has more columns", lines[0])
		}
		return Values{Typical: lines[0][4]}, nil
	}
	return ps.rates(ctx, o)
}

// rates measures bandwidth.
func (ps *programStage) rates(ctx context.Context, o Options) (Values, error) {
	m, err := startMeter(ps.pair, false)
	if err != nil {
		return nil, err
	}
	lines, err := ps.run(ctx, "-D", strconv.Itoa(2*whole(o.Time)), "--report_gbits")
	if err != nil {
		return nil, err
	}
	used, err := m.since()
	if err != nil {
		return nil, err
	}
	var sum, squares float64
	for _, l := range lines { // octets, iterations, peak, average, rate
		sum, squares = sum+l[3], squares+l[3]*l[3]
	}
	v := Values{Gbps: sum, Busy: used.busy, CPUPerGB: used.busy * 8 / sum}
	if ps.pairs > 1 {
		v[Jain] = sum * sum / (float64(len(lines)) * squares)
	}
	return v, nil
}

// verbsGoals compares C programs with programs of the Go library.
func verbsGoals(r *Report) (list []Goal) {
	t := r.table("verbs")
	if t == nil {
		return nil
	}
	value := func(c programCase, f Figure) float64 {
		row := t.find(func(have Case) bool {
			return have.Name == c.title() && have.Message == c.octets && have.Connections == c.pairs
		})
		if row == nil {
			return 0
		}
		return row.Median[f]
	}
	for _, c := range verbsCases {
		base := c
		base.memory = ofProgram
		what := fmt.Sprintf("%s against the Go library", c.title())
		switch {
		case c.pairs > 1:
			if have := value(c, Jain); have != 0 {
				list = append(list, Goal{What: fmt.Sprintf("%s, %d programs, Jain's index", c.title(), c.pairs), Want: 0.95, Have: have})
			}
		case !c.memory.isC():
		case c.octets <= small:
			if have, of := value(c, Typical), value(base, Typical); have != 0 && of != 0 {
				list = append(list, Goal{What: what + ", 64 octets", Want: 1.5, Most: true, Have: have / of})
			}
			base.memory = goThrough
			if have, of := value(c, Typical), value(base, Typical); have != 0 && of != 0 {
				list = append(list, Goal{What: c.title() + " against the Go program, 64 octets", Want: 1.5, Most: true, Have: have / of})
			}
		default:
			want := 0.9
			if c.memory == copied {
				want = 0.75
			}
			if have, of := value(c, Gbps), value(base, Gbps); have != 0 && of != 0 {
				list = append(list, Goal{What: what, Want: want, Have: have / of})
			}
		}
	}
	return list
}
