package measure

import (
	"context"
	"fmt"
	"os/exec"
)

// storageLoad is a size of commands and how many are in flight.
type storageLoad struct{ octets, depth int }

// The loads of the figures.
var (
	manySmall = storageLoad{4 << 10, 32}
	oneSmall  = storageLoad{4 << 10, 1}
	large     = storageLoad{256 << 10, 16}
)

func iscsiTable(o Options) *Table {
	t := &Table{
		Name:  "iscsi",
		Title: "iSCSI: initiator > target, random reads of a disk in memory",
		About: `Each end is a process: stag iscsi perf, iscsi-perf, qemu-img bench -w (writes in
order), uiscsi; stag iscsi target (RAM), tgtd and gotgt (a file in a tmpfs, or tgtd's
null disk). tgtd has PDUs of 256 KiB. kernel port: no XDP program, all offloads of veth
on. XDP: stag's steering program at both ends of the kernel's connection. offloaded:
stag takes the connection over at both ends. CPU: the whole machine, us for each command.`,
		Columns: []Column{{IOPS, "IOPS", 0, false}, {MBs, "MB/s", 0, false}, {CPUPerIO, "CPU us/IO", 1, false}, {Busy, "busy", 2, false}},
	}
	for _, g := range storageGroups {
		for _, l := range g.loads {
			c := g.storageCase
			c.octets, c.depth = l.octets, l.depth
			row := c.row(o)
			if !o.measures(t.Name) || !o.wants(row.Case) || c.installed() {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}

// storageGroups are the cases with their loads.
var storageGroups = []struct {
	storageCase
	loads []storageLoad
}{
	{storageCase{initiator: perfProgram, target: stagProgram, program: noXDP}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: perfProgram, target: tgtdProgram, program: noXDP}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: qemuProgram, target: stagProgram, program: noXDP, write: true}, []storageLoad{large}},
	{storageCase{initiator: qemuProgram, target: tgtdProgram, program: noXDP, write: true}, []storageLoad{large}},
	{storageCase{initiator: stagProgram, target: tgtdProgram, null: true, program: noXDP}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: perfProgram, target: tgtdProgram, null: true, program: noXDP}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: stagProgram, target: stagProgram, program: noXDP}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: stagProgram, target: stagProgram, program: noXDP, digest: true}, []storageLoad{manySmall, large}},
	{storageCase{initiator: stagProgram, target: stagProgram, offload: true}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: stagProgram, target: stagProgram, offload: true, threaded: true}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: stagProgram, target: stagProgram, offload: true, digest: true}, []storageLoad{manySmall, large}},
	{storageCase{initiator: stagProgram, target: stagProgram, offload: true, digest: true, threaded: true}, []storageLoad{manySmall, large}},
	{storageCase{initiator: perfProgram, target: tgtdProgram, program: steering}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: perfProgram, target: tgtdProgram, program: steering, threaded: true}, []storageLoad{manySmall, oneSmall, large}},
	{storageCase{initiator: uiscsiProgram, target: tgtdProgram, null: true, program: noXDP}, []storageLoad{manySmall, large}},
	{storageCase{initiator: perfProgram, target: gotgtProgram, program: noXDP}, []storageLoad{manySmall, large}},
}

// row returns the row of a case.
func (c storageCase) row(o Options) *Row {
	r := Case{Name: c.title(), MTU: 1500, NAPI: napiName(c.threaded), Message: c.octets, Depth: c.depth}
	return &Row{Case: r, run: func(ctx context.Context) (Values, error) { return c.measure(ctx, o) }}
}

// title names the case, without its load and NAPI.
func (c storageCase) title() string {
	s := c.initiator + " > " + c.target
	if c.null {
		s += " null"
	}
	if c.write {
		s += ", writes"
	}
	switch {
	case c.offload:
		s += ", offloaded"
	case c.program == steering:
		s += ", XDP"
	}
	if c.digest {
		s += ", data digests"
	}
	return s
}

// installed reports whether the programs of the case are there.
func (c storageCase) installed() bool {
	for _, name := range []string{c.initiator, c.target} {
		switch name {
		case stagProgram:
		case uiscsiProgram:
			if !uiscsi.available() {
				return false
			}
		case gotgtProgram:
			if !gotgt.available() {
				return false
			}
		default:
			if _, err := exec.LookPath(name); err != nil {
				return false
			}
		}
	}
	return true
}

// storageGoal compares the best setting of one pair of programs with that of another.
type storageGoal struct {
	what   string
	ours   []string // titles; the best counts
	theirs []string
	storageLoad
	figure Figure
	want   float64
	most   bool
}

// storageGoalList are the goals.
var storageGoalList = []storageGoal{
	{"target, kernel port, against tgtd", []string{"iscsi-perf > stag"}, []string{"iscsi-perf > tgtd"}, manySmall, IOPS, 2, false},
	{"target, kernel port, against tgtd", []string{"iscsi-perf > stag"}, []string{"iscsi-perf > tgtd"}, oneSmall, IOPS, 1.5, false},
	{"target, kernel port, against tgtd", []string{"iscsi-perf > stag"}, []string{"iscsi-perf > tgtd"}, large, IOPS, 1.5, false},
	{"target, writes by qemu-img, against tgtd", []string{"qemu-img > stag, writes"}, []string{"qemu-img > tgtd, writes"}, large, IOPS, 1, false},
	{"initiator, kernel port, against libiscsi, tgtd null", []string{"stag > tgtd null"}, []string{"iscsi-perf > tgtd null"}, manySmall, IOPS, 1, false},
	{"initiator, kernel port, against libiscsi, tgtd null", []string{"stag > tgtd null"}, []string{"iscsi-perf > tgtd null"}, large, IOPS, 1.1, false},
	{"CPU, initiator against libiscsi, tgtd null", []string{"stag > tgtd null"}, []string{"iscsi-perf > tgtd null"}, manySmall, CPUPerIO, 0.8, true},
	{"CPU, initiator against libiscsi, tgtd null", []string{"stag > tgtd null"}, []string{"iscsi-perf > tgtd null"}, large, CPUPerIO, 0.8, true},
	{"offloaded against libiscsi > tgtd with XDP", []string{"stag > stag, offloaded"}, []string{"iscsi-perf > tgtd, XDP"}, manySmall, IOPS, 3, false},
	{"offloaded against libiscsi > tgtd with XDP", []string{"stag > stag, offloaded"}, []string{"iscsi-perf > tgtd, XDP"}, large, IOPS, 2, false},
	{"better carrier against libiscsi > tgtd", []string{"stag > stag, offloaded", "stag > stag"}, []string{"iscsi-perf > tgtd"}, manySmall, IOPS, 2, false},
	{"better carrier against libiscsi > tgtd", []string{"stag > stag, offloaded", "stag > stag"}, []string{"iscsi-perf > tgtd"}, large, IOPS, 1.5, false},
	{"data digests against none, kernel port", []string{"stag > stag, data digests"}, []string{"stag > stag"}, manySmall, IOPS, 0.85, false},
	{"data digests against none, kernel port", []string{"stag > stag, data digests"}, []string{"stag > stag"}, large, IOPS, 0.85, false},
	{"data digests against none, offloaded", []string{"stag > stag, offloaded, data digests"}, []string{"stag > stag, offloaded"}, manySmall, IOPS, 0.85, false},
	{"data digests against none, offloaded", []string{"stag > stag, offloaded, data digests"}, []string{"stag > stag, offloaded"}, large, IOPS, 0.85, false},
	{"initiator against uiscsi, tgtd null", []string{"stag > tgtd null"}, []string{"uiscsi > tgtd null"}, manySmall, IOPS, 3, false},
	{"initiator against uiscsi, tgtd null", []string{"stag > tgtd null"}, []string{"uiscsi > tgtd null"}, large, IOPS, 3, false},
	{"target against gotgt", []string{"iscsi-perf > stag"}, []string{"iscsi-perf > gotgt"}, manySmall, IOPS, 3, false},
	{"target against gotgt", []string{"iscsi-perf > stag"}, []string{"iscsi-perf > gotgt"}, large, IOPS, 3, false},
}

// iscsiGoals compares the medians.
func iscsiGoals(r *Report) (list []Goal) {
	t := r.table("iscsi")
	if t == nil {
		return nil
	}
	for _, g := range storageGoalList {
		ours, theirs := g.value(t, g.ours), g.value(t, g.theirs)
		if ours == 0 || theirs == 0 {
			continue
		}
		list = append(list, Goal{
			What: fmt.Sprintf("%s, %d KiB depth %d", g.what, g.octets>>10, g.depth), Want: g.want, Most: g.most, Have: ours / theirs,
		})
	}
	return list
}

// value returns the figure of the fastest row with one of the titles, or 0.
func (g storageGoal) value(t *Table, titles []string) (v float64) {
	fastest := 0.0
	for _, title := range titles {
		for _, row := range t.Rows {
			if row.Name == title && row.Message == g.octets && row.Depth == g.depth && row.Median[IOPS] > fastest {
				fastest, v = row.Median[IOPS], row.Median[g.figure]
			}
		}
	}
	return v
}
