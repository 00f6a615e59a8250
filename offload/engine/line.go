package engine

// line is a queue of flows in the order of arrival. Each flow is in the line at most
// once. The line therefore has room for all flows.
type line struct {
	places   []*flow
	first, n int
}

func newLine(flows int) line { return line{places: make([]*flow, flows)} }

// join appends f, unless it is already in the line.
func (l *line) join(f *flow) {
	if f.waits {
		return
	}
	f.waits = true
	*l.at(l.n) = f
	l.n++
}

// next removes and returns the first flow. The line must not be empty.
func (l *line) next() *flow {
	f := *l.at(0)
	*l.at(0) = nil
	l.first = (l.first + 1) % len(l.places)
	l.n--
	f.waits = false
	return f
}

// leave removes f from any position.
func (l *line) leave(f *flow) {
	if !f.waits {
		return
	}
	for range l.n {
		if g := l.next(); g != f {
			l.join(g)
		}
	}
}

// at returns the place at position i, counted from the first flow.
func (l *line) at(i int) **flow { return &l.places[(l.first+i)%len(l.places)] }
