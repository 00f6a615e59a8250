package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// These are the figures of the latency table: percentiles of the time of a message, in
// microseconds.
const (
	P50  Figure = "p50_us"
	P99  Figure = "p99_us"
	P999 Figure = "p999_us"
	Max  Figure = "max_us"
)

// latencyCase is a kind of ping-pong, in which two programs send a message back and
// forth (see volley).
type latencyCase struct {
	name  string
	of    setting
	make  lineUp
	whole bool // report the time of a whole round trip, not half of it
	most  int  // longest message in octets; 0 means no limit
}

// latencyCases are the compared cases, for each size. The cases of one block wait in
// the same way, so that comparable rows are next to each other.
var latencyCases = []latencyCase{
	// Both ends sleep until a message arrives.
	{name: kernelTCP, of: kernels, make: tcpVolley(blocks)},
	{name: kernelTCP + ", no XDP", of: noXDPKernels, make: tcpVolley(blocks)},
	{name: sendWait, of: setting{stacks: [2]stack{offload, offload}, verb: send}, make: verbVolley(send, true)},
	{name: "send kernel port, wait", of: setting{stacks: [2]stack{kernel, kernel}, verb: send}, make: verbVolley(send, true)},
	{name: "kernel port, no XDP, wait", of: setting{stacks: [2]stack{kernel, kernel}, verb: send, program: noXDP}, make: verbVolley(send, true)},
	// Both ends poll.
	{name: kernelTCP + ", SO_BUSY_POLL", of: kernels, make: tcpVolley(busyPolls)},
	{name: kernelTCPPolling, of: kernels, make: tcpVolley(polls)},
	{name: noXDPPolling, of: noXDPKernels, make: tcpVolley(polls)},
	{name: string(rawBare), of: setting{raw: rawBare}, make: rawVolley, most: small},
	{name: writeInline, of: setting{stacks: [2]stack{offload, offload}, verb: write, progress: rdma.ProgressInline}, make: verbVolley(write, false)},
	{name: "send inline", of: setting{stacks: [2]stack{offload, offload}, verb: send, progress: rdma.ProgressInline}, make: verbVolley(send, false)},
	{name: "write kernel port", of: setting{stacks: [2]stack{kernel, kernel}, verb: write, progress: rdma.ProgressInline}, make: verbVolley(write, false)},
	{name: portPolling, of: setting{stacks: [2]stack{kernel, kernel}, verb: write, progress: rdma.ProgressInline, program: noXDP}, make: verbVolley(write, false)},
	// The programs poll memory. A goroutine of the adapter runs the engine.
	{name: "write engine", of: setting{stacks: [2]stack{offload, offload}, verb: write, progress: rdma.ProgressEngine}, make: verbVolley(write, false)},
	// One end polls. The program at the other end does nothing.
	{name: "read inline, whole round", of: setting{stacks: [2]stack{offload, offload}, verb: read, progress: rdma.ProgressInline}, make: verbVolley(read, false), whole: true},
}

// These are the settings of stages with the kernel's TCP.
var (
	kernels      = setting{stacks: [2]stack{kernel, kernel}}
	noXDPKernels = setting{stacks: [2]stack{kernel, kernel}, program: noXDP}
)

// These are the rows that goals refer to.
const (
	writeInline      = "write inline"
	sendWait         = "send wait"
	kernelTCPPolling = kernelTCP + ", polling"
	noXDPPolling     = kernelTCP + ", no XDP, polling"
	portPolling      = "kernel port, no XDP"
)

func latencyTable(o Options) *Table {
	t := &Table{
		Name:  "latency",
		Title: "Latency: half of the time in which a message goes to the other side and one comes back",
		About: `Microseconds. kernel TCP: TCP_NODELAY and blocking calls; polling: non-blocking calls,
again and again; SO_BUSY_POLL: blocking calls that poll the driver for 200 us first.
no XDP: no program on the pair; otherwise one that passes everything. wait: the program
sleeps in CQ.Wait. inline: both sides post and poll, and do all the work by that.
engine: a goroutine of the adapter does it. kernel port: the same verbs over the
kernel's TCP, without rights. Compare rows that wait with blocking calls, and rows
that poll with calls that poll. raw AF_XDP: frames with as many octets of payload, our
rings, both sides polling, no protocol: what inline rows take longer is the protocols'
and the verbs'. A Write has arrived when the last octet of the memory where the
peer writes has changed, as in perftest, with polls of the CQ in between; a Send when
its completion is there. A Read is answered by the other side's adapter, whose program does
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
		Case:    Case{Name: c.name, MTU: c.of.mtu, NAPI: napiName(c.of.threaded), Message: size},
		Checked: c.of.checked(),
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

// napiName returns the NAPI setting as a Case has it.
func napiName(threaded bool) string {
	if threaded {
		return "threads"
	}
	return "inline"
}

// latencyGoals compares the shortest messages with the kernel's TCP. It compares
// polling programs with a polling one, and sleeping programs with a sleeping one.
func latencyGoals(r *Report) (list []Goal) {
	t := r.table("latency")
	if t == nil {
		return nil
	}
	row := func(name string) *Row {
		return t.find(func(c Case) bool { return c.Name == name && c.Message == 64 && c.NAPI == napiName(false) })
	}
	for _, g := range []struct {
		have, base string
		f          Figure
		name       string
		most       float64
	}{
		{writeInline, kernelTCPPolling, P50, "p50", 0.5},
		{writeInline, kernelTCPPolling, P99, "p99", 1},
		{sendWait, kernelTCP, P50, "p50", 1},
		{sendWait, kernelTCP, P99, "p99", 1},
		{portPolling, noXDPPolling, P50, "p50", 1.2},
	} {
		have, base := row(g.have), row(g.base)
		if have == nil || base == nil || base.Median[g.f] == 0 {
			continue
		}
		list = append(list, Goal{
			What: fmt.Sprintf("%s, 64 octets, against %s, %s", g.have, g.base, g.name), Want: g.most, Most: true,
			Have: have.Median[g.f] / base.Median[g.f],
		})
	}
	return list
}
