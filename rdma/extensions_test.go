package rdma

import "testing"

// Two ends that want an extension agree on it. The applications see their private data
// without the trailer, also if only one end wants extensions.
func TestExtensions(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for bits := range 4 {
			var want [2]Extensions
			for i := range want {
				if bits&(1<<i) != 0 {
					want[i] = ExtAlignedFPDUs
				}
			}
			x, y := r.connect(wants{heap: 1 << 18,
				dial:   ConnParams{PrivateData: []byte("question"), Extensions: want[0]},
				accept: ConnParams{PrivateData: []byte("answer"), Extensions: want[1]}})
			for _, e := range []struct {
				conn    Conn
				private string
			}{{x.qp.Conn(), "answer"}, {y.qp.Conn(), "question"}} {
				if e.conn.Extensions != want[0]&want[1] || string(e.conn.PrivateData) != e.private {
					r.Errorf("wanted %#x: %+v", want, e.conn)
				}
			}
			transferBothWays(r, x, y, 50000)
			for _, e := range []*end{x, y} {
				r.Check(e.qp.Close())
				r.Check(e.mr.Close())
			}
		}
	})
}

// A Listener's program sees what the peer offers before it answers.
func TestPeerExtensions(t *testing.T) {
	r := newLoopback(t)
	l := r.listen(r.b)
	go func() {
		x := r.newEnd(r.a, wants{})
		_ = x.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{PrivateData: []byte("hi"), Extensions: ExtAlignedFPDUs})
	}()
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	if req.Peer().Extensions != ExtAlignedFPDUs || string(req.PrivateData()) != "hi" {
		r.Errorf("%+v, %q", req.Peer(), req.PrivateData())
	}
	r.Must(req.Reject(nil))
}

// An extension that this version does not have is refused, and so is private data that
// leaves no room for the trailer.
func TestExtensionsRefused(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	r.Says(x.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{Extensions: 1 << 31}), nil, "unknown Extensions 0x80000000: choose from")
	p := ConnParams{Extensions: ExtAlignedFPDUs, PrivateData: make([]byte, 501)}
	r.Says(x.qp.Dial(r.Ctx(), "127.0.0.1:1", p), nil, "501 octets of private data; there is room for 500 beside the trailer of the Extensions")
}
