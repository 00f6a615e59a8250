package tpt

import (
	"fmt"
	"unsafe"
)

// pageLen is what mapped memory is aligned to, at least.
const pageLen = 4096

// entriesAt views mem as entries. mem must be page aligned and a whole number
// of entries; both are checked because mem comes from outside. Its owner keeps
// it mapped as long as the entries are used.
func entriesAt(mem []byte) ([]entry, error) {
	first := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 0 || len(mem)%EntryLen != 0 || uintptr(first)%pageLen != 0 {
		return nil, fmt.Errorf("memory of %d octets at %p: want whole entries of %d octets, page aligned", len(mem), first, EntryLen)
	}
	return unsafe.Slice((*entry)(first), len(mem)/EntryLen), nil
}

// octetsAt returns n octets from first on: those of memory that was given to Register,
// which is as long as that.
func octetsAt(first *byte, n uint64) []byte { return unsafe.Slice(first, n) }

// firstOf returns where mem begins; nil if it is nil.
func firstOf(mem []byte) *byte { return unsafe.SliceData(mem) }

// offsetIn returns where mem begins within whole, if it lies in it. The addresses
// are compared as numbers, which is sound because neither slice moves: what
// escapes to a table is not on a stack.
func offsetIn(whole, mem []byte) (off uint64, inside bool) {
	low := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if at < low || at-low > uintptr(len(whole)) || uintptr(len(mem)) > uintptr(len(whole))-(at-low) {
		return 0, false
	}
	return uint64(at - low), true
}
