package demo

import (
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// window is how much is under way at a time.
type window struct {
	message int // octets of a message
	slots   int // messages
}

// windowOctets is about what is under way: enough that neither side waits for
// the other, little enough that caches hold it.
const windowOctets = 4 << 20

func (o Options) window() window {
	return window{message: o.Message, slots: min(max(windowOctets/o.Message, 4), 256)}
}

// heap is enough for the regions of one side.
func (o Options) heap() uint64 {
	w := o.window()
	return uint64(w.slots*w.message) + 1<<20
}

// plan is what one operation moves: the octets of a pattern that is its own, so
// that what an earlier message, or another operation, left in a slot is as
// wrong as anything.
type plan struct {
	window
	op     rdma.WROp
	seed   octets.Pattern
	octets uint64
}

func (p plan) messages() uint64 {
	return (p.octets + uint64(p.message) - 1) / uint64(p.message)
}

// place is where message n begins in the pattern.
func (p plan) place(n uint64) uint64 { return n * uint64(p.message) }

// length is message n's, in octets: only the last may be short.
func (p plan) length(n uint64) int { return int(min(uint64(p.message), p.octets-p.place(n))) }

// offset is where message n's slot begins in a region.
func (p plan) offset(n uint64) int { return int(n%uint64(p.slots)) * p.message }

// sge is message n's slot in mr.
func (p plan) sge(mr *rdma.MR, n uint64) []rdma.SGE {
	return []rdma.SGE{mr.SGE(p.offset(n), p.length(n))}
}

// slot is the memory of message n in mr.
func (p plan) slot(mr *rdma.MR, n uint64) []byte { return mr.Bytes()[p.offset(n):][:p.length(n)] }
