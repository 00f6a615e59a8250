package loader

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Net is the control plane's view of one network namespace: its interfaces,
// routes and neighbours. It is safe for concurrent use.
type Net struct {
	nl     *netlink.Handle
	direct *nl.SocketHandle // for what the handle has no call for
	xfrm   *netlink.Handle  // for IPsec; nil where the kernel has none
	eth    ethtool
	cookie uint64

	policies4, policies6 Fresh[[]netlink.XfrmPolicy] // by priority
}

// Open opens the network namespace that the calling OS thread is in. The Net
// stays with it, whichever thread uses it later.
func Open() (*Net, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	direct, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	eth, err := openEthtool()
	if err != nil {
		handle.Close()
		direct.Close()
		return nil, err
	}
	n := &Net{nl: handle, direct: &nl.SocketHandle{Socket: direct}, eth: eth}
	if n.xfrm, err = openXfrm(); err != nil {
		n.Close()
		return nil, err
	}
	if n.cookie, err = unix.GetsockoptUint64(eth.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
		n.Close()
		return nil, fmt.Errorf("identify the network namespace (SO_NETNS_COOKIE, Linux 5.14): %w", err)
	}
	return n, nil
}

// Cookie identifies the namespace on this machine until the next boot.
func (n *Net) Cookie() uint64 { return n.cookie }

// Close ends the view. Watches go on until their contexts end.
func (n *Net) Close() error {
	n.nl.Close()
	n.direct.Socket.Close()
	if n.xfrm != nil {
		n.xfrm.Close()
	}
	return n.eth.close()
}
