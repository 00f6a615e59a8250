package engine

// line is flows that wait for their turn, first come first served. Each is in
// it once at most, so that there is a place for all.
type line struct {
	places   []*flow
	first, n int
}

func newLine(flows int) line { return line{places: make([]*flow, flows)} }

// join puts f at the end, unless it waits already.
func (l *line) join(f *flow) {
	if f.waits {
		return
	}
	f.waits = true
	*l.at(l.n) = f
	l.n++
}

// next takes the first one out. There is one.
func (l *line) next() *flow {
	f := *l.at(0)
	*l.at(0) = nil
	l.first = (l.first + 1) % len(l.places)
	l.n--
	f.waits = false
	return f
}

// leave takes f out, wherever it stands.
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

// at is place i, counted from the first one.
func (l *line) at(i int) **flow { return &l.places[(l.first+i)%len(l.places)] }
