package loader

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolCmd is struct ethtool_cmd, of which only the speed counts here: drivers
// that know more are asked by the kernel all the same.
type ethtoolCmd struct {
	cmd       uint32
	_         [2]uint32
	speed     uint16 // lower half, Mb/s
	_         [6]uint8
	_         [2]uint32
	speedHigh uint16 // upper half
	_         [2]uint8
	_         [3]uint32
}

// Speed is that of the link of the interface called name, in bits per second; 0
// where nobody knows, as without a carrier.
func (n *Net) Speed(name string) uint64 {
	c := ethtoolCmd{cmd: unix.ETHTOOL_GSET}
	if err := n.eth.ioctl(name, unsafe.Pointer(&c)); err != nil {
		return 0
	}
	mbits := uint32(c.speedHigh)<<16 | uint32(c.speed)
	if mbits == 1<<32-1 || mbits == 1<<16-1 { // SPEED_UNKNOWN, of either width
		return 0
	}
	return uint64(mbits) * 1e6
}
