package tpt

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// pageLen is the minimum alignment of mapped memory, in octets.
const pageLen = 4096

// entriesAt returns mem as entries. mem must be page aligned, and its length must be a
// multiple of an entry. entriesAt checks both, because mem comes from a caller. The
// caller must keep mem mapped as long as the entries are used.
func entriesAt(mem []byte) ([]entry, error) {
	first := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 0 || len(mem)%EntryLen != 0 || uintptr(first)%pageLen != 0 {
		return nil, fmt.Errorf("memory of %d octets at %p: want whole entries of %d octets, page aligned", len(mem), first, EntryLen)
	}
	return unsafe.Slice((*entry)(first), len(mem)/EntryLen), nil
}

// attAt returns mem as entries of att, under the same conditions as entriesAt.
func attAt(mem []byte) (att, error) {
	first := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 0 || len(mem)%PageEntryLen != 0 || uintptr(first)%pageLen != 0 {
		return nil, fmt.Errorf("memory of %d octets at %p for page lists: want whole entries of %d octets, page aligned", len(mem), first, PageEntryLen)
	}
	return unsafe.Slice((*atomic.Uint64)(first), len(mem)/PageEntryLen), nil
}

// slotsAt returns mem as slots, under the same conditions as entriesAt.
func slotsAt(mem []byte) ([]slot, error) {
	first := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 0 || len(mem)%slotLen != 0 || uintptr(first)%pageLen != 0 {
		return nil, fmt.Errorf("memory of %d octets at %p for epochs: want whole slots of %d octets, page aligned", len(mem), first, slotLen)
	}
	return unsafe.Slice((*slot)(first), len(mem)/slotLen), nil
}

// octetsAt returns the n octets from first on. Memory given to Register must contain
// them.
func octetsAt(first *byte, n uint64) []byte { return unsafe.Slice(first, n) }

// octetsFrom returns the n octets that begin from octets after first. The memory of the
// entry that begins at first must contain them.
func octetsFrom(first *byte, from, n uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(first), from)), n)
}

// firstOf returns the address of the first octet of mem, or nil if mem is nil.
func firstOf(mem []byte) *byte { return unsafe.SliceData(mem) }

// offsetIn returns the offset of mem within whole. inside is false if mem does not lie
// in whole. offsetIn compares addresses as numbers. This is sound because neither slice
// moves: a slice that escapes to a table is not on a stack.
func offsetIn(whole, mem []byte) (off uint64, inside bool) {
	low := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if at < low || at-low > uintptr(len(whole)) || uintptr(len(mem)) > uintptr(len(whole))-(at-low) {
		return 0, false
	}
	return uint64(at - low), true
}
