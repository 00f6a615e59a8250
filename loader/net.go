package loader

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Net gives access to the interfaces, routes and neighbours of one network namespace.
// It is for the control plane, and safe for concurrent use.
type Net struct {
	nl     *netlink.Handle
	direct *nl.SocketHandle // a socket for requests that the handle has no method for
	waits  *nl.SocketHandle // a socket for Settle, so that nothing else waits
	xfrm   *netlink.Handle  // a handle for IPsec; nil if the kernel has no IPsec
	eth    ethtool
	cookie uint64

	policies4, policies6 Fresh[[]netlink.XfrmPolicy] // sorted by priority
}

// Open opens the network namespace of the calling OS thread. The Net stays in that
// namespace, whichever thread uses the Net later.
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
	waits, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		direct.Close()
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	eth, err := openEthtool()
	if err != nil {
		handle.Close()
		direct.Close()
		waits.Close()
		return nil, err
	}
	n := &Net{nl: handle, direct: &nl.SocketHandle{Socket: direct}, waits: &nl.SocketHandle{Socket: waits}, eth: eth}
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

// Cookie returns the number that identifies the namespace on this machine until the
// next boot.
func (n *Net) Cookie() uint64 { return n.cookie }

// Close closes the sockets of the Net. Watches go on until their contexts end.
func (n *Net) Close() error {
	n.nl.Close()
	n.direct.Socket.Close()
	n.waits.Socket.Close()
	if n.xfrm != nil {
		n.xfrm.Close()
	}
	return n.eth.close()
}

// loopback is the index of the loopback interface in every network namespace.
const loopback = 1

// Settle returns when the kernel has completed the changes of interfaces, addresses and
// routes that it has begun. The kernel reports that a link goes down before it removes the
// routes through the link, and sends no message about these routes. It also reports that an
// address or a route is deleted before it deletes it. Meanwhile Next may return the old
// route.
//
// The kernel holds a lock (rtnl_mutex) during a change. A question for an interface waits
// for that lock, and a question for a route does not.
func (n *Net) Settle() error {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: n.waits}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = loopback
	req.AddData(msg)
	if _, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK); err != nil {
		return fmt.Errorf("wait for changes of interfaces: %w", err)
	}
	return nil
}
