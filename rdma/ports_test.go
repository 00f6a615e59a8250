package rdma

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/pair"
)

// linkLocal is the link-local address of a side's interface.
func (r *rig) linkLocal(side pair.Side) (ip netip.Addr) {
	r.Helper()
	r.must(r.pair.Do(side, func() error {
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

// A link-local address is good for a connection, if its zone is said.
func TestLinkLocal(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		near, far := r.pair.Ends[pair.A].Name, r.pair.Ends[pair.B].Name
		to := r.linkLocal(pair.B)
		x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
		r.says(x.qp.Dial(r.ctx(), netip.AddrPortFrom(to, 1).String(), ConnParams{}), loader.ErrNoRoute, "which")
		_, err := r.b.Listen(r.ctx(), netip.AddrPortFrom(to, 0).String(), ListenConfig{})
		r.says(err, nil, "which")

		l, err := r.b.Listen(r.ctx(), netip.AddrPortFrom(to.WithZone(far), 0).String(), ListenConfig{})
		r.must(err)
		defer l.Close()
		if got := l.Addr().Addr(); got != to.WithZone(far) {
			r.Errorf("listens on %v, want zone %s", got, far)
		}
		accepted := make(chan error, 1)
		go func() {
			req, err := l.Accept(r.ctx())
			if err == nil {
				err = req.Accept(r.ctx(), y.qp, ConnParams{})
			}
			accepted <- err
		}()
		address := netip.AddrPortFrom(to.WithZone(near), l.Addr().Port())
		err = x.qp.Dial(r.ctx(), address.String(), ConnParams{})
		if err != nil {
			l.Close()
		}
		r.must(errors.Join(err, <-accepted))
		if got := x.qp.Conn().Remote; got != address {
			r.Errorf("the peer is %v, want %v", got, address)
		}
		if got := y.qp.Conn(); got.Local != l.Addr() || got.Remote.Addr() != r.linkLocal(pair.A).WithZone(far) {
			r.Errorf("the responder's ends are %v and %v", got.Local, got.Remote)
		}
		transferBothWays(r, x, y, 10000)
	})
}
