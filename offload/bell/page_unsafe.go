package bell

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

const (
	// PageLen is the length of a page in octets.
	PageLen = 4096
	// Queues is how many queues have a bit in a page.
	Queues = 64 * words

	words = (PageLen - bitsAt) / 8

	bitsAt, lineLen = 64, 64
)

// page is the layout of a page.
type page struct {
	asleep atomic.Uint32
	_      [bitsAt - 4]byte
	words  [words]atomic.Uint64
}

// pageAt views memory as a page.
func pageAt(memory []byte) (*page, error) {
	at := unsafe.Pointer(unsafe.SliceData(memory))
	if len(memory) != PageLen || uintptr(at)%lineLen != 0 {
		return nil, fmt.Errorf("%d octets of memory for a bell: give it %d, aligned to %d", len(memory), PageLen, lineLen)
	}
	return (*page)(at), nil
}
