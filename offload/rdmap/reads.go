package rdmap

import "github.com/stag-rdma/stag/tpt"

// outRead is a Read Request or Atomic Request that waits for its Response.
type outRead struct {
	pos    uint32 // position of the work request in the send queue; not used for the RTR
	rtr    bool
	atomic bool
	stag   tpt.STag // STag of the sink
	to     uint64   // offset in the sink of the next octet of the Response
	left   uint32   // octets of the Response that are still missing
	size   uint32

	source tpt.STag // Read: STag and offset of the source at the peer
	id     uint32   // identifier and MSN of an Atomic Request
	from   uint64
}

// inRead is a Read Request or Atomic Request of the peer that waits for its Response. The
// operands of an Atomic Request are in atomics.pending. An Atomic Request uses only atomic
// and header.
type inRead struct {
	sinkSTag   tpt.STag
	sinkTO     uint64
	size       uint32
	sourceSTag tpt.STag
	sourceTO   uint64
	header     [18]byte // DDP header of the request, for a Terminate
	atomic     bool
}

// fifo is a ring of fixed size that only Step uses. The first push allocates the
// memory, because most connections never read.
type fifo[T any] struct {
	ring        []T
	size        int
	head, count int
}

func newFIFO[T any](n int) fifo[T] { return fifo[T]{size: n} }

func (f *fifo[T]) full() bool  { return f.count == f.size }
func (f *fifo[T]) empty() bool { return f.count == 0 }
func (f *fifo[T]) front() *T   { return &f.ring[f.head] }
func (f *fifo[T]) at(i int) *T { return &f.ring[(f.head+i)%len(f.ring)] }

func (f *fifo[T]) push(v T) {
	if f.ring == nil {
		f.ring = make([]T, f.size)
	}
	f.ring[(f.head+f.count)%len(f.ring)] = v
	f.count++
}

func (f *fifo[T]) pop() {
	f.head = (f.head + 1) % len(f.ring)
	f.count--
}
