package rdma

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
)

// TestPortOfMarkedSocket: a rule routes marked packets through another interface. The mark
// of a connection, or the interface to which it is bound, decides its port as it decides its
// route.
func TestPortOfMarkedSocket(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		const mark, table = 7, 100
		r := newHosts(t, pairConfig)
		second := netns.SecondCable(t, r.pair)
		near, far := r.pair.Ends[pair.A], r.pair.Ends[pair.B].V4.Addr()
		r.Must(r.pair.Do(pair.A, func() error {
			rule := netlink.NewRule()
			rule.Mark, rule.Table, rule.Family = mark, table, netlink.FAMILY_V4
			if err := netlink.RuleAdd(rule); err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{Table: table, Gw: second.Hosts[pair.B].AsSlice(),
				Dst: &net.IPNet{IP: far.AsSlice(), Mask: net.CIDRMask(32, 32)}})
		}))
		c := r.plain(far.String())
		if s, err := r.a.device.Socket(r.Ctx(), c); err != nil || !strings.HasPrefix(s.Path(), near.Name+": ") {
			t.Fatalf("%+v, %v", s, err)
		}
		r.Must(setOption(c, unix.SO_MARK, mark))
		_, err := r.a.device.Socket(r.Ctx(), c)
		r.Says(err, ErrNoPort, second.Names[pair.A])
		// The rule's route does not apply to a socket that is bound to another interface.
		r.Must(setOption(c, unix.SO_BINDTOIFINDEX, near.Index))
		if s, err := r.a.device.Socket(r.Ctx(), c); err != nil || !strings.HasPrefix(s.Path(), near.Name+": ") {
			t.Errorf("bound to the port's interface: %+v, %v", s, err)
		}
	})
}

// plain returns a TCP connection of side A to a listener of side B at host.
func (r *rig) plain(host string) *net.TCPConn {
	r.Helper()
	var l net.Listener
	r.Must(r.pair.Do(pair.B, func() (err error) {
		l, err = net.Listen("tcp4", net.JoinHostPort(host, "0"))
		return err
	}))
	r.Cleanup(func() { l.Close() })
	var c net.Conn
	r.Must(r.pair.Do(pair.A, func() (err error) {
		c, err = net.Dial("tcp4", l.Addr().String())
		return err
	}))
	r.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func setOption(c *net.TCPConn, name, value int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, name, value) }); err != nil {
		return err
	}
	return failed
}
