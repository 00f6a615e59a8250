package afxdp

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/port"
	"golang.org/x/sys/unix"
)

// Take implements port.Port.
func (q *Queue) Take(dst []port.Frame) int {
	if len(q.txPool) < len(dst) {
		q.reap()
	}
	n := min(len(dst), len(q.txPool))
	left := len(q.txPool) - n
	for k, i := range q.txPool[left:] {
		q.state[i] = held
		q.note(taken, i)
		dst[k] = port.Frame{
			Addr: q.memory(i) + port.Headroom,
			Len:  q.cfg.FrameSize - port.Headroom,
			Home: q.cfg.Lane,
		}
	}
	q.txPool = q.txPool[:left]
	if n < len(dst) {
		q.short = true
		q.count.NoFrames += uint64(len(dst) - n)
	}
	return n
}

// Free implements port.Port. It ignores the Len of a frame. Addr may be any address in
// the chunk.
func (q *Queue) Free(frames []port.Frame) {
	for _, f := range frames {
		i, ok := q.txChunk(f.Addr)
		if !ok || q.state[i]&held == 0 {
			q.misused(freed, f)
			continue
		}
		q.note(freed, i)
		q.drop(i, held)
	}
}

// drop removes owner h of transmit chunk i. A chunk without owners returns to the pool.
func (q *Queue) drop(i uint32, h holders) {
	q.state[i] &^= h
	if q.state[i] == 0 {
		q.txPool = append(q.txPool, i) // does not allocate: the capacity is enough for all chunks
	}
}

// Room implements port.Port. brim, the estimate of the device's own queue, also limits
// the result.
func (q *Queue) Room() int {
	q.reap()
	n := min(q.tx.Room(q.tx.Size()), q.brim.room(q.flying))
	if n == 0 {
		q.short = true
	}
	return n
}

// InFlight implements port.Port. It reaps completions before it returns true.
func (q *Queue) InFlight(f port.Frame) bool {
	i, ok := q.txChunk(f.Addr)
	if !ok || q.state[i]&away == 0 {
		return false
	}
	q.reap()
	return q.state[i]&away != 0
}

// Send implements port.Port. It stops at the first frame that the caller may not send.
// Such a frame is not held, is in flight, is empty, or is longer than the rest of its
// chunk. With Info.Sums it may also begin too early in its chunk, or have a wrong Sum.
func (q *Queue) Send(frames []port.Frame) int {
	n := 0
	for n < len(frames) && q.send(frames[n]) {
		n++
	}
	q.tx.Publish()
	q.flying += n
	q.count.Tx += uint64(n)
	if n < len(frames) {
		q.short = true
		q.count.NoRoom += uint64(len(frames) - n)
	}
	return n
}

func (q *Queue) send(f port.Frame) bool {
	i, ok := q.txChunk(f.Addr)
	at := uint32(f.Addr) & (q.cfg.FrameSize - 1)
	if !ok || q.state[i] != held || f.Len == 0 || f.Len > q.cfg.FrameSize-at {
		q.misused(sent, f)
		return false
	}
	options, ok := q.describe(f, at)
	if !ok {
		q.misused(sent, f)
		return false
	}
	if !q.tx.Put(unix.XDPDesc{Addr: f.Addr - q.base, Len: f.Len, Options: options}) {
		return false
	}
	q.state[i] |= away
	q.note(sent, i)
	return true
}

// reap empties the completion ring. The kernel's ownership of the chunks in that ring
// ends. The chunks may complete in another order than Send sent them.
func (q *Queue) reap() {
	n := 0
	for ; ; n++ {
		addr, ok := q.comp.Next()
		if !ok {
			break
		}
		f := port.Frame{Addr: q.base + addr}
		i, ok := q.txChunk(f.Addr)
		if !ok || addr >= q.size || q.state[i]&away == 0 {
			q.misused(completed, f)
			continue
		}
		q.note(completed, i)
		q.flying--
		q.count.Completed++
		q.drop(i, away)
	}
	q.brim.completed(n)
	q.comp.Release()
	if n > 0 {
		q.short = false
	}
}

// Flush implements port.Port. In copy mode the kernel sends within the system call and
// may stop early. Flush repeats the call until the ring is empty, a call sends nothing,
// or the device's own queue is full. The next Flush or Wait sends the remaining frames.
//
// After ErrLinkDown the frames stay queued. ErrGone is permanent.
func (q *Queue) Flush() error {
	if q.fd < 0 {
		return ErrClosed
	}
	q.reap()
	if q.info.Mode == ModeZeroCopy {
		if q.tx.Pending() > 0 && q.tx.NeedsWakeup() {
			return q.kick(sendZero)
		}
		return nil
	}
	// Each round consumes at least one descriptor, so the loop ends.
	for left := q.tx.Pending(); left > 0 && !q.brim.reached(q.flying-left); {
		if err := q.kick(sendCopy); err != nil {
			return err
		}
		q.reap()
		now := q.tx.Pending()
		if now >= left {
			q.count.Stalled++
			return nil
		}
		left = now
	}
	return nil
}

// kick makes the system call that starts transmission.
func (q *Queue) kick(c call) error {
	q.count.Kicks++
	act, errno := q.call(c)
	switch act {
	case lost:
		q.count.Lost++
		q.brim.overflown(q.flying - q.tx.Pending())
	case linkDown:
		return q.down
	case gone:
		return q.gone
	case fail:
		return fmt.Errorf("afxdp: %s: transmit: %w", q.name, errno)
	}
	return nil
}

// call makes the system call c without data. It repeats the call if a signal interrupts
// it.
func (q *Queue) call(c call) (action, unix.Errno) {
	trap := uintptr(unix.SYS_SENDTO)
	if c == recv {
		trap = unix.SYS_RECVFROM
	}
	for {
		errno := q.sys(trap)
		if act := decide(c, errno); act != retry {
			return act, errno
		}
	}
}

// trap calls sendto or recvfrom with an empty buffer. The kernel requires MSG_DONTWAIT.
func (q *Queue) trap(nr uintptr) unix.Errno {
	_, _, errno := unix.Syscall6(nr, uintptr(q.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}
