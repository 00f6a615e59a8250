package e2e

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// TestOwnAddressChanges gives the local interface another MAC address, as in a failover of bonded links. The engine's
// segments have the new address, also after a later change of the next hop.
func TestOwnAddressChanges(t *testing.T) {
	r := newRig(t, setup{})
	x := r.transfer(1 << 40)
	x.reach(1 << 20)
	for range 2 {
		r.moveMAC(ours, true)
		r.sendsFrom(r.link(ours).Attrs().HardwareAddr)
		x.goesOn()
		r.moveMAC(theirs, true)
		x.goesOn()
		r.sendsFrom(r.link(ours).Attrs().HardwareAddr)
	}
}

// TestOwnAddressOfNewFlows checks that connections that are taken over after the change send from the new address at
// once.
func TestOwnAddressOfNewFlows(t *testing.T) {
	r := newRig(t, setup{})
	r.transfer(1 << 40).reach(1 << 20)
	r.moveMAC(ours, true)
	r.transfer(1 << 40).reach(1 << 20)
	r.sendsFrom(r.link(ours).Attrs().HardwareAddr)
}

// sendsFrom waits until a long series of segments from mac has arrived at the peer's end of the cable.
func (r *rig) sendsFrom(mac net.HardwareAddr) {
	r.Helper()
	const row = 500
	r.in(theirs, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
			return err
		}
		ip := &unix.SockaddrLinklayer{Ifindex: r.pair.Ends[theirs].Index, Protocol: 0x0008} // ETH_P_IP
		if err := unix.Bind(fd, ip); err != nil {
			return err
		}
		var b [64]byte
		end := time.Now().Add(30 * time.Second)
		for n := 0; n < row; {
			if time.Now().After(end) {
				r.Errorf("still not all segments come from %v", mac)
				return nil
			}
			if _, _, err := unix.Recvfrom(fd, b[:], 0); err != nil {
				return err
			}
			n++
			if !bytes.Equal(b[6:12], mac) {
				n = 0
			}
		}
		return nil
	})
}

// TestLinkMTUChanges makes the MTU of the cable smaller, then larger again. Segments use it fully, and none is lost
// because of its length.
func TestLinkMTUChanges(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{MTU: 3000}})
	x := r.transfer(1 << 40)
	x.reach(1 << 20)
	for _, mtu := range []int{1200, 3000, 2000} {
		for _, side := range []pair.Side{theirs, ours} {
			l := r.link(side)
			r.in(side, func() error { return netlink.LinkSetMTU(l, mtu) })
		}
		r.Eventually("the path is as wide as the link", func() bool { return r.info(x.flow).MTU == uint32(mtu) })
		x.goesOn()
	}
	if s := r.stats(x.flow); s.BlackHoles != 0 {
		t.Errorf("%d times the path was taken for a black hole", s.BlackHoles)
	}
}
