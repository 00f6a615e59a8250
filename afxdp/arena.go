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

// Pages is the kind of memory that an arena got.
type Pages uint8

const (
	PagesSmall       Pages = iota // the machine's ordinary pages
	PagesTransparent              // ordinary pages that the kernel may merge into huge pages
	PagesHuge                     // 2 MiB pages set aside (vm.nr_hugepages)
)

func (p Pages) String() string {
	return [...]string{"small pages", "transparent huge pages", "2 MiB huge pages"}[p]
}

const hugePage = 2 << 20 // octets

// Arena is the one mapping that holds all frames of an adapter. It lies outside
// the Go heap. Cut, Size, Pages and Close are safe for concurrent use.
//
// The mapping stays until Close was called and every queue over it is closed,
// in either order.
type Arena struct {
	mem   []byte
	pages Pages

	mu    sync.Mutex
	cut   uint64 // octets handed out
	chunk uint32 // chunk size of its queues; 0 before the first is open
	users int    // open queues, plus one until Close
	shut  bool
}

// NewArena maps size octets, rounded up to whole pages. It uses huge pages if
// at least size octets of them are set aside and free. Otherwise it uses small
// pages and asks the kernel to merge them.
func NewArena(size uint64) (*Arena, error) {
	if size == 0 || size > math.MaxInt64-hugePage {
		return nil, fmt.Errorf("afxdp: arena of %d octets: ask for at least one and fewer than 2^63", size)
	}
	mem, pages, err := mapArena(size)
	if err != nil {
		return nil, fmt.Errorf("afxdp: map an arena of %d MiB: %w: ask for less or free memory", size>>20, err)
	}
	return &Arena{mem: mem, pages: pages, users: 1}, nil
}

func mapArena(size uint64) ([]byte, Pages, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if size >= hugePage {
		mem, err := unix.Mmap(-1, 0, int(roundUp(size, hugePage)), prot,
			flags|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
		if err == nil {
			return mem, PagesHuge, nil
		}
	}
	mem, err := unix.Mmap(-1, 0, int(roundUp(size, pageSize)), prot, flags)
	if err != nil {
		return nil, PagesSmall, err
	}
	if size >= hugePage && unix.Madvise(mem, unix.MADV_HUGEPAGE) == nil && transparentHugePages() {
		return mem, PagesTransparent, nil
	}
	return mem, PagesSmall, nil
}

// transparentHugePages reports whether the kernel honours MADV_HUGEPAGE.
func transparentHugePages() bool {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !strings.Contains(string(mode), "[never]")
}

var pageSize = uint64(os.Getpagesize())

// roundUp returns the smallest multiple of unit, a power of two, that is not
// below n. The caller makes sure that the result does not overflow.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

// Size is the length of the mapping in octets.
func (a *Arena) Size() uint64 { return uint64(len(a.mem)) }

// Pages returns the kind of memory that the arena got.
func (a *Arena) Pages() Pages { return a.pages }

// Cut reserves size octets, rounded up to whole pages, for one region. A region
// exists as long as its arena. After its queue is closed, another queue may be
// opened over it.
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
	r := &Region{arena: a, base: a.cut, size: size}
	a.cut += roundUp(size, pageSize)
	return r, nil
}

// Close releases the arena. If no queue is open over the arena, Close unmaps
// the memory; otherwise the Close of the last queue does. Do not touch the
// memory after it is unmapped.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut {
		return nil
	}
	a.shut = true
	return a.leave()
}

// leave ends one use of the arena. The caller holds mu.
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
	base  uint64 // octets from the arena's start, page aligned
	size  uint64 // octets

	// Under arena.mu.
	busy   bool // a queue is open over it
	soiled bool // a queue was open over it before
}

// Base is the offset of the region from the arena's start, in octets.
func (r *Region) Base() uint64 { return r.base }

// Size is the region's length in octets.
func (r *Region) Size() uint64 { return r.size }

// Bytes is the region's memory, valid until the arena is unmapped.
func (r *Region) Bytes() []byte {
	end := r.base + r.size
	return r.arena.mem[r.base:end:end]
}

// claim gives the region to a queue with chunks of the given size. All queues
// of an arena use one size, so that each can read the frames of all.
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
	if r.soiled { // a steering record of an earlier queue must not count for a new packet
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
