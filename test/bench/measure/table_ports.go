package measure

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Foreign is the share of the segments that arrived at another port than that of their
// connection, in percent: the lower one of the two sides.
const Foreign Figure = "foreign_percent"

// failoverTables are the tables that the name failover stands for.
var failoverTables = []string{"ports", "blackouts", "moves", "drains", "evacuations", "silence"}

// wantsFailover reports whether a table of failover is measured. Without --full it must be
// named, because these tables take long.
func (o Options) wantsFailover(name string) bool {
	return o.Full || slices.Contains(o.Tables, name)
}

func portsTable(o Options) *Table {
	t := &Table{
		Name:  "ports",
		Title: "Several ports: one connection, one direction, 64 KiB messages",
		About: `Two veth pairs join the hosts. one port: the adapters have the second pair only. two
ports: both, and the second is used. crossed: side A sends over the second, side B over
the first; every segment arrives at another port than that of its connection. The first
pair has a cable that can be pulled: two veth pairs, joined by tc. kernel TCP: writes
of 1 MiB, and a program that passes everything on all ends. Goals: medians of the
ratios of each round.
foreign: percent of the segments that arrived at another port than their connection's.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {PerCore, "per core", 2, true}, {Busy, "busy", 2, false}, {Resent, "resent", 1, false}, {Foreign, "foreign", 1, false}},
		Base:    onePortName,
	}
	if !o.wantsFailover(t.Name) {
		return t
	}
	for _, mtu := range o.MTUs {
		for _, c := range []struct {
			name string
			setting
		}{
			{onePortName, setting{stacks: [2]stack{offload, offload}, verb: write, cables: onePort}},
			{twoPortsName, setting{stacks: [2]stack{offload, offload}, verb: write, cables: bothPorts}},
			{crossedName, setting{stacks: [2]stack{offload, offload}, verb: write, cables: crossed}},
			{kernelTCP, setting{stacks: [2]stack{kernel, kernel}, load: load{message: longWrite, connections: 1}, cables: bothPorts}},
			{kernelTCP + ", crossed", setting{stacks: [2]stack{kernel, kernel}, load: load{message: longWrite, connections: 1}, cables: crossed}},
		} {
			for _, threaded := range napis(o.Full) {
				s := c.setting
				s.mtu, s.threaded, s.control = mtu, threaded, twinControl
				t.Rows = append(t.Rows, s.portsRow(c.name, o))
			}
		}
	}
	return t
}

const (
	onePortName  = "write, one port"
	twoPortsName = "write, two ports"
	crossedName  = "write, crossed"
)

// portsRow returns the row of a setting with two cables.
func (s setting) portsRow(name string, o Options) *Row {
	r := s.row(o)
	r.Case = Case{Name: name, MTU: s.mtu, NAPI: r.NAPI}
	r.run = func(ctx context.Context) (Values, error) {
		found, err := runTransfer(ctx, s, o.Warm, o.Time)
		v := found.values(s)
		if from, to := found.Sides[from], found.Sides[to]; to.RxPackets != 0 {
			v[Foreign] = 100 * min(per(from.Foreign, from.RxPackets), per(to.Foreign, to.RxPackets))
		}
		return v, err
	}
	return r
}

// portsGoals compares two open ports with one, and foreign arrivals with local ones. Each
// round has a ratio of its own, because the rows of a round are neighbours.
func portsGoals(r *Report) (list []Goal) {
	t := r.table("ports")
	if t == nil {
		return nil
	}
	for _, g := range []struct {
		name, base string
		figure     Figure
		what       string
		want       float64
	}{
		{twoPortsName, onePortName, Gbps, "Gb/s", 0.98},
		{twoPortsName, onePortName, PerCore, "per core", 0},
		{crossedName, twoPortsName, Gbps, "Gb/s", 0.75},
		{crossedName, twoPortsName, PerCore, "per core", 0},
		{kernelTCP + ", crossed", kernelTCP, Gbps, "Gb/s", 0},
	} {
		for _, row := range t.Rows {
			base := t.find(func(c Case) bool { return c.Name == g.base && c.MTU == row.MTU && c.NAPI == row.NAPI })
			if row.Name != g.name || base == nil {
				continue
			}
			what := fmt.Sprintf("%s against %s, %s, MTU %d, NAPI %s", g.name, strings.TrimPrefix(g.base, "write, "), g.what, row.MTU, row.NAPI)
			list = append(list, Goal{What: what, Want: g.want, Have: paired(row, base, g.figure), Hoped: g.want == 0})
		}
	}
	return list
}

// paired returns the median of the ratios of two rows, one for each round.
func paired(row, base *Row, f Figure) float64 {
	var ratios []float64
	for i, s := range row.Samples {
		if of := base.Samples[i][f]; of != 0 {
			ratios = append(ratios, s[f]/of)
		}
	}
	return median(ratios)
}

// Expand replaces the name failover by the names of its tables.
func Expand(names []string) (all []string) {
	for _, n := range names {
		if n == "failover" {
			all = append(all, failoverTables...)
			continue
		}
		all = append(all, n)
	}
	return all
}

// endsName names the stacks of the two sides.
func endsName(stacks [2]stack) string { return fmt.Sprintf("%s > %s", stacks[from], stacks[to]) }
