package tcp

import (
	"github.com/stag-rdma/stag/offload/port"
)

// tb is the common part of testing.T, testing.B, testing.F and rapid.T.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// memory is a Memory that records which frames and slabs are lent.
type memory struct {
	t      tb
	chunk  int
	tx, rx pool
	share  int
	dry    bool // Take returns no frame
	slabs  [][]byte
	lent   map[uint32]bool // slabs by id, which is their index plus 1
}

type pool struct {
	base uint64
	mem  []byte
	held []bool
	free []int
}

const txBase = 1 << 40

func newMemory(t tb, txFrames, rxFrames, chunk, share int) *memory {
	m := &memory{t: t, chunk: chunk, share: share}
	m.tx = newPool(txBase, txFrames, chunk)
	m.rx = newPool(0, rxFrames, chunk)
	return m
}

func newPool(base uint64, n, chunk int) pool {
	p := pool{base: base, mem: make([]byte, n*chunk), held: make([]bool, n)}
	for i := range n {
		p.free = append(p.free, i)
	}
	return p
}

func (p *pool) take(chunk int) (port.Frame, bool) {
	if len(p.free) == 0 {
		return port.Frame{}, false
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.held[i] = true
	return port.Frame{Addr: p.base + uint64(i*chunk), Len: uint32(chunk)}, true
}

func (p *pool) give(t tb, f port.Frame, chunk int) {
	i := int(f.Addr-p.base) / chunk
	if f.Addr < p.base || i >= len(p.held) || !p.held[i] {
		t.Fatalf("frame %#x given back by somebody who does not hold it", f.Addr)
	}
	p.held[i] = false
	p.free = append(p.free, i)
}

func (p *pool) out() int { return len(p.held) - len(p.free) }

func (m *memory) Take() (port.Frame, bool) {
	if m.dry {
		return port.Frame{}, false
	}
	return m.tx.take(m.chunk)
}

func (m *memory) Free(f port.Frame)    { m.tx.give(m.t, f, m.chunk) }
func (m *memory) Release(f port.Frame) { m.rx.give(m.t, f, m.chunk) }
func (m *memory) Share() int           { return m.share }
func (m *memory) Spare() int           { return len(m.slabs) - len(m.lent) }

func (m *memory) Borrow() (id uint32, ok bool) {
	for i := range m.slabs {
		if id = uint32(i + 1); !m.lent[id] {
			m.lent[id] = true
			return id, true
		}
	}
	return 0, false
}

func (m *memory) Return(id uint32) {
	if !m.lent[id] {
		m.t.Fatalf("slab %d given back by somebody who does not hold it", id)
	}
	delete(m.lent, id)
}

func (m *memory) Slab(id uint32) []byte {
	if !m.lent[id] {
		m.t.Fatalf("slab %d is used by somebody who does not hold it", id)
	}
	return m.slabs[id-1]
}

// withSlabs gives the memory n slabs.
func (m *memory) withSlabs(n int) *memory {
	m.lent = map[uint32]bool{}
	for range n {
		m.slabs = append(m.slabs, make([]byte, SlabLen))
	}
	return m
}

func (m *memory) Bytes(f port.Frame) []byte {
	at := int(f.Addr - txBase)
	return m.tx.mem[at : at+int(f.Len)]
}

// arrive puts payload into a receive frame, after a made-up header.
func (m *memory) arrive(payload []byte) (port.Frame, []byte, bool) {
	f, ok := m.rx.take(m.chunk)
	if !ok {
		return f, nil, false
	}
	const header = 66
	at := int(f.Addr) + header
	n := copy(m.rx.mem[at:int(f.Addr)+m.chunk], payload)
	if n < len(payload) {
		m.t.Fatalf("payload of %d octets does not fit a chunk", len(payload))
	}
	return f, m.rx.mem[at : at+n : int(f.Addr)+m.chunk], true
}

// empty demands that no frame is held.
func (m *memory) empty(t tb) {
	t.Helper()
	if m.tx.out() != 0 || m.rx.out() != 0 || len(m.lent) != 0 {
		t.Fatalf("%d transmit and %d receive frames and %d slabs were not given back", m.tx.out(), m.rx.out(), len(m.lent))
	}
}
