package loader

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/wire"
)

// packets is an AF_PACKET socket that sends whole Ethernet frames through any interface
// of its network namespace. It receives nothing.
type packets struct{ fd int }

// openPackets opens the socket in the network namespace of the calling OS thread.
func openPackets() (packets, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return packets{}, packetError(err)
	}
	return packets{fd}, nil
}

func packetError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fail(ErrPermission, err, "open a packet socket: needs CAP_NET_RAW")
	}
	return fmt.Errorf("open a packet socket: %w", err)
}

// send sends a frame through an interface. For a VLAN interface the kernel adds the tag.
func (p packets) send(index int, frame []byte) error {
	to := &unix.SockaddrLinklayer{Ifindex: index, Halen: 6}
	copy(to.Addr[:], frame[:6])
	return unix.Sendto(p.fd, frame, 0, to)
}

func (p packets) close() error { return unix.Close(p.fd) }

// ethernet begins a frame. Its capacity is enough for all frames of this package.
func ethernet(dst, src wire.MAC, kind wire.EtherType) []byte {
	return wire.EthernetFields{Dst: dst, Src: src, Type: kind}.Append(make([]byte, 0, 96))
}
