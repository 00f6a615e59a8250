package engine

import (
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/wire"
)

// AddTap lets r have every packet that this engine receives at its port or
// sends, from the next step on, until RemoveTap or the engine's end. Packets
// that another lane's engine passes on are that one's. It fails with
// tap.ErrTooMany.
func (e *Engine) AddTap(r *tap.Ring) error { return e.taps.Add(r) }

// RemoveTap ends what AddTap began. A step that is under way may still use r.
func (e *Engine) RemoveTap(r *tap.Ring) {
	e.taps.Remove(r)
	e.port.Wake() // so that the engine lets go of the ring's memory
}

// Stopped is closed when the engine sends and receives nothing any more.
func (e *Engine) Stopped() <-chan struct{} { return e.stopped }

// tapReceived shows a packet that has just arrived to those who listen.
func (e *Engine) tapReceived(fr port.Frame) {
	b := e.port.Bytes(fr)
	id := e.arrived(b, fr)
	for _, r := range e.tapped {
		r.Put(e.now, false, id, b)
	}
}

// tapSent shows a packet that is ready to be sent.
func (e *Engine) tapSent(id FlowID, fr port.Frame) {
	b := e.port.Bytes(fr)
	for _, r := range e.tapped {
		r.Put(e.now, true, id, b)
	}
}

// arrived is the flow that a packet belongs to, 0 if there is none. Of a packet
// that cannot be parsed, the steering record alone says so.
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
