package show

import (
	"fmt"
	"slices"

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
		p.row(append(d.Columns(), d.String())...)
		p.below(d.Line())
	}
	p.flush()
}

func (d device) block(p *page) {
	fmt.Fprintf(p, "hca_id:\t%s\n", engines.Clean(d.Name))
	lines := append([][2]string{{"transport", "iWARP"}, {"owner", d.String()}}, d.Details()...)
	for _, line := range append(lines, [2]string{"netns_cookie", report.Word("", d.Netns)}) {
		if name, value := line[0], line[1]; value != "" {
			fmt.Fprintf(p, "\t%-24s%s\n", name+":", engines.Clean(value))
		}
	}
}
