package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type device struct {
	owner
	report.Device
}

type deviceList []device

func devices(sources []engines.Source, w want) list {
	l := deviceList{}
	for _, s := range sources {
		for _, d := range s.Devices {
			if w.of(d.Name) && w.match.named(d.Name) {
				l = append(l, device{ownerOf(s), d})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y device) int { return x.order(y.owner) })
	return l
}

func (l deviceList) len() int { return len(l) }

// text prints devices as `rdma link` does. With detail it prints them as ibv_devinfo does.
func (l deviceList) text(p *page) {
	for _, d := range l {
		if p.detail {
			d.block(p)
			continue
		}
		p.row("link "+d.Name, "state "+d.state(), word("mtu ", d.MTU), d.mode(), word("queues ", d.Queues), d.room(), d.String())
	}
	p.flush()
}

// state returns the state of the port in the words of `rdma link`.
func (d device) state() string { return strings.TrimPrefix(d.State, "PORT_") }

func (d device) mode() string {
	switch {
	case d.XDP == "":
		return ""
	case d.owner.Program == nil: // no engine runs, so there is no socket
		return "mode " + d.XDP
	case d.ZeroCopy:
		return "mode " + d.XDP + ",zero-copy"
	}
	return "mode " + d.XDP + ",copy"
}

// room returns the number of connections, the limit of the engine, and the size of the
// program's table.
func (d device) room() string {
	flows := fmt.Sprint("flows ", d.Flows)
	if d.MaxFlows != 0 {
		flows += fmt.Sprint("/", d.MaxFlows)
	}
	return words(flows, word("table ", d.FlowTable))
}

func (d device) block(p *page) {
	var addresses []string
	for _, a := range d.Addresses {
		addresses = append(addresses, a.String())
	}
	fmt.Fprintf(p, "hca_id:\t%s\n", engines.Clean(d.Name))
	for _, line := range []struct{ name, value string }{
		{"transport", "iWARP"},
		{"owner", d.String()},
		{"path", d.Path},
		{"state", d.State},
		{"ifindex", word("", d.Ifindex)},
		{"mac", d.MAC},
		{"vlan", word("", d.VLAN)},
		{"active_mtu", word("", d.MTU)},
		{"addresses", strings.Join(addresses, " ")},
		{"driver", d.Driver},
		{"speed_bits_per_second", word("", d.Speed)},
		{"xdp", strings.TrimPrefix(d.mode(), "mode ")},
		{"instance", d.Instance},
		{"program_id", word("", d.Device.Program)},
		{"queues", word("", d.Queues)},
		{"flows", fmt.Sprint(d.Flows)},
		{"max_flows", word("", d.MaxFlows)},
		{"flow_table", word("", d.FlowTable)},
		{"max_mr", word("", d.MaxMRs)},
		{"heap_size", word("", d.HeapSize)},
		{"heap_free", word("", d.HeapFree)},
		{"netns_cookie", word("", d.Netns)},
	} {
		if line.value != "" {
			fmt.Fprintf(p, "\t%-24s%s\n", line.name+":", engines.Clean(line.value))
		}
	}
}
