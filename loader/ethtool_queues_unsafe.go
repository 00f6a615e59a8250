package loader

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rulesLen is the size of struct ethtool_rxnfc without locations, in octets. rulesCount
// is the offset of the number of rules in that structure.
const (
	rulesLen   = 192
	rulesCount = 184
)

// FlowRules returns the number of rules on l's port that direct received packets to
// queues or drop them (ethtool -n). FlowRules returns an error if the driver has no
// such rules.
func (n *Net) FlowRules(l Link) (int, error) {
	var buf [rulesLen]byte
	binary.NativeEndian.PutUint32(buf[:], unix.ETHTOOL_GRXCLSRLCNT)
	err := n.eth.ioctl(l.Port, unsafe.Pointer(&buf))
	return int(binary.NativeEndian.Uint32(buf[rulesCount:])), err
}

// struct ethtool_rxfh begins with the command, a context, the size of the table, the
// size of the key, and eight more octets. The table follows.
const (
	spreadTable = 8
	spreadKey   = 12
	spreadHead  = 24
	spreadMost  = 1 << 16 // entries
)

// SpreadTable returns the table of l's port that maps packet hashes to receive queues
// (ethtool -x). SpreadTable returns an error if the driver has no such table.
func (n *Net) SpreadTable(l Link) ([]uint32, error) {
	var head [spreadHead]byte
	binary.NativeEndian.PutUint32(head[:], unix.ETHTOOL_GRSSH)
	if err := n.eth.ioctl(l.Port, unsafe.Pointer(&head)); err != nil {
		return nil, err
	}
	entries := binary.NativeEndian.Uint32(head[spreadTable:])
	if entries == 0 || entries > spreadMost {
		return nil, fmt.Errorf("a table of %d entries", entries)
	}
	// The buffer has no room for the key, so the kernel omits it.
	buf := make([]byte, spreadHead+4*entries)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_GRSSH)
	binary.NativeEndian.PutUint32(buf[spreadTable:], entries)
	binary.NativeEndian.PutUint32(buf[spreadKey:], 0)
	if err := n.eth.ioctl(l.Port, unsafe.Pointer(&buf[0])); err != nil {
		return nil, err
	}
	table := make([]uint32, entries)
	for i := range table {
		table[i] = binary.NativeEndian.Uint32(buf[spreadHead+4*i:])
	}
	runtime.KeepAlive(buf)
	return table, nil
}
