package demo

import (
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// window describes the messages that can be outstanding at a time.
type window struct {
	message int // size of a message in octets
	slots   int // number of messages that can be outstanding
}

// windowOctets is the approximate number of outstanding octets. It is large enough that
// neither side waits for the other, and small enough for the caches.
const windowOctets = 4 << 20

func (o Options) window() window {
	return window{message: o.Message, slots: min(max(windowOctets/o.Message, 4), 256)}
}

// heap is the size of the region heap of one side.
func (o Options) heap() uint64 {
	w := o.window()
	return uint64(w.slots*w.message) + 1<<20
}

// plan describes the octets that one operation moves. Each operation has its own pattern,
// so that a check also finds octets that an earlier message or operation left in a slot.
type plan struct {
	window
	op     rdma.WROp
	seed   octets.Pattern
	octets uint64
}

func (p plan) messages() uint64 {
	return (p.octets + uint64(p.message) - 1) / uint64(p.message)
}

// place returns where message n begins in the pattern.
func (p plan) place(n uint64) uint64 { return n * uint64(p.message) }

// length returns the length of message n in octets. Only the last message may be
// shorter.
func (p plan) length(n uint64) int { return int(min(uint64(p.message), p.octets-p.place(n))) }

// offset returns where the slot of message n begins in a region.
func (p plan) offset(n uint64) int { return int(n%uint64(p.slots)) * p.message }

// sge returns the slot of message n in mr as an SGE.
func (p plan) sge(mr *rdma.MR, n uint64) []rdma.SGE {
	return []rdma.SGE{mr.SGE(p.offset(n), p.length(n))}
}

// slot returns the memory of message n in mr.
func (p plan) slot(mr *rdma.MR, n uint64) []byte { return mr.Bytes()[p.offset(n):][:p.length(n)] }
