package e2e

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/wire"
)

// capture receives every TCP segment that the kernel of one side sends or receives on the cable. It does not see
// packets that AF_XDP sends or XDP redirects. On the offloaded side it therefore shows only the kernel's own segments.
type capture struct {
	segments atomic.Uint64
	fd       int
	ended    chan struct{}
}

// listenIn starts a capture on a side. match selects the segments to count. nil means all.
func (r *rig) listenIn(side pair.Side, match func(p *wire.Packet, outgoing bool) bool) *capture {
	r.Helper()
	c := &capture{ended: make(chan struct{})}
	all := int(htons(unix.ETH_P_ALL))
	r.in(side, func() (err error) {
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return err
		}
		unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		if err := unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: r.pair.Ends[side].Index})
	})
	stop := make(chan struct{})
	go c.run(stop, match)
	r.Cleanup(func() {
		close(stop)
		<-c.ended
		unix.Close(c.fd)
	})
	return c
}

func (c *capture) run(stop chan struct{}, match func(*wire.Packet, bool) bool) {
	defer close(c.ended)
	buf, aside := make([]byte, 65536), make([]byte, 128)
	var p wire.Packet
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, more, _, from, err := unix.Recvmsg(c.fd, buf, aside, 0)
		if err != nil {
			continue // a timeout or a signal
		}
		if wire.ParsePacket(buf[:n], &p) != wire.OK || p.ICMP {
			continue
		}
		p.VLAN |= tagTakenOff(aside[:more])
		ll, ok := from.(*unix.SockaddrLinklayer)
		outgoing := ok && ll.Pkttype == unix.PACKET_OUTGOING
		if match == nil || match(&p, outgoing) {
			c.segments.Add(1)
		}
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// tagTakenOff returns the VLAN id that the kernel removed from a packet and passes separately (struct
// tpacket_auxdata, include/uapi/linux/if_packet.h).
func tagTakenOff(aside []byte) uint16 {
	const status, tci, size = 0, 16, 20
	list, err := unix.ParseSocketControlMessage(aside)
	if err != nil {
		return 0
	}
	for _, m := range list {
		is := m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= size
		if is && binary.NativeEndian.Uint32(m.Data[status:])&unix.TP_STATUS_VLAN_VALID != 0 {
			return binary.NativeEndian.Uint16(m.Data[tci:]) & 0xfff
		}
	}
	return 0
}
