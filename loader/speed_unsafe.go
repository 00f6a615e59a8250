package loader

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolCmd is struct ethtool_cmd. Only the speed is used here. The kernel also fills
// in the speed for drivers that implement the newer command.
type ethtoolCmd struct {
	cmd       uint32
	_         [2]uint32
	speed     uint16 // lower 16 bits, Mb/s
	_         [6]uint8
	_         [2]uint32
	speedHigh uint16 // upper 16 bits
	_         [2]uint8
	_         [3]uint32
}

// Speed returns the link speed of the interface called name, in bits per second. It
// returns 0 if the speed is not known, for example without a carrier.
func (n *Net) Speed(name string) uint64 {
	c := ethtoolCmd{cmd: unix.ETHTOOL_GSET}
	if err := n.eth.ioctl(name, unsafe.Pointer(&c)); err != nil {
		return 0
	}
	mbits := uint32(c.speedHigh)<<16 | uint32(c.speed)
	if mbits == 1<<32-1 || mbits == 1<<16-1 { // SPEED_UNKNOWN in 32 or 16 bits
		return 0
	}
	return uint64(mbits) * 1e6
}
