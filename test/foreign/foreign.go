// Package foreign plays another process for tests: it posts to rings, polls completions and
// rings bells by nothing but accesses to its own mapping of the memory, as a C library does.
// It knows the layouts only from the comments of offload/work and offload/bell.
package foreign

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/work"
)

var ne = binary.NativeEndian

// Memory maps a sealed file of n octets twice: once for the adapter, once for the poster.
// The mapping of the adapter goes when unmap is called, or when the test ends.
func Memory(t testing.TB, n int) (ours, theirs []byte, unmap func()) {
	t.Helper()
	fd, err := unix.MemfdCreate("foreign", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	var mem [2][]byte
	for i := range mem {
		if mem[i], err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
	}
	mapped := true
	unmap = func() {
		if mapped {
			mapped = false
			if err := unix.Munmap(mem[0]); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		unmap()
		if err := unix.Munmap(mem[1]); err != nil {
			t.Error(err)
		}
	})
	return mem[0], mem[1], unmap
}

// Shape is the sizes of a queue, from the header that the adapter has written.
type Shape struct{ Depth, Slot, Elements, Inline uint32 }

func shapeOf(ring []byte) Shape {
	at := func(i int) uint32 { return ne.Uint32(ring[i:]) }
	return Shape{Depth: at(132), Slot: at(136), Elements: at(140), Inline: at(144)}
}

// slots returns the number of slots of the ring.
func (s Shape) slots() uint32 {
	n := uint32(1)
	for n < s.Depth {
		n *= 2
	}
	return n
}

// slot returns the slot of position pos.
func (s Shape) slot(ring []byte, pos uint32) []byte {
	return ring[192+int(pos%s.slots())*int(s.Slot):][:s.Slot]
}

// Send posts to a send ring.
type Send struct {
	Ring   []byte
	Tail   uint32
	Polled uint32 // completions of the ring that have been polled
}

// Post fills the next slot, if its place is free, and moves the tail.
func (q *Send) Post(wr work.SendWR) bool {
	s := shapeOf(q.Ring)
	silent := uint32(load64(q.Ring[64:]) >> 32)
	if q.Tail-silent-q.Polled == s.Depth {
		return false
	}
	slot := s.slot(q.Ring, q.Tail)
	clear(slot)
	ne.PutUint64(slot, wr.ID)
	ne.PutUint64(slot[8:], wr.RemoteAddr)
	ne.PutUint32(slot[16:], uint32(wr.RKey))
	ne.PutUint32(slot[20:], uint32(wr.Invalidate))
	slot[28], slot[29], slot[30] = byte(wr.Op), byte(wr.Flags), byte(len(wr.SGL))
	if wr.Op == work.WRBindMW {
		ne.PutUint32(slot[24:], uint32(wr.Access))
	}
	if len(wr.Inline) != 0 {
		ne.PutUint32(slot[24:], uint32(len(wr.Inline)))
		slot[31] = 1
		copy(slot[32:], wr.Inline)
	}
	elements(slot[32:], wr.SGL)
	switch wr.Op {
	case work.WRCompareSwap, work.WRFetchAdd, work.WRSwap:
		ne.PutUint64(slot[48:], wr.CompareAdd)
		ne.PutUint64(slot[56:], wr.Swap)
	case work.WRWriteImm, work.WRSendImm:
		ne.PutUint32(slot[20:], uint32(wr.Imm))
		ne.PutUint32(slot[24:], uint32(wr.Imm>>32))
		if slot[31] != 0 {
			slot[30] = byte(len(wr.Inline))
		}
	}
	q.Tail++
	store32(q.Ring, q.Tail)
	return true
}

// Recv posts to a receive ring.
type Recv struct {
	Ring   []byte
	Shared bool // the ring is of an SRQ
	Tail   uint32
	Polled uint32 // completions of the ring that have been polled
}

// Post fills the next slot, if its place is free, and moves the tail.
func (q *Recv) Post(wr work.RecvWR) bool {
	s := shapeOf(q.Ring)
	slot := s.slot(q.Ring, q.Tail)
	if q.Tail-q.Polled == s.Depth || q.Shared && load32(slot[12:]) != q.Tail {
		return false
	}
	ne.PutUint64(slot, wr.ID)
	slot[8] = byte(len(wr.SGL))
	elements(slot[16:], wr.SGL)
	q.Tail++
	store32(q.Ring, q.Tail)
	return true
}

func elements(b []byte, sgl []work.SGE) {
	for i, e := range sgl {
		ne.PutUint64(b[16*i:], e.Addr)
		ne.PutUint32(b[16*i+8:], e.Length)
		ne.PutUint32(b[16*i+12:], uint32(e.LKey))
	}
}

// CQ polls a completion ring.
type CQ struct {
	Ring []byte
	Head uint64

	cells []byte // nil: behind the header of Ring
}

// Next returns the oldest completion, if there is one.
func (q *CQ) Next() (c work.Completion, ok bool) {
	cells := q.cells
	if cells == nil {
		cells = q.Ring[192:]
	}
	n := uint64(len(cells)) / 32
	cell := cells[q.Head%n*32:]
	if load64(cell) != q.Head+1 {
		return c, false
	}
	c = work.Completion{
		ID: ne.Uint64(cell[8:]), Op: work.WCOp(cell[16]), Status: work.Status(cell[17]), Solicited: cell[18] != 0,
		Length: ne.Uint32(cell[24:]), QP: ne.Uint32(cell[28:]),
	}
	q.Head++
	store64(q.Ring, q.Head)
	return c, true
}

// Move continues in another ring, when the head has come to the position end.
func (q *CQ) Move(ring []byte) { q.cells = ring[192:] }

// Arm arms the CQ for all completions. The caller must call Next again before it sleeps.
func (q *CQ) Arm() { store32(q.Ring[8:], 2) }

// Overrun reports whether a completion was lost.
func (q *CQ) Overrun() bool { return load32(q.Ring[64:]) != 0 }

// Bell is the other process's side of a bell.
type Bell struct {
	Page []byte
	FD   int // the eventfd
	Woke int // writes to the eventfd
}

// Ring sets bit i. If the adapter sleeps, Ring wakes it.
func (b *Bell) Ring(i int) error {
	or64(b.Page[64+i/64*8:], 1<<(i%64))
	if load32(b.Page) == 0 {
		return nil
	}
	b.Woke++
	var one [8]byte
	ne.PutUint64(one[:], 1)
	_, err := unix.Write(b.FD, one[:])
	return err
}

// Set stores the tail, whatever it is.
func (q *Send) Set() { store32(q.Ring, q.Tail) }

// Scribble changes an octet of the slot of the newest request.
func (q *Send) Scribble(offset int, to byte) { shapeOf(q.Ring).slot(q.Ring, q.Tail-1)[offset] = to }

// Waits reports whether the transport waits for a receive, or flushes receives. The poster
// must then ring its bell.
func (q *Recv) Waits() bool { return load32(q.Ring[72:]) != 0 }

// Set stores the tail, whatever it is.
func (q *Recv) Set() { store32(q.Ring, q.Tail) }

// Set stores the head, whatever it is.
func (q *CQ) Set() { store64(q.Ring, q.Head) }
