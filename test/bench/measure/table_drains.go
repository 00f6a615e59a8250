package measure

import (
	"context"
	"errors"
	"time"
)

// Figures of drains, in percent of the drains of a round.
const (
	Clean      Figure = "clean_percent"       // neither end has sent a segment again, and the peer has received none twice
	CleanPeer  Figure = "clean_peer_percent"  // the peer has received no segment twice, and side A has sent none again
	CleanUsual Figure = "clean_usual_percent" // as Clean, of as many times without a drain
)

// drainsPerRound is how often a round drains the port.
const drainsPerRound = 20

func drainsTable(o Options) *Table {
	t := &Table{
		Name:  "drains",
		Title: "Drains: a port is drained while octets go both ways, its peer is a kernel",
		About: `20 drains in a round. peer: percent of them after which side A had sent no segment
again, and the peer had received none twice. both: and the peer had sent none again
either. usual: as both, of as many times without a drain just before. frozen, p99: as in
the table of moves. kernel: its route is changed instead. cubic.`,
		Columns: []Column{{CleanPeer, "peer %", 0, false}, {Clean, "both %", 0, false}, {CleanUsual, "usual %", 0, false}, {Frozen, "frozen ms", 3, false}, {Frozen99, "p99", 3, false}},
	}
	if !o.wantsFailover(t.Name) {
		return t
	}
	for _, s := range []stack{offload, kernel} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: string(s), MTU: twinMTU},
			run:  func(ctx context.Context) (Values, error) { return measureDrains(ctx, s) },
		})
	}
	return t
}

// resent counts what was sent again.
type resent struct{ ours, peers, copies uint64 }

// resentSoFar reads the counts of both ends.
func (t *twins) resentSoFar(ctx context.Context, both [2]*end) (r resent, err error) {
	var errs [3]error
	r.ours, errs[0] = both[from].retransmits(ctx)
	r.peers, errs[1] = both[to].retransmits(ctx)
	r.copies, errs[2] = copies(t.pair, to)
	return r, errors.Join(errs[:]...)
}

// measureDrains drains the first port several times.
func measureDrains(ctx context.Context, s stack) (v Values, err error) {
	t, err := newTwins([2]stack{s, kernel}, nil)
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
	both[from].send(endless)
	both[to].send(endless)
	if err := goOn(ctx, both, 16<<20); err != nil {
		return nil, err
	}
	v = Values{}
	for range drainsPerRound {
		usual, err := t.during(ctx, both, func() error { return nil })
		if err != nil {
			return nil, err
		}
		found, err := t.during(ctx, both, func() error { return t.leave(ctx) })
		if err != nil {
			return nil, err
		}
		if err := t.comeBack(ctx, both[from]); err != nil {
			return nil, err
		}
		for _, c := range []struct {
			figure Figure
			clean  bool
		}{{CleanUsual, usual == resent{}}, {Clean, found == resent{}}, {CleanPeer, found.ours == 0 && found.copies == 0}} {
			if v[c.figure] += 0; c.clean {
				v[c.figure] += 100.0 / drainsPerRound
			}
		}
	}
	return v, t.addFrozen(v)
}

// leave drains the first port of side A, or makes the kernel's route lead over the second
// cable.
func (t *twins) leave(ctx context.Context) error {
	if !t.offloaded(from) {
		return t.pair.Prefer(from, 1)
	}
	return t.adapters[from].Drain(ctx, t.pair.Ends[from].Name)
}

// comeBack undoes leave, and waits until the end is at the first port again.
func (t *twins) comeBack(ctx context.Context, e *end) error {
	if !t.offloaded(from) {
		return t.pair.Prefer(from, 0)
	}
	if err := t.adapters[from].Undrain(t.pair.Ends[from].Name); err != nil {
		return err
	}
	return eventually(ctx, "the connection is at the first port", func() bool { return e.flow.NIC() == t.nics(from)[0] })
}

// during returns what is sent again from before do until some round trips after it.
func (t *twins) during(ctx context.Context, both [2]*end, do func() error) (d resent, err error) {
	before, err := t.resentSoFar(ctx, both)
	if err != nil {
		return d, err
	}
	if err := do(); err != nil {
		return d, err
	}
	if err := sleep(ctx, 30*time.Millisecond); err != nil {
		return d, err
	}
	if err := goOn(ctx, both, 256<<10); err != nil {
		return d, err
	}
	after, err := t.resentSoFar(ctx, both)
	return resent{after.ours - before.ours, after.peers - before.peers, after.copies - before.copies}, err
}

// drainGoals wants drains that the peer does not notice.
func drainGoals(r *Report) (list []Goal) {
	t := r.table("drains")
	if t == nil {
		return nil
	}
	if row := t.find(func(c Case) bool { return c.Name == string(offload) }); row != nil {
		list = append(list, Goal{What: "percent of drains after which the peer sees no retransmission", Want: 95, Have: mean(row.Samples, CleanPeer)})
	}
	return list
}

// mean returns the mean of a figure over the rounds.
func mean(samples []Values, f Figure) (sum float64) {
	for _, s := range samples {
		sum += s[f] / float64(len(samples))
	}
	return sum
}
