package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Memory of another process that is not mapped is reached by system calls (package reach).
// A step does few of them. What arrives is collected, and lands before a completion is
// pushed, before an operation or this end's own memory depends on it, and at the end of
// Receive. What leaves is read ahead, within the message. A Read Response reads ahead only
// within the step, because the peer asks for the octets as they are now.

// purpose says for what payload is placed.
type purpose uint8

const (
	forWrite   purpose = iota // a Write of the peer
	forReceive                // a Send, in the oldest receive
	forAnswer                 // the answer to the oldest Read or atomic operation of this end
	forLater                  // the answer to any Read: the payload was placed early
)

// origin says where payload comes from, in case it cannot be written.
type origin struct {
	purpose purpose
	stag    tpt.STag // the region
	length  uint16   // the segment's length as a Terminate gives it
	header  [wire.UntaggedLen]byte
	n       uint8 // octets of header that are used
}

var foreign reach.Pool[origin]

// far is what a QP needs for memory of another process. QPs without such memory have none.
type far struct {
	late  *reach.Batch[origin] // payload that has not landed; nil: there is none
	lost  Code                 // payload could not land, and the connection ends with this code
	from  origin               // the first such payload
	stage *reach.Stage         // copy of the next octets of the message that is sent, or nil
}

// reaches returns q.in.far. reaches makes it when it is first used.
func (q *QP) reaches() *far {
	if q.in.far == nil {
		q.in.far = new(far)
	}
	return q.in.far
}

// later collects payload for mem, which is memory of another process. mem is at least as
// long as payload. A failure shows in far.lost.
func (q *QP) later(mem, payload []byte, why purpose, stag tpt.STag) {
	from := origin{purpose: why, stag: stag, length: uint16(q.seg.Len())}
	from.n = uint8(copy(from.header[:], q.seg.Header))
	f := q.reaches()
	for len(payload) != 0 {
		if f.late == nil {
			f.late = foreign.Batch()
		}
		n := f.late.Add(mem, payload, from)
		if mem, payload = mem[n:], payload[n:]; len(payload) != 0 && !q.land() {
			return
		}
	}
}

// land writes what was collected. It returns false if a part of it, now or before, could not
// be written: the connection must end with far.lost, and nothing may be told as a success.
func (q *QP) land() bool { return q.in.far == nil || q.landFar() }

func (q *QP) landFar() bool {
	f := q.in.far
	b := f.late
	if b == nil {
		return f.lost == Code{}
	}
	f.late = nil
	from, ok := b.Flush()
	foreign.Return(b)
	if !ok {
		f.from = from
		f.lost = q.missed(&from)
	}
	return ok
}

// strayed reports whether payload could not land.
func (q *QP) strayed() bool { return q.in.far != nil && q.in.far.lost != Code{} }

// missed handles payload that could not be written, because the client has taken the memory
// away or has ended. It returns the code of the Terminate.
func (q *QP) missed(from *origin) Code {
	q.vanished(from.stag)
	switch from.purpose {
	case forReceive:
		return q.failReceive(work.LocalProtErr, ddpCode(ddp.LocalFault))
	case forAnswer:
		q.sq.At(q.orq.front().pos).Status = work.LocalProtErr
		return ddpCode(ddp.LocalFault)
	case forLater:
		return ddpCode(ddp.LocalFault)
	}
	return writeCode(tpt.BadSTag)
}

// terminateLost is terminate for the segment whose payload could not be written.
func (q *QP) terminateLost() {
	code, from, t := q.in.far.lost, &q.in.far.from, q.ending()
	t.fields = wire.TerminateFields{Layer: code.Layer, Type: code.Type, Code: code.Code}
	c := Cause{Code: code}
	header := t.header[:copy(t.header[:], from.header[:from.n])]
	c.blame(header, nil)
	if code.Type != typeLocal { // RFC 5040 §4.8
		t.fields.HasSegment, t.fields.SegmentLen, t.fields.Header = true, from.length, header
	}
	q.ends(c)
}

// fetch replaces the pieces of the next segment that are memory of another process by copies.
// at is the offset of the segment in its message. If a piece cannot be read, ok is false and
// piece is its index.
func (q *QP) fetch(at uint32) (piece int, ok bool) {
	o, f := &q.out, q.reaches()
	if f.stage == nil {
		f.stage = foreign.Stage()
	}
	f.stage.Forget()
	for i, mem := range o.mem.list {
		if !reach.Foreign(mem) {
			continue
		}
		octets := f.stage.Fetch(mem, uint64(q.inARow(at)), o.what == aRequest)
		if octets == nil {
			return i, false
		}
		if at += uint32(len(mem)); len(o.mem.list) > 1 {
			octets = f.stage.Keep(octets)
		}
		o.mem.list[i] = octets
	}
	return 0, true
}

// inARow returns how many octets of the current message are consecutive in memory, from
// offset at on.
func (q *QP) inARow(at uint32) uint32 {
	if q.out.what == aRequest {
		for _, e := range q.out.wr.SGL {
			if at < e.Length {
				return e.Length - at
			}
			at -= e.Length
		}
	}
	return q.out.msg.Len - at
}

// unstage gives the copy of memory back at the end of a step, unless the rest of a request
// needs it.
func (f *far) unstage(o *outgoing) {
	if o.what != aRequest || !o.msg.Open() || foreign.Scarce() {
		f.dropStage()
	}
}

func (f *far) dropStage() {
	if f.stage != nil {
		foreign.ReturnStage(f.stage)
		f.stage = nil
	}
}

// modifyElsewhere is modify for a word of another process. See reach.Cell.
func modifyElsewhere(mem []byte, r *wire.AtomicRequestFields) (old uint64, how access) {
	c := reach.CellAt(mem)
	c.Lock()
	defer c.Unlock()
	old, ok := c.Load()
	if next := changed(old, r); ok && next != old {
		ok = c.Store(next)
	}
	if !ok {
		return 0, reaching
	}
	return old, complete
}
