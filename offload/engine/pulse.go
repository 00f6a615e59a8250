package engine

import "context"

// Pulse says how the connections of an engine fare.
type Pulse struct {
	Flows    int    // number of flows that have a connection
	InRTO    int    // flows whose retransmission timer has expired since their last acknowledgement
	Received uint64 // packets received by the port
}

// Pulse reads the pulse of the engine between two steps. It calls the function first, if
// set. first may read everything that belongs to the queue's goroutine.
func (e *Engine) Pulse(ctx context.Context, first func()) (Pulse, error) {
	var p Pulse
	err := e.between(ctx, func() {
		if first != nil {
			first()
		}
		p = Pulse{Flows: e.open, Received: e.count.RxPackets}
		for _, f := range e.flows {
			if f != nil && f.conn != nil && f.conn.InRTO() {
				p.InRTO++
			}
		}
	})
	if err != nil {
		return Pulse{}, err // p is not valid: the engine may still write to it
	}
	return p, nil
}
