package pair_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
)

var narrow = &pair.Router{Rate: 1e6, Queue: 1 << 14}

// TestRouter: the sides reach each other, and only through the router.
func TestRouter(t *testing.T) {
	p := netns.Pair(t, pair.Config{Router: narrow})
	for _, at := range []netip.Prefix{p.Ends[pair.B].V4, p.Ends[pair.B].V6} {
		t.Run(at.String(), func(t *testing.T) {
			if got := converse(t, p, at.Addr()); got != "across the cable" {
				t.Errorf("side B read %q", got)
			}
			err := p.Do(pair.A, func() error {
				routes, err := netlink.RouteGet(at.Addr().AsSlice())
				if err == nil && (len(routes) != 1 || routes[0].Gw == nil) {
					t.Errorf("routes from side A: %v", routes)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRouterDrops: packets for which the queue has no room are lost.
func TestRouterDrops(t *testing.T) {
	p := netns.Pair(t, pair.Config{Router: narrow})
	var in *net.UDPConn
	var out net.Conn
	err := p.Do(pair.B, func() (err error) {
		in, err = net.ListenUDP("udp", &net.UDPAddr{IP: p.Ends[pair.B].V4.Addr().AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	err = p.Do(pair.A, func() (err error) {
		out, err = net.Dial("udp", in.LocalAddr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	const sent = 2000
	for range sent {
		if _, err := out.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	for b := make([]byte, 2000); ; got++ {
		in.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := in.Read(b); err != nil {
			break
		}
	}
	if got < 10 || got > sent/2 {
		t.Errorf("%d of %d datagrams have come through a queue for 16", got, sent)
	}
}

func TestBadRouter(t *testing.T) {
	for _, r := range []pair.Router{{}, {Rate: 1e6}, {Queue: 1 << 20}, {Rate: 1e12, Queue: 1 << 20}} {
		if p, err := pair.New(pair.Config{Router: &r}); err == nil {
			p.Close()
			t.Errorf("%+v was taken", r)
		}
	}
}
