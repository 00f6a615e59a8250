package adapter

import (
	"fmt"
	"sync"
	"time"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
)

// moves counts the moves of connections between the ports of the adapter. Moves are rare.
// No engine takes the lock.
type moves struct {
	mu   sync.Mutex
	port map[string]*portMoves // by name
}

// portMoves are the moves from and to one port.
type portMoves struct {
	moveCounters
	causes [nic.NumCauses]uint64         // moves away
	frozen [len(frozenBounds) + 1]uint64 // moves away, by the time frozen
	last   lastMove
}

// moveCounters are the counters of a port that have no further division.
type moveCounters struct {
	In           uint64 // connections that came from other ports of the adapter
	Failed       uint64 // attempts to move a connection to another port that failed; the connection stayed
	Drains       uint64 // times that the port was drained
	Microseconds uint64 // sum of the times for which no engine ran a connection that moved to another port
}

// lastMove is the last move from or to a port.
type lastMove struct {
	at    time.Time // zero: there was none
	in    bool
	other string
	cause nic.Cause
}

// frozenBounds are the upper bounds of the classes of times frozen.
var frozenBounds = [...]time.Duration{
	64 * time.Microsecond, 128 * time.Microsecond, 256 * time.Microsecond, 512 * time.Microsecond, 1024 * time.Microsecond, 2048 * time.Microsecond,
	4096 * time.Microsecond, 8192 * time.Microsecond, 16384 * time.Microsecond, 65536 * time.Microsecond, 262144 * time.Microsecond, 1048576 * time.Microsecond,
}

// of returns the moves of a port. The caller holds mu.
func (m *moves) of(port string) *portMoves {
	if m.port == nil {
		m.port = map[string]*portMoves{}
	}
	if m.port[port] == nil {
		m.port[port] = &portMoves{}
	}
	return m.port[port]
}

// count counts a move from one port to another, or an attempt.
func (m *moves) count(from, to string, x nic.Movement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.of(from)
	if x.Err != nil {
		left.Failed++
		return
	}
	left.causes[x.Cause]++
	left.Microseconds += uint64(x.Frozen.Microseconds())
	class := 0
	for class < len(frozenBounds) && x.Frozen >= frozenBounds[class] {
		class++
	}
	left.frozen[class]++
	now := time.Now()
	left.last = lastMove{at: now, other: to, cause: x.Cause}
	came := m.of(to)
	came.In++
	came.last = lastMove{at: now, in: true, other: from, cause: x.Cause}
}

func (m *moves) drained(port string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(port).Drains++
}

// get returns the moves of a port.
func (m *moves) get(port string) portMoves {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.port[port]; p != nil {
		return *p
	}
	return portMoves{}
}

// any reports whether there was a move or a drain.
func (m *moves) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.port != nil
}

// out returns how many connections moved away.
func (p *portMoves) out() (n uint64) {
	for _, k := range p.causes {
		n += k
	}
	return n
}

// counters returns the counters of a port, always in the same order.
func (p *portMoves) counters(device string) (all []report.Counter) {
	all = report.Fields("move", p.moveCounters)
	for c, n := range p.causes {
		all = append(all, report.Counter{Layer: "move_cause", Name: nic.Cause(c).String(), Value: n})
	}
	for i, n := range p.frozen {
		name := "longer"
		if i < len(frozenBounds) {
			name = fmt.Sprintf("below_%dus", frozenBounds[i].Microseconds())
		}
		all = append(all, report.Counter{Layer: "move_frozen", Name: name, Value: n})
	}
	for i := range all {
		all[i].Device = device
	}
	return all
}

// describe sets the fields of a report.
func (p *portMoves) describe(r *report.Port) {
	r.MovesIn, r.MovesOut, r.MovesFailed = p.In, p.out(), p.Failed
	if p.last.at.IsZero() {
		return
	}
	age := uint64(max(0, time.Since(p.last.at)) / time.Second)
	r.Last, r.LastPort, r.LastCause, r.LastAge = "out", p.last.other, p.last.cause.String(), &age
	if p.last.in {
		r.Last = "in"
	}
}
