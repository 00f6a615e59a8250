package tpt

import "sync/atomic"

// outside is where the memory of entries in spaceExternal lies, by index, in
// blocks that are made when they are first needed. The entry alone would not do:
// others may write to the table's memory, and what they say there must not become
// an address.
type outside []atomic.Pointer[block]

const blockLen = 1024

type block [blockLen]extent

// extent is memory, which it keeps alive. Its owner has the entry BUSY.
type extent struct {
	first atomic.Pointer[byte]
	size  atomic.Uint64 // octets
}

func newOutside(entries uint32) outside { return make(outside, (entries+blockLen-1)/blockLen) }

// keep notes the memory of an entry, at least an octet.
func (o outside) keep(index uint32, mem []byte) {
	b := &o[index/blockLen]
	if b.Load() == nil {
		b.CompareAndSwap(nil, new(block))
	}
	x := &b.Load()[index%blockLen]
	x.size.Store(uint64(len(mem)))
	x.first.Store(&mem[0])
}

// drop forgets it.
func (o outside) drop(index uint32) {
	if b := o[index/blockLen].Load(); b != nil {
		b[index%blockLen].first.Store(nil)
	}
}

// at is what keep was told of the entry; nil: nothing. The two are of one memory
// if the entry's state is the same before and after.
func (o outside) at(index uint32) (first *byte, size uint64) {
	if b := o[index/blockLen].Load(); b != nil {
		x := &b[index%blockLen]
		return x.first.Load(), x.size.Load()
	}
	return nil, 0
}
