package show

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

// counter is one counter of a device, of a queue, or of the whole adapter. A counter of
// the whole adapter has no Device and no Queue.
type counter struct {
	origin
	Device    string   `json:"device,omitempty"`
	Queue     *int     `json:"queue,omitempty"`
	Layer     string   `json:"layer"`
	Name      string   `json:"name"`
	Value     uint64   `json:"value"`
	PerSecond *float64 `json:"per_second,omitempty"` // rate since the previous answer, with Watch

	started time.Time // time at which the engine started
}

type counterList []counter

func stats(sources []engines.Source, w want) list {
	l := counterList{}
	for _, s := range sources {
		add := func(device string, queue *int, list []report.Counter) {
			if !w.of(device) || !w.match.named(device) {
				return
			}
			for _, c := range list {
				l = append(l, counter{originOf(s), device, queue, c.Layer, c.Name, c.Value, nil, s.Started})
			}
		}
		byNumber := slices.SortedFunc(slices.Values(s.Queues), func(x, y report.Queue) int { return cmp.Compare(x.Queue, y.Queue) })
		for _, d := range s.Devices {
			add(d.Name, nil, ofDevice(s.Counters, d.Name))
			for _, q := range byNumber {
				if q.Device == d.Name {
					add(d.Name, &q.Queue, q.Counters)
				}
			}
		}
		add("", nil, ofDevice(s.Counters, ""))
	}
	return l
}

func ofDevice(list []report.Counter, device string) (some []report.Counter) {
	for _, c := range list {
		if c.Device == device {
			some = append(some, c)
		}
	}
	return some
}

func (l counterList) len() int { return len(l) }

// text prints counters as `ethtool -S` does, with a section for each device and queue.
func (l counterList) text(p *page) {
	for len(l) > 0 {
		n := 1
		for n < len(l) && l[n].section() == l[0].section() {
			n++
		}
		p.section(l[0].section())
		l[:n].lines(p)
		l = l[n:]
	}
}

func (c counter) section() string {
	name := c.Device
	switch {
	case name == "":
		name = "Adapter"
	case c.Queue != nil:
		name = fmt.Sprintf("%s queue %d", name, *c.Queue)
	}
	return fmt.Sprintf("%s statistics (%s)", name, c.where())
}

// where returns the owner of the counters, for the heading of the section. For a pinned
// program, the heading also has the directory, because two programs may have the same
// device name.
func (c counter) where() string {
	if c.Instance == "" {
		return c.String()
	}
	return c.String() + ", pinned at " + c.Instance
}

func (l counterList) lines(p *page) {
	shown := false
	for _, c := range l {
		if c.Value == 0 && !p.all {
			continue
		}
		shown = true
		p.line(fmt.Sprintf("%s.%s: %d", c.Layer, c.Name, c.Value), c.rate())
	}
	if !shown {
		p.line("all are 0", "")
	}
}

func (c counter) rate() string {
	if c.PerSecond == nil {
		return ""
	}
	return fmt.Sprintf("%.1f/s", *c.PerSecond)
}

// series identifies a counter from one answer to the next.
type series struct {
	owner                         string
	started                       int64
	instance, device, layer, name string
	queue                         int
}

func (c counter) series() series {
	k := series{c.String(), c.started.UnixNano(), c.Instance, c.Device, c.Layer, c.Name, -1}
	if c.Queue != nil {
		k.queue = *c.Queue
	}
	return k
}

// rates computes rates from the values of the previous answer, if there is one.
func (l counterList) rates(last map[series]uint64, elapsed time.Duration) map[series]uint64 {
	now := make(map[series]uint64, len(l))
	for i := range l {
		k := l[i].series()
		now[k] = l[i].Value
		if before, ok := last[k]; ok && before <= l[i].Value && elapsed > 0 {
			rate := float64(l[i].Value-before) / elapsed.Seconds()
			l[i].PerSecond = &rate
		}
	}
	return now
}
