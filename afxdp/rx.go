package afxdp

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/port"
	"golang.org/x/sys/unix"
)

// Receive implements port.Port.
func (q *Queue) Receive(dst []port.Frame) int {
	refilled := q.refill()
	n := 0
	for n < len(dst) {
		d, ok := q.rx.Next()
		if !ok {
			break
		}
		if f, ok := q.accept(d); ok {
			dst[n] = f
			n++
		}
	}
	q.rx.Release()
	q.count.Rx += uint64(n)
	q.wakeRx(refilled, n == 0)
	return n
}

// copyLevel is how many chunks the fill ring holds at first in copy mode. The kernel
// uses the chunks in turn. With few chunks, most of them are still in the processor's
// caches when they are used again. In zero-copy mode the fill ring gets all chunks.
const copyLevel = 512

// wanted returns how many chunks to add to the fill ring. An empty ring means that its
// level was too low for the arriving frames, so wanted doubles the level.
func (q *Queue) wanted() int {
	if q.info.Mode == ModeZeroCopy {
		return len(q.rxPool)
	}
	there := q.fill.Pending()
	switch {
	case q.level == 0:
		q.level = copyLevel
	case there == 0:
		q.level = min(2*q.level, int(q.cfg.RxFrames))
	}
	return min(q.level-there, len(q.rxPool))
}

// refill gives the kernel receive chunks from the pool. It reports whether it gave any.
// While the fill ring is empty, the kernel drops arriving frames.
func (q *Queue) refill() bool {
	if len(q.rxPool) == 0 {
		return false
	}
	left := len(q.rxPool)
	for end := left - q.wanted(); left > end; left-- {
		i := q.rxPool[left-1]
		if !q.fill.Put(uint64(i) << q.shift) {
			break
		}
		q.state[i] = away
		q.note(filled, i)
	}
	if left == len(q.rxPool) {
		return false
	}
	q.count.Filled += uint64(len(q.rxPool) - left)
	q.rxPool = q.rxPool[:left]
	q.fill.Publish()
	return true
}

// accept turns a descriptor from the receive ring into a frame. The descriptor must
// name a packet within a chunk that the kernel owned. Otherwise accept counts the
// descriptor and returns false.
func (q *Queue) accept(d unix.XDPDesc) (port.Frame, bool) {
	f := port.Frame{Addr: q.base + d.Addr, Len: d.Len, Home: q.cfg.Lane}
	i, ok := q.rxChunk(f.Addr)
	at := uint32(d.Addr) & (q.cfg.FrameSize - 1)
	if !ok || d.Addr >= q.size || q.state[i] != away || d.Len > q.cfg.FrameSize-at {
		q.count.RxBad++
		if q.trace != nil {
			q.panicAbout(received, f)
		}
		return f, false
	}
	q.state[i] = held
	q.begin[i] = uint16(at)
	q.note(received, i)
	return f, true
}

// Recycle implements port.Port. It ignores the Len of a frame. Addr may be any address
// in the chunk.
func (q *Queue) Recycle(frames []port.Frame) {
	for _, f := range frames {
		i, ok := q.rxChunk(f.Addr)
		if !ok || q.state[i] != held {
			q.misused(recycled, f)
			continue
		}
		q.wipe(i)
		q.state[i] = 0
		q.note(recycled, i)
		q.rxPool = append(q.rxPool, i) // does not allocate: the capacity is enough for all chunks
	}
}

// wipe zeroes the first 8 octets of the steering record in front of the packet in chunk
// i. Otherwise the engine could take this old record for the record of the next packet
// in the chunk.
func (q *Queue) wipe(i uint32) {
	at := uint64(q.begin[i])
	if at < port.RecordLen {
		return // the chunk has no room for a record
	}
	binary.NativeEndian.PutUint64(q.mem[q.memory(i)+at-port.RecordLen:], 0)
}

// wakeRx calls recvfrom if the receive side needs this system call. A driver that ran
// out of chunks needs it. In copy mode wakeRx does nothing.
func (q *Queue) wakeRx(refilled, empty bool) {
	if (refilled || empty) && q.fill.NeedsWakeup() {
		q.count.RxKicks++
		q.call(recv)
	}
}
