package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// Figures of volleys. Microseconds.
const (
	P50  Figure = "p50_us"
	P99  Figure = "p99_us"
	P999 Figure = "p999_us"
	Max  Figure = "max_us"
)

// latencyCase is a kind of volley.
type latencyCase struct {
	name  string
	of    setting
	make  lineUp
	whole bool // the time of a whole round counts, not half of it
	most  int  // octets of the longest message; 0: any
}

// latencyCases are what there is to compare, for each size.
var latencyCases = []latencyCase{
	{name: kernelTCP, of: setting{stacks: [2]stack{kernel, kernel}}, make: tcpVolley},
	{name: string(rawBare), of: setting{raw: rawBare}, make: rawVolley, most: small},
	{name: writeInline, of: setting{stacks: [2]stack{engine, engine}, verb: write, progress: rdma.ProgressInline}, make: verbVolley(write)},
	{name: "write engine", of: setting{stacks: [2]stack{engine, engine}, verb: write, progress: rdma.ProgressEngine}, make: verbVolley(write)},
	{name: "send inline", of: setting{stacks: [2]stack{engine, engine}, verb: send, progress: rdma.ProgressInline}, make: verbVolley(send)},
	{name: "read inline, whole round", of: setting{stacks: [2]stack{engine, engine}, verb: read, progress: rdma.ProgressInline}, make: verbVolley(read), whole: true},
	{name: "write kernel port", of: setting{stacks: [2]stack{kernel, kernel}, verb: write, progress: rdma.ProgressInline}, make: verbVolley(write)},
}

const writeInline = "write inline"

func latencyTable(o Options) *Table {
	t := &Table{
		Name:  "latency",
		Title: "Latency: half of the time in which a message goes to the other side and one comes back",
		About: `Microseconds. kernel TCP: blocking calls with TCP_NODELAY. raw AF_XDP: frames with
as many octets of payload, our rings, both sides looking all the time, no protocol:
what inline rows take longer is the protocols' and the verbs'. The arrival of a
Write is seen by looking at the last octet of the memory where the peer writes, as
perftest does, and polling the CQ in between; that of a Send by its completion.
inline: both sides post and poll, and do all the work by that. engine: a goroutine
does it. A Read is answered by the other side's adapter, whose application does
nothing; its time is the whole round's.`,
		Columns: []Column{{P50, "p50", 1, true}, {P99, "p99", 1, true}, {P999, "p99.9", 1, false}, {Max, "max", 0, false}},
		Base:    kernelTCP,
	}
	sizes := []int{64, 4096}
	if o.Full {
		sizes = append(sizes, 65536)
	}
	for _, size := range sizes {
		for _, c := range latencyCases {
			if c.most != 0 && size > c.most {
				continue
			}
			for _, threaded := range []bool{false, true} {
				if !threaded || o.Full {
					c.of.mtu, c.of.threaded = 1500, threaded
					t.Rows = append(t.Rows, c.row(o, size))
				}
			}
		}
	}
	return t
}

func (c latencyCase) row(o Options, size int) *Row {
	return &Row{
		Case: Case{Name: c.name, MTU: c.of.mtu, NAPI: napiName(c.of.threaded), Message: size},
		run: func(ctx context.Context) (Values, error) {
			h, err := playOn(ctx, c.of, size, c.make, o.Warm, o.Time)
			if err != nil {
				return nil, err
			}
			half := 2.0
			if c.whole {
				half = 1
			}
			us := func(ns int64) float64 { return float64(ns) / half / float64(time.Microsecond) }
			return Values{
				P50: us(h.ValueAtQuantile(50)), P99: us(h.ValueAtQuantile(99)), P999: us(h.ValueAtQuantile(99.9)), Max: us(h.Max()),
			}, nil
		},
	}
}

// napiName is where a veth pair's receive side runs.
func napiName(threaded bool) string {
	if threaded {
		return "threads"
	}
	return "inline"
}

// latencyGoals compare the shortest Writes with the kernel's TCP.
func latencyGoals(r *Report) (list []Goal) {
	t := r.table("latency")
	if t == nil {
		return nil
	}
	row := func(name string) *Row {
		return t.find(func(c Case) bool { return c.Name == name && c.Message == 64 && c.NAPI == napiName(false) })
	}
	have, base := row(writeInline), row(kernelTCP)
	if have == nil || base == nil {
		return nil
	}
	for _, g := range []struct {
		f    Figure
		name string
		most float64
	}{{P50, "p50", 0.5}, {P99, "p99", 1}} {
		if of := base.Median[g.f]; of != 0 {
			list = append(list, Goal{
				What: fmt.Sprintf("%s, 64 octets, against %s, %s", writeInline, kernelTCP, g.name), Want: g.most, Most: true, Have: have.Median[g.f] / of,
			})
		}
	}
	return list
}
