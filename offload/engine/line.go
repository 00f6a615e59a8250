package engine

import "github.com/stag-rdma/stag/offload/stream"

// line is a queue of flows that wait for their turn to fill frames. The clients of a process
// take turns, and the flows of a client take turns among themselves (deficit round robin).
// A client with many flows therefore gets no more than a client with one.
//
// A client that holds too many frames is parked: its flows wait outside of the line until the client
// may hold more. See full.
//
// Within a client, the flows are in the order of arrival, and each flow is in the line at most
// once.
type line struct {
	first, last *group // clients with flows that wait
	n           int    // flows that wait, without those of parked clients
	own         group  // flows of no client, such as those of the process itself

	clients map[uint32]*group // groups of the clients that have flows at this engine
	parked  []*group          // clients with flows that wait, outside of the line
	frames  *frames           // frames of the engine; nil: no client is ever full
}

// group is the flows of one client.
type group struct {
	client uint32
	flows  int // number of flows with a connection; see groupOf

	lent int // transmit frames that the flows hold
	most int // limit of lent; 0: there is none but that of full

	first, last *flow // flows that wait
	n           int   // number of flows that wait
	behind      *group
	waits       bool // the group is in the line
	parked      bool // the group is in line.parked
	left        int  // frames that the group may fill before it waits behind the others; at least 1-turn
}

// join appends f, unless it is already in the line.
func (l *line) join(f *flow) {
	if f.waits {
		return
	}
	g := l.of(f)
	f.waits, f.behind = true, nil
	if g.first == nil {
		g.first = f
	} else {
		g.last.behind = f
	}
	g.last = f
	g.n++
	switch {
	case g.waits:
		l.n++
	case g.parked:
	case l.full(g):
		l.park(g)
	default:
		l.append(g)
	}
}

// greed is how many frames a client may hold for each frame that is free. A lone client may
// therefore hold two thirds of the pool. If clients hold all that they may, each holds the same,
// and a part of the pool remains free for clients that come later, however many there are.
const greed = 2

// full reports whether a client may hold no more frames now. The flows of no client are never full.
func (l *line) full(g *group) bool {
	if g.client == 0 || l.frames == nil || g.lent == 0 {
		return false
	}
	return g.lent >= greed*(pool(l.frames.limits)-l.frames.lent) || g.most != 0 && g.lent >= g.most
}

// park lets a group wait outside of the line.
func (l *line) park(g *group) {
	g.parked, l.parked = true, append(l.parked, g)
}

// unpark appends the parked groups that may hold more frames.
func (l *line) unpark() {
	still := l.parked[:0]
	for _, g := range l.parked {
		switch {
		case g.first == nil:
			g.parked = false
		case l.full(g):
			still = append(still, g)
		default:
			g.parked = false
			l.append(g)
		}
	}
	clear(l.parked[len(still):])
	l.parked = still
}

// stuck returns how many frames parked clients hold. They do not come back soon if the peers do not
// read, and must not keep others from sending.
func (l *line) stuck() (n int) {
	for _, g := range l.parked {
		n += g.lent
	}
	return n
}

// of returns the group of f.
func (l *line) of(f *flow) *group {
	if f.group == nil {
		return &l.own
	}
	return f.group
}

func (l *line) append(g *group) {
	g.waits, g.behind = true, nil
	l.n += g.n
	if l.first == nil {
		l.first = g
	} else {
		l.last.behind = g
	}
	l.last = g
}

// remove removes the first group.
func (l *line) remove() (g *group) {
	g = l.first
	l.first, g.behind, g.waits = g.behind, nil, false
	l.n -= g.n
	return g
}

// next removes and returns the flow whose turn it is. The line must not be empty.
func (l *line) next() *flow {
	g := l.first
	if g.left <= 0 {
		g.left += turn
	}
	f := g.first
	g.first, f.behind, f.waits = f.behind, nil, false
	g.n--
	l.n--
	if g.first == nil {
		l.remove()
	}
	return f
}

// charge says that a flow of g has filled n frames, at most turn, in its turn. A turn costs at
// least one frame. When the frames of g are used up, it waits behind the others. If g may hold no
// more frames, it is parked.
func (l *line) charge(g *group, n int) {
	if g.left -= max(n, 1); g.left <= 0 && l.first == g {
		l.append(l.remove())
	}
	if g.waits && l.full(g) {
		l.drop(g)
		l.park(g)
	}
}

// leave removes f from any position.
func (l *line) leave(f *flow) {
	if !f.waits {
		return
	}
	g := l.of(f)
	before := (*flow)(nil)
	for at := g.first; at != f; at = at.behind {
		before = at
	}
	if before == nil {
		g.first = f.behind
	} else {
		before.behind = f.behind
	}
	if g.last == f {
		g.last = before
	}
	f.behind, f.waits = nil, false
	g.n--
	if g.waits {
		l.n--
	}
	if g.first == nil && g.waits {
		l.drop(g)
	}
}

// drop removes g from any position.
func (l *line) drop(g *group) {
	before := (*group)(nil)
	for at := l.first; at != g; at = at.behind {
		before = at
	}
	if before == nil {
		l.first = g.behind
	} else {
		before.behind = g.behind
	}
	if l.last == g {
		l.last = before
	}
	g.behind, g.waits = nil, false
	l.n -= g.n
}

// groupOf returns the group of a flow with this upper layer, or nil if it belongs to no
// client. The caller must give the flow back by leaves.
func (e *Engine) groupOf(ulp stream.ULP) *group {
	u, ok := ulp.(stream.Client)
	if !ok || u.Client() == 0 {
		return nil
	}
	client := u.Client()
	g := e.line.clients[client]
	if g == nil {
		g = &group{client: client}
		e.line.clients[client] = g
	}
	g.most = u.Frames()
	g.flows++
	return g
}

// leaves says that f, whose connection has ended here or has moved, is no flow of its client
// any more.
func (e *Engine) leaves(f *flow) {
	e.line.leave(f)
	g := f.group
	if f.group = nil; g == nil {
		return
	}
	g.lent -= f.held // Free counts them for no client any more
	if g.flows--; g.flows == 0 {
		delete(e.line.clients, g.client)
	}
}
