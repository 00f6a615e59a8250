package rdma

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/mpa"
)

// peers plays peers that do not use stag.
type peers struct {
	*rig
	l *Listener
}

func (r *rig) peersOf(c ListenConfig) peers {
	r.Helper()
	l, err := r.b.Listen(r.Ctx(), "127.0.0.1:0", c)
	r.Must(err)
	r.Cleanup(func() { r.Check(l.Close()) })
	return peers{r, l}
}

// send connects to the listener and writes b.
func (p peers) send(b []byte) net.Conn {
	p.Helper()
	c, err := net.Dial("tcp", p.l.Addr().String())
	p.Must(err)
	p.Cleanup(func() { c.Close() })
	c.Write(b)
	return c
}

// closed demands that the peer's connection ends without an answer.
func (r *rig) closed(c net.Conn) {
	r.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		r.Errorf("%d octets in answer, %v", n, err)
	}
}

// soundRequest returns a valid Request.
func (r *rig) soundRequest() []byte {
	b, err := mpa.Offer{PeerToPeer: true}.Request()
	r.Must(err)
	return b
}

// TestListenerNumbersPeers: a peer's number tells when the peer connected, however late
// its Request is.
func TestListenerNumbersPeers(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{})
	first := p.send(nil)
	r.Eventually("the first is there", func() bool { p.l.mu.Lock(); defer p.l.mu.Unlock(); return p.l.silent.count == 1 })
	second := p.send(r.soundRequest())
	next := func(number uint64, c net.Conn) {
		t.Helper()
		req, err := p.l.Accept(r.Ctx())
		r.Must(err)
		if got := req.Peer(); got.Number != number || got.Remote.String() != c.LocalAddr().String() {
			t.Errorf("%+v, want number %d", got, number)
		}
		r.Check(req.Close())
	}
	next(2, second)
	_, err := first.Write(r.soundRequest())
	r.Must(err)
	next(1, first)
}

func TestListenerMalformedPeers(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{})
	at := func(i int, v byte) []byte { b := r.soundRequest(); b[i] = v; return b }
	for i, bad := range [][]byte{
		at(0, 'X'), at(17, 0), at(17, 7), at(17, 3), at(18, 3),
		append([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), make([]byte, 20)...),
	} {
		r.closed(p.send(bad))
		r.Eventually("it is counted", func() bool { return p.l.Stats().Malformed == uint64(i+1) })
	}

	// One peer closes before it is answered, and one sends an FPDU behind its Request.
	p.send(r.soundRequest()).Close()
	early := p.send(append(r.soundRequest(), 0, 18))
	r.Eventually("both have come", func() bool { return p.l.Stats().Requests == 2 })
	ctx, cancel := context.WithCancel(r.Ctx())
	accepted := make(chan error, 1)
	go func() {
		_, err := p.l.Accept(ctx)
		accepted <- err
	}()
	r.Eventually("neither is accepted", func() bool { s := p.l.Stats(); return s.Gone == 1 && s.Malformed == 7 })
	r.closed(early)
	cancel()
	err := <-accepted
	r.Says(err, context.Canceled)
	r.Must(p.l.Close())
	_, err = p.l.Accept(r.Ctx())
	r.Says(err, ErrClosed)
}

// Peers that send nothing, or only a part of a Request, delay no other peer.
func TestListenerSilentPeers(t *testing.T) {
	r := newLoopback(t)
	hasty := r.peersOf(ListenConfig{Timeout: 20 * time.Millisecond})
	for i, b := range [][]byte{nil, r.soundRequest()[:10], r.soundRequest()[:21]} {
		r.closed(hasty.send(b))
		r.Eventually("it is counted", func() bool { return hasty.l.Stats().Silent == uint64(i+1) })
	}

	p := r.peersOf(ListenConfig{MaxSilent: 4})
	p.send(nil)
	p.send(r.soundRequest()[:10])
	x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
	accepted := make(chan error, 1)
	go func() {
		req, err := p.l.Accept(r.Ctx())
		if err == nil {
			err = req.Accept(r.Ctx(), y.qp, ConnParams{})
		}
		accepted <- err
	}()
	r.Must(x.qp.Dial(r.Ctx(), p.l.Addr().String(), ConnParams{}))
	r.Must(<-accepted)
	transferBothWays(r, x, y, 1000)

	// If there are too many at a time, the oldest are evicted.
	for range 10 {
		p.send(nil)
	}
	r.Eventually("all but four are gone", func() bool { return p.l.Stats().Silent == 8 })
}

// A silent peer is reset: a close would leave a socket in FIN-WAIT-2 for each peer that
// keeps its side open.
func TestSilentPeersAreReset(t *testing.T) {
	r := newLoopback(t)
	reset := func(c net.Conn) {
		t.Helper()
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer's connection ends with %v", err)
		}
	}
	hasty := r.peersOf(ListenConfig{Timeout: 10 * time.Millisecond})
	reset(hasty.send(nil))
	part := hasty.send(nil)
	// The socket tells of a reset once: here, if it comes before the octets are written.
	if _, err := part.Write(r.soundRequest()[:10]); !errors.Is(err, syscall.ECONNRESET) {
		reset(part)
	}
	p := r.peersOf(ListenConfig{MaxSilent: 1})
	first := p.send(nil)
	second := p.send(nil)
	reset(first)
	r.Must(p.l.Close())
	reset(second)
}

// from connects to the listener from the loopback address host.
func (p peers) from(host string) net.Conn {
	p.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	c, err := d.Dial("tcp", p.l.Addr().String())
	p.Must(err)
	p.Cleanup(func() { c.Close() })
	return c
}

// A host that opens connections and sends nothing evicts its own connections. It does not
// evict a peer that is farther away, whose Request comes later than all of them.
func TestSilentFloodKeepsNobodyOut(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{MaxSilent: 8})
	distant := p.from("127.0.0.2")
	r.Eventually("it is admitted", func() bool { p.l.mu.Lock(); defer p.l.mu.Unlock(); return p.l.silent.count == 1 })
	for range 100 {
		p.from("127.0.0.1")
	}
	r.Eventually("all but seven of the flood have gone", func() bool { return p.l.Stats().Silent == 100-7 })
	if _, err := distant.Write(r.soundRequest()); err != nil {
		t.Fatal(err)
	}
	req, err := p.l.Accept(r.Ctx())
	r.Must(err)
	if got := req.Peer(); got.Number != 1 || got.Remote.String() != distant.LocalAddr().String() {
		t.Errorf("%+v", got)
	}
	r.Must(req.Reject(nil))
	r.Eventually("the Request is counted", func() bool { return p.l.Stats().Requests == 1 }) // after Accept may have it
	if s := p.l.Stats(); s.Gone != 0 || s.Malformed != 0 || s.Overflow != 0 {
		t.Errorf("%+v", s)
	}
}

// The source with the most peers loses one. If several have equally many, it is the peer
// that has been silent longest.
func TestGreetings(t *testing.T) {
	g := newGreetings(4)
	number := uint64(0)
	in := map[uint64]*greeting{}
	add := func(host string, want uint64) {
		t.Helper()
		number++
		mine, evicted := g.add(nil, netip.MustParseAddr(host), number)
		in[number] = mine
		got := uint64(0)
		if evicted != nil {
			got = evicted.number
			delete(in, got)
		}
		if got != want || g.count != len(in) {
			t.Errorf("%s drives out %d of %d, want %d", host, got, g.count, want)
		}
	}
	remove := func(n uint64) {
		g.remove(in[n])
		g.remove(in[n]) // remove has no effect on an evicted peer
		delete(in, n)
	}
	add("192.0.2.1", 0)        // 1
	add("2001:db8::1:1", 0)    // 2
	add("2001:db8::2:2", 0)    // 3, the same first 64 bits
	add("::ffff:192.0.2.9", 0) // 4
	add("192.0.2.8", 2)        // 5
	add("192.0.2.7", 1)        // 6: every source has one
	add("192.0.2.9", 3)        // 7
	add("192.0.2.6", 4)        // 8: .9 has two
	remove(8)
	add("fe80::1%eth0", 0) // 9: each link-local address is a source of its own
	add("fe80::2%eth0", 5) // 10
	for n := range in {
		remove(n)
	}
	if g.count != 0 || len(g.sources) != 0 {
		t.Errorf("%d are left, of %d sources", g.count, len(g.sources))
	}
}

// Few lines that a peer can provoke are logged, and they say how many were skipped.
func TestLogLimit(t *testing.T) {
	now := time.Unix(1000, 0)
	var one logLimit
	three := logLimit{burst: 3}
	for _, c := range []struct {
		l       *logLimit
		after   time.Duration
		ok      bool
		skipped int
	}{
		{&one, 0, true, 0}, {&one, 0, false, 0}, {&one, time.Second - 1, false, 0}, {&one, 1, true, 2}, {&one, time.Hour, true, 0},
		{&three, 0, true, 0}, {&three, 1, true, 0}, {&three, 1, true, 0}, {&three, 1, false, 0}, {&three, time.Second, true, 1},
	} {
		now = now.Add(c.after)
		if skipped, ok := c.l.take(now); ok != c.ok || skipped != c.skipped {
			t.Errorf("%v later: %v, %d skipped; want %v, %d", c.after, ok, skipped, c.ok, c.skipped)
		}
	}
}

func TestListenerOverflow(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{Backlog: 4})
	for i := range 4 {
		p.send(r.soundRequest())
		r.Eventually("it waits", func() bool { return p.l.Stats().Requests == uint64(i+1) })
	}
	r.closed(p.send(r.soundRequest()))
	r.Eventually("it is counted", func() bool { return p.l.Stats().Overflow == 1 })
	req, err := p.l.Accept(r.Ctx())
	r.Must(err)
	r.Must(req.Reject(nil))
}

// A name server that does not answer delays only the Listen that asks it: the adapter can
// be used, and its Close ends the look-up.
func TestListenWaitsForItsNameAlone(t *testing.T) {
	asked := make(chan struct{}, 1)
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	r := newLoopback(t)
	pd, err := r.a.AllocPD()
	r.Must(err)
	listening := make(chan error, 1)
	go func() {
		_, err := r.a.Listen(context.Background(), "no-such-host.example:0", ListenConfig{})
		listening <- err
	}()
	<-asked
	mr, err := pd.RegMR(make([]byte, 1), 0)
	r.Must(err)
	r.Must(mr.Close())
	r.Must(r.a.Close())
	select {
	case err := <-listening:
		r.Says(err, ErrClosed, "no-such-host.example")
	case <-time.After(patience):
		t.Error("the adapter's Close has not ended the look-up")
	}
}

// An FPDU that comes between Accept's check and the Reply, or before the
// application has answered, ends the connection.
func TestEarlyOctetsAtAccept(t *testing.T) {
	r := newLoopback(t)
	l := r.listen(r.b)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	r.Must(err)
	defer c.Close()
	b, err := (mpa.Offer{}).Request()
	r.Must(err)
	c.Write(b)
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	c.Write([]byte{0})
	r.Eventually("it is here", func() bool { octets, _, _ := early(req.socket.TCPConn); return octets })
	y := r.newEnd(r.b, wants{})
	// An error in this end's own arguments leaves the request as it is.
	r.Says(req.Accept(r.Ctx(), y.qp, ConnParams{IRD: 1000}), nil, "IRD")
	r.Says(req.Accept(r.Ctx(), r.newEnd(r.a, wants{}).qp, ConnParams{}), nil, "another adapter")
	r.Says(req.Accept(r.Ctx(), y.qp, ConnParams{}), errEarly)
	r.Says(req.Accept(r.Ctx(), y.qp, ConnParams{}), ErrAnswered)
	if y.qp.State() != Idle {
		r.Errorf("state %v", y.qp.State())
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		r.Error("it got an answer")
	}
}

// The adapter's Close closes requests that have not been answered.
func TestUnansweredRequests(t *testing.T) {
	r := newLoopback(t)
	l := r.listen(r.b)
	x := r.newEnd(r.a, wants{})
	dialled := make(chan error, 1)
	go func() { dialled <- x.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{}) }()
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	r.Must(l.Close())
	select {
	case err := <-dialled:
		r.Fatalf("the listener's Close ended it: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	r.Must(r.b.Close())
	r.Says(<-dialled, nil, "closed the connection")
	r.Says(req.Reject(nil), ErrAnswered)
}

// TestListenWithoutPorts: after the adapter has lost its last port, Accept of a Listener
// returns the reason, and so does Listen. Listen leaves no socket behind.
func TestListenWithoutPorts(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{})
	r.b.notify(adapter.Event{Type: adapter.PortLost, Port: "eth9", Err: errors.New("eth9 is gone")})
	l := r.listen(r.b) // another port is left
	r.Check(l.Close())
	r.b.notify(adapter.Event{Type: adapter.PortLost, Port: "eth8", Err: errors.New("eth8 is gone"), Last: true})
	_, err := p.l.Accept(r.Ctx())
	r.Says(err, nil, "eth8 is gone")
	address := p.l.Addr().String()
	r.Check(p.l.Close())
	_, err = r.b.Listen(r.Ctx(), address, ListenConfig{})
	r.Says(err, nil, "listen on "+address, "eth8 is gone")
	free, err := net.Listen("tcp", address)
	r.Must(err)
	r.Check(free.Close())
}
