package engine

import (
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

// outbox is the engine's view of the port's transmit side.
type outbox struct {
	room    int  // lower limit of the free places in the transmit ring
	queued  int  // packets given to the port since the last flush
	sums    bool // the port completes TCP checksums; Run sets it again, because the port knows it when it is bound
	stalled bool // the link sends nothing now
	one     [1]port.Frame
}

// Send implements tcp.Output. It queues one segment of this flow at the port. The
// headers go in front of the payload in the frame that contains it. If the kernel still
// reads that frame, or if the segment is only a piece of the frame's payload, Send
// copies the payload into another frame.
func (f *flow) Send(h *wire.TCPFields, fr port.Frame, off, n int) bool {
	e := f.e
	switch {
	case n == 0:
		return f.SendCopy(h, nil)
	case off != 0 || e.port.InFlight(fr):
		return f.SendCopy(h, e.port.Bytes(fr)[off:off+n])
	case !e.hasRoom():
		f.refused = true
		return false
	}
	e.transmit(f, h, fr, n)
	return true
}

// SendCopy implements tcp.Output. SendCopy copies the payload into a frame that lasts
// until the packet has been sent.
func (f *flow) SendCopy(h *wire.TCPFields, payload []byte) bool {
	e := f.e
	if !e.hasRoom() {
		f.refused = true
		return false
	}
	if !e.frames.stock(0) {
		f.refused = true
		e.count.NoTxFrame++
		return false
	}
	own := e.frames.takeSpare()
	if len(payload) != 0 {
		copy(e.port.Bytes(own), payload)
		e.count.TxCopies++
	}
	e.transmit(f, h, own, len(payload))
	e.frames.freed = append(e.frames.freed, own)
	return true
}

// transmit writes the headers in front of the n octets of payload in fr, and queues the
// packet. The caller must have checked that there is room.
func (e *Engine) transmit(f *flow, h *wire.TCPFields, fr port.Frame, n int) {
	mem := e.port.Bytes(port.Frame{Addr: fr.Addr - port.Headroom, Len: uint32(port.Headroom + n), Home: fr.Home})
	length, sum := 0, 0
	if e.tx.sums && n >= leastSum {
		length, sum = f.head.WritePartial(mem, port.Headroom, h)
		e.count.TxSumsLeft++
	} else {
		length = f.head.Write(mem, port.Headroom, h)
	}
	e.tx.one[0] = port.Frame{Addr: fr.Addr - uint64(length), Len: uint32(length + n), Home: fr.Home, Sum: uint16(sum)}
	if len(e.tapped) != 0 {
		e.tapSent(f.id, e.tx.one[0])
	}
	e.tx.room -= e.port.Send(e.tx.one[:])
	e.count.TxPackets++
	e.count.TxOctets += uint64(length + n)
	e.worked = true
	if e.tx.queued++; e.tx.queued == flushEvery {
		e.flush()
	}
}

// leastSum is the length in octets of the shortest payload whose checksum is left to a port
// that completes checksums. A shorter payload costs less to sum than to describe.
const leastSum = 256

// flushEvery is the largest number of packets that are queued before the kernel is told
// to send them. The other end can then process the first packets while this end makes
// the next. Octets that the kernel copies are still in the processor's cache.
const flushEvery = 32

// hasRoom reports whether the transmit ring has room for another packet.
func (e *Engine) hasRoom() bool {
	if !e.roomy() {
		e.count.TxRingFull++
		return false
	}
	return true
}

// roomy reports whether the transmit ring has room. Unlike hasRoom, roomy counts
// nothing.
func (e *Engine) roomy() bool {
	if e.tx.room <= 0 {
		e.tx.room = e.port.Room()
	}
	return e.tx.room > 0
}
