package afxdp

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/stag-rdma/stag/afxdp/ring"
	"github.com/stag-rdma/stag/offload/port"
	"golang.org/x/sys/unix"
)

// ringAt returns the ring of n slots of type T at the given offsets of mem, a mapping
// of the kernel. The kernel supplies the offsets, so ringAt checks them.
func ringAt[T any](mem []byte, at unix.XDPRingOffset, n uint32) (ring.Memory[T], error) {
	var none ring.Memory[T]
	var slot T
	words := [3]*atomic.Uint32{}
	for i, off := range [3]uint64{at.Producer, at.Consumer, at.Flags} {
		if off%4 != 0 || !inside(off, 4, uint64(len(mem))) {
			return none, fmt.Errorf("index word at offset %d of a mapping of %d octets", off, len(mem))
		}
		words[i] = (*atomic.Uint32)(unsafe.Pointer(&mem[off]))
	}
	size := uint64(unsafe.Sizeof(slot)) * uint64(n)
	if n == 0 || at.Desc%uint64(unsafe.Alignof(slot)) != 0 || !inside(at.Desc, size, uint64(len(mem))) {
		return none, fmt.Errorf("%d slots at offset %d of a mapping of %d octets", n, at.Desc, len(mem))
	}
	return ring.Memory[T]{
		Producer: words[0], Consumer: words[1], Flags: words[2],
		Slots: unsafe.Slice((*T)(unsafe.Pointer(&mem[at.Desc])), n),
	}, nil
}

// registerUmem registers mem with the socket. chunk is the size of a chunk in octets. flags
// are those of struct xdp_umem_reg. mem must be page aligned and must stay mapped while the
// socket is open. If mem is empty, or the kernel does not know the flags, registerUmem
// returns EINVAL.
func registerUmem(fd int, mem []byte, chunk, flags uint32) error {
	if len(mem) == 0 {
		return unix.EINVAL
	}
	reg := unix.XDPUmemReg{
		Addr: uint64(uintptr(unsafe.Pointer(&mem[0]))),
		Len:  uint64(len(mem)),
		Size: chunk, Flags: flags,
	}
	if flags&unix.XDP_UMEM_TX_METADATA_LEN != 0 {
		reg.Tx_metadata_len = port.Metadata
	}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	return orNil(errno)
}

// option reads an option of the socket into v, a structure without pointers. An older
// kernel may know fewer fields, and leaves the other fields unchanged.
func option[T unix.XDPMmapOffsets | unix.XDPStatistics | uint32](fd, opt int, v *T) error {
	size := uint32(unsafe.Sizeof(*v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt),
		uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&size)), 0)
	return orNil(errno)
}

// inside reports whether [off, off+n) lies within [0, size).
func inside(off, n, size uint64) bool { return off <= size && n <= size-off }

func orNil(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}
