package handoff

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/socket"
)

// infoLen is the smallest usable length of struct tcp_info in octets. A structure of
// this length contains tcpi_rcv_ooopack (Linux 4.19).
const infoLen = 228

// tcpInfo is struct tcp_info together with bit fields that x/sys has no names for.
type tcpInfo struct {
	unix.TCPInfo
	sndScale, rcvScale uint8
	ecnMode            uint8 // tcpi_ecn_mode (Linux 7.0); 0 if the kernel does not report it
}

func getTCPInfo(fd int) (tcpInfo, error) {
	var raw unix.TCPInfo
	size := uint32(unsafe.Sizeof(raw))
	if err := getsockopt(fd, unix.SOL_TCP, unix.TCP_INFO, unsafe.Pointer(&raw), &size); err != nil {
		return tcpInfo{}, err
	}
	if size < infoLen {
		return tcpInfo{}, unix.EOPNOTSUPP
	}
	// tcpi_snd_wscale and tcpi_rcv_wscale share octet 6, which is padding in the Go
	// structure. The first bit field takes the low bits on a little-endian machine and
	// the high bits on a big-endian one.
	all := (*[unsafe.Sizeof(raw)]byte)(unsafe.Pointer(&raw))
	low, high := all[6]&15, all[6]>>4
	if bigEndian {
		low, high = high, low
	}
	return tcpInfo{TCPInfo: raw, sndScale: low, rcvScale: high, ecnMode: ecnMode(all[:size])}, nil
}

// ecnModeAt is the offset of the bit fields that begin with tcpi_ecn_mode. x/sys has no
// name for them.
const ecnModeAt = unsafe.Offsetof(unix.TCPInfo{}.Received_ce_bytes) + 4

// repairWindow is struct tcp_repair_window. repairWindow contains sequence numbers, and
// scaled windows in octets.
type repairWindow struct {
	sndWL1, sndWnd, maxWindow, rcvWnd, rcvWup uint32
}

// getRepairWindow reads TCP_REPAIR_WINDOW. The socket must be in repair mode.
func getRepairWindow(fd int) (w repairWindow, err error) {
	size := uint32(unsafe.Sizeof(w))
	if err := getsockopt(fd, unix.SOL_TCP, unix.TCP_REPAIR_WINDOW, unsafe.Pointer(&w), &size); err != nil {
		return repairWindow{}, err
	}
	if size != uint32(unsafe.Sizeof(w)) {
		return repairWindow{}, unix.EOPNOTSUPP
	}
	return w, nil
}

// getDrops reads how many packets the kernel has dropped for a socket.
func getDrops(fd int) (uint32, error) {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	if err := getsockopt(fd, unix.SOL_SOCKET, unix.SO_MEMINFO, unsafe.Pointer(&info), &size); err != nil {
		return 0, err
	}
	if size != uint32(unsafe.Sizeof(info)) {
		return 0, unix.EOPNOTSUPP
	}
	return info[unix.SK_MEMINFO_DROPS], nil
}

// optionLen reads a socket option of up to 256 octets. optionLen returns the length of
// the value.
func optionLen(fd, level, name int) (int, error) {
	var buf [256]byte
	size := uint32(len(buf))
	err := getsockopt(fd, level, name, unsafe.Pointer(&buf), &size)
	return int(size), err
}

// getsockopt reads at most *size octets into value. The caller must provide that many
// octets. getsockopt sets *size to the number of octets that the kernel wrote.
func getsockopt(fd, level, name int, value unsafe.Pointer, size *uint32) error {
	return socket.Retry(func() unix.Errno {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
			uintptr(value), uintptr(unsafe.Pointer(size)), 0)
		return errno
	})
}
