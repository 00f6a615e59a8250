package bench

import "fmt"

// crowded is the load of n connections: messages as usual, and as many
// outstanding as one connection has, but two on each at least.
func crowded(n int) load {
	depth := max(2, depth/n)
	return load{message: message, depth: depth, batch: max(1, depth/4), connections: n}
}

// crowds are numbers of connections.
var crowds = []int{1, 16, 256, 1000}

func connectionsTable(o Options) *Table {
	t := &Table{
		Name:  "connections",
		Title: "Connections: all at once, one direction, 64 KiB messages",
		About: `Each connection has memory of its own, 128 KiB at each end. Messages outstanding: 64
of all connections together, two of each at least. kernel TCP: writes of 64 KiB.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {PerCore, "per core", 2, false},
			{CPUPerGB, "CPU s/GB", 2, false}, {Busy, "busy", 2, false}, {Resent, "resent", 1, false}},
		Base: kernelTCP,
	}
	for _, mtu := range o.MTUs {
		for _, s := range []setting{
			{stacks: [2]stack{engine, engine}, verb: write},
			{stacks: [2]stack{kernel, kernel}},
			{stacks: [2]stack{kernel, kernel}, verb: write},
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

// connectionGoals compare a thousand connections with one.
func connectionGoals(r *Report) (list []Goal) {
	t := r.table("connections")
	if t == nil {
		return nil
	}
	few, many := crowds[0], crowds[len(crowds)-1]
	for _, mtu := range []int{1500, 3506, 9000} {
		with := func(n int) (float64, bool) {
			return t.best(Gbps, func(c Case) bool {
				return c.Name == "write offloaded" && c.MTU == mtu && c.Connections == n
			})
		}
		have, ok := with(many)
		of, ok2 := with(few)
		if ok && ok2 && of != 0 {
			list = append(list, Goal{
				What: fmt.Sprintf("write offloaded, %d connections against %d, MTU %d", many, few, mtu),
				Want: 0.9, Have: have / of,
			})
		}
	}
	return list
}
