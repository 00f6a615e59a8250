package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/stream"
)

// maxAHS is the largest total length of additional header segments that a receiver takes,
// in octets. It has room for the CDB of any command that a disk knows.
const maxAHS = 64

// role is what a receiver asks the initiator or the target.
type role interface {
	// arrived is called when the header of a PDU is there and its digest is right. ahs are
	// the additional header segments. arrived calls one of receiver.place, receiver.collect
	// and receiver.drop if the PDU has data. A reason that ends the connection does so. For
	// another reason the receiver drops the data segment. wait asks to be called again with
	// the same PDU when receiver.run is called next.
	arrived(h *pdu.Header, ahs []byte) (why Reason, wait bool)

	// complete is called when the whole PDU is there. why is the reason of arrived, or OK.
	// Instead of OK it is DataDigest if the data digest is wrong, and MemoryGone if memory
	// of the place cannot be accessed. A reason that complete returns and that ends the
	// connection does so. wait is that of arrived.
	complete(h *pdu.Header, why Reason) (end Reason, wait bool)
}

// stage is the part of a PDU that a receiver waits for.
type stage uint8

const (
	inHeader stage = iota // the basic header segment
	inRest                // the additional header segments and the header digest
	held                  // nothing: arrived asks to wait
	inData
	inTail // the pad and the data digest
	full   // nothing: complete asks to wait
)

// receiver cuts the octets of a stream into PDUs. It belongs to the step.
type receiver struct {
	role    role
	digests pdu.Digests
	limit   int // longest data segment in octets: this end's MaxRecvDataSegmentLength

	stage stage
	have  int // octets of head or tail that are there
	need  int // octets of head or tail
	left  int // octets of the data segment that are missing
	why   Reason
	into  scatter // the place of the next octet of the data segment
	room  int     // octets of the data segment that still go there; the others are dropped
	crc   uint32
	head  [pdu.HeaderLen + maxAHS + pdu.DigestLen]byte
	tail  [3 + pdu.DigestLen]byte
	own   [1][]byte // list of the buffer of collect
	views [16][]byte
}

// header returns the header of the present PDU.
func (r *receiver) header() *pdu.Header { return (*pdu.Header)(r.head[:pdu.HeaderLen]) }

// place makes the data segment of the present PDU go to a list of buffers, from octet off
// on. The list must have room for it, and must not change until complete.
func (r *receiver) place(pieces [][]byte, off int) {
	r.into, r.room = at(pieces, off), pdu.MaxDataLength
}

// collect makes the data segment of the present PDU go to one buffer. Octets for which the
// buffer has no room are dropped.
func (r *receiver) collect(b []byte) {
	r.own[0] = b
	r.into, r.room = scatter{pieces: r.own[:]}, len(b)
}

// drop discards the data segment of the present PDU.
func (r *receiver) drop() { r.into, r.room = scatter{}, 0 }

// disown refuses the PDU whose data segment is arriving. Nothing of it is placed any more.
func (r *receiver) disown(why Reason) {
	r.drop()
	r.why = why
}

// run consumes what the stream has, and calls the role for each PDU. It stops when the role
// asks to wait. It returns a reason that ends the connection, or OK.
func (r *receiver) run(s stream.Stream) Reason {
	for {
		if end := r.resume(); end != OK || r.waits() {
			return end
		}
		n := s.Views(r.views[:])
		if n == 0 {
			return OK
		}
		total, end := 0, OK
		for _, v := range r.views[:n] {
			var used int
			used, end = r.feed(v)
			total += used
			if used < len(v) || end != OK {
				break
			}
		}
		clear(r.views[:n])
		s.Consume(total)
		if end != OK {
			return end
		}
	}
}

// waits reports whether the role has asked to wait.
func (r *receiver) waits() bool { return r.stage == held || r.stage == full }

// resume calls the role again, if it has asked to wait, and goes on behind a data segment
// that the stream has placed.
func (r *receiver) resume() Reason {
	switch r.stage {
	case held:
		return r.begin()
	case full:
		return r.finish()
	case inData:
		if r.left == 0 { // the stream has placed the last octets
			return r.afterData()
		}
	}
	return OK
}

// feed uses the octets of v and returns how many. If it uses fewer than all, either the
// role waits, or end is not OK.
func (r *receiver) feed(v []byte) (used int, end Reason) {
	for used < len(v) && end == OK && !r.waits() {
		var n int
		n, end = r.take(v[used:])
		used += n
	}
	return used, end
}

// take uses some of the octets of v, at least one.
func (r *receiver) take(v []byte) (n int, end Reason) {
	switch r.stage {
	case inHeader:
		n = copy(r.head[r.have:pdu.HeaderLen], v)
		if r.have += n; r.have == pdu.HeaderLen {
			end = r.measure()
		}
	case inRest:
		n = copy(r.head[r.have:r.need], v)
		if r.have += n; r.have == r.need {
			end = r.verify()
		}
	case inData:
		n = min(r.left, len(v))
		r.data(v[:n])
		if r.left -= n; r.left == 0 {
			end = r.afterData()
		}
	case inTail:
		n = copy(r.tail[r.have:r.need], v)
		if r.have += n; r.have == r.need {
			end = r.finish()
		}
	}
	return n, end
}

// measure decides how long the rest of the header is.
func (r *receiver) measure() Reason {
	h := r.header()
	if h.AHSLength() > maxAHS {
		return AHSTooLong
	}
	if r.need = r.digests.HeaderLen(h); r.need > r.have {
		r.stage = inRest
		return OK
	}
	return r.verify()
}

// verify checks the header, which is whole.
func (r *receiver) verify() Reason {
	h := r.header()
	ahs := h.AHSLength()
	if r.digests.Header && pdu.HeaderDigest(h, r.head[pdu.HeaderLen:][:ahs]) != pdu.ReadDigest(r.head[pdu.HeaderLen+ahs:]) {
		return HeaderDigest
	}
	info := pdu.InfoOf(h.Opcode())
	n := h.DataLength()
	switch {
	case info.Name == "":
		return BadOpcode
	case n > r.limit || n != 0 && !info.Data:
		return DataTooLong
	case ahs != 0 && !info.AHS:
		return AHSTooLong
	}
	return r.begin()
}

// begin asks the role for the place of the data segment.
func (r *receiver) begin() Reason {
	h := r.header()
	r.drop()
	why, wait := r.role.arrived(h, r.head[pdu.HeaderLen:][:h.AHSLength()])
	if wait {
		r.stage = held
		return OK
	}
	if why.Ends() {
		return why
	}
	if r.why = why; why != OK {
		r.drop()
	}
	if r.left, r.crc = h.DataLength(), 0; r.left == 0 {
		return r.finish()
	}
	r.stage = inData
	return OK
}

// data places octets of the data segment.
func (r *receiver) data(b []byte) {
	n := min(len(b), r.room)
	if r.room -= n; n != 0 && !r.into.put(b[:n]) {
		r.why = MemoryGone
		r.drop()
	}
	if r.digests.Data {
		r.crc = pdu.UpdateDigest(r.crc, b)
	}
}

// afterData goes on behind the data segment.
func (r *receiver) afterData() Reason {
	if r.have, r.need = 0, r.digests.TailLen(r.header().DataLength()); r.need == 0 {
		return r.finish()
	}
	r.stage = inTail
	return OK
}

// finish gives the whole PDU to the role. The digest includes the pad as it arrived.
func (r *receiver) finish() Reason {
	h := r.header()
	if n := h.DataLength(); r.stage == inTail && r.digests.Data {
		pad := pdu.Pad(n)
		if pdu.UpdateDigest(r.crc, r.tail[:pad]) != pdu.ReadDigest(r.tail[pad:]) && r.why == OK {
			r.why = DataDigest
		}
	}
	end, wait := r.role.complete(h, r.why)
	if wait {
		r.stage = full
		return OK
	}
	r.drop()
	r.own[0] = nil
	r.stage, r.have = inHeader, 0
	return end
}
