package handoff

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// TCP_REPAIR makes sockets in ESTABLISHED only. The other phases follow by the events that
// lead to them: shutdown, and a segment of the peer. This file makes such a segment and
// sends it within the host, past the network interfaces. The peer has sent that segment
// before, and does not send it again, because this end has acknowledged it.

// States of the kernel in which a connection is half closed.
const (
	finWait2  = 5
	closeWait = 8
)

// close closes the directions of the socket that are closed in the state. The kernel
// counts the FIN as sent while the send queue is selected. Otherwise the closed window
// keeps the FIN back.
func (g *giveback) close() error {
	if g.plan.fin {
		queue := noQueue
		if g.st.FinSent {
			queue = sendQueue
		}
		if err := g.selectQueue(queue); err != nil {
			return err
		}
		if err := unix.Shutdown(g.s.fd, unix.SHUT_WR); err != nil {
			return fmt.Errorf("close the sending direction: %w", err)
		}
	}
	if !g.plan.peer {
		return nil
	}
	if err := g.selectQueue(noQueue); err != nil {
		return err
	}
	if err := detachFilter(g.s.fd); err != nil {
		return err
	}
	if err := g.forge(); err != nil {
		return fmt.Errorf("%w: %w", ErrFINLost, err)
	}
	want := uint8(closeWait)
	if g.st.Phase == tcp.FinWait2 {
		want = finWait2
	}
	return g.await(want)
}

// detachFilter lets segments reach the socket.
func detachFilter(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // detached before
	}
	return os.NewSyscallError("setsockopt SO_DETACH_FILTER", err)
}

// forgeWithin limits how long the kernel may take to process a segment that it sends to
// itself.
const forgeWithin = time.Second

// await waits until the socket is in the given state.
func (g *giveback) await(state uint8) error {
	for end := time.Now().Add(forgeWithin); ; time.Sleep(100 * time.Microsecond) {
		info, err := getTCPInfo(g.s.fd)
		if err != nil {
			return fmt.Errorf("read TCP_INFO: %w", err)
		}
		if info.State == state {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: the socket is in %s", ErrFINLost, stateName(info.State))
		}
	}
}

// forge sends the segment of the peer that closes a direction. Its window is 0, so that it
// does not make the socket send.
func (g *giveback) forge() error {
	t, st := g.s.tuple, g.st
	head, err := wire.NewHeaderTemplate(wire.HeaderFields{Src: t.Remote, Dst: t.Local, TTL: 64})
	if err != nil {
		return err
	}
	f := wire.TCPFields{Seq: g.plan.rcvNxt, Ack: st.SndUna, Flags: wire.ACK}
	if st.Phase == tcp.CloseWait {
		f.Flags |= wire.FIN
	}
	if st.Timestamps {
		f.HasTS, f.TSVal = true, st.TSRecent
	}
	packet := make([]byte, head.Len(&f))
	head.Write(packet, len(packet), &f)
	return g.s.inNamespace(func() error { return g.sendRaw(packet[wire.EthernetLen:]) })
}

// sendRaw sends an IP packet to this host.
func (g *giveback) sendRaw(packet []byte) error {
	t := g.s.tuple
	family, level, own := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_HDRINCL
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: t.Local.Addr().As16(), ZoneId: uint32(t.Scope)}
	if t.Local.Addr().Is4() {
		family, level, own = unix.AF_INET, unix.SOL_IP, unix.IP_HDRINCL
		to = &unix.SockaddrInet4{Addr: t.Local.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket (CAP_NET_RAW): %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, level, own, 1); err != nil {
		return os.NewSyscallError("setsockopt HDRINCL", err)
	}
	if t.Device != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, t.Device); err != nil {
			return os.NewSyscallError("setsockopt SO_BINDTOIFINDEX", err)
		}
	}
	return os.NewSyscallError("sendto", unix.Sendto(fd, packet, 0, to))
}
