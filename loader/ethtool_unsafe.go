package loader

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of the SIOCETHTOOL ioctl that x/sys/unix names no structure for
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

// ethtoolChannels is struct ethtool_channels. All counts are queues.
type ethtoolChannels struct {
	cmd                                 uint32
	maxRx, maxTx, maxOther, maxCombined uint32
	curRx, curTx, curOther, curCombined uint32
}

// ifreqPointer is struct ifreq with a pointer in its union, which is 24 octets
// on 64-bit machines.
type ifreqPointer struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ethtool is a control socket for one network namespace: the one that the
// thread was in when openEthtool ran, whichever thread asks later.
type ethtool struct{ fd int }

func openEthtool() (ethtool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ethtool{}, fmt.Errorf("open a socket for device queries: %w", err)
	}
	return ethtool{fd: fd}, nil
}

func (e ethtool) close() error { return unix.Close(e.fd) }

// value runs a command that carries one number in and one number out.
func (e ethtool) value(name string, cmd, in uint32) (uint32, error) {
	v := ethtoolValue{cmd: cmd, data: in}
	err := e.ioctl(name, unsafe.Pointer(&v))
	return v.data, err
}

// channels reads how many queues the driver runs now, and at most.
func (e ethtool) channels(name string) (ethtoolChannels, error) {
	c := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	err := e.ioctl(name, unsafe.Pointer(&c))
	return c, err
}

// setChannels asks for rx and tx queues, for drivers that count them apart.
func (e ethtool) setChannels(name string, rx, tx uint32) error {
	c := ethtoolChannels{cmd: unix.ETHTOOL_SCHANNELS, curRx: rx, curTx: tx}
	return e.ioctl(name, unsafe.Pointer(&c))
}

// driver is the name of the driver behind the interface called name.
func (e ethtool) driver(name string) (string, error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(e.fd, name)
	if err != nil {
		return "", err
	}
	return unix.ByteSliceToString(info.Driver[:]), nil
}

// ioctl hands arg, which must be one of the structures above, to the driver of
// the interface called name.
func (e ethtool) ioctl(name string, arg unsafe.Pointer) error {
	if len(name) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	// Pinned: the kernel sees arg's address inside req, which the collector
	// does not follow through a system call.
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
