package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// names starts a name server for this test only. It answers every name with these IPv4
// addresses, in this order.
func (r *rig) names(addresses ...netip.Addr) {
	r.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	r.Must(err)
	was := net.DefaultResolver
	var serving sync.WaitGroup
	r.Cleanup(func() { net.DefaultResolver = was; server.Close(); serving.Wait() })
	serving.Go(func() {
		b := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			server.WriteTo(dnsAnswer(b[:n], addresses), from)
		}
	})
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// dnsAnswer answers a query with one question (RFC 1035 §4). It answers a question for A
// with the addresses, and any other question with an empty list.
func dnsAnswer(query []byte, addresses []netip.Addr) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	asked := binary.BigEndian.Uint16(query[end+1:])
	b := slices.Clone(query[:end+5])
	b[2], b[3] = 0x81, 0x80 // a response, no error
	clear(b[6:header])
	if asked == typeA {
		binary.BigEndian.PutUint16(b[6:], uint16(len(addresses)))
		for _, a := range addresses {
			b = append(b, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4) // its name, A, IN, 60 s, 4 octets
			b = append(b, a.AsSlice()...)
		}
	}
	return b
}

// blackHole returns an address on side's link that no host has: packets to it are lost.
func (r *rig) blackHole(side pair.Side) netip.Addr {
	r.Helper()
	hole := net.IPv4(198, 51, 100, 7).To4()
	r.Must(r.pair.Do(side, func() error {
		l, err := netlink.LinkByName(r.pair.Ends[side].Name)
		if err != nil {
			return err
		}
		index := l.Attrs().Index
		route := netlink.Route{LinkIndex: index, Dst: &net.IPNet{IP: hole, Mask: net.CIDRMask(32, 32)}, Scope: netlink.SCOPE_LINK}
		return errors.Join(netlink.RouteAdd(&route), netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: hole, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9},
		}))
	}))
	return netip.AddrFrom4([4]byte(hole))
}

// If the first address of a host does not answer, Dial reaches the host by the second.
func TestDialTriesEveryAddress(t *testing.T) {
	for name, config := range map[string]func(r *rig, side pair.Side) Config{
		"kernel port": func(*rig, pair.Side) Config { return Config{KernelPort: true} },
		"offloaded":   func(r *rig, side pair.Side) Config { return Config{Ports: []string{r.pair.Ends[side].Name}} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newStage(t, pairConfig)
			hole := r.blackHole(pair.A)
			r.openHosts(func(side pair.Side) Config { return config(r, side) })
			r.names(hole, r.pair.Ends[pair.B].V4.Addr())
			x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
			l := r.listen(r.b)
			defer l.Close()
			accepted := make(chan error, 1)
			go func() {
				req, err := l.Accept(r.Ctx())
				if err == nil {
					err = req.Accept(r.Ctx(), y.qp, ConnParams{})
				}
				accepted <- err
			}()
			err := x.qp.Dial(r.Ctx(), fmt.Sprintf("two.example:%d", l.Addr().Port()), ConnParams{})
			if err != nil {
				l.Close()
			}
			r.Must(errors.Join(err, <-accepted))
			transferBothWays(r, x, y, 1000)
		})
	}
}
