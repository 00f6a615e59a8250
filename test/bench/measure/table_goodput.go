package measure

import (
	"context"
	"fmt"
	"time"
)

// goodputCases are the compared settings, for each MTU and NAPI setting.
var goodputCases = []setting{
	{raw: rawBare},
	{raw: rawCopied},
	{raw: rawAsavie},
	{stacks: [2]stack{kernel, kernel}, load: load{message: longWrite, connections: 1}},
	{stacks: [2]stack{kernel, kernel}, load: load{message: longWrite, connections: 1}, program: steering},
	{stacks: [2]stack{kernel, kernel}, load: load{message: longWrite, connections: 1}, program: noXDP},
	{stacks: [2]stack{offload, offload}},
	{stacks: [2]stack{kernel, offload}},
	{stacks: [2]stack{offload, kernel}},
	{stacks: [2]stack{offload, offload}, verb: write},
	{stacks: [2]stack{offload, offload}, verb: write, noCRC: true},
	{stacks: [2]stack{offload, offload}, verb: read},
	{stacks: [2]stack{offload, offload}, verb: send},
	{stacks: [2]stack{kernel, kernel}, verb: write},
	{stacks: [2]stack{kernel, kernel}, verb: read},
	{stacks: [2]stack{kernel, kernel}, verb: send},
	{stacks: [2]stack{kernel, kernel}, verb: write, program: noXDP},
	{stacks: [2]stack{kernel, kernel}, verb: send, program: noXDP},
}

// name returns the table's name for a case. The name ends with the program between two
// kernels, unless that program is the default.
func (s setting) name() string {
	if s.program != passAll {
		return s.movers() + ", " + string(s.program)
	}
	return s.movers()
}

// movers names the stack or verb that moves the data.
func (s setting) movers() string {
	switch {
	case s.raw != notRaw:
		return string(s.raw)
	case s.verb == plainStream && s.stacks == [2]stack{kernel, kernel}:
		return kernelTCP
	case s.verb == plainStream:
		return fmt.Sprintf("octets %s > %s", s.stacks[from], s.stacks[to])
	case s.stacks[from] == kernel && s.program != passAll && s.verb == write:
		return "kernel port" // a longer name would make the table too wide
	case s.stacks[from] == kernel && s.program != passAll:
		return fmt.Sprintf("%s port", s.verb)
	case s.stacks[from] == kernel:
		return fmt.Sprintf("%s kernel port", s.verb)
	case s.noCRC:
		return fmt.Sprintf("%s no CRC", s.verb)
	}
	return fmt.Sprintf("%s offloaded", s.verb)
}

// longWrite is the size of a write in octets with which the kernel's TCP is fastest.
const longWrite = 1 << 20

// kernelTCP is the name of the base rows.
const kernelTCP = "kernel TCP"

// These are the figures of streams.
const (
	Gbps     Figure = "gbps"            // payload that the receiver counted, 10^9 bits per second
	PerCore  Figure = "gbit_per_core_s" // payload in 10^9 bits, divided by the seconds of processor time that both ends took together
	CPUPerGB Figure = "cpu_s_per_gb"    // seconds of processor time per 10^9 octets of payload
	Busy     Figure = "busy_cores"      // number of cores that were not idle, for any reason
	Resent   Figure = "resent_per_10k"  // retransmitted segments per 10,000
	Lost     Figure = "lost_per_10k"    // frames that the link or the receiving socket dropped, per 10,000
	PerStep  Figure = "packets_per_step"
	PerCall  Figure = "packets_per_call"
	Messages Figure = "messages_per_s"
)

func goodputTable(o Options) *Table {
	t := &Table{
		Name:  "goodput",
		Title: "Goodput: one connection, one direction, 64 KiB messages",
		About: `raw: frames as long as full segments, which nobody sends again; what arrives
counts, as if it were segments. raw + copy + CRC: each side copies the payload and
computes its CRC32C once. kernel TCP: default offloads, one buffer of 1 MiB written
and read again and again, and on both ends a program that passes everything, stag's
(steering), or none (no XDP): what a program gets that does not use stag. kernel port:
the same verbs over the kernel's TCP, without rights; no XDP: Writes, if no other verb
is named. checked: what somebody computed for each octet. Verbs move
memory to memory, 64 messages outstanding, posted 16 at a time; of Sends the last of
16 wakes who receives them. per core: for each second of processor time that both
ends and their NAPI took together.
resent, lost: segments sent again and frames dropped for each 10,000; /step and
/call: packets in a step of the receiver and in a system call of the sender.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {PerCore, "per core", 2, true}, {CPUPerGB, "CPU s/GB", 2, false}, {Busy, "busy", 2, false},
			{Resent, "resent", 1, false}, {Lost, "lost", 1, false}, {PerStep, "/step", 1, false}, {PerCall, "/call", 1, false}},
		Base: kernelTCP,
	}
	for _, mtu := range o.MTUs {
		for _, s := range goodputCases {
			for _, threaded := range []bool{false, true} {
				s.mtu, s.threaded = mtu, threaded
				r := s.row(o)
				r.Message, r.Connections = message, 1
				t.Rows = append(t.Rows, r)
			}
		}
	}
	return t
}

// row returns a row that measures s with the times of o.
func (s setting) row(o Options) *Row {
	c := Case{Name: s.name(), MTU: s.mtu, NAPI: "inline", Message: s.message, Connections: s.connections}
	if s.threaded {
		c.NAPI = "threads"
	}
	return &Row{Case: c, Checked: s.checked(), run: func(ctx context.Context) (Values, error) {
		found, err := runTransfer(ctx, s, o.Warm+s.settling(), o.Time+s.settling())
		return found.values(s), err
	}}
}

// settling is the time that many connections take until their rate is steady. The
// kernel adapts the buffers of its sockets for seconds: a thousand of its connections
// carry more in their first second than later. The measurement is longer by the same
// time, because the rate of many connections varies more.
func (s setting) settling() time.Duration {
	return min(time.Duration(s.connections)*2*time.Millisecond, 4*time.Second)
}

// values returns the figures of a sample. It leaves out figures that a case does not
// have: the frames of a kernel, and the segments of a raw stream.
func (s sample) values(c setting) Values {
	v := Values{Gbps: s.Gbps, PerCore: s.PerCore, CPUPerGB: 8 / s.PerCore, Busy: s.Busy}
	sender, receiver := s.Sides[from], s.Sides[to]
	if sender.TxPackets != 0 {
		v[PerCall] = per(sender.TxPackets, sender.Kicks)
		v[Lost] = 1e4 * per(sender.Lost+receiver.Lost, sender.TxPackets)
		if c.raw == notRaw {
			v[Resent] = 1e4 * per(sender.Retransmits, sender.TxPackets)
		}
	}
	if c.queues > 1 {
		v[Passed] = 1e4 * per(sender.Passed+receiver.Passed, sender.RxPackets+receiver.RxPackets)
	}
	if receiver.Steps != 0 {
		v[PerStep] = per(receiver.RxPackets, receiver.Steps)
	}
	return v
}

// per returns n divided by d, or n if d is 0.
func per(n, d uint64) float64 { return float64(n) / float64(max(d, 1)) }

// goodputGoals compares the verbs with raw frames plus copy and CRC, and with the
// kernel's TCP. Each row counts with its best NAPI setting. At MTU 1500 the comparison
// with the kernel's TCP is also made with the default NAPI setting.
func goodputGoals(r *Report) (list []Goal) {
	t := r.table("goodput")
	if t == nil {
		return nil
	}
	for _, w := range []struct {
		mtu  int
		want float64
	}{{1500, 1.5}, {3506, 1.2}, {9000, 0.8}} {
		for _, name := range []string{"write offloaded", "send offloaded"} {
			list = t.compare(list, name, string(rawCopied), w.mtu, "", 0.85)
			if bare := t.compare(nil, name, string(rawBare), w.mtu, "", 0.7); len(bare) != 0 {
				bare[0].Hoped = true
				list = append(list, bare...)
			}
			list = t.compare(list, name, kernelTCP, w.mtu, "", w.want)
			if w.mtu == 1500 {
				list = t.compare(list, name, kernelTCP, w.mtu, "inline", 1)
			}
		}
		list = t.compare(list, "read offloaded", "write offloaded", w.mtu, "", 0.95)
		list = t.compare(list, kernelTCP+", "+string(steering), kernelTCP, w.mtu, "", 0.97) // others' traffic
	}
	return list
}

// compare appends the goal that the goodput of name is at least want times that of
// base. If napi is "", each of the two counts with its best NAPI setting.
func (t *Table) compare(list []Goal, name, base string, mtu int, napi string, want float64) []Goal {
	is := func(name string) func(Case) bool {
		return func(c Case) bool { return c.Name == name && c.MTU == mtu && (napi == "" || c.NAPI == napi) }
	}
	have, ok := t.best(Gbps, is(name))
	of, ok2 := t.best(Gbps, is(base))
	if !ok || !ok2 || of == 0 {
		return list
	}
	setting := "best NAPI for each"
	if napi != "" {
		setting = "NAPI " + napi
	}
	return append(list, Goal{
		What: fmt.Sprintf("%s against %s, MTU %d, %s", name, base, mtu, setting),
		Want: want, Have: have / of,
	})
}
