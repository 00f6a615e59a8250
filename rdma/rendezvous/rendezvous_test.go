package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/rendezvous"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// host is an adapter with its Exchange and one address.
type host struct {
	rig.Stage
	a  *rdma.Adapter
	x  *rendezvous.Exchange
	at netip.Addr
	pd *rdma.PD
	cq *rdma.CQ
}

// freePort returns a TCP port that nobody uses.
func freePort(t testing.TB) uint16 {
	l, err := net.Listen("tcp4", ":0")
	rig.Must(t, err)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// newHost opens an adapter and its Exchange.
func newHost(t *testing.T, c rdma.Config, at string, port uint16) *host {
	t.Helper()
	h := &host{Stage: rig.On(t), at: netip.MustParseAddr(at)}
	var err error
	h.a, err = rdma.Open(c)
	h.Must(err)
	h.Cleanup(func() { h.Check(h.a.Close()) })
	h.opens(rendezvous.Config{Port: port, Addresses: []netip.Addr{h.at}})
	h.pd, err = h.a.AllocPD()
	h.Must(err)
	h.cq, err = h.a.CreateCQ(4096)
	h.Must(err)
	return h
}

func (h *host) opens(c rendezvous.Config) {
	h.Helper()
	var err error
	h.x, err = rendezvous.Open(h.Ctx(), h.a, c)
	h.Must(err)
	h.Cleanup(func() { h.Check(h.x.Close()) })
}

func (h *host) qp() *rdma.QP {
	h.Helper()
	qp, err := h.pd.CreateQP(rdma.QPConfig{SendCQ: h.cq, RecvCQ: h.cq, SendDepth: 4, RecvDepth: 4, Hold: rdma.HoldForever})
	h.Must(err)
	return qp
}

// hosts returns n hosts over the kernel's TCP, at addresses of the loopback interface.
func hosts(t *testing.T, n int) (all []*host) {
	rig.NoLeaks(t)
	port := freePort(t)
	for i := range n {
		all = append(all, newHost(t, rdma.Config{KernelPort: true, NoControl: true}, fmt.Sprintf("127.0.0.%d", i+1), port))
	}
	return all
}

// half is one end of a pair.
type half struct {
	h *host
	q *rdma.QP
	p rdma.ConnParams
}

// connect connects one end to the other.
func (e half) connect(ctx context.Context, o half) error {
	return e.h.x.Connect(ctx, e.q, e.h.at, o.h.at, o.q.Number(), e.p)
}

// meet connects two ends, the second one later by d.
func meet(ctx context.Context, e, o half, d time.Duration) error {
	var other error
	var wg sync.WaitGroup
	wg.Go(func() { other = e.connect(ctx, o) })
	time.Sleep(d)
	err := o.connect(ctx, e)
	wg.Wait()
	return errors.Join(err, other)
}

// talks sends the number of e's QP to o, and checks that o's QP has got it.
func talks(ctx context.Context, e, o half) error {
	text := fmt.Sprintf("QP %d", e.q.Number())
	mr, err := o.h.pd.AllocMR(16, rdma.LocalWrite)
	if err != nil {
		return err
	}
	defer mr.Close()
	if _, err := o.q.PostRecv(rdma.RecvWR{ID: uint64(o.q.Number()), SGL: []rdma.SGE{mr.SGE(0, 16)}}); err != nil {
		return err
	}
	if _, err := e.q.PostSend(rdma.SendWR{Op: rdma.WRSend, Inline: []byte(text)}); err != nil {
		return err
	}
	c, err := o.h.cq.Next(ctx)
	if err != nil {
		return err
	}
	if c.QP != o.q.Number() || c.Status != rdma.Success || string(mr.Bytes()[:c.Length]) != text {
		return fmt.Errorf("QP %d has got %+v, %q", o.q.Number(), c, mr.Bytes())
	}
	return nil
}

// A hundred pairs connect at the same time, in any order, and each QP has the peer that it
// has named.
func TestPairsInAnyOrder(t *testing.T) {
	hs := hosts(t, 2)
	luck := rand.New(rand.NewPCG(1, 2))
	var pairs [100][2]half
	var wg sync.WaitGroup
	for i := range pairs {
		first := luck.IntN(2)
		pairs[i] = [2]half{{h: hs[first], q: hs[first].qp()}, {h: hs[1-first], q: hs[1-first].qp()}}
	}
	luck.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	for i := range pairs {
		begin, later := time.Duration(luck.IntN(50))*time.Millisecond, time.Duration(luck.IntN(50))*time.Millisecond
		wg.Go(func() {
			time.Sleep(begin)
			if err := meet(t.Context(), pairs[i][0], pairs[i][1], later); err != nil {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); t.Failed() {
		return
	}
	for _, p := range pairs {
		for i := range p {
			if err := talks(t.Context(), p[i], p[1-i]); err != nil {
				t.Error(err)
			}
			c := p[i].q.Conn()
			if c.Remote.Addr() != p[1-i].h.at || c.Local.Addr() != p[i].h.at {
				t.Errorf("%+v", c)
			}
		}
	}
}

// Every adapter of several on one host connects to every other, and to itself.
func TestSeveralAdapters(t *testing.T) {
	hs := hosts(t, 3)
	for i, h := range hs {
		for _, o := range hs[i:] {
			a, b := half{h: h, q: h.qp()}, half{h: o, q: o.qp()}
			rig.Must(t, meet(t.Context(), a, b, 0))
			rig.Must(t, talks(t.Context(), a, b))
			rig.Must(t, talks(t.Context(), b, a))
		}
	}
}

// An end whose peer never comes gives up when its time is over, and can connect later.
func TestPeerNeverComes(t *testing.T) {
	hs := hosts(t, 2)
	for i := range hs { // the lower address dials
		e, o := half{h: hs[i], q: hs[i].qp(), p: rdma.ConnParams{Timeout: 100 * time.Millisecond}}, half{h: hs[1-i], q: hs[1-i].qp()}
		err := e.connect(t.Context(), o)
		rig.Says(t, err, rendezvous.ErrAbsent, fmt.Sprintf("connect QP %d to QP %d at %v", e.q.Number(), o.q.Number(), o.h.at))
		e.p = rdma.ConnParams{}
		rig.Must(t, meet(t.Context(), e, o, 0))
		rig.Must(t, talks(t.Context(), e, o))
	}
}

// A QP that another QP wants, and that waits for a third one, refuses at once and waits on.
func TestWrongNumber(t *testing.T) {
	hs := hosts(t, 2)
	right, wrong := half{h: hs[0], q: hs[0].qp()}, half{h: hs[0], q: hs[0].qp()}
	o := half{h: hs[1], q: hs[1].qp()}
	waits := make(chan error, 1)
	go func() { waits <- o.connect(t.Context(), right) }()
	rig.Says(t, wrong.connect(t.Context(), o), rendezvous.ErrMistaken, fmt.Sprintf("to QP %d at", o.q.Number()))
	rig.Must(t, right.connect(t.Context(), o))
	rig.Must(t, <-waits)
	rig.Must(t, talks(t.Context(), o, right))

	// The mistake is found as well if the Request comes first.
	o = half{h: hs[1], q: hs[1].qp()}
	right, wrong = half{h: hs[0], q: hs[0].qp()}, half{h: hs[0], q: hs[0].qp()}
	mistake := make(chan error, 1)
	go func() { mistake <- wrong.connect(t.Context(), o) }()
	rig.Eventually(t, "the Request waits", func() bool { return hs[1].x.Early() == 1 })
	rig.Must(t, meet(t.Context(), o, right, 0))
	rig.Says(t, <-mistake, rendezvous.ErrMistaken)
}

// The Exchange of the other end is opened late, and closed while others wait for it.
func TestExchangeComesAndGoes(t *testing.T) {
	hs := hosts(t, 2)
	port := freePort(t)
	hs[0].opens(rendezvous.Config{Port: port, Addresses: []netip.Addr{hs[0].at}})
	e, o := half{h: hs[0], q: hs[0].qp()}, half{h: hs[1], q: hs[1].qp()}
	first := make(chan error, 1)
	go func() { first <- e.connect(t.Context(), o) }()
	time.Sleep(30 * time.Millisecond) // the first attempts are refused by the kernel
	hs[1].opens(rendezvous.Config{Port: port, Addresses: []netip.Addr{hs[1].at}})
	rig.Must(t, o.connect(t.Context(), e))
	rig.Must(t, <-first)

	for i, h := range hs { // one dials, and one waits
		e := half{h: h, q: h.qp()}
		over := make(chan error, 1)
		go func() { over <- e.connect(t.Context(), half{h: hs[1-i], q: hs[1-i].qp()}) }()
		time.Sleep(10 * time.Millisecond) // either order is right
		rig.Must(t, h.x.Close())
		rig.Must(t, h.x.Close())
		rig.Says(t, <-over, rdma.ErrClosed, "exchange")
		rig.Says(t, e.connect(t.Context(), o), rdma.ErrClosed, "exchange")
	}
}

// Requests that are none of an Exchange, or that are too many, are sent away, and those that
// belong to a Connect come through.
func TestStrangers(t *testing.T) {
	hs := hosts(t, 1)
	port := freePort(t)
	rig.NoLeaks(t)
	h := newHost(t, rdma.Config{KernelPort: true, NoControl: true}, "127.0.0.9", port)
	rig.Must(t, h.x.Close())
	h.opens(rendezvous.Config{Port: port, Addresses: []netip.Addr{h.at}, MaxEarly: 2})
	address := net.JoinHostPort(h.at.String(), fmt.Sprint(port))
	for _, private := range []string{"", "SQPN", "SQPN\x02\x00\x00\x0012345678", "SQPN\x01\x01\x00\x0012345678", "SQPN\x01\x00\x00\x00123456789"} {
		err := hs[0].qp().Dial(t.Context(), address, rdma.ConnParams{PrivateData: []byte(private)})
		var rejected *rdma.RejectedError
		if !errors.As(err, &rejected) || len(rejected.PrivateData) != 0 {
			t.Errorf("%q: %v", private, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 { // nobody wants them
		q := hs[0].qp()
		wg.Go(func() {
			_ = q.Dial(ctx, address, rdma.ConnParams{PrivateData: []byte("SQPN\x01\x00\x00\x00\x00\x00\x00\x07\xff\xff\xff\xff")})
		})
	}
	rig.Eventually(t, "Requests wait", func() bool { return h.x.Early() == 2 })
	hs[0].opens(rendezvous.Config{Port: port, Addresses: []netip.Addr{hs[0].at}})
	e, o := half{h: hs[0], q: hs[0].qp()}, half{h: h, q: h.qp()}
	rig.Must(t, meet(t.Context(), e, o, 20*time.Millisecond))
	rig.Must(t, talks(t.Context(), e, o))
	cancel()
	wg.Wait()

	rig.Says(t, e.h.x.Connect(t.Context(), e.q, e.h.at, e.h.at, e.q.Number(), rdma.ConnParams{}), nil, "the QP itself")
	rig.Says(t, e.h.x.Connect(t.Context(), e.q, e.h.at, h.at, 5, rdma.ConnParams{PrivateData: []byte("x")}), nil, "leave them out")
	rig.Says(t, e.h.x.Connect(t.Context(), e.q, e.h.at, h.at, 5, rdma.ConnParams{Timeout: -1}), nil, "choose 0 or more")
}

// Something that listens on the port and is no Exchange is told apart.
func TestForeignListener(t *testing.T) {
	hs := hosts(t, 2)
	port := freePort(t)
	hs[0].opens(rendezvous.Config{Port: port, Addresses: []netip.Addr{hs[0].at}})
	l, err := hs[1].a.Listen(t.Context(), net.JoinHostPort(hs[1].at.String(), fmt.Sprint(port)), rdma.ListenConfig{})
	rig.Must(t, err)
	defer l.Close()
	o := half{h: hs[1], q: hs[1].qp()}
	for _, answer := range []func(*rdma.ConnRequest){
		func(r *rdma.ConnRequest) { rig.Check(t, r.Reject([]byte("no"))) },
		func(r *rdma.ConnRequest) { _ = r.Accept(t.Context(), o.q, rdma.ConnParams{}) }, // the other end resets the connection at once
	} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			if r, err := l.Accept(t.Context()); err == nil {
				answer(r)
			}
		}()
		e := half{h: hs[0], q: hs[0].qp()}
		rig.Says(t, e.connect(t.Context(), o), rendezvous.ErrForeign, "exchange")
		rig.Wait(t, over, "the answer")
	}
}

// QPs are connected by number over an engine, by IPv4 and by IPv6.
func TestOffloaded(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		rig.NoLeaks(t)
		p := netns.XDPPair(t, pair.Config{})
		var ends [2]half
		for side := range ends {
			at := p.Ends[side].V4.Addr()
			if v6 {
				at = p.Ends[side].V6.Addr()
			}
			rig.Must(t, p.Do(pair.Side(side), func() error {
				h := newHost(t, rdma.Config{Ports: []string{p.Ends[side].Name}, NoControl: true}, at.String(), 0)
				ends[side] = half{h: h, q: h.qp()}
				return nil
			}))
		}
		if !v6 { // a GID is an IPv4-mapped address
			ends[0].h.at = netip.AddrFrom16(ends[0].h.at.As16())
		}
		rig.Must(t, meet(t.Context(), ends[0], ends[1], 5*time.Millisecond))
		rig.Must(t, talks(t.Context(), ends[0], ends[1]))
		rig.Must(t, talks(t.Context(), ends[1], ends[0]))
	}
}
