package measure

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// picture is a chart before it is drawn.
type picture struct {
	file   string // file name without ".svg"
	title  string
	under  []string // lines at the foot of the picture: the run and its conditions
	x, y   string   // names of the axes, with units
	kind   kind
	places []string // names along the axis that counts places; empty if that axis has numbers
	lines  []line
}

// kind is the kind of a chart.
type kind int

const (
	bars   kind = iota // vertical bars: a group for each place, with a bar for each line
	list               // horizontal bars: one for each place; there is only one line
	dots               // a row for each place, with a mark for each line; values on a logarithmic axis
	curves             // curves over numbers on a logarithmic axis
)

// line is a series of points with one colour and one name in the legend.
type line struct {
	name   string
	points []point
}

// point is a median with the lowest and highest value of its rounds. at is a number on
// the axis, or the index of a place.
type point struct{ at, mid, low, high float64 }

// Plot draws the tables of r as SVG files in dir and returns their names. It makes dir
// if dir does not exist.
func (r *Report) Plot(dir string) (files []string, err error) {
	all := pictures(r)
	if len(all) == 0 {
		return nil, errors.New("nothing to draw: no round was finished")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range all {
		name := filepath.Join(dir, p.file+".svg")
		if err := p.save(name); err != nil {
			return files, err
		}
		files = append(files, name)
	}
	return files, nil
}

// save draws p into a file.
func (p picture) save(name string) error {
	svg, err := p.draw()
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	return os.WriteFile(name, svg, 0o644)
}

// pictures returns the pictures of r. A table without an entry in drawnAs gets a list
// of its first column.
func pictures(r *Report) (all []picture) {
	caption := r.caption()
	for _, t := range r.Tables {
		make, ok := drawnAs[t.Name]
		if !ok {
			make = lists
		}
		for _, p := range make(t) {
			if p.under = caption; len(p.lines) != 0 {
				all = append(all, p)
			}
		}
	}
	return all
}

// caption identifies the run and its conditions, because two runs on one machine
// differ.
func (r *Report) caption() []string {
	c := r.Conditions
	return []string{
		fmt.Sprintf("Medians of %d rounds of %v and the range from the lowest to the highest%s, commit %s.", r.Rounds, r.Time, c.begun(), c.Commit),
		fmt.Sprintf("Linux %s, %s, %d cores for both ends and all other work; veth, native XDP, copy mode.", c.Kernel, c.CPU, c.Cores),
	}
}

var drawnAs = map[string]func(*Table) []picture{
	"choice":      choicePictures,
	"goodput":     goodputPictures,
	"sizes":       sizePictures,
	"connections": connectionPictures,
	"latency":     latencyPictures,
}

// goodputNames are the rows in the goodput pictures, in this order.
var goodputNames = []string{
	"raw AF_XDP", "raw + copy + CRC", kernelTCP, kernelTCP + ", no XDP", iperf3Name, ucxName,
	"write offloaded", "read offloaded", "send offloaded", "write kernel port", "kernel port, no XDP", "send port, no XDP",
}

// choicePictures show the goodput, its cost, the latency and the rate of each way.
func choicePictures(t *Table) (all []picture) {
	mtus := t.distinct(func(c Case) int { return c.MTU })
	for _, w := range []struct {
		file, title, y string
		f              Figure
	}{
		{"choice", "Goodput, one connection", "Gb/s of payload", Gbps},
		{"choice-cpu", "Processor time at that goodput, both ends", "s per GB of payload", CPUPerGB},
		{"choice-latency", "64 octets, one way, both ends poll", "us", P50},
		{"choice-rate", "Messages of 64 octets", "millions a second", Rate},
	} {
		p := picture{file: w.file, title: w.title, y: w.y, kind: bars}
		for _, mtu := range mtus {
			p.places = append(p.places, fmt.Sprintf("MTU %d", mtu))
		}
		for _, name := range t.names() {
			l := line{name: name}
			for i, mtu := range mtus {
				l.add(t.find(func(c Case) bool { return c.Name == name && c.MTU == mtu }), w.f, i)
			}
			p.add(l)
		}
		all = append(all, p)
	}
	return all
}

// goodputPictures show the highest goodput of each way to move octets, and its cost.
func goodputPictures(t *Table) []picture {
	speed := picture{file: "goodput", title: "Goodput, one connection, NAPI as suits each", y: "Gb/s of payload", kind: bars}
	cost := picture{file: "cpu", title: "Processor time at that goodput, both ends", y: "s per GB of payload", kind: bars}
	mtus := t.distinct(func(c Case) int { return c.MTU })
	for _, mtu := range mtus {
		speed.places = append(speed.places, fmt.Sprintf("MTU %d", mtu))
	}
	cost.places = speed.places
	for _, name := range goodputNames {
		fast, spent := line{name: name}, line{name: name}
		for i, mtu := range mtus {
			r := t.bestRow(Gbps, func(c Case) bool { return c.Name == name && c.MTU == mtu })
			fast.add(r, Gbps, i)
			spent.add(r, CPUPerGB, i)
		}
		speed.add(fast)
		cost.add(spent)
	}
	return []picture{speed, cost}
}

func sizePictures(t *Table) []picture {
	return t.over("Goodput over message size", "octets in a message", func(c Case) int { return c.Message })
}

func connectionPictures(t *Table) []picture {
	return t.over("Goodput over connections", "connections", func(c Case) int { return c.Connections })
}

// over draws the goodput of each name over the values of x, with one picture for each
// MTU.
func (t *Table) over(title, axis string, x func(Case) int) (all []picture) {
	first := t.Columns[0]
	for _, mtu := range t.distinct(func(c Case) int { return c.MTU }) {
		p := picture{file: t.Name, title: title, x: axis, y: first.Head, kind: curves}
		if mtu != 0 {
			p.file, p.title = fmt.Sprintf("%s-%d", t.Name, mtu), fmt.Sprintf("%s, MTU %d", title, mtu)
		}
		for _, name := range t.names() {
			l := line{name: name}
			for _, at := range t.distinct(x) {
				r := t.bestRow(first.Figure, func(c Case) bool { return c.Name == name && c.MTU == mtu && x(c) == at })
				l.add(r, first.Figure, at)
			}
			p.add(l)
		}
		all = append(all, p)
	}
	return all
}

// latencyPictures returns one picture for each message size. A picture has a row for
// each row of the table, with a mark for each percentile.
func latencyPictures(t *Table) (all []picture) {
	for _, size := range t.distinct(func(c Case) int { return c.Message }) {
		p := picture{
			file: fmt.Sprintf("%s-%d", t.Name, size), title: fmt.Sprintf("Latency, %d octets", size),
			x: "µs", kind: dots,
		}
		marks := make([]line, len(t.Columns))
		for i, c := range t.Columns {
			marks[i].name = c.Head
		}
		for _, r := range t.Rows {
			if r.Message != size || len(r.Median) == 0 {
				continue
			}
			for i, c := range t.Columns {
				marks[i].add(r, c.Figure, len(p.places))
			}
			p.places = append(p.places, t.label(r, func(c *Case) { c.Message = 0 }))
		}
		for _, l := range marks {
			p.add(l)
		}
		all = append(all, p)
	}
	return all
}

// lists returns a picture with a bar for each row.
func lists(t *Table) []picture {
	first := t.Columns[0]
	p := picture{file: t.Name, title: t.Title, x: first.Head, kind: list}
	var l line
	for _, r := range t.Rows {
		if l.add(r, first.Figure, len(p.places)) {
			p.places = append(p.places, t.label(r, func(*Case) {}))
		}
	}
	p.add(l)
	return []picture{p}
}

// label returns a row's name with the details that differ within the table. edit
// removes details that the picture shows elsewhere.
func (t *Table) label(r *Row, edit func(*Case)) string {
	c := r.Case
	napi, message, connections, depth := t.shape()
	if !napi {
		c.NAPI = ""
	}
	if !message {
		c.Message = 0
	}
	if !connections {
		c.Connections = 0
	}
	if !depth {
		c.Depth = 0
	}
	if len(t.distinct(func(c Case) int { return c.MTU })) == 1 {
		c.MTU = 0
	}
	edit(&c)
	return c.String()
}

// add appends the figure f of r. It returns false if r is nil or has no such figure.
func (l *line) add(r *Row, f Figure, at int) bool {
	if r == nil {
		return false
	}
	mid, ok := r.Median[f]
	if ok {
		l.points = append(l.points, point{float64(at), mid, min(mid, r.Low[f]), max(mid, r.High[f])})
	}
	return ok
}

// add appends a line unless the line is empty.
func (p *picture) add(l line) {
	if len(l.points) != 0 {
		p.lines = append(p.lines, l)
	}
}

// names returns the names of the rows in their order, each once.
func (t *Table) names() (names []string) {
	for _, r := range t.Rows {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}

// distinct returns the different values of x among the rows, in ascending order.
func (t *Table) distinct(x func(Case) int) (values []int) {
	for _, r := range t.Rows {
		values = append(values, x(r.Case))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// bestRow returns the row with the highest median of f among the rows for which wanted
// is true. It returns nil if there is none.
func (t *Table) bestRow(f Figure, wanted func(Case) bool) (best *Row) {
	for _, r := range t.Rows {
		if m, ok := r.Median[f]; ok && wanted(r.Case) && (best == nil || m > best.Median[f]) {
			best = r
		}
	}
	return best
}

// short formats a number with a binary prefix: 64, 4 Ki, 1 Mi.
func short(n int) string {
	for _, u := range []struct {
		size int
		unit string
	}{{1 << 20, " Mi"}, {1 << 10, " Ki"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.Itoa(n/u.size) + u.unit
		}
	}
	return strconv.Itoa(n)
}

// reach returns the smallest value of low and the largest value of high over all points
// of p.
func (p picture) reach(low, high func(point) float64) (least, most float64) {
	var all []point
	for _, l := range p.lines {
		all = append(all, l.points...)
	}
	by := func(f func(point) float64) func(a, b point) int {
		return func(a, b point) int { return cmp.Compare(f(a), f(b)) }
	}
	return low(slices.MinFunc(all, by(low))), high(slices.MaxFunc(all, by(high)))
}
