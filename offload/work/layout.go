package work

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/stag-rdma/stag/tpt"
)

// The rings can lie in memory that the caller passes, so that another process or a C
// library can map them. All numbers have the byte order of the machine. Offsets and
// lengths are in octets. Fields without a name are 0.
//
// A send ring or a receive ring:
//
//	  0  tail u32  written by the poster
//	 64  done u64  written by the transport: silent * 2^32 + head
//	 72  waits u32 written by the transport, in a receive ring only
//	128  version u32  132 depth u32   136 slot u32  140 elements u32  144 inline u32
//	192  the slots
//
// Positions count work requests from 0 and wrap around 2^32. The number of slots is the
// smallest power of two that is depth or more. The work request at position p is in slot
// p modulo the number of slots. The poster fills slots from tail on, then stores tail.
// The transport has completed every request before head. silent is the number of those
// requests that have no completion. The place of such a request is free at once. The
// place of any other request is free when its completion has been polled. At most depth
// places may be taken at a time.
//
// A slot of a send ring:
//
//	0          8                16     20           24       28   29      30         31       32
//	| id u64   | remote addr u64 | rkey | invalidate | length | op | flags | elements | inline | body
//
// A slot of a receive ring:
//
//	0        8          9    12         16
//	| id u64 | elements |    | free u32 | body
//
// Several QPs can take from one receive ring (SharedQueue). Such a ring has done 0. Its
// slot is free for the request at position p when free is p and a place is free. The
// transport writes free after it has copied a slot. In any other ring, free is 0.
//
// The body is a list of elements:
//
//	0          8            12         16
//	| addr u64 | length u32 | lkey u32 |
//
// In a send ring with inline 1, the body is length octets of data instead. With Immediate
// Data (operations 1 and 3), the slot has the low half of the data in the place of
// invalidate and the high half in the place of length. The field elements then has the
// length of inline data, at most 255. The body of an atomic operation is one element and
// the operands:
//
//	0         16                24         32                      40              48
//	| element | compare/add u64 | swap u64 | compare/add mask u64 | swap mask u64 |
//
// Operations without masks have no masks in the slot. For the operation Delay, remote addr
// is the time to wait in nanoseconds. A Bind and a registration (operations 8 and 32) have
// their access in the place of length. Other operations with a list ignore length. The
// length of a slot is in the ring's header. The numbers of op and flags are those of WROp
// and SendFlags.
// The transport reads inline data in the slot until the request has completed.
//
// A completion ring:
//
//	  0  head u64     8   armed u32   written by the poller
//	 64  overrun u32                  written by the transport: a completion was lost
//	128  version u32  132 depth u32   136 slot u32: the length of a cell
//	192  the cells
//
// Positions count completions from 0. The completion at position p is in cell p modulo
// depth. A cell:
//
//	0         8        16   17       18          19    20            24       28   32
//	| seq u64 | id u64 | op | status | solicited | imm | invalidated | length | qp |
//
// With imm 1, the cell has the low half of the Immediate Data in the place of invalidated
// and the high half in the place of length, and the length is 0. With imm 2, the
// Immediate Data has 32 bits and is in the place of invalidated, and length is the length.
//
// A cell is filled when seq is p + 1. The poller takes completions from head on, then
// stores head. armed is 0, 1 for solicited completions and failures, or 2 for all. The
// transport sets armed to 0 when it notifies the poller.
//
// Both sides access tail, done, waits, free, head, armed, overrun and seq as atomic words. In terms of
// C11, the poster fills a slot and then stores tail with memory_order_release, and loads
// done or free with memory_order_acquire before it fills a slot again. The poller loads seq with
// memory_order_acquire, reads the cell, and then stores head with memory_order_release.
// waits is not 0 while a message waits for a receive, and from the time on when receives are
// flushed. The poster must then wake the transport. A poster of receives loads waits after it has stored tail, both with
// memory_order_seq_cst. A poller that is going to sleep stores armed and then loads seq of the next cell, both
// with memory_order_seq_cst. The load is needed because a completion that came before the
// store causes no notification. The poller replaces 0 by 1 with compare-and-exchange, so
// that armed stays 2 if it is 2.
//
// The transport trusts none of this memory. The transport keeps positions of its own, and compares
// the positions of the poster and of the poller with its own. The transport copies a slot before it
// checks the contents. A ring with impossible positions is broken. The QP or CQ of a broken ring
// fails. No other object is affected.
//
// The transport must be able to access the memory at any time, because an access beyond
// the end of a truncated file ends the process with SIGBUS. Memory that another process
// also maps must therefore be a memfd of full length with the seal F_SEAL_SHRINK
// (memfd_create(2), fcntl(2)). A process that gets such a descriptor from another process
// must check the length and the seal before it maps the memory.
const (
	LayoutVersion = 3

	tailAt, headAt, shapeAt, slotsAt = 0, 64, 128, 192

	lineLen     = 64
	sendSlotLen = 32 // length of the fixed part, without the body
	recvSlotLen = 16
	elementLen  = 16
	operandLen  = 8
	cellLen     = 32
)

// shape is the third line of every ring. shape contains the sizes that the ring was made
// for. shape is written once and not read again.
type shape struct{ version, depth, slot, elements, inline uint32 }

// queueEnds are the first lines of a send ring or a receive ring.
type queueEnds struct {
	tail  atomic.Uint32
	_     [60]byte
	done  atomic.Uint64 // silent<<32 | head
	waits atomic.Uint32 // receive ring: a message waits for a receive, or receives are flushed
	_     [52]byte
	shape
}

// cqEnds are the first cache lines of a completion ring.
type cqEnds struct {
	head    atomic.Uint64
	armed   atomic.Uint32
	_       [52]byte
	overrun atomic.Uint32
	_       [60]byte
	shape
}

// sendSlot is the fixed part of a slot of a send ring.
type sendSlot struct {
	id, remote                  uint64
	rkey, invalidate, length    uint32
	op, flags, elements, inline uint8
}

// recvSlot is the fixed part of a slot of a receive ring.
type recvSlot struct {
	id       uint64
	elements uint8
	_        [3]byte
	free     atomic.Uint32 // shared queue: position for which the slot is free; the transport writes it
}

// cell is the layout of one completion in a completion ring.
type cell struct {
	seq                     atomic.Uint64
	id                      uint64
	op, status              uint8
	solicited               bool
	imm                     uint8
	invalidated, length, qp uint32
}

// These are the values of imm in a cell.
const (
	NoImm    uint8 = iota
	WideImm        // 64 bits, and no length
	ShortImm       // 32 bits, and a length
)

// put writes c into the cell.
func (l *cell) put(c *Completion) {
	l.id, l.op, l.status, l.solicited, l.imm = c.ID, uint8(c.Op), uint8(c.Status), c.Solicited, NoImm
	l.invalidated, l.length, l.qp = uint32(c.Invalidated), c.Length, c.QP
	if c.WithImm {
		l.imm, l.invalidated = ShortImm, uint32(c.Imm)
		if high := uint32(c.Imm >> 32); high != 0 {
			l.imm, l.length = WideImm, high
		}
	}
}

// get reads the cell into c.
func (l *cell) get(c *Completion) {
	*c = Completion{
		ID: l.id, Op: WCOp(l.op), Status: Status(l.status), Solicited: l.solicited, WithImm: l.imm != NoImm,
		Invalidated: tpt.STag(l.invalidated), Length: l.length, QP: l.qp,
	}
	if c.WithImm {
		c.Imm, c.Invalidated = uint64(l.invalidated), 0
		if l.imm == WideImm {
			c.Imm, c.Length = c.Imm|uint64(l.length)<<32, 0
		}
	}
}

// roundUp returns the smallest power of two that is n or more. roundUp returns at least
// 1.
func roundUp(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// sendSlotOf returns the length in octets of a slot whose body has room for the given number of
// elements or of octets of inline data.
func sendSlotOf(elements, inline int) int {
	return (sendSlotLen + max(elementLen*elements, inline) + 31) &^ 31
}

// Room reports whether a slot of a send ring has room for a request of the operation. Each
// slot has room for the given number of elements or of octets of inline data. Only atomic
// operations may need more room than that.
func Room(o WROp, elements, inline int) bool {
	return o.operands() == 0 || sendSlotLen+elementLen+o.operands()*operandLen <= sendSlotOf(elements, inline)
}

// MaxInlineImm is the largest length in octets of inline data in a request with Immediate
// Data.
const MaxInlineImm = 255

func recvSlotOf(elements int) int { return recvSlotLen + elementLen*elements }

// SendRingLen returns the length in octets of the memory of a send ring for depth work
// requests. Each request has at most the given number of elements or of octets of inline
// data. NewSendRing takes the same numbers.
func SendRingLen(depth, elements, inline int) int {
	return slotsAt + roundUp(depth)*sendSlotOf(elements, inline)
}

// RecvRingLen returns the length in octets of the memory of a receive ring.
func RecvRingLen(depth, elements int) int { return slotsAt + roundUp(depth)*recvSlotOf(elements) }

// CQRingLen returns the length in octets of the memory of a completion ring for at least
// depth completions.
func CQRingLen(depth int) int { return slotsAt + cqSize(depth)*cellLen }

// cqSize returns how many completions a CQ holds. Programs can see this number. cqSize returns at
// least 2, as in all earlier versions.
func cqSize(depth int) int { return max(2, roundUp(depth)) }

// Ring is memory with the layout of a send queue or a receive queue.
type Ring struct {
	ends     *queueEnds
	slots    area
	depth    int
	elements int
	inline   int
}

// admit returns the position of the next post, and how many of n work requests have room.
func (r *Ring) admit(tail *atomic.Uint32, p *Places, n int) (pos uint32, room int) {
	pos = tail.Load()
	return pos, min(n, p.room(pos, uint32(r.depth)))
}

// makeRecv allocates the slots of a receive ring.
func (r *Ring) makeRecv() {
	slot := recvSlotOf(r.elements)
	r.slots = areaAt(lines(roundUp(r.depth)*slot), slot)
}

// NewSendRing lays memory out for a send queue. The memory must be aligned to 64 octets and have
// exactly SendRingLen octets. The memory must stay mapped as long as the queue is used. A file that
// other processes map too must have the seal F_SEAL_SHRINK. NewSendRing clears the memory.
func NewSendRing(memory []byte, depth, elements, inline int) (*Ring, error) {
	return newRing(memory, "send", sendSlotOf(elements, inline), depth, elements, inline)
}

// NewRecvRing lays memory out for a receive queue, as NewSendRing does for a send queue.
// The memory must have exactly RecvRingLen octets.
func NewRecvRing(memory []byte, depth, elements int) (*Ring, error) {
	return newRing(memory, "receive", recvSlotOf(elements), depth, elements, 0)
}

const (
	maxElements = 255
	maxInline   = 1 << 16 // octets
)

func newRing(memory []byte, what string, slot, depth, elements, inline int) (*Ring, error) {
	if depth < 1 || depth > 1<<30 || elements < 0 || elements > maxElements || inline < 0 || inline > maxInline {
		return nil, fmt.Errorf("%s ring for %d requests of %d elements and %d octets inline: want 1 to 2^30 requests, at most %d elements, and at most %d octets inline",
			what, depth, elements, inline, maxElements, maxInline)
	}
	if err := fits(memory, slotsAt+roundUp(depth)*slot); err != nil {
		return nil, fmt.Errorf("%s ring for %d requests: %w", what, depth, err)
	}
	clear(memory)
	r := &Ring{ends: queueEndsAt(memory), slots: areaAt(memory[slotsAt:], slot), depth: depth, elements: elements, inline: inline}
	r.ends.shape = shape{LayoutVersion, uint32(depth), uint32(slot), uint32(elements), uint32(inline)}
	return r, nil
}

func fits(memory []byte, want int) error {
	if len(memory) != want || !aligned(memory) {
		return fmt.Errorf("%d octets of memory: give it %d, aligned to %d", len(memory), want, lineLen)
	}
	return nil
}
