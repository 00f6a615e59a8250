package measure

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/gaps"
	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// Figures of blackouts, in milliseconds. Of the pulls of a round they are the medians, unless
// the name says otherwise.
const (
	Blackout      Figure = "blackout_ms"       // longest time without an arrival after the cable was pulled
	WorstBlackout Figure = "worst_blackout_ms" // of the pulls of a round, the longest
	Notice        Figure = "notice_ms"         // from the pull until both kernels had reported it
	Reaction      Figure = "reaction_ms"       // from the later report to the arrival that ended the blackout
	PutBack       Figure = "put_back_ms"       // longest time without an arrival after the cable was put back
	Usual         Figure = "undisturbed_ms"    // longest time without an arrival before the pull
	RTO           Figure = "kernel_rto_ms"     // of a sender that is a kernel, before the pull
	OfRTO         Figure = "blackout_per_rto"  // Blackout of the pull, divided by that RTO
)

// pulls is how often a round pulls the cable, for each row.
const pulls = 5

func blackoutsTable(o Options) *Table {
	t := &Table{
		Name:  "blackouts",
		Title: "Blackouts: the cable in use is pulled, and put back, while octets go one way",
		About: `Two cables join the hosts, and the address of each host is on its loopback. The
routes lead over the first cable while it has a carrier. Both hosts lose it at once.
blackout: longest time without an arrival, the median and the worst of 5 pulls in a
round. notice: until both kernels had reported the loss. after: from there to the end of
the blackout, 0 if that was over or began later. usual: longest time without an arrival before.
RTO: of a kernel that sends. All connections: cubic, every octet checked.`,
		Columns: []Column{{Blackout, "blackout", 1, false}, {WorstBlackout, "worst", 1, false}, {Notice, "notice", 1, false}, {Reaction, "after", 1, false},
			{PutBack, "put back", 1, false}, {Usual, "usual", 1, false}, {RTO, "RTO", 0, false}, {OfRTO, "of RTO", 2, false}},
	}
	if !o.wantsFailover(t.Name) {
		return t
	}
	for _, s := range [][2]stack{{offload, kernel}, {offload, offload}, {kernel, offload}, {kernel, kernel}} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: endsName(s), MTU: twinMTU},
			run:  func(ctx context.Context) (Values, error) { return measureBlackouts(ctx, s) },
		})
	}
	return t
}

// measureBlackouts pulls the cable several times while side A sends to side B.
func measureBlackouts(ctx context.Context, stacks [2]stack) (v Values, err error) {
	t, err := newTwins(stacks, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	all, err := t.ends(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopAll(all)) }()
	b := &blackouts{twins: t, both: all[0], found: map[Figure][]float64{}}
	b.both[from].send(endless)
	if err := goOn(ctx, b.both, 16<<20); err != nil {
		return nil, err
	}
	b.both[to].arrived.Cut()
	for range pulls {
		if err := b.pull(ctx); err != nil {
			return nil, err
		}
	}
	return b.values(), nil
}

// blackouts pulls the cable of a connection, and keeps what it finds.
type blackouts struct {
	*twins
	both  [2]*end
	found map[Figure][]float64
}

func (b *blackouts) add(f Figure, ms float64) { b.found[f] = append(b.found[f], ms) }

func (b *blackouts) values() Values {
	v := Values{}
	for f, all := range b.found {
		v[f] = median(all)
	}
	v[WorstBlackout] = slices.Max(b.found[Blackout])
	return v
}

// afterEvent is how long octets go on after an event before its gap is read.
const afterEvent = 250 * time.Millisecond

// pull pulls the cable once and puts it back.
func (b *blackouts) pull(ctx context.Context) error {
	if err := b.disturb(ctx, nil); err != nil {
		return err
	}
	arrived := &b.both[to].arrived
	b.add(Usual, millis(arrived.Cut().Length))
	rto := 0.0
	if !b.offloaded(from) {
		info, err := b.both[from].info()
		if err != nil {
			return err
		}
		rto = float64(info.Rto) / 1e3
	}
	lost := [2]<-chan time.Time{b.watches[from].arm(), b.watches[to].arm()}
	begin := time.Now()
	if err := b.disturb(ctx, b.pair.Pull); err != nil {
		return err
	}
	gap := arrived.Cut()
	reported := begin
	for _, l := range lost {
		at, err := noticed(ctx, l)
		if err != nil {
			return err
		}
		if at.After(reported) {
			reported = at
		}
	}
	b.add(Blackout, millis(gap.Length))
	b.add(Notice, millis(reported.Sub(begin)))
	b.add(Reaction, reaction(gap, reported))
	if rto != 0 {
		b.add(RTO, rto)
		b.add(OfRTO, millis(gap.Length)/rto)
	}
	if err := b.at(ctx, 1); err != nil {
		return err
	}
	if err := b.disturb(ctx, b.pair.Plug); err != nil {
		return err
	}
	b.add(PutBack, millis(arrived.Cut().Length))
	return b.at(ctx, 0)
}

// reaction returns how long a blackout lasted after it was reported. A gap that began later
// is another one.
func reaction(g gaps.Gap, reported time.Time) float64 {
	if g.End.Add(-g.Length).After(reported) {
		return 0
	}
	return max(0, millis(g.End.Sub(reported)))
}

// disturb causes an event, and waits until octets arrive again, and for afterEvent at least.
func (b *blackouts) disturb(ctx context.Context, event func() error) error {
	if event != nil {
		if err := event(); err != nil {
			return err
		}
	}
	if err := sleep(ctx, afterEvent); err != nil {
		return err
	}
	return goOn(ctx, b.both, 1<<20)
}

// at waits until the ends that engines run are at a port.
func (b *blackouts) at(ctx context.Context, port int) error {
	for side, e := range b.both {
		if e.flow == nil {
			continue
		}
		want := b.nics(pair.Side(side))[port]
		if err := eventually(ctx, "the connection is at the other port", func() bool { return e.flow.NIC() == want }); err != nil {
			return err
		}
	}
	return nil
}

// blackoutGoals limits the blackouts after the loss of a carrier.
func blackoutGoals(r *Report) (list []Goal) {
	t := r.table("blackouts")
	if t == nil {
		return nil
	}
	for _, g := range []struct {
		what   string
		stacks [2]stack
		figure Figure
		want   float64
	}{
		{"ms of blackout from carrier loss, towards a kernel peer", [2]stack{offload, kernel}, Blackout, 50},
		{"ms of blackout from carrier loss, between two stags", [2]stack{offload, offload}, Blackout, 100},
		{"blackout from carrier loss, from a kernel peer, in its RTOs", [2]stack{kernel, offload}, OfRTO, 1.5},
	} {
		row := t.find(func(c Case) bool { return c.Name == endsName(g.stacks) })
		if row == nil {
			continue
		}
		list = append(list, Goal{What: g.what, Want: g.want, Most: true, Have: row.Median[g.figure]})
	}
	return list
}
