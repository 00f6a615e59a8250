package flow

import (
	"runtime/debug"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/stream"
)

// A stream that copies octets itself writes the data segment of a PDU to its place, so
// that the octets are copied once. The receiver has checked the header before.
var (
	_ stream.Placer = (*Initiator)(nil)
	_ stream.Placer = targetStream{}
)

// Place implements stream.Placer.
func (f *Initiator) Place(dst [][]byte) int {
	if f.broken != OK {
		return 0
	}
	return f.rx.pieces(dst)
}

// Placed implements stream.Placer.
func (f *Initiator) Placed(n int) { f.rx.placed(n) }

// Place implements stream.Placer.
func (t targetStream) Place(dst [][]byte) int {
	if t.broken != OK {
		return 0
	}
	return t.rx.pieces(dst)
}

// Placed implements stream.Placer.
func (t targetStream) Placed(n int) { t.rx.placed(n) }

// pieces fills dst with the place of the next octets of the data segment, and returns the
// number of pieces. It returns 0 if the present octets have no place, or not all of them.
func (r *receiver) pieces(dst [][]byte) (n int) {
	if r.stage != inData || r.room < r.left {
		return 0
	}
	rest := r.into
	for left := r.left; left > 0 && n < len(dst); n++ {
		mem := rest.next(left)
		if mem == nil {
			break
		}
		dst[n] = mem
		left -= len(mem)
	}
	return n
}

// placed goes on behind n octets of the data segment that are at their place. What follows
// the data segment waits for run.
func (r *receiver) placed(n int) {
	r.left, r.room = r.left-n, r.room-n
	if r.digests.Data && !r.sum(n) {
		r.why = MemoryGone
		r.drop()
		return
	}
	for n > 0 {
		n -= len(r.into.next(n))
	}
}

// sum adds n octets at their place to the digest. It returns false if their memory cannot
// be accessed any more.
func (r *receiver) sum(n int) (ok bool) {
	defer guard(debug.SetPanicOnFault(true), &ok)
	for c := r.into; n > 0; {
		mem := c.next(n)
		r.crc = pdu.UpdateDigest(r.crc, mem)
		n -= len(mem)
	}
	return true
}
