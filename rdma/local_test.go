package rdma

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
)

// TestLocalAddress: Dial uses the local address and the local port that it is given, over
// the take-over too. The peer sees them.
func TestLocalAddress(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		host, port := netip.MustParseAddr("127.0.0.7"), uint16(0)
		if r.pair != nil {
			host = r.pair.Ends[pair.A].V4.Addr()
		}
		for _, local := range []netip.AddrPort{
			{}, netip.AddrPortFrom(host, 0), netip.AddrPortFrom(host, 1), netip.AddrPortFrom(netip.Addr{}, 1),
		} {
			if local.Port() != 0 { // a port that was free a moment ago
				local = netip.AddrPortFrom(local.Addr(), port+1)
			}
			x, y := r.connect(wants{dial: ConnParams{Local: local}})
			ours, peers := x.qp.Conn().Local, y.qp.Conn().Remote
			if ours != peers || local.Addr().IsValid() && ours.Addr() != local.Addr() || local.Port() != 0 && ours.Port() != local.Port() {
				t.Errorf("asked for %v, got %v; the peer sees %v", local, ours, peers)
			}
			port = ours.Port()
			transferBothWays(r, x, y, 5000)
			x.qp.Abort() // a reset leaves no TIME-WAIT, which would keep the port
			x.done()
		}
	})
}

// TestLocalAddressMistakes: an address that cannot be used is an error that names it.
func TestLocalAddressMistakes(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		l := r.listen(r.b)
		defer l.Close()
		e := r.newEnd(r.a, wants{})
		for local, says := range map[string]string{
			"198.51.100.77:0": "",
			"[::1]:0":         "different families",
		} {
			err := e.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{Local: netip.MustParseAddrPort(local)})
			r.Says(err, nil, "dial "+l.Addr().String(), says)
		}
		r.Says(e.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{TOS: 0x29}), nil, "a TOS of 0x29", "choose 0x28")
		_, err := r.b.Listen(r.Ctx(), r.host+":0", ListenConfig{TOS: 3})
		r.Says(err, nil, "a TOS of 0x3", "choose 0x0")
	})
}

// TestAcceptHasNoTOS: Accept refuses parameters that only Dial can follow.
func TestAcceptHasNoTOS(t *testing.T) {
	r := newLoopback(t)
	for _, p := range []ConnParams{{TOS: 8}, {Local: netip.MustParseAddrPort("127.0.0.1:1")}} {
		err := r.join(r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{}), wants{accept: p, dial: ConnParams{Timeout: 1e9}})
		both, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatal(err)
		}
		r.Says(both.Unwrap()[1], nil, "accept", "Local and TOS are for Dial")
	}
}

// TestTOS: every packet of each end has the TOS of its Dial or Listen: the kernel's
// before the take-over and the engine's after it, and those of the kernel port.
func TestTOS(t *testing.T) {
	const dial, listen = 0x28, 0xb8
	for name, kernel := range map[string]bool{"kernel port": true, "offloaded": false} {
		for _, v6 := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " IPv4", true: " IPv6"}[v6], func(t *testing.T) {
				r := newStage(t, pairConfig)
				r.openHosts(func(side pair.Side) Config {
					if kernel {
						return Config{KernelPort: true}
					}
					return Config{Ports: []string{r.pair.Ends[side].Name}}
				})
				at := "" // all addresses: a socket of IPv6, which accepts IPv4 as well
				if v6 {
					r.host = r.pair.Ends[pair.B].V6.Addr().String()
					at = "[" + r.host + "]"
				}
				l, err := r.b.Listen(r.Ctx(), at+":0", ListenConfig{TOS: listen})
				r.Must(err)
				defer l.Close()
				address := net.JoinHostPort(r.host, fmt.Sprint(l.Addr().Port()))
				seen := r.watchTOS(l.Addr().Port())
				engines := r.capture(r.b, report.Filter{})
				x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
				accepted := make(chan error, 1)
				go func() {
					q, err := l.Accept(r.Ctx())
					if err == nil {
						err = q.Accept(r.Ctx(), y.qp, ConnParams{})
					}
					accepted <- err
				}()
				r.Must(x.qp.Dial(r.Ctx(), address, ConnParams{TOS: dial}))
				r.Must(<-accepted)
				transferBothWays(r, x, y, 5000)
				counts := seen()
				if !kernel {
					packets, _ := engines.settled()
					n := 0
					for _, p := range packets {
						if ip := p.Data[14:]; len(ip) > 40 {
							counts[[2]uint8{uint8(boolInt(p.Out)), tosOf(ip)}]++
							n++
						}
					}
					if n < 10 {
						t.Errorf("the engines had %d packets", n)
					}
				}
				for key, n := range counts {
					if want := [2]uint8{dial, listen}[key[0]]; key[1] != want {
						t.Errorf("%d packets (sent by B: %d) with the TOS %#x, want %#x", n, key[0], key[1], want)
					}
				}
				if counts[[2]uint8{0, dial}] < 2 || counts[[2]uint8{1, listen}] < 1 {
					t.Errorf("packets by direction and TOS: %v", counts)
				}
			})
		}
	}
}

// tosOf returns the TOS or traffic class of an IP packet without its ECN bits.
func tosOf(ip []byte) uint8 {
	if ip[0]>>4 == 6 {
		return uint8(binary.BigEndian.Uint16(ip)>>4) &^ 3
	}
	return ip[1] &^ 3
}

// watchTOS counts the TCP packets of a port that the kernel of side B sees. The function
// that it returns ends the count. The keys are whether B sent the packet, and its TOS.
func (r *rig) watchTOS(port uint16) func() map[[2]uint8]int {
	r.Helper()
	var fd int
	r.Must(r.pair.Do(pair.B, func() (err error) {
		all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		return err
	}))
	end := sync.OnceFunc(func() { unix.Close(fd) })
	r.Cleanup(end)
	return func() map[[2]uint8]int {
		defer end()
		counts := map[[2]uint8]int{}
		b := make([]byte, 65536)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				return counts
			}
			at := from.(*unix.SockaddrLinklayer)
			header := 20
			if b[0]>>4 == 6 {
				header = 40
			}
			if n < header+4 || at.Pkttype == unix.PACKET_OTHERHOST {
				continue
			}
			src, dst := binary.BigEndian.Uint16(b[header:]), binary.BigEndian.Uint16(b[header+2:])
			if src == port || dst == port {
				counts[[2]uint8{uint8(boolInt(src == port)), tosOf(b)}]++
			}
		}
	}
}
