package afxdp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Stats holds the counters of a queue since Open. They count frames unless the comment
// of a field names another unit.
type Stats struct {
	Rx      uint64 // frames received
	RxBad   uint64 // descriptors from the kernel whose packet is not in a chunk that the kernel owned
	Filled  uint64 // chunks given to the kernel to be filled
	RxKicks uint64 // system calls for the receive side

	Tx        uint64 // frames that Send accepted
	Completed uint64 // frames that the kernel returned, sent or not
	Lost      uint64 // frames that the kernel took and dropped before the wire (EBUSY)
	Kicks     uint64 // system calls for the transmit side
	Stalled   uint64 // system calls for the transmit side that sent nothing (EAGAIN and the like)
	NoFrames  uint64 // frames requested from Take that were not available
	NoRoom    uint64 // frames that Send did not accept, because the transmit ring was full

	Misused uint64 // frames that were refused because the engine may not use them in this way: a fault of the engine

	Kernel KernelStats
}

// KernelStats holds the kernel's counters of the socket (XDP_STATISTICS).
type KernelStats struct {
	RxDropped   uint64 // frames dropped for other reasons, for example because they were too large for a chunk; in copy mode also the drops of FillEmpty
	RxInvalid   uint64 // fill ring entries that name no chunk
	TxInvalid   uint64 // transmit descriptors that the kernel refused
	RxRingFull  uint64 // frames dropped because the receive ring was full
	FillEmpty   uint64 // times that the fill ring was empty; in copy mode a frame is dropped each time
	TxRingEmpty uint64 // times that the transmit ring was empty
}

// Stats returns the counters. Only the queue's goroutine may call it. After Close
// the field Kernel is zero.
func (q *Queue) Stats() (Stats, error) {
	s := q.count
	if q.fd < 0 {
		return s, nil
	}
	var k unix.XDPStatistics
	if err := option(q.fd, unix.XDP_STATISTICS, &k); err != nil {
		return s, fmt.Errorf("afxdp: %s: read statistics: %w", q.name, err)
	}
	s.Kernel = KernelStats{
		RxDropped:   k.Rx_dropped,
		RxInvalid:   k.Rx_invalid_descs,
		TxInvalid:   k.Tx_invalid_descs,
		RxRingFull:  k.Rx_ring_full,
		FillEmpty:   k.Rx_fill_ring_empty_descs,
		TxRingEmpty: k.Tx_ring_empty_descs,
	}
	return s, nil
}
