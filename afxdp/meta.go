package afxdp

import (
	"encoding/binary"
	"errors"

	"github.com/stag-rdma/stag/offload/port"
	"golang.org/x/sys/unix"
)

// A packet for transmission may have metadata directly in front of it (struct
// xsk_tx_metadata, Linux 6.8). The metadata asks the driver, or in copy mode the kernel, to
// complete a checksum. All numbers are in the machine's byte order.
//
//	0       8            10            12         16
//	| flags | csum_start | csum_offset | not used |
//
// csum_start counts from the first octet of the packet, csum_offset from csum_start.
const (
	metaFlags  = 0
	metaStart  = 8
	metaOffset = 10

	tcpChecksum = 16 // offset of the checksum in a TCP header
	leastTCP    = 20 // length of the shortest TCP header
)

// in reports whether s includes the mode.
func (s Sums) in(m Mode) bool {
	if m == ModeZeroCopy {
		return s&SumsZeroCopy != 0
	}
	return s&(SumsCopy|SumsKernel) != 0
}

// flags returns the flags with which the frames are registered.
func (s Sums) flags() uint32 {
	switch {
	case s == 0:
		return 0
	case s&SumsKernel != 0:
		return unix.XDP_UMEM_TX_METADATA_LEN | unix.XDP_UMEM_TX_SW_CSUM
	}
	return unix.XDP_UMEM_TX_METADATA_LEN
}

// register registers the frames with the kernel. If the kernel has no transmit metadata,
// register does without it: stag then computes all checksums.
func (q *Queue) register() error {
	frames := q.mem[q.base : q.base+q.size]
	if flags := q.cfg.Sums.flags(); flags != 0 {
		err := registerUmem(q.fd, frames, q.cfg.FrameSize, flags)
		if !errors.Is(err, unix.EINVAL) {
			q.meta = err == nil
			return err
		}
		q.info.NoSums = err
	}
	return registerUmem(q.fd, frames, q.cfg.FrameSize, 0)
}

// registerAgain registers the frames as register did the first time.
func (q *Queue) registerAgain() error {
	flags := uint32(0)
	if q.meta {
		flags = q.cfg.Sums.flags()
	}
	return registerUmem(q.fd, q.mem[q.base:q.base+q.size], q.cfg.FrameSize, flags)
}

// describe writes the metadata of packet f, which begins at offset at of its chunk, and
// returns the options of its descriptor. ok is false if the packet may not be sent in this
// way. Once the kernel reads metadata, it refuses every packet without room for metadata.
func (q *Queue) describe(f port.Frame, at uint32) (options uint32, ok bool) {
	switch {
	case !q.meta:
		return 0, f.Sum == 0
	case at < port.Metadata:
		return 0, false
	case f.Sum == 0:
		return 0, true
	case !q.info.Sums || uint32(f.Sum)+leastTCP > f.Len:
		return 0, false
	}
	m := (*[port.Metadata]byte)(q.mem[f.Addr-port.Metadata:])
	binary.NativeEndian.PutUint64(m[metaFlags:], unix.XDP_TXMD_FLAGS_CHECKSUM)
	binary.NativeEndian.PutUint16(m[metaStart:], f.Sum)
	binary.NativeEndian.PutUint16(m[metaOffset:], tcpChecksum)
	return unix.XDP_TX_METADATA, true
}
