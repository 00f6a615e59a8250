package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/test/netns"
)

// long reports whether the tests may take minutes.
func long() bool { return os.Getenv("STAG_LONG") == "1" }

// crossed is a rig of two adapters whose ports are joined by two cables. The adapters may
// move their connections.
type crossed struct {
	*rig
	names [2][2]string  // of the ports, by side and cable
	via   [2]netip.Addr // addresses of the second cable's ends
}

// crossing describes a crossed rig. The zero value is the usual one.
type crossing struct {
	progress   Progress
	kernelPeer bool // the second adapter uses the kernel's TCP
	v6         bool
	queues     int // of the first cable's ends
}

func newCrossed(t *testing.T, c crossing) *crossed {
	t.Helper()
	r := newStage(t, pair.Config{Queues: c.queues})
	second := netns.SecondCable(t, r.pair)
	x := &crossed{rig: r, via: second.Hosts}
	for side := range x.names {
		x.names[side] = [2]string{r.pair.Ends[side].Name, second.Names[side]}
	}
	if c.v6 {
		x.via = [2]netip.Addr{netip.MustParseAddr("2001:db8:7::1"), netip.MustParseAddr("2001:db8:7::2")}
		r.host = "[" + r.pair.Ends[pair.B].V6.Addr().String() + "]"
		for side := range x.names {
			x.link(pair.Side(side), 1, func(l netlink.Link) error {
				return netlink.AddrAdd(l, &netlink.Addr{IPNet: prefix(x.via[side], 64), Flags: 2 /* IFA_F_NODAD */})
			})
		}
	}
	for side := range x.names {
		x.route(pair.Side(side), 0, 1000)
		x.route(pair.Side(side), 1, 4096)
		for _, name := range []string{"all", x.names[side][0], x.names[side][1]} {
			r.Must(r.pair.Do(pair.Side(side), func() error { return netns.Sysctl("ipv4/conf/"+name+"/rp_filter", "0") }))
		}
	}
	r.openHosts(func(side pair.Side) Config {
		if side == pair.B && c.kernelPeer {
			return Config{KernelPort: true}
		}
		return Config{Ports: x.names[side][:], Progress: c.progress}
	})
	return x
}

func prefix(ip netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())}
}

// link calls do with the end of a cable.
func (x *crossed) link(side pair.Side, cable int, do func(netlink.Link) error) {
	x.Helper()
	x.Must(x.pair.Do(side, func() error {
		l, err := netlink.LinkByName(x.names[side][cable])
		if err != nil {
			return err
		}
		return do(l)
	}))
}

// route adds or replaces a route to the other side through a cable. The kernel takes the
// route with the smallest metric.
func (x *crossed) route(side pair.Side, cable, metric int) {
	x.Helper()
	x.link(side, cable, func(l netlink.Link) error { return netlink.RouteReplace(x.routeBy(side, cable, l, metric)) })
}

func (x *crossed) unroute(side pair.Side, cable, metric int) {
	x.Helper()
	x.link(side, cable, func(l netlink.Link) error { return netlink.RouteDel(x.routeBy(side, cable, l, metric)) })
}

func (x *crossed) routeBy(side pair.Side, cable int, l netlink.Link, metric int) *netlink.Route {
	to, from := x.pair.Ends[side.Other()].V4.Addr(), x.pair.Ends[side].V4.Addr()
	if x.via[0].Is6() {
		to, from = x.pair.Ends[side.Other()].V6.Addr(), x.pair.Ends[side].V6.Addr()
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: prefix(to, to.BitLen()), Src: from.AsSlice(), Priority: metric}
	if cable == 1 {
		r.Gw = x.via[side.Other()].AsSlice()
	}
	return r
}

// drainAll moves everything that an adapter has from a port to the other and back, n times.
func (x *crossed) drainAll(side pair.Side, a *Adapter, n int) error {
	for i := range n {
		from := x.names[side][i%2]
		if err := a.Drain(x.Ctx(), from); err != nil {
			return fmt.Errorf("move %d: %w", i, err)
		}
		if err := a.Undrain(from); err != nil {
			return err
		}
	}
	return nil
}

// slot is the size of the four parts of a region that shuttle uses.
const slot = 512 << 10

// shuttle moves n octets by a Write, a Send and a Read, and compares them.
func shuttle(ctx context.Context, from, to *end, n, seed int) error {
	part := func(e *end, i int) []byte { return e.mr.Bytes()[i*slot : i*slot+n] }
	fill(part(from, 0), seed)
	if _, err := to.qp.PostRecv(RecvWR{SGL: []SGE{to.mr.SGE(slot, n)}}); err != nil {
		return err
	}
	_, err := from.qp.PostSend(SendWR{Op: WRWrite, SGL: []SGE{from.mr.SGE(0, n)}, RemoteAddr: 2 * slot, RKey: to.mr.RKey()},
		SendWR{Op: WRSend, SGL: []SGE{from.mr.SGE(0, n)}},
		SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{from.mr.SGE(3*slot, n)}, RemoteAddr: slot, RKey: to.mr.RKey()})
	if err != nil {
		return err
	}
	for _, cq := range []*CQ{to.recv, from.send} {
		c, err := cq.Next(ctx)
		if err != nil {
			return fmt.Errorf("%d octets, transfer %d: %w; states %v and %v", n, seed, err, from.qp.State(), to.qp.State())
		}
		if c.Status != Success {
			return fmt.Errorf("%d octets, transfer %d: completion %+v: %w", n, seed, c, errors.Join(from.qp.Err(), to.qp.Err()))
		}
	}
	for i, got := range [][]byte{part(to, 1), part(to, 2), part(from, 3)} {
		if !bytes.Equal(part(from, 0), got) {
			return fmt.Errorf("%d octets, transfer %d: the %s has brought others", n, seed, [...]string{"Send", "Write", "Read"}[i])
		}
	}
	return nil
}

// shuttles moves data both ways at the same time until stop is called.
func (x *crossed) shuttles(a, b *end) (stop func()) {
	var over atomic.Bool
	var both sync.WaitGroup
	ctx := x.Ctx()
	for i, d := range [2][2]*end{{a, b}, {b, a}} {
		both.Go(func() {
			for n, k := 1, 0; !over.Load(); n, k = n*5%(slot-1)+1, k+1 {
				if err := shuttle(ctx, d[0], d[1], n, 2*k+i); err != nil {
					x.Errorf("direction %d: %v", i, err)
					return
				}
			}
		})
	}
	return func() {
		x.Helper()
		over.Store(true)
		both.Wait()
		if x.Failed() {
			x.FailNow()
		}
	}
}

// told reads the events of an adapter until n moves have succeeded, or were lost among other
// events. No move may have failed. told returns how many moves there were.
func (x *crossed) told(a *Adapter, n int) (moved int) {
	x.Helper()
	for uint64(moved)+a.EventsLost() < uint64(n) {
		select {
		case e := <-a.Events():
			switch {
			case e.Type == PathMoved && e.Err == nil:
				moved++
			case e.Type == PathMoved:
				x.Errorf("a move failed: %v", e.Err)
			}
		case <-time.After(patience):
			x.Fatalf("%d moves were told and %d events lost; there were %d moves or more", moved, a.EventsLost(), n)
		}
	}
	return moved
}

// TestMovedBetweenPorts drains both ports of an adapter in turn while Writes, Sends and Reads
// of all sizes go both ways. Every octet is right, each work request completes once, and the
// connection closes in order. Each move is told.
func TestMovedBetweenPorts(t *testing.T) {
	for _, c := range []struct {
		name string
		crossing
		wants
	}{
		{"engine", crossing{progress: ProgressEngine}, wants{}},
		{"inline", crossing{progress: ProgressInline}, wants{}},
		{"Markers", crossing{}, wants{dial: ConnParams{Markers: true}, accept: ConnParams{Markers: true}}},
		{"IPv6", crossing{v6: true}, wants{}},
		{"kernel peer", crossing{kernelPeer: true}, wants{}},
		{"kernel peer, inline", crossing{kernelPeer: true, progress: ProgressInline}, wants{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			moves := 40
			if long() {
				moves = 400
			}
			r := newCrossed(t, c.crossing)
			c.wants.heap = 4 * slot
			x, y := r.connect(c.wants)
			stop := r.shuttles(x, y)
			var sides sync.WaitGroup
			sides.Go(func() { r.Check(r.drainAll(pair.A, r.a, moves)) })
			if !c.kernelPeer {
				sides.Go(func() { r.Check(r.drainAll(pair.B, r.b, moves)) })
			}
			sides.Wait()
			stop()
			r.Must(x.qp.Close())
			r.Must(y.qp.Close())
			for _, a := range []*Adapter{r.a, r.b} {
				if a == r.b && c.kernelPeer {
					continue
				}
				r.told(a, moves)
			}
		})
	}
}

// TestMovedDuringTerminate moves both ends while one of them makes the other terminate the
// connection. The Terminate arrives: both ends know the reason, and neither is reset.
func TestMovedDuringTerminate(t *testing.T) {
	for name, p := range map[string]Progress{"engine": ProgressEngine, "inline": ProgressInline} {
		t.Run(name, func(t *testing.T) {
			r := newCrossed(t, crossing{progress: p})
			rounds := 30
			if long() {
				rounds = 100
			}
			var over atomic.Bool
			var moving sync.WaitGroup
			for side, a := range []*Adapter{r.a, r.b} {
				moving.Go(func() {
					for !over.Load() {
						r.Check(r.drainAll(pair.Side(side), a, 2))
					}
				})
			}
			for i := range rounds {
				x, y := r.connect(wants{heap: 4 * slot})
				r.Check(shuttle(r.Ctx(), x, y, 1+i*1000, i))
				time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
				x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, slot)}, RKey: y.mr.RKey()}, SendWR{Op: WRWrite, Inline: []byte("x"), RKey: y.mr.RKey() + 1})
				x.done()
				y.done()
				r.Says(x.qp.Err(), nil, "terminated by the peer", "invalid STag")
				r.Says(y.qp.Err(), nil, "terminated by this side")
				r.Check(x.qp.Close())
				r.Check(y.qp.Close())
				for _, e := range []*end{x, y} {
					r.Check(errors.Join(e.mr.Close(), e.send.Close(), e.recv.Close(), e.pd.Close()))
				}
			}
			over.Store(true)
			moving.Wait()
		})
	}
}

// TestMovedWithAHeldInvalidate moves a connection while the completion of a Send with
// Invalidate waits for an engine that may still use the STag. The completion comes when that
// engine has ended its step, and not before. The STag is invalid then.
func TestMovedWithAHeldInvalidate(t *testing.T) {
	for name, window := range map[string]bool{"region": false, "window": true} {
		t.Run(name, func(t *testing.T) {
			r := newCrossed(t, crossing{queues: 2})
			x, y := r.connect(wants{})
			x.hello()
			for i := range 8 {
				mr := y.lend(all | RemoteInvalidate | MWBind)
				defer func() { r.Check(mr.Close()) }()
				stag := mr.RKey()
				if window {
					mw := y.window(MWType2B)
					defer func() { r.Check(mw.Close()) }()
					stag = y.bind(mw, mr, 0, 100, RemoteWrite)
					y.bound()
				}
				f := y.flow()
				release, blocked, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
				queue := int(x.flow().Engine().Queue()) // x's segments arrive at the same queue of the peer
				r.Must(f.Move(r.Ctx(), queue))
				stays := f.NIC().Engines()[1-queue]
				go func() {
					defer close(done)
					r.Check(stays.Between(context.Background(), func() { close(blocked); <-release }))
				}()
				<-blocked
				y.receive(RecvWR{ID: uint64(i), SGL: []SGE{y.mr.SGE(0, 4)}})
				x.post(SendWR{Op: WRWrite, Inline: []byte("before"), RKey: stag},
					SendWR{Op: WRSendInvalidate, Inline: []byte("done"), Invalidate: stag})
				r.Eventually("the Write has come", func() bool {
					s, err := f.Stats(r.Ctx())
					return err == nil && s.OctetsIn > 0 && bytes.Equal(mr.Bytes()[:6], []byte("before"))
				})
				r.Must(f.MoveTo(r.Ctx(), r.b.device.Ports()[1].NIC(), nic.Shift{Forced: true})) // the blocked engine does not take part
				if !window {                                                                    // only this QP could use the window
					r.none(y.recv)
				}
				close(release)
				<-done
				c := r.ok(y.got(1))[0]
				if c.Invalidated != stag || c.ID != uint64(i) {
					r.Errorf("%+v", c)
				}
				r.Must(f.MoveTo(r.Ctx(), r.b.device.Ports()[0].NIC(), nic.Shift{}))
				transferBothWays(r.rig, x, y, 5000)
			}
			r.Must(x.qp.Close())
			r.Must(y.qp.Close())
		})
	}
}

// TestThousandMoved drains a port with 1,000 connections, and the other one after it. All of
// them go on. Each move is told, or counted as lost.
func TestThousandMoved(t *testing.T) {
	n, drains := 200, 4
	if long() {
		n, drains = 1000, 10
	}
	t.Run("offloaded", func(t *testing.T) {
		r := newCrossed(t, crossing{})
		x, y := r.newEnd(r.a, wants{cqDepth: 4096}), r.newEnd(r.b, wants{cqDepth: 4096})
		l := r.listen(r.b)
		defer l.Close()
		var near, far []*end
		for range n {
			near, far = append(near, x.another()), append(far, y.another())
		}
		accepted := make(chan error, 1)
		go func() {
			for _, e := range far {
				req, err := l.Accept(r.Ctx())
				if err == nil {
					err = req.Accept(r.Ctx(), e.qp, ConnParams{})
				}
				if err != nil {
					accepted <- err
					return
				}
			}
			accepted <- nil
		}()
		for _, e := range near {
			r.Must(e.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{}))
		}
		r.Must(<-accepted)
		for i := range drains {
			began := time.Now()
			r.Must(r.a.Drain(r.Ctx(), r.names[0][i%2]))
			took := time.Since(began)
			if left := len(r.a.device.Ports()[i%2].NIC().Flows()); left != 0 {
				t.Fatalf("%d connections are left at %s", left, r.names[0][i%2])
			}
			t.Logf("%d connections moved in %v", n, took)
			for _, e := range far { // each connection carries something
				e.receive(RecvWR{})
			}
			for _, e := range near {
				e.post(SendWR{Op: WRSend})
			}
			r.ok(y.got(n))
			r.Must(r.a.Undrain(r.names[0][i%2]))
		}
		r.told(r.a, n*drains)
		for i := range near {
			r.Must(near[i].qp.Close())
			r.Must(far[i].qp.Close())
		}
		r.Must(x.qp.Close())
		r.Must(y.qp.Close())
	})
}

// TestFlappingRoute changes the route of an end every 50 ms. The connection goes on, and all
// octets are right.
func TestFlappingRoute(t *testing.T) {
	flaps := 60
	if long() {
		flaps = 1200
	}
	t.Run("offloaded", func(t *testing.T) {
		r := newCrossed(t, crossing{})
		x, y := r.connect(wants{heap: 4 * slot})
		stop := r.shuttles(x, y)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := range flaps {
			<-tick.C
			if i%2 == 0 {
				r.route(pair.A, 1, 1)
			} else {
				r.unroute(pair.A, 1, 1)
			}
		}
		stop()
		r.Eventually("the connection is where its route leads", func() bool {
			return strings.HasPrefix(x.qp.Conn().Path, r.names[0][0]+": ")
		})
		r.told(r.a, flaps/4)
		r.Must(x.qp.Close())
		r.Must(y.qp.Close())
	})
}
