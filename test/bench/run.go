package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// streams are the cases that o asks for.
func (o options) streams() (list []*series) {
	for _, mtu := range o.mtus {
		for _, way := range [][2]stack{{kernel, kernel}, {engine, engine}, {kernel, engine}, {engine, kernel}} {
			for _, threaded := range []bool{false, true} {
				s := &series{From: way[from], To: way[to], MTU: mtu, Threaded: threaded,
					setting: setting{stacks: way, mtu: mtu, threaded: threaded, spin: o.spin}}
				if strings.Contains(s.name(), o.only) {
					list = append(list, s)
				}
			}
		}
	}
	return list
}

func (s *series) name() string {
	napi := "inline"
	if s.Threaded {
		napi = "threads"
	}
	return fmt.Sprintf("%s > %s %s", s.From, s.To, napi)
}

// measure runs every case once per round, in turn, so that whatever else the
// machine does meets all of them alike.
func measure(ctx context.Context, o options) (*report, error) {
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
			return fmt.Errorf("%s, MTU %d: %w", s.name(), s.MTU, err)
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
