package engine

import "github.com/stag-rdma/stag/offload/stream"

// line is a queue of flows that wait for their turn to fill frames. The clients of a process
// take turns, and the flows of a client take turns among themselves (deficit round robin).
// A client with many flows therefore gets no more than a client with one.
//
// Within a client, the flows are in the order of arrival, and each flow is in the line at most
// once.
type line struct {
	first, last *group // clients with flows that wait
	n           int    // flows that wait
	own         group  // flows of no client, such as those of the process itself

	clients map[uint32]*group // groups of the clients that have flows at this engine
}

// group is the flows of one client.
type group struct {
	client uint32
	flows  int // number of flows with a connection; see groupOf

	first, last *flow // flows that wait
	behind      *group
	waits       bool // the group is in the line
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
	l.n++
	if !g.waits {
		l.append(g)
	}
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
	l.n--
	if g.first == nil {
		l.remove()
	}
	return f
}

// charge says that a flow of g has filled n frames, at most turn, in its turn. A turn costs at
// least one frame. When the frames of g are used up, it waits behind the others.
func (l *line) charge(g *group, n int) {
	if g.left -= max(n, 1); g.left <= 0 && l.first == g {
		l.append(l.remove())
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
	l.n--
	if g.first == nil {
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
	if g.flows--; g.flows == 0 {
		delete(e.line.clients, g.client)
	}
}
