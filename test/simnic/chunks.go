package simnic

import (
	"bytes"
	"fmt"
)

// hold is the set of holders of a chunk. A chunk without holders is free.
type hold uint8

const (
	byCaller hold = 1 << iota // the caller, which got the chunk from Receive or Take
	byQueue                   // the queue of received packets, until Receive returns the chunk
	byLink                    // the link, from Send until the driver completes the packet
)

// poison is the value that fills free chunks in check mode.
const poison = 0xdb

// chunks is the memory of an end, with the holders of each chunk. The receive pool is
// first, then the transmit pool.
type chunks struct {
	mem    []byte
	size   uint64 // octets of a chunk
	rx     int    // number of chunks in the receive pool
	holds  []hold
	fill   fifo[int] // free receive chunks that the driver has not taken
	spare  fifo[int] // free transmit chunks
	check  bool
	poison []byte // the contents of a free chunk, in check mode
}

func newChunks(c Config) chunks {
	m := chunks{
		mem:  make([]byte, 2*c.Frames*int(c.FrameSize)),
		size: uint64(c.FrameSize), rx: c.Frames,
		holds: make([]hold, 2*c.Frames),
		fill:  newFIFO[int](c.Frames), spare: newFIFO[int](c.Frames),
		check: c.Check,
	}
	if m.check {
		m.poison = bytes.Repeat([]byte{poison}, int(c.FrameSize))
	}
	for i := range m.holds {
		m.free(i)
	}
	return m
}

// chunk returns the memory of chunk i.
func (m *chunks) chunk(i int) []byte {
	at := uint64(i) * m.size
	return m.mem[at : at+m.size : at+m.size]
}

// index returns the number of the chunk that contains an address.
func (m *chunks) index(addr uint64) int {
	i := addr / m.size
	if i >= uint64(len(m.holds)) {
		panic(fmt.Sprintf("simnic: address %#x is outside the arena", addr))
	}
	return int(i)
}

// free returns a chunk without a holder to its pool.
func (m *chunks) free(i int) {
	if m.check {
		copy(m.chunk(i), m.poison)
	}
	if i < m.rx {
		m.fill.push(i)
	} else {
		m.spare.push(i)
	}
}

// take takes a chunk from a pool for its first holder. ok is false if the pool is
// empty.
func (m *chunks) take(pool *fifo[int], by hold) (i int, ok bool) {
	if pool.len() == 0 {
		return 0, false
	}
	i = pool.pop()
	if m.check && !bytes.Equal(m.chunk(i), m.poison) {
		panic(fmt.Sprintf("simnic: chunk %d was written to after it had been given back", i))
	}
	m.holds[i] = by
	return i, true
}

// add adds a holder to chunk i, which the caller must hold already.
func (m *chunks) add(i int, by hold) {
	if m.holds[i]&byCaller == 0 {
		panic(fmt.Sprintf("simnic: chunk %d is not the caller's", i))
	}
	if m.holds[i]&by != 0 {
		panic(fmt.Sprintf("simnic: chunk %d is in flight already", i))
	}
	m.holds[i] |= by
}

// drop removes a holder. A chunk without holders returns to its pool.
func (m *chunks) drop(i int, by hold) {
	if m.holds[i]&by == 0 {
		panic(fmt.Sprintf("simnic: chunk %d is given back by someone who does not hold it", i))
	}
	m.holds[i] &^= by
	if m.holds[i] == 0 {
		m.free(i)
	}
}
