package measure

import "context"

// sizes returns the message sizes in octets, in ascending order.
func sizes(full bool) (list []int) {
	if !full {
		return []int{64, 4 << 10, 64 << 10, 1 << 20}
	}
	for n := 64; n <= 1<<20; n *= 4 {
		list = append(list, n)
	}
	return list
}

// sized returns the load of messages of n octets. The load has 64 KiB to 4 MiB
// outstanding, in four batches.
func sized(n int) load {
	depth := max(4, min(1024, 4<<20/n))
	return load{message: n, depth: depth, batch: depth / 4, connections: 1}
}

// napis returns both NAPI settings, or only the one that is faster for streams.
func napis(full bool) []bool {
	if full {
		return []bool{false, true}
	}
	return []bool{true}
}

// verbCases returns the verbs over both kinds of stream, and a plain stream. Without an XDP
// program it has Writes and a plain stream.
func verbCases() (list []setting) {
	for _, k := range []stack{offload, kernel} {
		for _, v := range []verb{write, read, send} {
			list = append(list, setting{stacks: [2]stack{k, k}, verb: v})
		}
	}
	list = append(list, setting{stacks: [2]stack{kernel, kernel}, verb: write, program: noXDP})
	return append(list, setting{stacks: [2]stack{kernel, kernel}}, setting{stacks: [2]stack{kernel, kernel}, program: noXDP})
}

func sizesTable(o Options) *Table {
	t := &Table{
		Name:  "sizes",
		Title: "Message sizes: one connection, one direction",
		About: `64 KiB to 4 MiB of messages are outstanding, in four batches, each posted with one
call and with one completion. kernel TCP: writes of as many octets. no XDP: no program
on the pair; otherwise one that passes everything.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {Messages, "msgs/s", 0, false}, {PerCore, "per core", 2, false},
			{CPUPerGB, "CPU s/GB", 2, false}, {Busy, "busy", 2, false}, {Resent, "resent", 1, false}},
		Base: kernelTCP,
	}
	for _, mtu := range o.MTUs {
		for _, s := range verbCases() {
			for _, n := range sizes(o.Full) {
				for _, threaded := range napis(o.Full) {
					s.mtu, s.threaded, s.load = mtu, threaded, sized(n)
					t.Rows = append(t.Rows, s.messageRow(o))
				}
			}
		}
	}
	return t
}

// messageRow returns the same as row, and also counts messages.
func (s setting) messageRow(o Options) *Row {
	r := s.row(o)
	measure := r.run
	r.run = func(ctx context.Context) (Values, error) {
		v, err := measure(ctx)
		if err == nil {
			v[Messages] = v[Gbps] * 1e9 / 8 / float64(s.message)
		}
		return v, err
	}
	return r
}
