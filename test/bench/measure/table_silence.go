package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/adapter"
)

// Figures of a cable that dies in silence.
const (
	Intervals Figure = "probe_intervals" // from the death to the event PortFailed, in probe intervals: the worst of a round
	FoundIn   Figure = "found_ms"        // the same in milliseconds
	LeftIn    Figure = "left_ms"         // from that event until the connection was at the other port
)

// probeInterval is the default of Group.Interval.
const probeInterval = 100 * time.Millisecond

// deaths is how often a round kills the cable.
const deaths = 3

func silenceTable(o Options) *Table {
	t := &Table{
		Name:  "silence",
		Title: "Silence: a cable drops every frame, and its carrier stays",
		About: fmt.Sprintf(`An XDP program drops what arrives at the middle of the cable. The ports are a group with
probes every %v. found: from the first drop to PortFailed, the worst of 3 in a round,
and the same in probe intervals. left: from there until the connection was at the
other port. blackout: longest time without an arrival at the peer, a kernel, whose
acknowledgements use the other cable. Without a group no host finds it.`, probeInterval),
		Columns: []Column{{Intervals, "intervals", 2, false}, {FoundIn, "found ms", 1, false}, {LeftIn, "left ms", 1, false}, {Blackout, "blackout", 1, false}},
	}
	if !o.wantsFailover(t.Name) {
		return t
	}
	t.Rows = append(t.Rows, &Row{Case: Case{Name: "engine, a group", MTU: twinMTU}, run: measureSilence})
	return t
}

// measureSilence kills the first cable several times, each time for hosts of their own,
// because a port that has failed must settle for seconds.
func measureSilence(ctx context.Context) (Values, error) {
	v := Values{}
	var gaps []float64
	for range deaths {
		found, err := dieInSilence(ctx)
		if err != nil {
			return nil, err
		}
		for f, x := range found {
			v[f] = max(v[f], x)
		}
		gaps = append(gaps, found[Blackout])
	}
	v[Blackout] = median(gaps)
	return v, nil
}

func dieInSilence(ctx context.Context) (v Values, err error) {
	t, err := newTwins([2]stack{offload, kernel}, func(t *twins, c *adapter.Config) {
		c.Groups = []adapter.Group{{Ports: c.Ports, Interval: probeInterval, Probe: []netip.Addr{t.pair.Services[to]}}}
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	all, err := t.ends(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopAll(all)) }()
	both := all[0]
	if err := t.pair.Prefer(to, 1); err != nil { // so that the peer is heard
		return nil, err
	}
	both[from].send(endless)
	if err := goOn(ctx, both, 16<<20); err != nil {
		return nil, err
	}
	if err := sleep(ctx, time.Second); err != nil { // the probes must have been answered before
		return nil, err
	}
	both[to].arrived.Cut()
	drops, err := silence(t.pair)
	if err != nil {
		return nil, err
	}
	defer drops.close()
	begin := time.Now()
	failed := func() bool { return len(t.heard[from].of(adapter.PortFailed)) != 0 }
	if err := eventually(ctx, "the port has failed", failed); err != nil {
		return nil, err
	}
	left := func() bool { return len(t.heard[from].of(adapter.PathMoved)) != 0 }
	if err := eventually(ctx, "the connection has left the port", left); err != nil {
		return nil, err
	}
	at := t.heard[from].of(adapter.PortFailed)[0].at
	moves, err := t.heard[from].moves()
	if err != nil {
		return nil, err
	}
	if err := goOn(ctx, both, 1<<20); err != nil {
		return nil, err
	}
	took := millis(at.Sub(begin))
	return Values{
		FoundIn: took, Intervals: took / millis(probeInterval), LeftIn: max(0, millis(moves[0].at.Sub(at))),
		Blackout: millis(both[to].arrived.Cut().Length),
	}, nil
}

// silence drops every frame of the first cable of twins.
func silence(p *pair.Pair) (*passer, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_drop", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	s := &passer{prog: prog}
	err = p.DoRouter(func() error {
		for _, port := range p.Ports {
			ifc, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: port.Index})
			if err != nil {
				return err
			}
			s.links = append(s.links, ifc)
		}
		return nil
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("drop the frames of the first cable: %w", err)
	}
	return s, nil
}

// silenceGoals limits the time until a silent death is found.
func silenceGoals(r *Report) (list []Goal) {
	t := r.table("silence")
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		list = append(list, Goal{What: "probe intervals until a silent death is found, the worst of a round", Want: 3, Most: true, Have: row.Median[Intervals]})
	}
	return list
}
