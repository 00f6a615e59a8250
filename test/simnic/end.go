package simnic

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/offload/port"
)

// ErrVirtualTime is the error of a Sleep that would have to sleep. Virtual time
// advances only in Link.Advance.
var ErrVirtualTime = errors.New("simnic: a port on virtual time cannot sleep: advance its link instead")

// end is one end of the link. It implements port.Port with one queue.
type end struct {
	link *Link
	side Side
	out  *direction

	chunks
	driver  driver
	arrived fifo[port.Frame] // received packets for Receive to return
	ring    fifo[port.Frame] // sent packets for Flush to start
	flying  int              // number of packets that have started and not yet departed
	woken   atomic.Bool      // any goroutine may write it
	errDown error
}

var _ port.Port = (*end)(nil)

func newEnd(l *Link, s Side) *end {
	return &end{
		link: l, side: s,
		chunks:  newChunks(l.cfg),
		driver:  newDriver(&l.cfg, s),
		arrived: newFIFO[port.Frame](l.cfg.Frames),
		ring:    newFIFO[port.Frame](l.cfg.TxRing),
		errDown: fmt.Errorf("end %v of the simulated link: %w", s, syscall.ENETDOWN),
	}
}

// memory returns the packet of f, whatever its holders are.
func (e *end) memory(f port.Frame) []byte {
	chunk := e.chunk(e.index(f.Addr))
	at := f.Addr % e.size
	if uint64(f.Len) > e.size-at {
		panic(fmt.Sprintf("simnic: %d octets at %#x leave their chunk", f.Len, f.Addr))
	}
	return chunk[at : at+uint64(f.Len)]
}

// held returns the number of f's chunk. It panics unless the caller holds the chunk.
func (e *end) held(f port.Frame) int {
	i := e.index(f.Addr)
	if e.holds[i]&byCaller == 0 {
		panic(fmt.Sprintf("simnic: end %v uses chunk %d, which it does not hold", e.side, i))
	}
	return i
}

// Bytes implements port.Port.
func (e *end) Bytes(f port.Frame) []byte {
	e.held(f)
	return e.memory(f)
}

// Record implements port.Port.
func (e *end) Record(f port.Frame) []byte {
	if e.link.cfg.Record == nil {
		return nil
	}
	e.held(f)
	return e.memory(port.Frame{Addr: f.Addr - port.RecordLen, Len: port.RecordLen})
}

// deliver copies an arriving packet into a receive chunk. It returns false if no
// receive chunk is free.
func (e *end) deliver(packet []byte) bool {
	i, ok := e.vacant()
	if !ok {
		return false
	}
	chunk := e.chunk(i)
	if hook := e.link.cfg.Record; hook != nil {
		e.writeRecord(chunk[rxOffset-port.RecordLen:rxOffset], hook(packet))
	}
	copy(chunk[rxOffset:], packet)
	e.arrived.push(port.Frame{Addr: uint64(i)*e.size + rxOffset, Len: uint32(len(packet))})
	return true
}

func (e *end) writeRecord(dst, record []byte) {
	switch len(record) {
	case 0:
		clear(dst)
	case port.RecordLen:
		copy(dst, record)
	default:
		panic(fmt.Sprintf("simnic: a steering record of %d octets", len(record)))
	}
}

// Receive implements port.Port.
func (e *end) Receive(dst []port.Frame) (n int) {
	for n < len(dst) && e.arrived.len() > 0 {
		f := e.arrived.pop()
		i := e.index(f.Addr)
		e.holds[i] = byCaller
		dst[n] = f
		n++
	}
	return n
}

// Recycle implements port.Port.
func (e *end) Recycle(frames []port.Frame) {
	for _, f := range frames {
		i := e.index(f.Addr)
		if i >= e.rx {
			panic(fmt.Sprintf("simnic: transmit chunk %d is recycled as a received one", i))
		}
		e.held(f)
		if e.link.cfg.Record != nil {
			clear(e.chunk(i)[rxOffset-port.RecordLen : rxOffset])
		}
		e.drop(i, byCaller)
	}
}

// Take implements port.Port.
func (e *end) Take(dst []port.Frame) (n int) {
	for n < len(dst) {
		i, ok := e.take(&e.spare, byCaller)
		if !ok {
			break
		}
		dst[n] = port.Frame{Addr: uint64(i)*e.size + port.Headroom, Len: uint32(e.size) - port.Headroom}
		n++
	}
	return n
}

// Free implements port.Port.
func (e *end) Free(frames []port.Frame) {
	for _, f := range frames {
		i := e.index(f.Addr)
		if i < e.rx {
			panic(fmt.Sprintf("simnic: received chunk %d is freed as a transmit one", i))
		}
		e.drop(i, byCaller)
	}
}

// Room implements port.Port.
func (e *end) Room() int { return e.ring.cap() - e.ring.len() - e.flying }

// InFlight implements port.Port.
func (e *end) InFlight(f port.Frame) bool { return e.holds[e.index(f.Addr)]&byLink != 0 }

// Send implements port.Port.
func (e *end) Send(frames []port.Frame) (n int) {
	for _, f := range frames[:min(len(frames), e.Room())] {
		if f.Len < ethernetLen || f.Len > e.link.cfg.maxPacket() {
			panic(fmt.Sprintf("simnic: a packet of %d octets on a link of MTU %d", f.Len, e.link.cfg.MTU))
		}
		e.memory(f) // panics if f is longer than its chunk
		if f.Sum != 0 && !e.link.cfg.Sums {
			panic("simnic: a packet without a checksum is sent to a port that completes none")
		}
		i := e.index(f.Addr)
		if i < e.rx {
			panic(fmt.Sprintf("simnic: received chunk %d is sent", i))
		}
		e.add(i, byLink)
		e.ring.push(f)
		n++
	}
	return n
}

// Flush implements port.Port. Sent packets stay in the ring until Flush.
func (e *end) Flush() error {
	for e.ring.len() > 0 {
		e.flying++
		e.out.depart(e.ring.pop())
	}
	if e.link.down {
		return e.errDown
	}
	return nil
}

// Arm implements port.Port.
func (e *end) Arm(d time.Duration) (limit time.Duration, err error) {
	if e.woken.Swap(false) || e.arrived.len() > 0 {
		return 0, nil
	}
	if d < 0 {
		d = math.MaxInt64
	}
	return d, nil
}

// Sleep implements port.Port. It returns ErrVirtualTime instead of sleeping.
func (e *end) Sleep(limit time.Duration) error {
	if e.woken.Swap(false) || limit == 0 {
		return nil
	}
	return ErrVirtualTime
}

// SleepUntilWake implements port.Port. It returns ErrVirtualTime instead of sleeping.
func (e *end) SleepUntilWake(limit time.Duration) error { return e.Sleep(limit) }

// Wake implements port.Port.
func (e *end) Wake() { e.woken.Store(true) }

// Limits implements port.Port.
func (e *end) Limits() port.Limits {
	c := &e.link.cfg
	return port.Limits{
		FrameSize: c.FrameSize, RxFrames: uint32(c.Frames), TxFrames: uint32(c.Frames),
		MaxPacket: c.maxPacket(), MaxPayload: c.FrameSize - port.Headroom, Sums: c.Sums,
	}
}
