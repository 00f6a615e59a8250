package reach

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The arena is one range of addresses without memory. It consists of zones, one for each
// size of a reservation: zone i has reservations of 2^(pageShift+i) octets. So a reservation
// is found from an address without a search.
const (
	pageShift = 12
	pageSize  = 1 << pageShift

	mostZoneBits  = 40 // a zone has 2^40 octets, if the processor has so many addresses
	leastZoneBits = 30
)

type arena struct {
	base     unsafe.Pointer // nil until the first reservation
	size     uint64
	zoneBits uint

	mu    sync.Mutex
	zones []zone
}

// zone has the reservations of one size.
type zone struct {
	regions atomic.Pointer[[]atomic.Pointer[Region]] // by index; replaced when it grows
	free    []uint32                                 // indexes below len(*regions) that are free
	next    uint32                                   // smallest index that was never used
}

// reserved is the arena of the process. reservedBase and reservedSize are those of the
// arena, for Foreign. They are 0 until the first reservation.
var (
	reserved     arena
	reservedBase atomic.Uint64
	reservedSize atomic.Uint64
)

// Foreign reports whether mem is memory of a Region that is not mapped.
func Foreign(mem []byte) bool {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))-reservedBase.Load() < reservedSize.Load()
}

// Find returns the place of mem in its Space. ok is false if mem is not memory of a Region
// without mapping.
func Find(mem []byte) (p Place, ok bool) {
	off := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) - reservedBase.Load()
	if off >= reservedSize.Load() {
		return Place{}, false
	}
	z := &reserved.zones[off>>reserved.zoneBits]
	shift := pageShift + off>>reserved.zoneBits
	off &= 1<<reserved.zoneBits - 1
	regions := z.regions.Load()
	if regions == nil || off>>shift >= uint64(len(*regions)) {
		return Place{}, false
	}
	r := (*regions)[off>>shift].Load()
	if r == nil {
		return Place{}, false
	}
	in := off & (1<<shift - 1)
	return Place{space: r.space, addr: r.addr + (in - r.lead), rest: r.n - min(r.n, in-r.lead)}, true
}

// open reserves the addresses. It takes fewer if the processor does not have so many.
func (a *arena) open() (err error) {
	for zoneBits := uint(mostZoneBits); zoneBits >= leastZoneBits; zoneBits -= 2 {
		zones := zoneBits - pageShift
		size := uint64(zones) << zoneBits
		var base unsafe.Pointer
		base, err = unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			continue
		}
		a.base, a.size, a.zoneBits, a.zones = base, size, zoneBits, make([]zone, zones)
		reservedBase.Store(uint64(uintptr(base)))
		reservedSize.Store(size)
		return nil
	}
	return fmt.Errorf("reserve addresses: %w: raise the limit of the address space (ulimit -v)", err)
}

// reserve makes r.octets a reservation for r.n octets that begin r.lead octets behind the
// beginning of a page.
func (a *arena) reserve(r *Region) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.base == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	whole := r.lead + r.n
	class := max(bits.Len64(whole-1), pageShift) - pageShift
	if r.n == 0 || whole < r.n || class >= len(a.zones) {
		return fmt.Errorf("%d octets: a region has 1 to %d", r.n, uint64(1)<<(a.zoneBits-1))
	}
	shift := uint(class + pageShift)
	index, err := a.zones[class].take(1 << (a.zoneBits - shift))
	if err != nil {
		return err
	}
	r.class, r.index = class, index
	at := uint64(class)<<a.zoneBits + uint64(index)<<shift + r.lead
	r.octets = unsafe.Slice((*byte)(unsafe.Add(a.base, at)), r.n)
	(*a.zones[class].regions.Load())[index].Store(r)
	return nil
}

// take returns a free index below most.
func (z *zone) take(most uint64) (uint32, error) {
	if n := len(z.free); n != 0 {
		index := z.free[0]
		z.free = z.free[1:]
		return index, nil
	}
	if uint64(z.next) >= most {
		return 0, errors.New("no addresses are left for regions of this size: close some")
	}
	old := z.regions.Load()
	if old == nil || int(z.next) == len(*old) {
		z.grow(old)
	}
	z.next++
	return z.next - 1, nil
}

// grow doubles the places of the zone.
func (z *zone) grow(old *[]atomic.Pointer[Region]) {
	n := 64
	if old != nil {
		n = 2 * len(*old)
	}
	list := make([]atomic.Pointer[Region], n)
	if old != nil {
		for i := range *old {
			list[i].Store((*old)[i].Load())
		}
	}
	z.regions.Store(&list)
}

// giveBack ends the reservation of r.
func (a *arena) giveBack(r *Region) {
	a.mu.Lock()
	defer a.mu.Unlock()
	z := &a.zones[r.class]
	(*z.regions.Load())[r.index].Store(nil)
	z.free = append(z.free, r.index)
}

// Address returns a number for the first octet of mem, to compare with others. Memory of
// one client that is not mapped has numbers of its own, in which two regions over the same
// octets have the same numbers.
func Address(mem []byte) uint64 {
	if p, ok := Find(mem); ok {
		return 1<<63 | uint64(p.space.number)<<47 | p.addr
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
