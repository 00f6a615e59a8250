package tcp

import (
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// held is a run of received octets, with the frame or slab that contains them.
type held struct {
	seq   seq.Num
	data  []byte     // the octets; the capacity extends to the end of the chunk
	frame port.Frame // the frame of data, to release when data has been consumed
	slab  uint32     // the slab of data; 0: none
	heap  bool       // data is neither in a frame nor in a slab (State.Unread, or spilt)
	spilt bool       // data is in inbox.spill
	fresh bool       // the run is out of order, and Ahead has not returned it
	whole bool       // the run begins with the first octet of a segment, valid if fresh
}

// framed reports whether the run lies in a frame.
func (h *held) framed() bool { return !h.heap && h.slab == 0 }

func (h *held) end() seq.Num { return h.seq.Add(seq.Len(len(h.data))) }

// absorb copies octets of b behind h's octets, as many as h's chunk has room for. absorb returns their number.
func (h *held) absorb(b []byte) int {
	n := len(h.data)
	k := copy(h.data[n:cap(h.data)], b)
	h.data = h.data[:n+k]
	return k
}

func (h *held) room() int { return cap(h.data) - len(h.data) }

// inbox holds octets that were received and not consumed: the in-order octets, and the out-of-order octets behind a
// hole. The octets lie in frames, as many as the flow may hold. Further octets are copied into slabs, so that a
// window can be larger than the frames of a port allow.
type inbox struct {
	mem   Memory
	max   int // limit of frames, and limit of out-of-order runs
	shelf *shelf[held]

	// In-order runs, oldest first. No run is empty.
	ring   []held // length is a power of two; nil while there is no run
	head   uint32
	count  uint32
	unread uint32 // octets in ring
	stuck  bool   // there were too many octets for spill, and no octet has been consumed since
	looks  bool   // the upper layer calls Ahead
	fresh  uint16 // fresh runs in ooo
	frames int    // frames in ring
	slabs  int    // slabs in ring
	spill  []byte // buffer of octets that were moved out of frames; nil: none (unburden.go)
	rings  *Rings // owner of spill

	// Out-of-order runs, sorted by sequence number, disjoint and not empty.
	ooo         []held
	aheadFrames int // frames in ooo
	aheadSlabs  int // slabs in ooo

	// SACK: one octet of each recently changed block, newest first (RFC 2018 §4), and one duplicate (RFC 2883).
	recent  [wire.MaxSACK]seq.Num
	nrecent int
	dup     wire.SACKBlock
	hasDup  bool
}

// newInbox makes an inbox for n frames. n must be a power of two.
func newInbox(mem Memory, n uint32, from *shelf[held]) inbox {
	return inbox{mem: mem, max: int(n), shelf: from}
}

// place makes room for one more run in the ring. The ring may have twice as many places as there are frames (see
// spare).
func (b *inbox) place() {
	if b.count < uint32(len(b.ring)) {
		return
	}
	ring := b.shelf.longer(len(b.ring), uint32(2*b.max))
	for i := range b.count {
		ring[i] = *b.at(i)
	}
	clear(b.ring)
	b.shelf.back(b.ring)
	b.ring, b.head = ring, 0
}

// vacant returns the ring to the shelf if no in-order octets are held.
func (b *inbox) vacant() {
	if b.count == 0 {
		b.shelf.back(b.ring)
		b.ring = nil
	}
}

func (b *inbox) at(i uint32) *held { return &b.ring[(b.head+i)&uint32(len(b.ring)-1)] }

// share returns how many frames the connection may hold now. While octets wait in spill, or were too many for it,
// share returns 0.
func (b *inbox) share() int {
	if b.spill != nil || b.stuck {
		return 0
	}
	return min(b.max, b.mem.Share())
}

// spare returns how many more slabs may be used. The out-of-order list has places for max runs. The ring has places
// for max runs in frames and for as many in slabs and on the heap together. Two runs on the heap are possible, so
// that two slabs fewer are allowed.
func (b *inbox) spare() int {
	if b.spill != nil || b.stuck {
		return 0
	}
	return max(0, min(b.mem.Spare(), b.max-len(b.ooo), b.max-2-b.slabs-b.aheadSlabs))
}

// full reports whether the connection may hold no further frame.
func (b *inbox) full(share int) bool { return b.frames+b.aheadFrames >= share }

// copied copies the octets d into a new slab, with room after them. ok is false if there is no slab.
func (b *inbox) copied(s seq.Num, d []byte) (h held, ok bool) {
	if b.spare() == 0 || len(d) > SlabLen {
		return h, false
	}
	id, ok := b.mem.Borrow()
	if !ok {
		return h, false
	}
	mem := b.mem.Slab(id)
	return held{seq: s, data: mem[:copy(mem, d)], slab: id}, true
}

// small is the largest length in octets of a segment that is copied even if there are frames. The octets are copied
// behind those of the segment before. Holding a whole frame for such a segment costs more than the copy.
const small = 256

// put appends the octets d, which are next in order. put returns how many of them it had room for and whether it
// keeps f. In-order octets have priority: if room is missing, put drops out-of-order octets, those with the highest
// sequence numbers first (RFC 2018 §8).
func (b *inbox) put(s seq.Num, d []byte, f port.Frame) (n int, kept bool) {
	share := b.share()
	if last := b.newest(); last != nil && last.room() >= len(d) && (len(d) <= small || 2*b.frames >= share) {
		b.unread += uint32(last.absorb(d))
		return len(d), false
	}
	if b.full(share) {
		if b.putCopy(s, d) {
			return len(d), false
		}
		b.squeeze()
	}
	for b.full(share) && len(b.ooo) > 0 {
		if slab := b.evict(); slab && b.putCopy(s, d) {
			return len(d), false
		}
	}
	if b.full(share) {
		if last := b.newest(); last != nil {
			n = last.absorb(d)
			b.unread += uint32(n)
		}
		return n, false
	}
	b.push(held{seq: s, data: d, frame: f})
	return len(d), true
}

// putCopy appends the octets d in a new slab. putCopy returns false if there is no slab.
func (b *inbox) putCopy(s seq.Num, d []byte) bool {
	h, ok := b.copied(s, d)
	if ok {
		b.push(h)
	}
	return ok
}

func (b *inbox) push(h held) {
	b.place()
	*b.at(b.count) = h
	b.count++
	b.unread += uint32(len(h.data))
	switch {
	case h.slab != 0:
		b.slabs++
	case !h.heap:
		b.frames++
	}
}

func (b *inbox) newest() *held {
	if b.count == 0 {
		return nil
	}
	return b.at(b.count - 1)
}

// squeeze moves the in-order octets together, so that partly used frames become free. squeeze runs when the share
// of frames is used up.
func (b *inbox) squeeze() {
	to := uint32(0)
	for from := uint32(1); from < b.count; from++ {
		src := b.at(from)
		k := b.at(to).absorb(src.data)
		if k == len(src.data) {
			b.release(src)
			continue
		}
		if k > 0 { // the rest moves to the front, so that the free room is behind it
			src.seq, src.data = src.seq.Add(seq.Len(k)), src.data[:copy(src.data, src.data[k:])]
		}
		if to++; to != from {
			*b.at(to) = *src
			*src = held{}
		}
	}
	if b.count > 0 {
		b.count = to + 1
	}
}

// release releases the memory of a run in the ring.
func (b *inbox) release(h *held) {
	switch {
	case h.spilt:
		b.rings.unspill(b.spill)
		b.spill = nil
	case h.slab != 0:
		b.mem.Return(h.slab)
		b.slabs--
	case !h.heap:
		b.mem.Release(h.frame)
		b.frames--
	}
	*h = held{}
}

// consume drops the first n in-order octets. There must be at least n.
func (b *inbox) consume(n int) {
	b.unread -= uint32(n)
	b.stuck = false
	for n > 0 {
		h := b.at(0)
		if n < len(h.data) {
			h.seq, h.data = h.seq.Add(seq.Len(n)), h.data[n:]
			return
		}
		n -= len(h.data)
		b.release(h)
		b.head++
		b.count--
	}
	b.vacant()
}

// drain releases all memory of the inbox.
func (b *inbox) drain() {
	for b.count > 0 {
		b.release(b.at(0))
		b.head++
		b.count--
	}
	b.unread = 0
	b.vacant()
	b.drainAhead()
}
