package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
)

// mark is the state of an entry on the scoreboard (RFC 6675 §3).
type mark uint8

const (
	marked mark = 1 << iota // the peer has SACKed the entry
	lost                    // the entry counts as lost
	resent                  // the entry was retransmitted since the recovery began
)

// store says which memory holds an entry's octets.
type store uint8

const (
	inBacklog    store = iota // the octets are in Conn.backlog and have no frame yet
	inFrame                   // the octets are in frame, which this entry owns
	inShared                  // the octets are in frame, which a later entry owns
	inSlab                    // the octets are in a slab, which this entry owns
	inSharedSlab              // the octets are in a slab, which a later entry owns
)

// how is a set of flags of an entry.
type how uint8

const (
	pushed how = 1 << iota // the entry was the last one in the queue when it was sent
	inner                  // the entry may begin in the middle of an Emit
)

// entry is one segment, either unsent, or sent and not acknowledged. A retransmitted entry keeps
// its boundaries, unless it must be split.
type entry struct {
	seq    seq.Num
	n      uint32 // length in octets, never 0
	off    uint32 // offset of the first octet in the frame or slab
	tx     uint8  // number of transmissions, saturating
	mark   mark
	store  store
	how    how
	frame  port.Frame    // the frame; for octets in a slab, Addr is the slab's id
	sentAt clock.Instant // time of the last transmission
}

// slab returns the id of the slab that holds the octets. The entry's octets must be in
// a slab.
func (e *entry) slab() uint32 { return uint32(e.frame.Addr) }

func (e *entry) end() seq.Num { return e.seq.Add(seq.Len(e.n)) }

// queue is the retransmission queue and, behind it, the unsent segments. queue is a
// ring that grows up to a limit. The first entries, as many as the field sent says,
// have been sent. Entries are never empty and follow each other without gaps.
type queue struct {
	ring  []entry // length is a power of two; nil while there is no entry
	limit uint32  // largest length of ring, a power of two
	shelf *shelf[entry]
	head  uint32
	count uint32
	sent  uint32

	// These fields are sums over the sent entries.
	flight  uint32 // octets of all sent entries
	sacked  uint32 // octets that are SACKed
	missing uint32 // octets that count as lost
	again   uint32 // octets that were retransmitted and are not SACKed
	pending uint32 // octets that are lost and not retransmitted: sendLost must send them
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

// vacant returns the ring of an empty queue to the shelf.
func (q *queue) vacant() {
	q.shelf.back(q.ring)
	q.ring = nil
}

// last returns the newest entry, or nil if the queue is empty.
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

// trim cuts k octets off the front of the oldest entry. The entry must have more than k
// octets.
func (q *queue) trim(k uint32) {
	e := q.at(0)
	m := e.mark
	q.remark(e, 0)
	e.seq, e.off, e.n = e.seq.Add(seq.Len(k)), e.off+k, e.n-k
	q.flight -= k
	q.remark(e, m)
}

// remark sets the mark of a sent entry, and adapts the sums over the entries.
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

// split divides entry i into its first k octets and the rest. Both keep the other fields, and the
// second one owns the frame. split returns false if the ring is full. If the ring has only one free
// slot, split divides only the oldest entry, because all progress depends on that entry.
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
	a.how &^= pushed
	b.how |= inner
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

// find returns the index of the sent entry that holds octet s. There must be such an
// entry.
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

// loseAll clears the scoreboard, because the receiver may have reneged (RFC 2018 §8).
// loseAll marks the oldest entry and all entries that were sent before the given
// instant as lost.
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
