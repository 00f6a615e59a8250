package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
)

// Figures of evacuations, in milliseconds.
const (
	Evacuated Figure = "evacuated_ms" // from the report of the loss, or the beginning of the drain, to the last move
	AllHeard  Figure = "all_heard_ms" // from the same moment until an octet of each connection has arrived
)

// evacuees is the number of connections that leave a port.
const evacuees = 1000

func evacuationsTable(o Options) *Table {
	t := &Table{
		Name:  "evacuations",
		Title: fmt.Sprintf("Evacuations: %d connections leave a port, their peer is a kernel", evacuees),
		About: `cable pulled: the port has lost its carrier, and the routes lead over the other
cable. drained: by Adapter.Drain. The connections are idle before. Then each of them
sends an octet. evacuated: from the kernel's report of the loss, or the beginning of the
drain, to the last move. all heard: from the same moment until all octets have arrived.
notice: from the pull to the report. frozen, p99: as in the table of moves. cubic.`,
		Columns: []Column{{Evacuated, "evacuated", 1, false}, {AllHeard, "all heard", 1, false}, {Notice, "notice", 1, false}, {Frozen, "frozen ms", 3, false}, {Frozen99, "p99", 3, false}},
	}
	if !o.wantsFailover(t.Name) {
		return t
	}
	for _, c := range []struct {
		name  string
		stack stack
		pull  bool
	}{{pulledName, offload, true}, {"engine, drained", offload, false}, {"kernel, cable pulled", kernel, true}} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: c.name, MTU: twinMTU, Connections: evacuees},
			run:  func(ctx context.Context) (Values, error) { return measureEvacuation(ctx, c.stack, c.pull) },
		})
	}
	return t
}

const pulledName = "engine, cable pulled"

// measureEvacuation takes a port away from many connections.
func measureEvacuation(ctx context.Context, s stack, pull bool) (v Values, err error) {
	t, err := newTwins([2]stack{s, kernel}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	all, err := t.ends(ctx, evacuees)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopAll(all)) }()
	if err := sleep(ctx, 300*time.Millisecond); err != nil { // the take-overs of so many leave work behind
		return nil, err
	}
	t.heard[from].clear()
	v = Values{}
	begin := time.Now()
	if pull {
		begin, err = t.pulled(ctx, v)
	} else {
		err = t.leave(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, both := range all {
		both[from].send(1)
	}
	err = eventually(ctx, "an octet of each connection has arrived", func() bool {
		for _, both := range all {
			if both[to].arrived.Arrived() == 0 {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	v[AllHeard] = millis(time.Since(begin))
	if s == kernel {
		return v, nil
	}
	return v, t.evacuated(ctx, begin, v)
}

// pulled pulls the cable, and returns when the kernel of side A has reported it.
func (t *twins) pulled(ctx context.Context, v Values) (time.Time, error) {
	lost := t.watches[from].arm()
	begin := time.Now()
	if err := t.pair.Pull(); err != nil {
		return time.Time{}, err
	}
	at, err := noticed(ctx, lost)
	v[Notice] = millis(at.Sub(begin))
	return at, err
}

// evacuated waits until all connections have moved, and adds how long that has taken.
func (t *twins) evacuated(ctx context.Context, begin time.Time, v Values) error {
	var moves []entry
	err := eventually(ctx, "all connections have moved", func() bool {
		moves = t.heard[from].of(adapter.PathMoved)
		return len(moves) >= evacuees
	})
	if err != nil {
		return fmt.Errorf("%w: %d of %d", err, len(moves), evacuees)
	}
	v[Evacuated] = millis(moves[evacuees-1].at.Sub(begin))
	return t.addFrozen(v)
}

// evacuationGoals limits the time in which many connections leave a port.
func evacuationGoals(r *Report) (list []Goal) {
	t := r.table("evacuations")
	if t == nil {
		return nil
	}
	if row := t.find(func(c Case) bool { return c.Name == pulledName }); row != nil {
		list = append(list, Goal{What: fmt.Sprintf("ms until %d connections have left a port without a carrier", evacuees), Want: 250, Most: true, Have: row.Median[Evacuated]})
	}
	return list
}
