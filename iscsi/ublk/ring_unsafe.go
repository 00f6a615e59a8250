package ublk

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of io_uring (linux/io_uring.h).
const (
	setupCoopTaskrun = 1 << 8
	setupSQE128      = 1 << 10
	enterGetEvents   = 1 << 0
	offSQRing        = 0
	offCQRing        = 0x8000000
	offSQEs          = 0x10000000

	opURingRead = 22
	opURingCmd  = 46

	paramsOfRing = 120 // octets of struct io_uring_params
	wideSQE      = 128
	cqeLen       = 16
)

// ring is an io_uring whose submission queue entries have 128 octets. One thread uses it.
type ring struct {
	fd           int
	sq, cq, sqes []byte

	sqTail, cqHead, cqTail *uint32
	sqMask, cqMask         uint32
	array, cqes            []byte
	tail                   uint32 // of what has been prepared
	pending                uint32 // entries that have not been submitted
}

// newRing makes a ring with n entries, a power of two.
func newRing(n int) (r *ring, err error) {
	var p [paramsOfRing]byte
	binary.NativeEndian.PutUint32(p[8:], setupCoopTaskrun|setupSQE128)
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(n), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r = &ring{fd: int(fd)}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	u32 := func(at int) int { return int(binary.NativeEndian.Uint32(p[at:])) }
	const sqOff, cqOff = 40, 80
	sqEntries, cqEntries := u32(0), u32(4)
	if r.sq, err = r.mmap(offSQRing, u32(sqOff+24)+4*sqEntries); err != nil {
		return nil, err
	}
	if r.cq, err = r.mmap(offCQRing, u32(cqOff+20)+cqeLen*cqEntries); err != nil {
		return nil, err
	}
	if r.sqes, err = r.mmap(offSQEs, wideSQE*sqEntries); err != nil {
		return nil, err
	}
	at := func(b []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&b[off])) }
	r.sqTail, r.cqHead, r.cqTail = at(r.sq, u32(sqOff+4)), at(r.cq, u32(cqOff)), at(r.cq, u32(cqOff+4))
	r.sqMask, r.cqMask = *at(r.sq, u32(sqOff+8)), *at(r.cq, u32(cqOff+8))
	r.array, r.cqes = r.sq[u32(sqOff+24):], r.cq[u32(cqOff+20):]
	return r, nil
}

func (r *ring) mmap(off int64, n int) ([]byte, error) {
	b, err := unix.Mmap(r.fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("mmap an io_uring: %w", err)
	}
	return b, nil
}

// close frees the ring. The kernel cancels what is in flight.
func (r *ring) close() {
	for _, b := range [][]byte{r.sq, r.cq, r.sqes} {
		if b != nil {
			unix.Munmap(b) // it cannot fail: the mapping is there
		}
	}
	unix.Close(r.fd)
}

// entry returns the next submission queue entry, all zero. The ring must have room.
func (r *ring) entry() []byte {
	i := r.tail & r.sqMask
	binary.NativeEndian.PutUint32(r.array[4*i:], i)
	r.tail++
	r.pending++
	b := r.sqes[wideSQE*i:][:wideSQE]
	clear(b)
	return b
}

// enter submits the prepared entries, and waits for wait completions. A signal may end it
// early.
func (r *ring) enter(wait int) error {
	atomic.StoreUint32(r.sqTail, r.tail)
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), uintptr(wait), enterGetEvents, 0, 0)
	if errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY {
		return nil
	}
	if errno != 0 {
		return fmt.Errorf("io_uring_enter: %w", errno)
	}
	r.pending -= uint32(n)
	return nil
}

// reap calls f with each completion.
func (r *ring) reap(f func(data uint64, res int32)) {
	head := *r.cqHead
	for ; head != atomic.LoadUint32(r.cqTail); head++ {
		b := r.cqes[cqeLen*(head&r.cqMask):]
		f(binary.NativeEndian.Uint64(b), int32(binary.NativeEndian.Uint32(b[8:])))
	}
	atomic.StoreUint32(r.cqHead, head)
}

// address returns the address of memory that Go does not move: memory that mmap returned.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
