package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

const jumbo = 9000 // octets: frames that do not fit into a chunk

// steered returns the counters of the steering program.
func (r *rig) steered() (n [bpf.Reasons]uint64) {
	r.Helper()
	s, err := r.nic.Steering().Stats()
	r.Must(err)
	return s
}

// TestJumbo transfers octets in both directions over an MTU larger than a chunk. The segments fit into a chunk.
func TestJumbo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nic     nic.Config
		longest uint32 // octets of a segment with its IP header
	}{
		"native":       {nic.Config{}, 3506},
		"generic":      {nic.Config{Generic: true}, 3826},
		"small chunks": {nic.Config{FrameSize: 2048}, 1778},
	} {
		for _, w := range ways {
			t.Run(name+"/"+w.String(), func(t *testing.T) {
				r := newRig(t, setup{pair: pair.Config{MTU: jumbo}, nic: c.nic})
				our, peer := r.connect(w)
				x := r.transferOn(our, peer, 16<<20)
				i := r.info(x.flow)
				x.finish()
				headers := uint32(20 + 20 + 12)
				if w.v6 {
					headers += 20
				}
				if i.EMSS != c.longest-headers || i.MTU != jumbo {
					t.Errorf("segments of %d octets and a path of %d, want %d and %d", i.EMSS, i.MTU, c.longest-headers, jumbo)
				}
				if n := r.steered(); n[bpf.TooLong] != 0 || n[bpf.Steered] < 16<<20/uint64(c.longest) {
					t.Errorf("%d packets steered, %d were too long", n[bpf.Steered], n[bpf.TooLong])
				}
			})
		}
	}
}

// TestJumboVLAN checks that the length that must fit includes the VLAN tag.
func TestJumboVLAN(t *testing.T) {
	s := onVLAN(t)
	s.pair.MTU = jumbo
	r := newRig(t, s)
	if got, want := r.nic.MSS(false), 3520-14-4-40; got != want {
		t.Errorf("an MSS of %d, want %d", got, want)
	}
	our, peer := r.connect(way{})
	x := r.transferOn(our, peer, 4<<20)
	x.finish()
	if n := r.steered(); n[bpf.TooLong] != 0 {
		t.Errorf("%d packets were too long", n[bpf.TooLong])
	}
}

// TestJumboUnannounced checks that a connection is refused with advice if its peer was told a larger MSS. The
// connection continues in the kernel.
func TestJumboUnannounced(t *testing.T) {
	r := newStage(t, setup{pair: pair.Config{MTU: jumbo}})
	our, peer := r.connect(way{}) // no interface is offloaded yet, so none can lower the MSS
	r.open(nic.Config{})
	_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
	if !errors.Is(err, handoff.ErrSegments) || !strings.Contains(err.Error(), "told an MSS of 8960") || !strings.HasSuffix(err.Error(), "set TCP_MAXSEG to 3466 before connect or listen") {
		t.Errorf("%v", err)
	}
	r.clean()
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 1 << 20, halfShut: true}).start()
	o := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: 1 << 20, halfShut: true}).start()
	for _, c := range []chan error{k.read, k.wrote, o.read, o.wrote} {
		r.Check(<-c)
	}
}

// TestJumboTooLong checks that a packet of a flow that does not fit into a chunk is counted and dropped, and does no
// harm.
func TestJumboTooLong(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{MTU: jumbo}})
	our, peer := r.connect(way{})
	x := running{rig: r, flow: r.take(our, octets.NewEcho())}
	r.pingPong(peer)
	info, before := r.info(x.flow), r.steered()
	p := r.segmentOf(x.flow)
	p.Flags, p.Seq, p.Ack = "PA", uint32(info.RcvNxt), uint32(info.SndNxt)
	p.Payload = make([]byte, 5000)
	cable := r.injectFrom(theirs)
	for range 3 {
		r.Must(cable.send(p.Bytes()))
	}
	r.Eventually("three packets that are too long", func() bool {
		n := r.steered()
		return n[bpf.TooLong] == before[bpf.TooLong]+3
	})
	if now := r.info(x.flow); now.RcvNxt != info.RcvNxt {
		t.Errorf("the connection has moved by %d octets", now.RcvNxt-info.RcvNxt)
	}
	r.pingPong(peer)
}

// TestJumboOthers checks that packets of connections that were not taken over pass the program in full length.
func TestJumboOthers(t *testing.T) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newStage(t, setup{pair: pair.Config{MTU: jumbo}})
			our, peer := r.connect(w)
			r.open(nic.Config{})
			const volume = 32 << 20
			k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}).start()
			o := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: volume, halfShut: true}).start()
			for _, c := range []chan error{k.read, k.wrote, o.read, o.wrote} {
				r.Check(<-c)
			}
			// Even without acknowledgements, packets of 3,520 octets would be more than twice as many.
			if n := r.steered(); n[bpf.NoFlow] < volume/jumbo || n[bpf.Steered] != 0 {
				t.Errorf("%d packets passed, %d were steered", n[bpf.NoFlow], n[bpf.Steered])
			}
		})
	}
}

// TestJumboVerbs runs every operation in both directions over the large MTU, between two engines, and between an engine
// and the kernel's TCP.
func TestJumboVerbs(t *testing.T) {
	t.Parallel()
	for name, peer := range map[string]rdma.Config{"engine": {}, "kernel": {KernelPort: true}} {
		for _, w := range ways {
			t.Run(fmt.Sprintf("%s/%v", name, w), func(t *testing.T) {
				r := newStage(t, setup{pair: pair.Config{MTU: jumbo}})
				a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, peer)
				x, y := r.newVerbs(ours, a), r.newVerbs(theirs, b)
				x.receives(verbsRecs)
				y.receives(verbsRecs)
				from, to, listens := x, y, b
				if w.accept {
					from, to, listens = y, x, a
				}
				r.meet(from, to, listens, w.v6, rdma.ConnParams{}, rdma.ConnParams{})
				from.work(to)
				x.verify(y)
				y.verify(x)
				from.part(to)
			})
		}
	}
}

// TestJumboAnyAddress checks the MSS of a listener for every address of both families. The MSS must also suit IPv6.
func TestJumboAnyAddress(t *testing.T) {
	r := newStage(t, setup{pair: pair.Config{MTU: jumbo}})
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{})
	l, err := a.Listen(r.Ctx(), ":0", rdma.ListenConfig{})
	r.Must(err)
	defer l.Close()
	_, service, err := net.SplitHostPort(l.Addr().String())
	r.Must(err)
	for _, v6 := range []bool{false, true} {
		x, y := r.newVerbs(ours, a), r.newVerbs(theirs, b)
		x.receives(verbsRecs)
		y.receives(verbsRecs)
		dialled := make(chan error, 1)
		go func() {
			dialled <- y.qp.Dial(context.Background(), net.JoinHostPort(r.addr(ours, v6), service), rdma.ConnParams{})
		}()
		req, err := l.Accept(r.Ctx())
		r.Must(err)
		r.Must(req.Accept(r.Ctx(), x.qp, rdma.ConnParams{}))
		r.Must(<-dialled)
		y.work(x)
		y.part(x)
	}
}
