package backend

import (
	"fmt"
	"io"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// page is the unit in octets in which RAM and files give storage back.
const page = 4096

// RAM is a medium in memory outside of the Go heap. Pages that were never written take
// no memory. RAM lends its pages, so a target moves data between them and the wire
// without a copy. RAM is safe for concurrent use. Reads and writes of the same octets at
// the same time give any mixture of old and new octets.
type RAM struct {
	mem  []byte
	used []atomic.Uint64 // a bit for each page that was written
}

// NewRAM makes a medium of size octets, rounded up to whole pages of 4096. The caller
// must close it when no unit uses it any more.
func NewRAM(size int64) (*RAM, error) {
	if size < 1 || size > 1<<46 {
		return nil, fmt.Errorf("RAM medium of %d octets: use 1 to 2^46", size)
	}
	size = (size + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("RAM medium of %d octets: %w", size, err)
	}
	return &RAM{mem: mem, used: make([]atomic.Uint64, (size/page+63)/64)}, nil
}

// String returns the kind of the medium.
func (r *RAM) String() string { return "ram" }

// Close frees the memory. Nobody may use the medium or memory that it has lent.
func (r *RAM) Close() error {
	mem := r.mem
	r.mem, r.used = nil, nil
	return unix.Munmap(mem)
}

// Size returns the capacity in octets.
func (r *RAM) Size() int64 { return int64(len(r.mem)) }

// Sync does nothing: the medium is volatile.
func (r *RAM) Sync() error { return nil }

// inside reports whether n octets at off are octets of the medium.
func inside(off, n, size int64) bool { return off >= 0 && n >= 0 && off <= size && n <= size-off }

// ReadAt implements io.ReaderAt.
func (r *RAM) ReadAt(p []byte, off int64) (int, error) {
	if !inside(off, int64(len(p)), r.Size()) {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, r.mem[off:]), nil
}

// WriteAt implements io.WriterAt.
func (r *RAM) WriteAt(p []byte, off int64) (int, error) {
	if !inside(off, int64(len(p)), r.Size()) {
		return 0, io.ErrShortWrite
	}
	r.mark(off, int64(len(p)))
	return copy(r.mem[off:], p), nil
}

// Lend implements unit.Lender.
func (r *RAM) Lend(off, n int64, write bool) []byte {
	if !inside(off, n, r.Size()) {
		return nil
	}
	if write {
		r.mark(off, n)
	}
	return r.mem[off : off+n : off+n]
}

// mark says that the pages of n octets at off are written.
func (r *RAM) mark(off, n int64) {
	if n == 0 {
		return
	}
	for p := off / page; p <= (off+n-1)/page; p++ {
		if w, bit := &r.used[p/64], uint64(1)<<(p%64); w.Load()&bit == 0 {
			w.Or(bit)
		}
	}
}

// Discard implements unit.Discarder. Whole pages go back to the kernel.
func (r *RAM) Discard(off, n int64) error {
	if !inside(off, n, r.Size()) {
		return io.ErrUnexpectedEOF
	}
	first, last := (off+page-1)/page, (off+n)/page
	if first >= last {
		clear(r.mem[off : off+n])
		return nil
	}
	clear(r.mem[off : first*page])
	clear(r.mem[last*page : off+n])
	if err := unix.Madvise(r.mem[first*page:last*page], unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("give memory back: %w", err)
	}
	for p := first; p < last; p++ {
		r.used[p/64].And(^(uint64(1) << (p % 64)))
	}
	return nil
}

// Zero implements unit.Zeroer. The pages keep their memory.
func (r *RAM) Zero(off, n int64) error {
	if !inside(off, n, r.Size()) {
		return io.ErrUnexpectedEOF
	}
	r.mark(off, n)
	clear(r.mem[off : off+n])
	return nil
}

// Mapped implements unit.Mapper.
func (r *RAM) Mapped(off int64) (mapped bool, n int64) {
	p := off / page
	mapped = r.used[p/64].Load()>>(p%64)&1 != 0
	end := p
	for end < r.Size()/page {
		w := r.used[end/64].Load() >> (end % 64)
		if mapped {
			w = ^w
		}
		run := int64(bits.TrailingZeros64(w)) // pages that are as p
		if left := 64 - end%64; run < left {
			end += run
			break
		}
		end += 64 - end%64
	}
	return mapped, max(1, min(end*page, r.Size())-off)
}
