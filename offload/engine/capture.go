package engine

import (
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/wire"
)

// AddTap makes r get every packet that this engine receives at its port or sends, from
// the next step until RemoveTap or the engine's end. If the engine of another lane
// passes a packet on, the taps of that engine get the packet. AddTap fails with
// tap.ErrTooMany.
func (e *Engine) AddTap(r *tap.Ring) error { return e.taps.Add(r) }

// RemoveTap ends the effect of AddTap. A step in progress may still use r.
func (e *Engine) RemoveTap(r *tap.Ring) {
	e.taps.Remove(r)
	e.port.Wake() // starts a step, which releases the ring's memory
}

// Stopped returns a channel that is closed when the engine no longer sends or receives.
func (e *Engine) Stopped() <-chan struct{} { return e.stopped }

// tapReceived passes a packet that has just arrived to the taps.
func (e *Engine) tapReceived(fr port.Frame) {
	b := e.port.Bytes(fr)
	id := e.arrived(b, fr)
	for _, r := range e.tapped {
		r.Put(e.now, false, id, b)
	}
}

// tapSent passes a packet that is ready to be sent to the taps.
func (e *Engine) tapSent(id FlowID, fr port.Frame) {
	b := e.port.Bytes(fr)
	for _, r := range e.tapped {
		r.Put(e.now, true, id, b)
	}
}

// arrived returns the flow of a packet, or 0 if there is none. If the packet cannot be
// parsed, only the steering record gives the flow.
func (e *Engine) arrived(b []byte, fr port.Frame) FlowID {
	var recorded FlowID
	var has bpf.FlowKey
	if rec, ok := bpf.ParseRecord(e.port.Record(fr)); ok {
		if has, _, ok = e.dir.Find(rec.Flow()); ok {
			recorded = rec.Flow()
		}
	}
	if wire.ParsePacket(b, &e.pkt) != wire.OK {
		return recorded
	}
	key := keyOf(&e.pkt)
	if recorded != 0 && has == key {
		return recorded
	}
	if f := e.tuples[key]; f != nil {
		return f.id
	}
	id, _, _ := e.dir.ByKey(&key)
	return id
}
