package rdmap

import (
	"errors"
	"runtime/debug"

	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// ErrMemoryGone means that registered memory could not be read or written. The program
// has unmapped or protected the memory, or has truncated the file that the memory maps.
// The region is invalid from then on.
var ErrMemoryGone = errors.New("registered memory cannot be accessed any more: it was unmapped, protected, or its file truncated, and its region is invalid now")

// access says how far an access to registered memory under a guard has come. If the
// access faults, the value shows what had begun before the fault.
type access uint8

const (
	reaching access = iota // the memory is read as a test; nothing else has begun
	entering               // the stream is being asked for room
	copying                // octets are being copied to their final place
	refused                // the stream has no room, and nothing has changed
	complete
)

// placeAll copies the payload to the pieces of the access that m has checked. placeAll
// reports whether all pieces could be accessed. mem is the first piece. For memory of
// another process, placeAll only collects the payload: see land.
func (q *QP) placeAll(m *tpt.Memo, mem, payload []byte, why purpose) bool {
	external := m.External()
	if external && (q.in.far != nil || reach.Foreign(mem)) {
		return q.placeFar(m, mem, payload, why)
	}
	for ; len(mem) != 0; mem = m.Next() {
		if !external {
			copy(mem, payload)
		} else if _, how := place([][]byte{mem}, payload); how != complete {
			return false
		}
		payload = payload[len(mem):]
	}
	return len(payload) == 0 // false if the entry's page list leads to no memory
}

// placeFar is placeAll outside of the region heap, for a QP with memory of other processes.
func (q *QP) placeFar(m *tpt.Memo, mem, payload []byte, why purpose) bool {
	for ; len(mem) != 0; mem = m.Next() {
		if reach.Foreign(mem) {
			q.later(mem, payload[:len(mem)], why, m.STag())
		} else {
			q.land() // in this order, because both may be the same memory
			if _, how := place([][]byte{mem}, payload); how != complete {
				return false
			}
		}
		payload = payload[len(mem):]
	}
	return len(payload) == 0
}

// place copies the payload to the pieces. If a piece faults, how is not complete and at
// is the index of the piece.
func place(pieces [][]byte, payload []byte) (at int, how access) {
	defer guard(debug.SetPanicOnFault(true), &how)
	for at = range pieces {
		payload = payload[copy(pieces[at], payload):]
	}
	return at, complete
}

// guard ends an access that has faulted. Without guard, a fault of registered memory
// would end the process at a time that the peer can choose. Callers defer guard with
// the goroutine's previous setting of SetPanicOnFault. guard recovers from no other
// panic.
func guard(was bool, how *access) {
	debug.SetPanicOnFault(was)
	if *how >= refused {
		return
	}
	p := recover()
	if _, fault := p.(interface{ Addr() uintptr }); p != nil && (!fault || *how == entering) {
		panic(p)
	}
}

// touchEvery is the size in octets of the smallest page.
const touchEvery = 4096

// touch reads an octet of each page of mem.
func touch(mem []byte) (sum byte) {
	for i := 0; i < len(mem); i += touchEvery {
		sum ^= mem[i]
	}
	if n := len(mem); n != 0 {
		sum ^= mem[n-1]
	}
	return sum
}

// vanished invalidates the region whose memory has faulted. vanished sets gone, so that
// the cause of the connection's end is ErrMemoryGone.
func (q *QP) vanished(s tpt.STag) {
	q.cfg.Table.Fail(s)
	q.losses.gone = true
}

// element returns the STag of the list element that contains the octet at offset off.
func element(sgl []work.SGE, off uint32) tpt.STag {
	for _, e := range sgl {
		if off < e.Length {
			return e.LKey
		}
		off -= e.Length
	}
	return 0
}

// unreadable ends the connection because memory of the current message has faulted.
// piece is the index of the faulted piece in the segment at offset at. unreadable sends
// a Terminate. If the stream already has a part of the segment, unreadable resets the
// connection instead.
func (q *QP) unreadable(s stream.Stream, at uint32, piece int, how access) {
	o := &q.out
	switch o.what {
	case aResponse:
		r := q.irq.front()
		q.vanished(r.sourceSTag)
		if how == reaching {
			q.terminateRead(readCode(tpt.BadSTag), r, at)
		}
	case aRequest:
		q.vanished(element(o.wr.SGL, at+o.mem.before(piece)))
		if q.sq.At(o.pos).Status = work.LocalProtErr; how == reaching {
			q.failSend(o.pos, work.LocalProtErr)
		}
	}
	if how != reaching {
		q.lose(s, ErrMemoryGone)
	}
}
