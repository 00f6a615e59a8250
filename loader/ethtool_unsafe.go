package loader

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These SIOCETHTOOL commands have no structure in x/sys/unix
// (include/uapi/linux/ethtool.h).
const (
	ethtoolGTxCsum = 0x16
	ethFlagTxVLAN  = 1 << 7
	ethFlagLRO     = 1 << 15
	ethFlagRxVLAN  = 1 << 8
)

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct {
	cmd  uint32
	data uint32
}

// ethtoolChannels is struct ethtool_channels. All its counts are numbers of queues.
type ethtoolChannels struct {
	cmd                                 uint32
	maxRx, maxTx, maxOther, maxCombined uint32
	curRx, curTx, curOther, curCombined uint32
}

// ifreqPointer is struct ifreq with a pointer in its union. The union is 24 octets long
// on 64-bit machines.
type ifreqPointer struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ethtool is a control socket for one network namespace: the namespace of the thread
// that called openEthtool. Any thread may use the socket later.
type ethtool struct{ fd int }

func openEthtool() (ethtool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ethtool{}, fmt.Errorf("open a socket for device queries: %w", err)
	}
	return ethtool{fd: fd}, nil
}

func (e ethtool) close() error { return unix.Close(e.fd) }

// value runs a command that takes one number and returns one number.
func (e ethtool) value(name string, cmd, in uint32) (uint32, error) {
	v := ethtoolValue{cmd: cmd, data: in}
	err := e.ioctl(name, unsafe.Pointer(&v))
	return v.data, err
}

// channels reads the present and the largest number of queues.
func (e ethtool) channels(name string) (ethtoolChannels, error) {
	c := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	err := e.ioctl(name, unsafe.Pointer(&c))
	return c, err
}

// setChannels sets the number of receive queues to rx and of transmit queues to tx. It
// is for drivers that count the two kinds separately.
func (e ethtool) setChannels(name string, rx, tx uint32) error {
	c := ethtoolChannels{cmd: unix.ETHTOOL_SCHANNELS, curRx: rx, curTx: tx}
	return e.ioctl(name, unsafe.Pointer(&c))
}

// driver returns the name of the driver of the interface called name.
func (e ethtool) driver(name string) (string, error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(e.fd, name)
	if err != nil {
		return "", err
	}
	return unix.ByteSliceToString(info.Driver[:]), nil
}

// ioctl passes arg to the driver of the interface called name. arg must be one of the
// structures above.
func (e ethtool) ioctl(name string, arg unsafe.Pointer) error {
	if len(name) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	// The kernel reads arg's address from req. The garbage collector does not follow
	// that pointer through a system call, so arg is pinned.
	var pin runtime.Pinner
	pin.Pin(arg)
	defer pin.Unpin()
	req := ifreqPointer{data: arg}
	copy(req.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return os.NewSyscallError("ioctl SIOCETHTOOL", errno)
	}
	return nil
}
