package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// streams are the cases that o asks for.
func (o options) streams() (list []*series) {
	for _, mtu := range o.mtus {
		for _, c := range cases {
			for _, threaded := range []bool{false, true} {
				c.mtu, c.threaded, c.spin = mtu, threaded, o.spin
				s := &series{Name: c.name(), MTU: mtu, Threaded: threaded, setting: c}
				if o.wants(s.Name + " " + s.napi()) {
					list = append(list, s)
				}
			}
		}
	}
	return list
}

// wants reports whether a case of this name is asked for.
func (o options) wants(name string) bool {
	return slices.ContainsFunc(strings.Split(o.only, ","), func(part string) bool { return strings.Contains(name, part) })
}

// cases are what there is to compare, at each MTU.
var cases = []setting{
	{stacks: [2]stack{kernel, kernel}},
	{stacks: [2]stack{engine, engine}},
	{stacks: [2]stack{kernel, engine}},
	{stacks: [2]stack{engine, kernel}},
	{stacks: [2]stack{engine, engine}, verb: write},
	{stacks: [2]stack{engine, engine}, verb: write, noCRC: true},
	{stacks: [2]stack{engine, engine}, verb: read},
	{stacks: [2]stack{engine, engine}, verb: send},
	{stacks: [2]stack{kernel, kernel}, verb: write},
	{stacks: [2]stack{kernel, kernel}, verb: read},
	{stacks: [2]stack{kernel, kernel}, verb: send},
}

// name is what the table calls a case.
func (s setting) name() string {
	switch {
	case s.verb == plainStream:
		return fmt.Sprintf("%s > %s", s.stacks[from], s.stacks[to])
	case s.stacks[from] == kernel:
		return fmt.Sprintf("%s kernel port", s.verb)
	case s.noCRC:
		return fmt.Sprintf("%s no CRC", s.verb)
	}
	return fmt.Sprintf("%s engine", s.verb)
}

// measureAll runs every case once per round, in turn, so that whatever else the
// machine does meets all of them alike.
func measureAll(ctx context.Context, o options) (*report, error) {
	r := &report{Rounds: o.rounds, Measured: o.measured, Spin: o.spin, Streams: o.streams()}
	var err error
	if r.Conditions, err = readConditions(); err != nil {
		return nil, err
	}
	if o.takeOvers > 0 {
		r.TakeOvers = []*takeOverRow{{AtOnce: 1}, {AtOnce: 64}}
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		if err := r.round(ctx, o, round%2 == 1); err != nil {
			return nil, err
		}
	}
	if r.Conditions.Load[1], err = loadAverage(); err != nil {
		return nil, err
	}
	r.conclude()
	return r, nil
}

// round measures every case once; every other round the other way round.
func (r *report) round(ctx context.Context, o options, reversed bool) error {
	for i := range r.Streams {
		if reversed {
			i = len(r.Streams) - 1 - i
		}
		s := r.Streams[i]
		found, path, err := runTransfer(ctx, s.setting, o.warm, o.measured)
		if err != nil {
			return fmt.Errorf("%s %s, MTU %d: %w", s.Name, s.napi(), s.MTU, err)
		}
		s.Samples = append(s.Samples, found)
		if path != "" {
			r.Path = path
		}
	}
	for _, t := range r.TakeOvers {
		found, err := takeOver(ctx, o.takeOvers, t.AtOnce)
		if err != nil {
			return fmt.Errorf("take-overs, %d at once: %w", t.AtOnce, err)
		}
		t.add(found)
	}
	return nil
}
