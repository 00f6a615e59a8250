package work

import (
	"fmt"
	"sync/atomic"
)

// SendPoster posts to a send ring whose transport runs in another process. One goroutine at a
// time posts. Any goroutine may give places back.
type SendPoster struct {
	queue  SendQueue // only the ring and the places are used
	silent uint32    // requests without a completion whose places have been given back
}

// OpenSendRing makes a poster for a ring that another process has laid out with NewSendRing.
// The memory must stay mapped as long as the poster is used.
func OpenSendRing(memory []byte) (*SendPoster, error) {
	r, err := openRing(memory, "send")
	if err != nil {
		return nil, err
	}
	if want := sendSlotOf(r.elements, r.inline); r.slots.stride != uintptr(want) {
		return nil, fmt.Errorf("send ring with slots of %d octets: want %d", r.slots.stride, want)
	}
	return &SendPoster{queue: SendQueue{ring: *r, tail: &r.ends.tail, Places: new(Places)}}, nil
}

// Post copies as many of wrs into the ring as there is room for, and returns their number.
// The caller must have checked wrs, and must then ring the transport's bell.
func (p *SendPoster) Post(wrs []SendWR) int {
	silent := uint32(p.queue.ring.ends.done.Load() >> 32)
	p.queue.Places.returned.Add(silent - p.silent)
	p.silent = silent
	return p.queue.Post(wrs)
}

// Polled gives back the places of n requests whose completions have been polled.
func (p *SendPoster) Polled(n int) { p.queue.Places.returned.Add(uint32(n)) }

// RecvPoster posts to a receive ring whose transport runs in another process, as SendPoster
// does to a send ring.
type RecvPoster struct {
	ring   Ring
	places Places
}

// OpenRecvRing makes a poster for a ring that another process has laid out with NewRecvRing.
func OpenRecvRing(memory []byte) (*RecvPoster, error) {
	r, err := openRing(memory, "receive")
	if err != nil {
		return nil, err
	}
	if want := recvSlotOf(r.elements); r.slots.stride != uintptr(want) {
		return nil, fmt.Errorf("receive ring with slots of %d octets: want %d", r.slots.stride, want)
	}
	return &RecvPoster{ring: *r}, nil
}

// Post copies as many of wrs into the ring as there is room for. It returns their number, and
// whether the caller must ring the transport's bell. The caller must have checked wrs.
func (p *RecvPoster) Post(wrs []RecvWR) (n int, ring bool) {
	tail, n := p.ring.admit(&p.ring.ends.tail, &p.places, len(wrs))
	for i := range n {
		p.ring.fillRecv(tail+uint32(i), &wrs[i])
	}
	p.ring.ends.tail.Store(tail + uint32(n))
	return n, p.ring.ends.waits.Load() != 0
}

// Polled gives back the places of n receives whose completions have been polled.
func (p *RecvPoster) Polled(n int) { p.places.returned.Add(uint32(n)) }

// openRing checks the sizes that another process has written into a ring.
func openRing(memory []byte, what string) (*Ring, error) {
	if len(memory) < slotsAt || !aligned(memory) {
		return nil, fmt.Errorf("%s ring of %d octets: want %d or more, aligned to %d", what, len(memory), slotsAt, lineLen)
	}
	ends := queueEndsAt(memory)
	s := ends.shape
	if s.version != LayoutVersion {
		return nil, fmt.Errorf("%s ring of layout %d: this program knows %d", what, s.version, LayoutVersion)
	}
	if s.depth < 1 || s.depth > 1<<30 || s.elements > maxElements || s.inline > maxInline || s.slot > 1<<20 ||
		len(memory) != slotsAt+roundUp(int(s.depth))*int(s.slot) {
		return nil, fmt.Errorf("%s ring of %d octets for %d requests in slots of %d", what, len(memory), s.depth, s.slot)
	}
	return &Ring{
		ends: ends, slots: areaAt(memory[slotsAt:], int(s.slot)),
		depth: int(s.depth), elements: int(s.elements), inline: int(s.inline),
	}, nil
}

// Poller polls a completion ring whose transport runs in another process. One goroutine at a
// time polls.
type Poller struct {
	ends  *cqEnds
	cells area
	head  atomic.Uint64 // this process's copy of head
}

// OpenCQ makes a poller of a ring that another process has laid out with NewCQIn.
func OpenCQ(memory []byte) (*Poller, error) {
	if len(memory) < slotsAt || !aligned(memory) {
		return nil, fmt.Errorf("completion ring of %d octets: want %d or more, aligned to %d", len(memory), slotsAt, lineLen)
	}
	ends := cqEndsAt(memory)
	s := ends.shape
	if s.version != LayoutVersion || s.slot != cellLen || s.depth == 0 || s.depth&(s.depth-1) != 0 ||
		len(memory) != slotsAt+int(s.depth)*cellLen {
		return nil, fmt.Errorf("completion ring of layout %d, %d octets, for %d completions of %d octets", s.version, len(memory), s.depth, s.slot)
	}
	return &Poller{ends: ends, cells: areaAt(memory[slotsAt:], cellLen)}, nil
}

// Cap returns how many completions the ring holds.
func (p *Poller) Cap() int { return int(p.cells.mask) + 1 }

// Poll moves completions into dst, oldest first, and returns their number.
func (p *Poller) Poll(dst []Completion) int {
	pos, n := p.head.Load(), 0
	for n < len(dst) {
		c := p.cells.cell(pos)
		if c.seq.Load() != pos+1 {
			break
		}
		c.get(&dst[n])
		pos++
		n++
	}
	if n != 0 {
		p.head.Store(pos)
		p.ends.head.Store(pos)
	}
	return n
}

// Ready reports whether Poll would find a completion.
func (p *Poller) Ready() bool {
	pos := p.head.Load()
	return p.cells.cell(pos).seq.Load() == pos+1
}

// Arm asks the transport for an event, as CQ.Arm does.
func (p *Poller) Arm(solicitedOnly bool) {
	if solicitedOnly {
		p.ends.armed.CompareAndSwap(notArmed, armedSolicited)
		return
	}
	p.ends.armed.Store(armedNext)
}

// Overrun reports whether a completion has been lost.
func (p *Poller) Overrun() bool { return p.ends.overrun.Load() != 0 }
