package measure

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// control is the congestion control of the kernel's TCP on every pair, unless a setting has
// another one. The machine's own default may be one that paces, such as bbr. A pace differs
// from run to run with the round trips that the machine's load makes, so it would hide what
// an octet costs.
const control = "cubic"

// These are the rows of the table that are no verbs.
const portBase = kernelTCP + ", no XDP"

// portCases are the compared settings of one connection.
var portCases = []setting{
	{verb: write}, {verb: send}, {verb: write, noCRC: true}, {verb: send, noCRC: true},
	{verb: write, long: true}, {verb: send, long: true}, {verb: write, noCRC: true, long: true}, {verb: send, noCRC: true, long: true},
}

// portName returns the name of the row of one of portCases.
func (s setting) portName() string {
	name := string(s.verb)
	if s.noCRC {
		name += " no CRC"
	}
	if s.long {
		name += ", long FPDUs"
	}
	return name
}

// portCrowds are the numbers of connections. The last one is measured only with --full: both
// ends together need 22,000 descriptors, which many systems allow only root of the whole
// machine, or nobody, to have.
var portCrowds = []int{1, 1000, 10000}

// kernelPortTable compares the kernel port with the kernel's TCP, both without an XDP program.
func kernelPortTable(o Options) *Table {
	t := &Table{
		Name:  "kernelport",
		Title: "The kernel port against the kernel's TCP, without XDP: one direction, 64 KiB messages",
		About: `kernel TCP: default offloads, writes of 1 MiB from one buffer, blocking calls in a thread;
of many connections writes of 64 KiB with the poller of Go. Others: verbs over the kernel
port, as in the table of goodput, with FPDUs that fit a segment or with those of up to 16
KiB that two ends of stag can agree on: 64 messages of 64 KiB outstanding; of many connections 64
of all together, two of each at least, and memory of 128 KiB for each or for ten. No row has an XDP program, so no row uses NAPI. Many
connections: 2 ms more for each, at most 4 s, before the measurement and for it.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {CPUPerGB, "CPU s/GB", 3, true}, {Busy, "busy", 2, false}},
		Base:    portBase,
	}
	for _, mtu := range o.MTUs {
		base := setting{stacks: [2]stack{kernel, kernel}, program: noXDP, mtu: mtu, load: load{message: longWrite, connections: 1}}
		t.Rows = append(t.Rows, base.portRow(o, portBase, 1))
		for _, s := range portCases {
			s.stacks, s.program, s.mtu = base.stacks, noXDP, mtu
			t.Rows = append(t.Rows, s.portRow(o, s.portName(), 1))
		}
		for _, n := range portCrowds {
			if n > 1000 && !o.Full {
				continue
			}
			s := setting{stacks: base.stacks, program: noXDP, mtu: mtu, load: crowded(n)}
			if n != 1 {
				t.Rows = append(t.Rows, s.portRow(o, portBase, n))
			}
			s.verb = write
			t.Rows = append(t.Rows, s.portRow(o, portCrowd, n))
		}
	}
	return t
}

// portCrowd is the name of the rows of many connections of the kernel port.
const portCrowd = "write, many"

// portRow returns a row of the table.
func (s setting) portRow(o Options, name string, connections int) *Row {
	r := s.row(o)
	r.Name, r.NAPI, r.Message, r.Connections = name, "", message, connections
	measured := r.run
	r.run = func(ctx context.Context) (Values, error) {
		if err := allowFiles(2*uint64(connections) + 2000); err != nil {
			return nil, err
		}
		return measured(ctx)
	}
	return r
}

// allowFiles raises the limit of open descriptors to n, unless it is higher. Each end of a
// connection has one, and a few connections have more, while they connect or are in use.
func allowFiles(n uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur >= n {
		return err
	}
	l.Cur, l.Max = n, max(n, l.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("allow %d descriptors: %w", n, err)
	}
	return nil
}

// kernelPortGoals compares the verbs over the kernel port with the kernel's TCP, and many
// connections with one.
func kernelPortGoals(r *Report) (list []Goal) {
	t := r.table("kernelport")
	if t == nil {
		return nil
	}
	median := func(name string, mtu, n int, f Figure) float64 {
		row := t.find(func(c Case) bool { return c.Name == name && c.MTU == mtu && c.Connections == n })
		if row == nil {
			return 0
		}
		return row.Median[f]
	}
	add := func(have, of float64, g Goal) {
		if g.Have = have / of; have != 0 && of != 0 {
			list = append(list, g)
		}
	}
	for _, mtu := range t.distinct(func(c Case) int { return c.MTU }) {
		for _, c := range portCases {
			name, least, cpu := c.portName(), 0.85, 1.3
			if c.noCRC {
				least, cpu = 0.9, 1.2
			}
			what := fmt.Sprintf("kernel port, %s, against %s, MTU %d", name, portBase, mtu)
			add(median(name, mtu, 1, Gbps), median(portBase, mtu, 1, Gbps), Goal{What: what + ": goodput", Want: least})
			add(median(name, mtu, 1, CPUPerGB), median(portBase, mtu, 1, CPUPerGB), Goal{What: what + ": CPU per GB", Want: cpu, Most: true})
		}
		for _, n := range portCrowds[1:] {
			add(median(portCrowd, mtu, n, Gbps), median(portCrowd, mtu, 1, Gbps),
				Goal{What: fmt.Sprintf("kernel port, %d connections against 1, MTU %d", n, mtu), Want: 0.9})
		}
	}
	return list
}
