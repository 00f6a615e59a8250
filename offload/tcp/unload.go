package tcp

import "github.com/stag-rdma/stag/offload/port"

// Unload is for a shortage of transmit frames. Unload copies the octets of sent segments into slabs, oldest first,
// until n frames are free. The octets stay there until they are acknowledged, also for retransmission. More octets
// can thus be in flight than there are frames for. Unload returns how many frames it freed. Unload returns 0 on a
// short path, where more octets in flight would not make the transfer faster.
func (c *Conn) Unload(n int) (freed int) {
	if c.backlog != nil || c.roundTrip() < nearby || c.q.sent == 0 || c.slabs.unloaded.AtOrAfter(c.q.at(c.q.sent-1).end()) {
		return 0
	}
	for i := c.q.find(c.slabs.unloaded); i < c.q.sent && freed < n; i++ {
		framed := c.q.at(i).store == inFrame
		if !c.moveToSlab(i) {
			break
		}
		if framed {
			freed++
		}
		c.slabs.unloaded = c.q.at(i).end()
	}
	return freed
}

// moveToSlab copies the octets of entry i behind those of the entry before it, or into a new slab. The octets in
// slabs are always the oldest part of the queue.
func (c *Conn) moveToSlab(i uint32) bool {
	e := c.q.at(i)
	id, at, ok := c.behindOther(i)
	if !ok {
		if id, ok = c.mem.Borrow(); !ok {
			return false
		}
		c.slabs.slabsSent++
	}
	copy(c.mem.Slab(id)[at:], c.mem.Bytes(e.frame)[e.off:e.off+e.n])
	c.free(e)
	e.store, e.off, e.frame = inSlab, at, port.Frame{Addr: uint64(id)}
	return true
}

// behindOther returns the place after the octets of the previous entry, in the slab of that entry. The slab then
// belongs to entry i, and is returned with entry i. ok is false if the previous entry owns no slab, or if its slab
// has no room for the octets of entry i.
func (c *Conn) behindOther(i uint32) (id, at uint32, ok bool) {
	if i == 0 {
		return 0, 0, false
	}
	before := c.q.at(i - 1)
	at = before.off + before.n
	if before.store != inSlab || at+c.q.at(i).n > SlabLen {
		return 0, 0, false
	}
	before.store = inSharedSlab
	return before.slab(), at, true
}
