package loader

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rulesLen is the size of struct ethtool_rxnfc without locations, and where the
// count of rules is in it.
const (
	rulesLen   = 192
	rulesCount = 184
)

// rules is how many rules for received packets the card has.
func (e ethtool) rules(name string) (int, error) {
	var buf [rulesLen]byte
	binary.NativeEndian.PutUint32(buf[:], unix.ETHTOOL_GRXCLSRLCNT)
	err := e.ioctl(name, unsafe.Pointer(&buf))
	return int(binary.NativeEndian.Uint32(buf[rulesCount:])), err
}

// struct ethtool_rxfh begins with the command, a context, the sizes of the table
// and of the key, and eight octets more. The table follows.
const (
	spreadTable = 8
	spreadKey   = 12
	spreadHead  = 24
	spreadMost  = 1 << 16 // entries
)

// spread is the card's table from hashes to receive queues.
func (e ethtool) spread(name string) ([]uint32, error) {
	var head [spreadHead]byte
	binary.NativeEndian.PutUint32(head[:], unix.ETHTOOL_GRSSH)
	if err := e.ioctl(name, unsafe.Pointer(&head)); err != nil {
		return nil, err
	}
	entries := binary.NativeEndian.Uint32(head[spreadTable:])
	if entries == 0 || entries > spreadMost {
		return nil, fmt.Errorf("a table of %d entries", entries)
	}
	// Without room for the key the kernel leaves it out.
	buf := make([]byte, spreadHead+4*entries)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_GRSSH)
	binary.NativeEndian.PutUint32(buf[spreadTable:], entries)
	binary.NativeEndian.PutUint32(buf[spreadKey:], 0)
	if err := e.ioctl(name, unsafe.Pointer(&buf[0])); err != nil {
		return nil, err
	}
	table := make([]uint32, entries)
	for i := range table {
		table[i] = binary.NativeEndian.Uint32(buf[spreadHead+4*i:])
	}
	runtime.KeepAlive(buf)
	return table, nil
}
