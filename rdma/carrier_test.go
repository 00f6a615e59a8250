package rdma

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// sockets connects the two adapters of the rig by TCP: x dials, and y has accepted.
func (r *rig) sockets() (x, y *socket) {
	r.Helper()
	var l net.Listener
	r.Must(r.b.space.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(r.host, "0"))
		return err
	}))
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		r.Check(err)
		accepted <- c
	}()
	x, err := r.a.dialHost(r.Ctx(), netip.MustParseAddr(r.host), at.Port())
	r.Must(err)
	c := (<-accepted).(*net.TCPConn)
	p, err := r.b.portFor(r.Ctx(), c)
	r.Must(err)
	return x, &socket{TCPConn: c, a: r.b, p: p}
}

// TestTakeOverAnyULP: a connection is taken over for an upper-layer protocol that is
// not RDMA: 4 MiB go to an echo and come back, on both carriers, and both ends see an
// orderly close.
func TestTakeOverAnyULP(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const size = 4 << 20
		ctx := r.Ctx()
		source := octets.NewTransfer(octets.Plan{Send: size, Seed: 7, Expect: size, PeerSeed: 7})
		echo := octets.NewEcho()
		x, y := r.sockets()
		begin := func(s *socket, ulp stream.ULP, accepted bool) *line {
			t.Helper()
			l, err := s.takeOver(ctx, ulp, takeOver{kind: bpf.KindBytes, accepted: accepted})
			r.Must(err)
			l.wake()
			return l
		}
		begin(y, echo, true)
		begin(x, source, false)
		for _, u := range []interface {
			Done() <-chan struct{}
			Err() error
		}{source, echo} {
			select {
			case <-u.Done():
				r.Check(u.Err())
			case <-ctx.Done():
				t.Fatal(context.Cause(ctx))
			}
		}
		if sent, got := source.Sums(); sent != got || source.Received() != size || echo.Echoed() != size {
			t.Errorf("%d octets came back of %d echoed; sums %x and %x", source.Received(), echo.Echoed(), sent, got)
		}
	})
}
