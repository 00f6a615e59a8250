package loader

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/wire"
)

// The filters drop all but answers in the kernel. Otherwise each IPv6 packet of the
// interface would wake this process.
var (
	arpReplies     = only(word{20, 2, uint32(wire.ARPReply)})
	advertisements = only(word{20, 1, 58}, word{54, 1, 136}) // next header ICMPv6, type Neighbour Advertisement
)

// word is a value at an offset of a frame.
type word struct {
	offset uint32
	size   int
	value  uint32
}

// only returns a filter that keeps the frames with all of the words.
func only(words ...word) (f []bpf.Instruction) {
	for i, w := range words {
		f = append(f, bpf.LoadAbsolute{Off: w.offset, Size: w.size},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: w.value, SkipTrue: uint8(2*(len(words)-i) - 1)})
	}
	return append(f, bpf.RetConstant{Val: 2048}, bpf.RetConstant{Val: 0})
}

// listen opens a packet socket that receives the frames of one type that the filter
// keeps.
func listen(index int, kind wire.EtherType, filter []bpf.Instruction) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, packetError(err)
	}
	err = attach(fd, filter)
	if err == nil { // the socket receives nothing before it is bound
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network(kind), Ifindex: index})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind a packet socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// attach gives a socket its filter.
func attach(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// network returns a type in network byte order.
func network(kind wire.EtherType) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(kind)))
}
