package adapter

import (
	"context"
	"net"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// sockets connects the two adapters of the rig by TCP: x dials, and y has accepted.
func (r *rig) sockets() (x, y *Socket) {
	r.Helper()
	ctx := r.Ctx()
	l, err := r.b.Listen(ctx, net.JoinHostPort(r.host, "0"), 0)
	r.Must(err)
	defer l.Close()
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, err := l.AcceptTCP()
		r.Check(err)
		accepted <- c
	}()
	x, err = r.a.Dial(ctx, r.b.ListenerAddr(l).String(), DialOptions{})
	r.Must(err)
	y, err = r.b.Socket(ctx, <-accepted)
	r.Must(err)
	return x, y
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
		begin := func(s *Socket, ulp stream.ULP, accepted bool) *Conn {
			t.Helper()
			c, err := s.TakeOver(ctx, ulp, TakeOver{Kind: bpf.KindBytes, Accepted: accepted})
			r.Must(err)
			c.Wake()
			return c
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
