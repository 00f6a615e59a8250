package reach

import "encoding/binary"

// Cell is a word of 8 octets in memory that is not mapped, in the byte order of the machine.
// Operations of Cells of one Space between Lock and Unlock exclude each other. The client's
// own processor is not excluded.
type Cell struct{ at Place }

// CellAt returns the word at the first octet of mem, which is memory that is not mapped.
func CellAt(mem []byte) Cell {
	p, ok := Find(mem)
	if !ok {
		panic("reach: a word in memory that is no reservation")
	}
	return Cell{p}
}

// Lock waits until no other operation of the Space is between Lock and Unlock.
func (c Cell) Lock() { c.at.space.atomics.Lock() }

// Unlock lets the next operation begin.
func (c Cell) Unlock() { c.at.space.atomics.Unlock() }

// Load returns the word. The caller holds the lock. ok is false if the client has no such memory any more.
func (c Cell) Load() (v uint64, ok bool) {
	b := c.at.space.word[:]
	n := c.at.space.read(c.at.addr, b)
	return binary.NativeEndian.Uint64(b), n == len(b)
}

// Store changes the word. The caller holds the lock.
func (c Cell) Store(v uint64) (ok bool) {
	b := c.at.space.word[:]
	binary.NativeEndian.PutUint64(b, v)
	return c.at.space.write(c.at.addr, b) == len(b)
}
