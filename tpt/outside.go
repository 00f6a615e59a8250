package tpt

import "sync/atomic"

// outside holds the addresses of the memory of entries in spaceExternal, by entry
// index. It allocates its blocks when they are first needed. An entry itself holds no
// address, because other processes may be able to write to the table's memory. Values
// of other processes must not become addresses.
type outside []atomic.Pointer[block]

const blockLen = 1024

type block [blockLen]extent

// extent holds the address and the size of an entry's memory, and keeps that memory
// reachable. Only a writer that has set the entry to BUSY may change the extent.
type extent struct {
	first atomic.Pointer[byte]
	size  atomic.Uint64 // octets
}

func newOutside(entries uint32) outside { return make(outside, (entries+blockLen-1)/blockLen) }

// keep stores the memory of an entry. mem must not be empty.
func (o outside) keep(index uint32, mem []byte) {
	b := &o[index/blockLen]
	if b.Load() == nil {
		b.CompareAndSwap(nil, new(block))
	}
	x := &b.Load()[index%blockLen]
	x.size.Store(uint64(len(mem)))
	x.first.Store(&mem[0])
}

// drop removes the reference to the memory of an entry.
func (o outside) drop(index uint32) {
	if b := o[index/blockLen].Load(); b != nil {
		b[index%blockLen].first.Store(nil)
	}
}

// at returns the memory that keep stored for the entry, or nil. first and size belong
// together only if the entry's state is the same before and after the call.
func (o outside) at(index uint32) (first *byte, size uint64) {
	if b := o[index/blockLen].Load(); b != nil {
		x := &b[index%blockLen]
		return x.first.Load(), x.size.Load()
	}
	return nil, 0
}
