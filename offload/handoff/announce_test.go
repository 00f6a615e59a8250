package handoff

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// announced returns a connection whose end on side A was announced, dialled or accepted.
func (w *world) announced(accepted bool) net.Conn {
	w.Helper()
	control := func(_, _ string, c syscall.RawConn) error { return Announce(c, 1460) }
	server, client := pair.B, pair.A
	lc, d := net.ListenConfig{}, net.Dialer{Control: control}
	if accepted {
		server, client = client, server
		lc.Control, d.Control = control, nil
	}
	lc.SetMultipathTCP(false)
	d.SetMultipathTCP(false)
	var l net.Listener
	w.Must(w.Do(server, func() (err error) {
		l, err = lc.Listen(w.Context(), "tcp4", netip.AddrPortFrom(w.addr(server, false), 0).String())
		return err
	}))
	defer l.Close()
	var c net.Conn
	w.Must(w.Do(client, func() (err error) {
		c, err = d.DialContext(w.Context(), "tcp4", l.Addr().String())
		return err
	}))
	s, err := l.Accept()
	w.Must(err)
	w.Cleanup(func() { c.Close(); s.Close() })
	if accepted {
		return s
	}
	return c
}

// A connection's window can reach Window whatever buffers the namespace has: the
// scale is announced before it is known how long the path is.
func TestAnnounceScalesWindows(t *testing.T) {
	w := newWorld(t)
	for _, largest := range []int{256 << 10, 6 << 20, 32 << 20} {
		for _, accepted := range []bool{false, true} {
			w.sysctl("tcp_rmem", fmt.Sprintf("4096 131072 %d", largest))
			s, err := Open(w.announced(accepted).(*net.TCPConn))
			w.Must(err)
			info, err := getTCPInfo(s.fd)
			w.Must(err)
			if reach := 0xffff << info.rcvScale; reach < Window-0x10000 {
				t.Errorf("buffers of up to %d, accepted %v: scale %d, windows of up to %d octets, want %d", largest, accepted, info.rcvScale, reach, Window)
			}
		}
	}
}
