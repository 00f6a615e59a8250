package rdma

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// Two ends that want an extension agree on it, if it suits what carries the connection at both
// ends. The applications see their private data without the trailer, also if only one end wants
// extensions.
func TestExtensions(t *testing.T) {
	const asked = ExtAlignedFPDUs | ExtRFC7306 | ExtLongFPDUs
	onAllPaths(t, func(r *rig) {
		suits := asked &^ unfit(r.offloads(r.a)) &^ unfit(r.offloads(r.b))
		for bits := range 4 {
			var want [2]Extensions
			for i := range want {
				if bits&(1<<i) != 0 {
					want[i] = asked
				}
			}
			x, y := r.connect(wants{heap: 1 << 18,
				dial:   ConnParams{PrivateData: []byte("question"), Extensions: want[0]},
				accept: ConnParams{PrivateData: []byte("answer"), Extensions: want[1]}})
			for _, e := range []struct {
				conn    Conn
				private string
			}{{x.qp.Conn(), "answer"}, {y.qp.Conn(), "question"}} {
				if e.conn.Extensions != want[0]&want[1]&suits || string(e.conn.PrivateData) != e.private {
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

// offloads reports whether engines run the connections of a.
func (r *rig) offloads(a *Adapter) bool {
	got, _ := a.Carrier()
	return got == CarrierAFXDP
}

// With ExtLongFPDUs at both ends, FPDUs over the kernel port have up to 16 KiB of payload.
// Without it at one of the ends, they fit into a segment.
func TestLongFPDUs(t *testing.T) {
	r := newStage(t, pair.Config{}) // the MTU of the loopback would hide the difference
	r.openHosts(func(side pair.Side) Config {
		return Config{Carrier: CarrierKernel, Ports: []string{r.pair.Ends[side].Name}}
	})
	const n, segment = 64 << 10, 1500
	for _, params := range []ConnParams{{}, {NoCRC: true}, {Markers: true}} {
		for bits := range 4 {
			dial, accept := params, params
			if bits&1 != 0 {
				dial.Extensions = ExtLongFPDUs
			}
			if bits&2 != 0 {
				accept.Extensions = ExtLongFPDUs
			}
			x, y := r.connect(wants{heap: 4 * n, dial: dial, accept: accept})
			transferBothWays(r, x, y, n)
			for _, e := range []*end{x, y} {
				r.Check(e.qp.Close())
				r.Check(e.mr.Close())
			}
			// Each end sends a Write, a Send and a Read Response of n octets.
			const long, short = 3*n/(16<<10) + 10, 3 * n / segment
			for _, e := range []*end{x, y} {
				if got := e.qp.machine.Stats().FPDUsOut; bits == 3 && got > long || bits != 3 && got < short {
					r.Errorf("%+v, %02b: %d FPDUs; want at most %d if both want long ones, and at least %d otherwise", params, bits, got, long, short)
				}
			}
		}
	}
}

// A Listener's program sees what the peer offers before it answers.
func TestPeerExtensions(t *testing.T) {
	r := newLoopback(t)
	l := r.listen(r.b)
	go func() {
		x := r.newEnd(r.a, wants{})
		_ = x.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{PrivateData: []byte("hi"), Extensions: ExtRFC7306})
	}()
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	if req.Peer().Extensions != ExtRFC7306 || string(req.PrivateData()) != "hi" {
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
