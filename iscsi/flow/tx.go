package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/stream"
)

// sender gathers one PDU at a time into the segments of a stream. It belongs to the step.
//
//	h := x.header(pdu.OpDataOut)      // and set its fields
//	x.begin(pieces, off, n)           // or begin(nil, 0, 0)
//	for !x.emit(s) { ... }            // emit goes on in a later step if the stream is full
type sender struct {
	digests pdu.Digests

	open bool // a PDU has begun and has not left
	at   int  // octets of the PDU that have left
	len  int  // octets of the PDU
	from scatter
	crc  uint32
	data int // octets of the data segment
	head [pdu.HeaderLen + maxAHS + pdu.DigestLen]byte
	tail [3 + pdu.DigestLen]byte
}

// header clears the header of the next PDU and returns it.
func (x *sender) header(op pdu.Opcode) *pdu.Header {
	h := (*pdu.Header)(x.head[:pdu.HeaderLen])
	h.Reset(op)
	return h
}

// extend adds additional header segments, a multiple of 4 octets up to maxAHS.
func (x *sender) extend(ahs []byte) {
	copy(x.head[pdu.HeaderLen:], ahs)
	(*pdu.Header)(x.head[:pdu.HeaderLen]).SetAHSLength(len(ahs))
}

// begin begins the PDU whose header is set. Its data segment is n octets of the list, from
// octet off on. They must not change until the PDU has left, if a data digest is in force.
func (x *sender) begin(pieces [][]byte, off, n int) {
	h := (*pdu.Header)(x.head[:pdu.HeaderLen])
	h.SetDataLength(n)
	if ahs := h.AHSLength(); x.digests.Header {
		pdu.PutDigest(x.head[pdu.HeaderLen+ahs:], pdu.HeaderDigest(h, x.head[pdu.HeaderLen:][:ahs]))
	}
	clear(x.tail[:])
	x.from, x.data, x.crc = at(pieces, off), n, 0
	x.open, x.at, x.len = true, 0, x.digests.Len(h)
}

// patience is the smallest rest of a segment, in octets, for which a PDU is cut.
const patience = 64

// emit gives the stream as much of the PDU as it takes. left reports whether all of it has
// left. If memory of the data segment cannot be read, ok is false, and the stream has a
// part of the PDU.
func (x *sender) emit(s stream.Stream) (left, ok bool) {
	for x.at < x.len {
		rest := x.len - x.at
		n := s.MaxEmit()
		if room := s.Room(); room >= patience || room >= rest {
			n = room
		}
		b := s.Emit(min(n, rest))
		if b == nil {
			return false, true
		}
		if !x.fill(b) {
			return false, false
		}
		x.at += len(b)
	}
	x.open, x.from = false, scatter{}
	return true, true
}

// fill writes the octets from x.at on to b.
func (x *sender) fill(b []byte) bool {
	head := x.len - x.data - x.digests.TailLen(x.data)
	pos := x.at
	if pos < head {
		n := copy(b, x.head[pos:head])
		b, pos = b[n:], pos+n
	}
	if n := min(len(b), head+x.data-pos); n > 0 {
		if !x.from.get(b[:n]) {
			return false
		}
		if x.digests.Data {
			x.crc = pdu.UpdateDigest(x.crc, b[:n])
		}
		b, pos = b[n:], pos+n
	}
	if len(b) > 0 {
		if pad := pdu.Pad(x.data); x.digests.Data {
			pdu.PutDigest(x.tail[pad:], pdu.UpdateDigest(x.crc, x.tail[:pad]))
		}
		copy(b, x.tail[pos-head-x.data:])
	}
	return true
}

// borrow copies the octets of the data segment that have not left to b, and sends them from
// there. The caller may then free the memory of the command. b must have room for them.
func (x *sender) borrow(b []byte) (ok bool) {
	head := x.len - x.data - x.digests.TailLen(x.data)
	n := x.data - max(0, x.at-head)
	if n <= 0 {
		x.from = scatter{}
		return true
	}
	if len(b) < n || !x.from.get(b[:n]) {
		return false
	}
	x.from = scatter{pieces: [][]byte{b[:n]}}
	return true
}
