package afxdp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Pages is the kind of memory pages of an arena.
type Pages uint8

const (
	PagesSmall       Pages = iota // the machine's ordinary pages
	PagesTransparent              // ordinary pages that the kernel may merge into huge pages
	PagesHuge                     // 2 MiB pages from the reserved pool (vm.nr_hugepages)
)

func (p Pages) String() string {
	return [...]string{"small pages", "transparent huge pages", "2 MiB huge pages"}[p]
}

const hugePage = 2 << 20 // octets

// Arena is the one mapping that holds all frames of an adapter. It lies outside the Go
// heap. Cut, Size, Pages and Close are safe for concurrent use.
//
// The mapping stays until the arena and all its queues are closed, in any order.
type Arena struct {
	mem   []byte // the whole mapping
	pages Pages

	mu    sync.Mutex
	ready uint64 // octets of mem that may be used; the rest is reserved address space
	cut   uint64 // octets that Cut has reserved
	chunk uint32 // chunk size of the arena's queues; 0 before the first queue is open
	users int    // number of open queues, plus one until Close
	shut  bool
}

// NewArena maps size octets, rounded up to whole pages. It uses huge pages if enough of
// them are reserved and free. Otherwise it uses small pages and asks the kernel to
// merge them.
func NewArena(size uint64) (*Arena, error) { return NewGrowingArena(size, size) }

// NewGrowingArena is NewArena for an arena that can grow to most octets. Growing takes
// address space now, and memory when Cut needs it. An arena of reserved huge pages does
// not grow.
func NewGrowingArena(size, most uint64) (*Arena, error) {
	if size == 0 || max(size, most) > math.MaxInt64-hugePage {
		return nil, fmt.Errorf("afxdp: arena of %d octets: ask for at least one and fewer than 2^63", max(size, most))
	}
	mem, pages, err := mapArena(size, most)
	if err != nil {
		return nil, fmt.Errorf("afxdp: map an arena of %d MiB: %w: ask for less or free memory", size>>20, err)
	}
	ready := min(uint64(len(mem)), roundUp(size, pageSize))
	if pages == PagesHuge {
		ready = uint64(len(mem))
	}
	return &Arena{mem: mem, pages: pages, ready: ready, users: 1}, nil
}

func mapArena(size, most uint64) ([]byte, Pages, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if size >= hugePage {
		mem, err := unix.Mmap(-1, 0, int(roundUp(size, hugePage)), prot,
			flags|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
		if err == nil {
			return mem, PagesHuge, nil
		}
	}
	mem, err := unix.Mmap(-1, 0, int(roundUp(max(size, most), pageSize)), unix.PROT_NONE, flags|unix.MAP_NORESERVE)
	if err != nil {
		return nil, PagesSmall, err
	}
	if err := unix.Mprotect(mem[:roundUp(size, pageSize)], prot); err != nil {
		return nil, PagesSmall, errors.Join(err, unix.Munmap(mem))
	}
	if size >= hugePage && unix.Madvise(mem, unix.MADV_HUGEPAGE) == nil && transparentHugePages() {
		return mem, PagesTransparent, nil
	}
	return mem, PagesSmall, nil
}

// transparentHugePages reports whether the kernel accepts MADV_HUGEPAGE.
func transparentHugePages() bool {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !strings.Contains(string(mode), "[never]")
}

var pageSize = uint64(os.Getpagesize())

// roundUp returns the smallest multiple of unit that is at least n. unit must be a
// power of two, and the result must not overflow.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

// Size returns the length of the mapping in octets, including what is reserved for growth.
func (a *Arena) Size() uint64 { return uint64(len(a.mem)) }

// grow makes the first end octets of the mapping usable. The caller must hold mu.
func (a *Arena) grow(end uint64) error {
	if end <= a.ready {
		return nil
	}
	if err := unix.Mprotect(a.mem[a.ready:end], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fmt.Errorf("afxdp: grow the arena to %d MiB: %w: ask for less or free memory", end>>20, err)
	}
	a.ready = end
	return nil
}

// Pages returns the kind of memory pages that NewArena got.
func (a *Arena) Pages() Pages { return a.pages }

// Cut reserves a region of size octets, rounded up to whole pages. The region exists as
// long as the arena. After the region's queue is closed, another queue may use the
// region.
func (a *Arena) Cut(size uint64) (*Region, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.Size() - a.cut
	switch {
	case a.shut:
		return nil, errors.New("afxdp: cut a region: the arena is closed")
	case size == 0:
		return nil, errors.New("afxdp: cut a region of 0 octets")
	case size > left || roundUp(size, pageSize) > left:
		return nil, fmt.Errorf("afxdp: cut a region of %d octets: only %d of the arena's %d are left; make the arena larger",
			size, left, a.Size())
	}
	end := a.cut + roundUp(size, pageSize)
	if err := a.grow(end); err != nil {
		return nil, err
	}
	r := &Region{arena: a, base: a.cut, size: size}
	a.cut = end
	return r, nil
}

// Close releases the arena. If no queue is open over the arena, Close unmaps the
// memory. Otherwise the Close of the last queue unmaps it. The caller must not use
// unmapped memory.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut {
		return nil
	}
	a.shut = true
	return a.leave()
}

// leave removes one user of the arena: an open queue, or the arena itself at Close.
// When the last user is gone, leave unmaps the memory. The caller must hold mu.
func (a *Arena) leave() error {
	if a.users--; a.users > 0 {
		return nil
	}
	if err := unix.Munmap(a.mem); err != nil {
		return fmt.Errorf("afxdp: unmap the arena: %w", err)
	}
	return nil
}

// Region is a part of an arena.
type Region struct {
	arena *Arena
	base  uint64 // offset of the region from the start of the arena, in octets; page aligned
	size  uint64 // octets

	// arena.mu protects these fields.
	busy   bool // a queue is open over the region
	soiled bool // a queue was open over the region before
}

// Base returns the offset of the region from the start of the arena, in octets.
func (r *Region) Base() uint64 { return r.base }

// Size returns the length of the region in octets.
func (r *Region) Size() uint64 { return r.size }

// Bytes returns the region's memory, which is valid until the arena is unmapped.
func (r *Region) Bytes() []byte {
	end := r.base + r.size
	return r.arena.mem[r.base:end:end]
}

// claim reserves the region for a queue with chunks of the given size. All queues of an
// arena must use one size, because each queue can read the frames of every queue of the
// arena.
func (r *Region) claim(chunk uint32) (release func() error, err error) {
	a := r.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.shut:
		return nil, errors.New("the arena is closed")
	case r.busy:
		return nil, fmt.Errorf("the region at %d is in use by another queue: %w", r.base, unix.EBUSY)
	case a.chunk != 0 && a.chunk != chunk:
		return nil, fmt.Errorf("FrameSize is %d, the arena's other queues have %d: make them equal", chunk, a.chunk)
	}
	if r.soiled { // erase old steering records, so that none is taken for the record of a new packet
		clear(r.Bytes())
	}
	a.chunk, r.busy, r.soiled = chunk, true, true
	a.users++
	return r.release, nil
}

func (r *Region) release() error {
	r.arena.mu.Lock()
	defer r.arena.mu.Unlock()
	r.busy = false
	return r.arena.leave()
}
