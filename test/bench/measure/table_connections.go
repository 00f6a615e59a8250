package measure

import "fmt"

// crowded returns the load of n connections. All connections together have as many
// outstanding messages as one connection usually has, but each has at least two.
func crowded(n int) load {
	depth := max(2, depth/n)
	return load{message: message, depth: depth, batch: max(1, depth/4), connections: n}
}

// crowds are the numbers of connections.
var crowds = []int{1, 16, 256, 1000}

func connectionsTable(o Options) *Table {
	t := &Table{
		Name:  "connections",
		Title: "Connections: all at once, one direction, 64 KiB messages",
		About: `Each connection has memory of its own, 128 KiB at each end. Messages outstanding: 64
of all connections together, two of each at least. kernel TCP: writes of 64 KiB. On
both ends of the kernel's connections is a program that passes everything, or none (no XDP).
Each row has 2 ms more for each connection, before the measurement and for it.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {PerCore, "per core", 2, false},
			{CPUPerGB, "CPU s/GB", 2, false}, {Busy, "busy", 2, false}, {Resent, "resent", 1, false}},
		Base: kernelTCP,
	}
	for _, mtu := range o.MTUs {
		for _, s := range []setting{
			{stacks: [2]stack{offload, offload}, verb: write},
			{stacks: [2]stack{kernel, kernel}},
			{stacks: [2]stack{kernel, kernel}, program: noXDP},
			{stacks: [2]stack{kernel, kernel}, verb: write},
			{stacks: [2]stack{kernel, kernel}, verb: write, program: noXDP},
		} {
			for _, n := range crowds {
				for _, threaded := range napis(o.Full) {
					s.mtu, s.threaded, s.load = mtu, threaded, crowded(n)
					t.Rows = append(t.Rows, s.row(o))
				}
			}
		}
	}
	return t
}

// connectionGoals compares a thousand offloaded connections with one, and with a
// thousand connections of the kernel port, which needs no rights.
func connectionGoals(r *Report) (list []Goal) {
	t := r.table("connections")
	if t == nil {
		return nil
	}
	few, many := crowds[0], crowds[len(crowds)-1]
	const offloaded = "write offloaded"
	for _, mtu := range []int{1500, 3506, 9000} {
		with := func(name string, n int) float64 {
			best, _ := t.best(Gbps, func(c Case) bool { return c.Name == name && c.MTU == mtu && c.Connections == n })
			return best
		}
		have := with(offloaded, many)
		for _, g := range []struct {
			name string
			n    int
			want float64
		}{{offloaded, few, 0.9}, {"write kernel port", many, 1}, {"kernel port, no XDP", many, 1}} {
			if of := with(g.name, g.n); have != 0 && of != 0 {
				list = append(list, Goal{
					What: fmt.Sprintf("%s, %d connections against %d of %s, MTU %d", offloaded, many, g.n, g.name, mtu),
					Want: g.want, Have: have / of,
				})
			}
		}
	}
	return list
}
