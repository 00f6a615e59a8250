package tap

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
)

// Record is one packet.
type Record struct {
	At     clock.Instant // time from Config.Clock, or the time of the engine's step
	Flow   bpf.FlowID    // the flow of the packet; 0: none
	Out    bool          // the packet was sent; otherwise it was received
	Length int           // length on the wire in octets, from the Ethernet header on
	Data   []byte        // the first octets of the packet, as many as the ring kept
}

// Config describes a ring. The zero value works.
type Config struct {
	Size    int        // memory in octets, rounded up to a power of two; 0 means 8 MiB
	Flow    bpf.FlowID // the flow whose packets are kept; 0: all packets
	SnapLen int        // octets of each packet that are kept; 0: all

	// Clock returns the time of each packet. Put calls Clock on the engine's goroutine.
	// If Clock is nil, the time of a packet is the time of its step, so that several
	// packets have the same time.
	Clock func() clock.Instant
}

const (
	defaultSize = 8 << 20
	leastSize   = 64 << 10 // room for a few of the largest packets
)

// Ring is a queue of records from exactly one engine to exactly one reader. The engine
// and the reader do not wait for each other. If the ring has no room for a record, Put
// drops the record and counts it as lost.
//
// A record is a header and the packet's octets. The size of a record is a multiple of
// 8. A record that would cross the end of the memory begins at the start of the memory.
// A header of size 0 marks the gap.
//
//	0      4          8    16     20       24
//	| size | captured | at | flow | length | octets
//
// All fields are in host order. The top bit of length is set if the packet was sent.
type Ring struct {
	// New sets these fields, and they never change.
	mem   []byte
	flow  bpf.FlowID
	snap  int
	clock func() clock.Instant

	// The padding keeps fields that the engine writes and fields that the reader writes
	// in different cache lines.
	_    [64]byte
	tail atomic.Uint64 // octets put since New; only the engine writes it
	lost atomic.Uint64 // records for which there was no room; only the engine writes it
	seen uint64        // value of head that the engine read last; only the engine uses it
	_    [64]byte
	head atomic.Uint64 // octets taken since New; only the reader writes it
	_    [64]byte
}

const (
	recSize     = 0
	recCaptured = 4
	recAt       = 8
	recFlow     = 16
	recLength   = 20
	recLen      = 24
	recAlign    = 8
	recOut      = 1 << 31
)

// New makes a ring. New returns an error if a number in c is out of range.
func New(c Config) (*Ring, error) {
	if c.Size == 0 {
		c.Size = defaultSize
	}
	if c.Size < leastSize || c.Size > 1<<30 {
		return nil, fmt.Errorf("capture ring of %d octets: choose %d to %d", c.Size, leastSize, 1<<30)
	}
	if c.SnapLen < 0 {
		return nil, fmt.Errorf("snap length %d: choose 1 or more, or 0 for whole packets", c.SnapLen)
	}
	r := &Ring{mem: make([]byte, 1<<bits.Len(uint(c.Size-1))), flow: c.Flow, snap: c.SnapLen, clock: c.Clock}
	for i := 0; i < len(r.mem); i += 4096 {
		r.mem[i] = 1 // take the page fault now, not when the engine writes
	}
	return r, nil
}

// Put adds a packet if the ring is for the packet's flow. Put copies the octets that
// the ring keeps. Only the engine may call it.
func (r *Ring) Put(at clock.Instant, out bool, flow bpf.FlowID, packet []byte) {
	if r.flow != 0 && r.flow != flow {
		return
	}
	keep := packet
	if r.snap != 0 && len(keep) > r.snap {
		keep = keep[:r.snap]
	}
	size := (recLen + len(keep) + recAlign - 1) &^ (recAlign - 1)
	b := r.room(size)
	if b == nil {
		r.lost.Store(r.lost.Load() + 1) // a plain addition is safe: only the engine writes lost
		return
	}
	if r.clock != nil {
		at = r.clock()
	}
	length := uint32(len(packet))
	if out {
		length |= recOut
	}
	binary.NativeEndian.PutUint32(b[recSize:], uint32(size))
	binary.NativeEndian.PutUint32(b[recCaptured:], uint32(len(keep)))
	binary.NativeEndian.PutUint64(b[recAt:], uint64(at))
	binary.NativeEndian.PutUint32(b[recFlow:], uint32(flow))
	binary.NativeEndian.PutUint32(b[recLength:], length)
	copy(b[recLen:], keep)
	r.tail.Store(r.tail.Load() + uint64(size))
}

// room returns memory for a record of size octets, or nil if the ring has too little
// room. If the record would cross the end of the memory, room marks the gap and returns
// the start of the memory.
func (r *Ring) room(size int) []byte {
	tail := r.tail.Load()
	at := int(tail) & (len(r.mem) - 1)
	gap := 0
	if len(r.mem)-at < size {
		gap = len(r.mem) - at
	}
	if need := uint64(gap + size); !r.fits(tail, need) {
		return nil
	}
	if gap == 0 {
		return r.mem[at : at+size]
	}
	binary.NativeEndian.PutUint32(r.mem[at+recSize:], 0)
	r.tail.Store(tail + uint64(gap))
	return r.mem[:size]
}

// fits reports whether need octets behind tail are free. fits reads the reader's head
// only if seen leaves too little room.
func (r *Ring) fits(tail, need uint64) bool {
	if tail+need-r.seen <= uint64(len(r.mem)) {
		return true
	}
	r.seen = r.head.Load()
	return tail+need-r.seen <= uint64(len(r.mem))
}

// Reach returns the time of the last record that Take with the same limit would take.
// more reports whether there are further records. ok is false if the ring is empty.
// Only the reader may call Reach.
func (r *Ring) Reach(limit int) (at clock.Instant, more, ok bool) {
	head, tail := r.head.Load(), r.tail.Load()
	end, _, last, n := r.measure(head, tail, limit, latest)
	return last, end != tail, n != 0
}

// latest is the largest instant.
const latest = clock.Instant(1<<63 - 1)

// Take removes the oldest records from the ring and appends them to dst. Take takes
// records up to and including the instant until, and at most limit octets of packets. A
// first record longer than limit is taken too. The Data of the records belongs to the
// caller. Only the reader may call Take.
func (r *Ring) Take(dst []Record, until clock.Instant, limit int) []Record {
	head := r.head.Load()
	end, octets, _, n := r.measure(head, r.tail.Load(), limit, until)
	dst, data := slices.Grow(dst, n), make([]byte, 0, octets)
	for head != end {
		b, size := r.record(head)
		head += uint64(size)
		if b == nil {
			continue
		}
		n, from := int(binary.NativeEndian.Uint32(b[recCaptured:])), len(data)
		data = append(data, b[recLen:recLen+n]...)
		length := binary.NativeEndian.Uint32(b[recLength:])
		dst = append(dst, Record{
			At:     at(b),
			Flow:   bpf.FlowID(binary.NativeEndian.Uint32(b[recFlow:])),
			Out:    length&recOut != 0,
			Length: int(length &^ recOut),
			Data:   data[from:len(data):len(data)],
		})
	}
	r.head.Store(end)
	return dst
}

// measure looks for the records that Take takes. measure returns the position after
// these records, the number of octets of packets in them, the time of the last record,
// and the number of records.
func (r *Ring) measure(head, tail uint64, limit int, until clock.Instant) (end uint64, octets int, last clock.Instant, n int) {
	for head != tail {
		b, size := r.record(head)
		if b != nil {
			captured := int(binary.NativeEndian.Uint32(b[recCaptured:]))
			if n != 0 && octets+captured > limit || at(b) > until {
				break
			}
			octets, last, n = octets+captured, at(b), n+1
		}
		head += uint64(size)
	}
	return head, octets, last, n
}

// record returns the record at pos and its size, or nil and the size of the gap.
func (r *Ring) record(pos uint64) (b []byte, size int) {
	b = r.mem[int(pos)&(len(r.mem)-1):]
	if size = int(binary.NativeEndian.Uint32(b[recSize:])); size == 0 {
		return nil, len(b)
	}
	return b[:size], size
}

func at(record []byte) clock.Instant {
	return clock.Instant(binary.NativeEndian.Uint64(record[recAt:]))
}

// Lost returns how many packets found no room since New. Any goroutine may call it.
func (r *Ring) Lost() uint64 { return r.lost.Load() }
