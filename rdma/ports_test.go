package rdma

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
)

// linkLocal returns the link-local address of a side's interface.
func (r *rig) linkLocal(side pair.Side) (ip netip.Addr) {
	r.Helper()
	r.Must(r.pair.Do(side, func() error {
		ifc, err := net.InterfaceByName(r.pair.Ends[side].Name)
		if err != nil {
			return err
		}
		all, err := ifc.Addrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				ip = p.Addr()
			}
		}
		return err
	}))
	return ip
}

// A link-local address with a zone can be dialled.
func TestLinkLocal(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		near, far := r.pair.Ends[pair.A].Name, r.pair.Ends[pair.B].Name
		to := r.linkLocal(pair.B)
		x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
		r.Says(x.qp.Dial(r.Ctx(), netip.AddrPortFrom(to, 1).String(), ConnParams{}), loader.ErrNoRoute, "which")
		_, err := r.b.Listen(r.Ctx(), netip.AddrPortFrom(to, 0).String(), ListenConfig{})
		r.Says(err, nil, "which")

		l, err := r.b.Listen(r.Ctx(), netip.AddrPortFrom(to.WithZone(far), 0).String(), ListenConfig{})
		r.Must(err)
		defer l.Close()
		if got := l.Addr().Addr(); got != to.WithZone(far) {
			r.Errorf("listens on %v, want zone %s", got, far)
		}
		accepted := make(chan error, 1)
		go func() {
			req, err := l.Accept(r.Ctx())
			if err == nil {
				err = req.Accept(r.Ctx(), y.qp, ConnParams{})
			}
			accepted <- err
		}()
		address := netip.AddrPortFrom(to.WithZone(near), l.Addr().Port())
		err = x.qp.Dial(r.Ctx(), address.String(), ConnParams{})
		if err != nil {
			l.Close()
		}
		r.Must(errors.Join(err, <-accepted))
		if got := x.qp.Conn().Remote; got != address {
			r.Errorf("the peer is %v, want %v", got, address)
		}
		if got := y.qp.Conn(); got.Local != l.Addr() || got.Remote.Addr() != r.linkLocal(pair.A).WithZone(far) {
			r.Errorf("the responder's ends are %v and %v", got.Local, got.Remote)
		}
		transferBothWays(r, x, y, 10000)
	})
}

// twoPorts returns a rig of two adapters with two ports each, and the second cable.
func twoPorts(t *testing.T) (*rig, netns.Cable) {
	r := newStage(t, pairConfig)
	c := netns.SecondCable(t, r.pair)
	r.openHosts(func(side pair.Side) Config {
		return Config{Ports: []string{r.pair.Ends[side].Name, c.Names[side]}}
	})
	return r, c
}

// One adapter has two ports. The route decides which one a connection uses. One STag names
// memory for connections of both ports, until it is invalidated for both.
func TestTwoPorts(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r, second := twoPorts(t)
		at, err := r.a.Attributes()
		r.Must(err)
		if len(at.Ports) != 2 || at.Ports[0].Name != r.pair.Ends[0].Name || at.Ports[1].Name != second.Names[0] {
			r.Errorf("%+v", at.Ports)
		}
		shared := r.newEnd(r.b, wants{heap: 1 << 20}) // the PD and the region of shared serve both connections
		var near [2]*end
		var far [2]*QP
		for i, host := range []string{r.host, second.Hosts[1].String()} {
			r.host = host
			near[i] = r.newEnd(r.a, wants{heap: 1 << 20})
			y := *shared
			y.qp, err = shared.pd.CreateQP(QPConfig{SendCQ: shared.send, RecvCQ: shared.recv})
			r.Must(err)
			r.Must(r.join(near[i], &y, wants{}))
			far[i] = y.qp
		}
		for i, names := range [2][2]string{{r.pair.Ends[0].Name, r.pair.Ends[1].Name}, second.Names} {
			r.leadsThrough(near[i].qp, names[0])
			r.leadsThrough(far[i], names[1])
		}
		const half = 1 << 19
		for i, x := range near { // at the same time, each into its own half
			fill(x.mr.Bytes(), i)
			x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, half)}, RKey: shared.mr.RKey(), RemoteAddr: uint64(i) * half})
			x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(half, half)}, RKey: shared.mr.RKey(), RemoteAddr: uint64(i) * half})
		}
		for i, x := range near {
			r.ok(x.sent(1))
			same(r, "written and read back", i, x.mr.Bytes()[:half], x.mr.Bytes()[half:], shared.mr.Bytes()[i*half:(i+1)*half])
		}
		for _, p := range r.a.device.Ports() {
			if n := len(p.NIC().Flows()); n != 1 {
				r.Errorf("%s has %d flows, want 1", p.Name(), n)
			}
		}
		r.Must(shared.mr.Invalidate())
		for i, x := range near {
			x.post(SendWR{Op: WRWrite, Inline: []byte("x"), RKey: shared.mr.RKey()})
			x.done()
			r.Says(x.qp.Err(), nil, "terminated by the peer", "invalid STag")
			<-far[i].Done()
		}
	})
}

// leadsThrough demands that a QP's connection uses the named port.
func (r *rig) leadsThrough(qp *QP, name string) {
	r.Helper()
	if got := qp.Conn().Path; !strings.HasPrefix(got, name+": ") {
		r.Errorf("the path is %q, want one through %s", got, name)
	}
}

// A connection continues when another port loses its carrier, and events name the port.
func TestTwoPortsOneDown(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r, second := twoPorts(t)
		x, y := r.connect(wants{})
		r.Must(r.pair.Do(pair.B, func() error { return netns.SetLink(second.Names[1], false) }))
		if e := r.event(r.a, PortDown); e.Port != second.Names[0] {
			r.Errorf("%+v", e)
		}
		transferBothWays(r, x, y, 10000)
		z := r.newEnd(r.a, wants{})
		err := z.qp.Dial(r.Ctx(), second.Hosts[1].String()+":1", ConnParams{Timeout: time.Second})
		r.Says(err, nil, second.Hosts[1].String())
		r.Log(err)
	})
}

// Generic mode is slower and works the same.
func TestGenericMode(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newStage(t, pairConfig)
		r.openHosts(func(side pair.Side) Config {
			return Config{Ports: []string{r.pair.Ends[side].Name}, Generic: true}
		})
		x, y := r.connect(wants{heap: 1 << 20})
		if got := x.qp.Conn().Path; !strings.Contains(got, "generic XDP") {
			r.Errorf("the path is %q", got)
		}
		for _, n := range []int{1, 1000, 1 << 18} {
			transferBothWays(r, x, y, n)
		}
		r.Must(x.qp.Disconnect(r.Ctx()))
		y.done()
		r.Check(y.qp.Err())
	})
}

// With Ports, a destination to which no port leads is refused, and the error says what to do.
func TestNoPort(t *testing.T) {
	var r *rig
	t.Run("offloaded", func(t *testing.T) {
		r = newHosts(t, pairConfig)
		x := r.newEnd(r.a, wants{})
		own := r.pair.Ends[0].V4.Addr().String()
		r.Says(x.qp.Dial(r.Ctx(), own+":1", ConnParams{}), ErrNoPort, "KernelPort", r.pair.Ends[0].Name)
		r.Says(x.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{}), ErrNoPort, "KernelPort")
		r.Says(x.qp.Dial(r.Ctx(), "203.0.113.1:1", ConnParams{}), nil, "no route")
		at, err := r.a.Attributes()
		r.Must(err)
		if p := at.Ports[0]; len(at.Ports) != 1 || p.MTU != 1500 || p.Name != r.pair.Ends[0].Name || !strings.Contains(p.Path, "XDP") || len(p.Addresses) < 2 {
			r.Errorf("%+v", at.Ports)
		}
		// The same over IPv6.
		r.host = "[" + r.pair.Ends[1].V6.Addr().String() + "]"
		x, y := r.connect(wants{})
		transferBothWays(r, x, y, 10000)
	})
}

// Events report the changes of a port's carrier.
func TestPortEvents(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		for _, up := range []bool{false, true} {
			r.Must(r.pair.Do(1, func() error { return netns.SetLink(r.pair.Ends[1].Name, up) }))
			want := PortDown
			if up {
				want = PortUp
			}
			if e := r.event(r.a, want); e.Port != r.pair.Ends[0].Name {
				r.Errorf("%+v", e)
			}
		}
	})
}

// The error of Dial says that the port is down, and which command sets it up.
func TestDialOverDownPort(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		near, x := r.pair.Ends[0].Name, r.newEnd(r.a, wants{})
		r.Must(r.pair.Do(0, func() error { return netns.SetLink(near, false) }))
		r.Says(x.qp.Dial(r.Ctx(), r.host+":1", ConnParams{}), loader.ErrLinkDown, near+" is down: ip link set "+near+" up")
	})
}
