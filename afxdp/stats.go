package afxdp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Stats holds the counters of a queue since Open, in frames unless a field says
// otherwise.
type Stats struct {
	Rx      uint64 // received
	RxBad   uint64 // descriptors from the kernel that name no packet in a chunk it had
	Filled  uint64 // chunks given to the kernel to be filled
	RxKicks uint64 // system calls for the receive side

	Tx        uint64 // accepted by Send
	Completed uint64 // given back by the kernel, sent or not
	Lost      uint64 // consumed by the kernel and dropped before the wire (EBUSY)
	Kicks     uint64 // system calls for the transmit side
	Stalled   uint64 // of them, those that moved nothing (EAGAIN and the like)
	NoFrames  uint64 // asked of Take and not there
	NoRoom    uint64 // offered to Send and not taken

	Misused uint64 // frames refused because they were not the caller's: an engine's mistake

	Kernel KernelStats
}

// KernelStats holds the kernel's counters of the socket (XDP_STATISTICS).
type KernelStats struct {
	RxDropped   uint64 // for other reasons: too large for a chunk; in copy mode also those that FillEmpty counts
	RxInvalid   uint64 // fill ring entries that name no chunk
	TxInvalid   uint64 // transmit descriptors that it would not take
	RxRingFull  uint64 // dropped: receive ring full
	FillEmpty   uint64 // times the fill ring was found empty; in copy mode each is a drop
	TxRingEmpty uint64 // times the transmit ring was found empty
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
