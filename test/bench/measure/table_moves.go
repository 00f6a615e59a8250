package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/nic"
)

// Figures of moves.
const (
	Frozen    Figure = "frozen_ms"     // how long no engine ran the connection: the median of a round
	Frozen99  Figure = "frozen_p99_ms" // the same, of 99 of 100 moves at most
	MoveGap   Figure = "gap_ms"        // longest time without an arrival at the peer around a move: the median of a round
	MoveGap99 Figure = "gap_p99_ms"    // the same, of 99 of 100 moves at most
	Moves     Figure = "moves"         // in a round
	Astray    Figure = "astray_octets" // octets that were lost or doubled
	Resends   Figure = "resent_segs"   // segments that the end that moves has sent again, in a round
)

const (
	firedMoves = 2000      // moves of a round, while octets go both ways
	idleMoves  = 500       // moves of a round of a connection that is idle
	perMove    = 128 << 10 // octets that arrive at each end between two moves
)

func movesTable(o Options) *Table {
	t := &Table{
		Name:  "moves",
		Title: "Moves: one connection moves from port to port and back, its peer is a kernel",
		About: fmt.Sprintf(`under fire: octets go both ways, %d KiB each way between two moves, and every octet is
checked. idle: nothing is sent. kernel: its route is changed instead. frozen: how long no
engine ran the connection, median and 99th percentile of a round. gap: longest time
without an arrival at the peer from one move to the next, the same. astray: octets
that were lost or came twice. resent: segments that side A has sent again. cubic.`, perMove>>10),
		Columns: []Column{{Frozen, "frozen ms", 3, false}, {Frozen99, "p99", 3, false}, {MoveGap, "gap ms", 2, false}, {MoveGap99, "p99", 2, false},
			{Moves, "moves", 0, false}, {Astray, "astray", 0, false}, {Resends, "resent", 0, false}},
	}
	if !o.wantsFailover(t.Name) {
		return t
	}
	for _, c := range []struct {
		name  string
		stack stack
		fire  bool
		n     int
	}{
		{firedName, offload, true, firedMoves},
		{idleName, offload, false, idleMoves},
		{"kernel, under fire", kernel, true, firedMoves},
	} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: c.name, MTU: twinMTU},
			run:  func(ctx context.Context) (Values, error) { return measureMoves(ctx, c.stack, c.fire, c.n) },
		})
	}
	return t
}

const (
	firedName = "engine, under fire"
	idleName  = "engine, idle"
)

// measureMoves moves a connection n times.
func measureMoves(ctx context.Context, s stack, fire bool, n int) (v Values, err error) {
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
	if fire {
		both[from].send(endless)
		both[to].send(endless)
		if err := goOn(ctx, both, 16<<20); err != nil {
			return nil, err
		}
	}
	before, err := both[from].retransmits(ctx)
	if err != nil {
		return nil, err
	}
	t.heard[from].clear()
	both[to].arrived.Cut()
	var moved []float64
	for i := range n {
		if err := t.move(ctx, both[from], (i+1)%2); err != nil {
			return nil, err
		}
		if err := goOn(ctx, both, perMove); err != nil {
			return nil, err
		}
		moved = append(moved, millis(both[to].arrived.Cut().Length))
	}
	again, err := both[from].retransmits(ctx)
	if err != nil {
		return nil, err
	}
	v = Values{Moves: float64(n), Resends: float64(again - before)}
	if fire {
		v[MoveGap], v[MoveGap99] = median(moved), quantile(moved, 99)
	}
	if err := t.addFrozen(v); err != nil {
		return nil, err
	}
	astray, err := finish(ctx, both, lastChance)
	v[Astray] = float64(astray)
	return v, err
}

// move moves the end of side A to a port, or the kernel's route to a cable.
func (t *twins) move(ctx context.Context, e *end, port int) error {
	if e.flow == nil {
		return t.pair.Prefer(from, port)
	}
	return e.flow.MoveTo(ctx, t.nics(from)[port], nic.Shift{Forced: true})
}

// addFrozen adds the times for which the moves of side A have stopped their connections.
func (t *twins) addFrozen(v Values) error {
	moves, err := t.heard[from].moves()
	if err != nil {
		return err
	}
	var frozen []float64
	for _, m := range moves {
		frozen = append(frozen, float64(m.Frozen)/float64(time.Millisecond))
	}
	if len(frozen) != 0 {
		v[Frozen], v[Frozen99] = median(frozen), quantile(frozen, 99)
	}
	return nil
}

// moveGoals limits the time for which a move stops a connection, and wants every octet.
func moveGoals(r *Report) (list []Goal) {
	t := r.table("moves")
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		if frozen, ok := row.Median[Frozen]; ok {
			list = append(list, Goal{What: "ms frozen per move, median, " + row.Name, Want: 1, Most: true, Have: frozen})
		}
	}
	if row := t.find(func(c Case) bool { return c.Name == firedName }); row != nil {
		n, astray := 0.0, 0.0
		for _, s := range row.Samples {
			n, astray = n+s[Moves], astray+s[Astray]
		}
		list = append(list, Goal{What: fmt.Sprintf("octets lost or doubled in %.0f moves under fire", n), Want: 0, Most: true, Have: astray})
	}
	return list
}
