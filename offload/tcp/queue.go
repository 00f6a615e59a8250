package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
)

// mark is the scoreboard's state (RFC 6675 §3) of an entry.
type mark uint8

const (
	marked mark = 1 << iota // SACKed by the peer
	lost                    // considered lost
	resent                  // retransmitted since the recovery began
)

// store tells where an entry's octets are.
type store uint8

const (
	inBacklog    store = iota // Conn.backlog; no frame yet
	inFrame                   // frame, which this entry owns
	inShared                  // frame, which a later entry with a part of it owns
	inSlab                    // slab, which this entry owns
	inSharedSlab              // slab, which a later entry owns
)

// entry is one segment: queued, or sent and not acknowledged. It is sent and retransmitted with the same boundaries,
// unless it must be split.
type entry struct {
	seq    seq.Num
	n      uint32 // octets, never 0
	off    uint32 // of the first one in frame or slab
	tx     uint8  // transmissions, saturating
	mark   mark
	store  store
	push   bool          // it was the last queued entry when it was sent
	frame  port.Frame    // in a slab: Addr is the slab's id
	sentAt clock.Instant // of the last transmission
}

// slab returns the id of the slab that holds the octets. The entry's octets must be in a slab.
func (e *entry) slab() uint32 { return uint32(e.frame.Addr) }

func (e *entry) end() seq.Num { return e.seq.Add(seq.Len(e.n)) }

// queue is the retransmission queue, followed by the unsent segments, in a ring that grows up to a limit. The first
// sent entries have been sent. Entries are never empty and follow each other without gaps.
type queue struct {
	ring  []entry // a power of two; nil while there is no entry
	limit uint32  // the largest length of ring, a power of two
	shelf *shelf[entry]
	head  uint32
	count uint32
	sent  uint32

	// Sums of octets over the sent entries.
	flight  uint32 // all
	sacked  uint32 // SACKed
	missing uint32 // considered lost
	again   uint32 // resent and not SACKed
	pending uint32 // lost and not resent: what sendLost must send
	marks   uint32 // number of SACKed entries
}

func newQueue(limit uint32, from *shelf[entry]) queue { return queue{limit: limit, shelf: from} }

func (q *queue) at(i uint32) *entry { return &q.ring[(q.head+i)&uint32(len(q.ring)-1)] }

// spare returns how many more entries fit.
func (q *queue) spare() uint32 { return q.limit - q.count }

// room makes sure that the ring has a place for one more entry. The caller must have checked spare.
func (q *queue) room() {
	if q.count < uint32(len(q.ring)) {
		return
	}
	ring := q.shelf.longer(len(q.ring), q.limit)
	for i := range q.count {
		ring[i] = *q.at(i)
	}
	q.shelf.back(q.ring)
	q.ring, q.head = ring, 0
}

// vacant returns the ring of an empty queue.
func (q *queue) vacant() {
	q.shelf.back(q.ring)
	q.ring = nil
}

// last returns the newest entry; nil if the queue is empty.
func (q *queue) last() *entry {
	if q.count == 0 {
		return nil
	}
	return q.at(q.count - 1)
}

// push appends an unsent entry. The caller must have checked spare.
func (q *queue) push(e entry) {
	q.room()
	*q.at(q.count) = e
	q.count++
}

// sentFirst counts the first unsent entry as sent.
func (q *queue) sentFirst() {
	q.flight += q.at(q.sent).n
	q.sent++
}

// pop removes the oldest entry, which has been sent.
func (q *queue) pop() {
	e := q.at(0)
	if e.mark != 0 {
		q.remark(e, 0)
	}
	q.flight -= e.n
	e.frame = port.Frame{}
	q.head++
	q.count--
	q.sent--
	if q.count == 0 {
		q.vacant()
	}
}

// trim cuts k octets, fewer than it has, off the front of the oldest entry.
func (q *queue) trim(k uint32) {
	e := q.at(0)
	m := e.mark
	q.remark(e, 0)
	e.seq, e.off, e.n = e.seq.Add(seq.Len(k)), e.off+k, e.n-k
	q.flight -= k
	q.remark(e, m)
}

// remark changes the scoreboard's state of a sent entry.
func (q *queue) remark(e *entry, m mark) {
	add := func(sum *uint32, of mark) {
		if e.mark&of != 0 {
			*sum -= e.n
		}
		if m&of != 0 {
			*sum += e.n
		}
	}
	add(&q.sacked, marked)
	add(&q.missing, lost)
	add(&q.again, resent)
	if e.mark&(lost|resent) == lost {
		q.pending -= e.n
	}
	if m&(lost|resent) == lost {
		q.pending += e.n
	}
	if (e.mark^m)&marked != 0 {
		q.marks += uint32(m&marked) - uint32(e.mark&marked)
	}
	e.mark = m
}

// split divides entry i into its first k octets and the rest. Both keep the other fields, and the second one owns the
// frame. It returns false if the ring is full. It keeps one slot for the oldest entry, on which all progress depends.
func (q *queue) split(i, k uint32) bool {
	if q.spare() == 0 || (i > 0 && q.spare() == 1) {
		return false
	}
	q.room()
	q.count++
	for j := q.count - 1; j > i+1; j-- {
		*q.at(j) = *q.at(j - 1)
	}
	a, b := q.at(i), q.at(i+1)
	*b = *a
	b.seq, b.off, b.n = a.seq.Add(seq.Len(k)), a.off+k, a.n-k
	a.n = k
	a.push = false
	switch a.store {
	case inFrame:
		a.store = inShared
	case inSlab:
		a.store = inSharedSlab
	}
	if i < q.sent {
		q.sent++
	}
	return true
}

// find returns the index of the sent entry that holds octet s. There must be one.
func (q *queue) find(s seq.Num) uint32 {
	lo, hi := uint32(0), q.sent
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if q.at(mid).seq.After(s) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}

// loseAll clears the scoreboard (RFC 2018 §8: the receiver may have reneged), and marks as lost the oldest entry and
// all entries that were sent before the given instant.
func (q *queue) loseAll(before clock.Instant) {
	for i := range q.sent {
		e := q.at(i)
		if i == 0 || e.sentAt < before {
			q.remark(e, lost)
		} else {
			q.remark(e, e.mark&resent)
		}
	}
}
