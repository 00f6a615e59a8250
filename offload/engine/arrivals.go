package engine

import "github.com/stag-rdma/stag/offload/port"

// arrivalWindow is over how many segments of a flow the places of arrival are counted.
const arrivalWindow = 1024

// astrayAfter is how many segments of a window must arrive at other ports before the
// engine says that the flow may be at the wrong port.
const astrayAfter = arrivalWindow * 7 / 8

// Arrivals says where the last segments of a flow have arrived, about 1024 of them.
type Arrivals struct {
	Segments int       // number of segments
	Foreign  int       // how many of them arrived at other ports than that of the flow's engine
	Lane     port.Lane // lane at which the last of these arrived
}

// arrivals counts where the segments of a flow arrive. A segment of the flow's own port
// costs one increment.
type arrivals struct {
	segments uint64 // number of segments since the flow came to this engine
	window   uint64 // number of the window of now
	now      uint16 // segments of this window that arrived at other ports
	before   uint16 // the same of the window before
	lane     port.Lane
}

// foreign counts a segment that segments counts already, and that arrived at a lane of
// another port. foreign reports whether almost all segments of a window were such.
func (a *arrivals) foreign(lane port.Lane) (astray bool) {
	a.turn()
	a.now++
	a.lane = lane
	return a.now == astrayAfter
}

// turn begins a new window if one has begun since the last call.
func (a *arrivals) turn() {
	switch at := a.segments / arrivalWindow; at - a.window {
	case 0:
		return
	case 1:
		a.before = a.now
	default:
		a.before = 0
	}
	a.window, a.now = a.segments/arrivalWindow, 0
}

// last returns the numbers for the last arrivalWindow segments. The share of the
// previous window stands for the segments of that window that still count.
func (a *arrivals) last() Arrivals {
	a.turn()
	n := Arrivals{Segments: int(min(a.segments, arrivalWindow)), Foreign: int(a.now), Lane: a.lane}
	n.Foreign += int(a.before) * (arrivalWindow - 1 - int(a.segments%arrivalWindow)) / arrivalWindow
	return n
}

// arrivedElsewhere counts a segment of f that arrived at another port.
func (e *Engine) arrivedElsewhere(f *flow, lane port.Lane) {
	e.count.ForeignRx++
	if f.arrivals.foreign(lane) {
		e.astray.Store(true)
	}
}

// TakeAstray reports whether almost all of the last segments of a flow arrived at
// another port since the last call. The route of the flow may have changed. Any
// goroutine may call TakeAstray. TakeAstray does not wake the engine.
func (e *Engine) TakeAstray() bool { return e.astray.Load() && e.astray.Swap(false) }
