package daemon

import (
	"sync/atomic"
	"unsafe"

	"github.com/stag-rdma/stag/rdma/proto"
)

// setGeneration stores the daemon's generation in a bell page.
func setGeneration(page []byte, generation uint32) {
	b := (*proto.Bell)(unsafe.Pointer(unsafe.SliceData(page)))
	atomic.StoreUint32(&b.Generation, generation)
}

// setGone says in a bell page that the daemon has ended.
func setGone(page []byte) {
	b := (*proto.Bell)(unsafe.Pointer(unsafe.SliceData(page)))
	atomic.StoreUint32(&b.Gone, 1)
}
