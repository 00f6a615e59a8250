package rdma

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

// plainPeer listens without stag, and does to each connection what it is told.
func (r *rig) plainPeer(serve func(c net.Conn)) (address string) {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	r.Cleanup(func() { l.Close(); <-over })
	return l.Addr().String()
}

// answered serves connections with a whole Request read and a Reply written.
func (r *rig) answered(reply func(mpa.Request) []byte, then func(c net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		frame, err := readFrame(c, "Request")
		if err != nil {
			r.Error(err)
			return
		}
		request, err := mpa.ReadRequest(frame)
		r.check(err)
		c.Write(reply(request))
		if then != nil {
			then(c)
		}
	}
}

func accept(q mpa.Request) []byte {
	b, _, _ := q.Accept(mpa.Offer{IRD: 8, ORD: 8})
	return b
}

// deafPeer is a connection to a peer that accepts it, and then does nothing.
func (r *rig) deafPeer() (*end, net.Conn) {
	r.Helper()
	c := make(chan net.Conn, 1)
	address := r.plainPeer(func(conn net.Conn) {
		frame, _ := readFrame(conn, "Request")
		request, err := mpa.ReadRequest(frame)
		r.check(err)
		conn.Write(accept(request))
		c <- conn
	})
	x := r.newEnd(r.a, wants{})
	r.must(x.qp.Dial(r.ctx(), address, ConnParams{}))
	return x, <-c
}

func TestRejectCarriesPrivateData(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, revision := range []int{1, 2} {
			for _, private := range [][]byte{nil, []byte("busy"), bytes.Repeat([]byte("x"), maxPrivate)} {
				l := r.listen(r.b)
				go func() {
					req, err := l.Accept(r.ctx())
					if err != nil {
						r.Error(err)
						return
					}
					if string(req.PrivateData()) != "may I?" || req.Peer().Revision != revision {
						r.Errorf("%+v %q", req.Peer(), req.PrivateData())
					}
					r.says(req.Reject(make([]byte, 1000)), nil, "room for")
					r.check(req.Reject(private))
					r.says(req.Reject(nil), errAnswered)
				}()
				x := r.newEnd(r.a, wants{})
				err := x.qp.Dial(r.ctx(), l.Addr().String(), ConnParams{PrivateData: []byte("may I?"), Revision: revision})
				var rejected *mpa.Rejected
				if !errors.As(err, &rejected) || !bytes.Equal(rejected.Private, private) {
					r.Errorf("%v: %+v", err, rejected)
				}
				// The QP is as it was.
				if x.qp.State() != Idle || x.qp.Err() != nil {
					r.Errorf("state %v, %v", x.qp.State(), x.qp.Err())
				}
				r.must(l.Close())
				y := r.newEnd(r.b, wants{})
				r.must(r.join(x, y, wants{}))
				transferBothWays(r, x, y, 1000)
			}
		}
	})
}

// Every private data that there can be arrives.
func TestPrivateDataSizes(t *testing.T) {
	r := newLoopback(t)
	for _, c := range []struct{ revision, n int }{{2, 0}, {2, 1}, {2, 251}, {2, 252}, {2, 508}, {1, 512}} {
		data := make([]byte, c.n)
		fill(data, c.n)
		p := ConnParams{PrivateData: data, Revision: c.revision}
		x, y := r.connect(wants{dial: p, accept: p})
		if !bytes.Equal(x.qp.Conn().PrivateData, data) || !bytes.Equal(y.qp.Conn().PrivateData, data) {
			r.Errorf("%d octets in revision %d do not arrive", c.n, c.revision)
		}
	}
	x := r.newEnd(r.a, wants{})
	for _, c := range []struct{ revision, n int }{{2, 509}, {1, 513}} {
		err := x.qp.Dial(r.ctx(), "127.0.0.1:1", ConnParams{PrivateData: make([]byte, c.n), Revision: c.revision})
		r.says(err, nil, "private data")
	}
}

// What Dial makes of peers that do not do as they should. The QP stays as it
// was, each time.
func TestDialBadPeers(t *testing.T) {
	r := newLoopback(t)
	key := func(q mpa.Request) []byte { return append([]byte("HTTP/1.1 400 Bad"), 0, 0, 0, 0) }
	long := func(q mpa.Request) []byte {
		return wire.MPAFields{Reply: true, Revision: 2, PrivateLen: 513}.Append(nil)
	}
	echo := func(q mpa.Request) []byte { b, _ := (mpa.Offer{}).Request(); return b }
	other := func(q mpa.Request) []byte { b := accept(q); b[17] = 1; return b }
	tooMany := func(q mpa.Request) []byte {
		b, _, _ := q.Accept(mpa.Offer{IRD: 8, ORD: 8})
		b[22], b[23] = b[22]|0x01, 0 // ORD 256, which we do not serve
		return b
	}
	x := r.newEnd(r.a, wants{})
	var frame *mpa.FrameError
	for name, c := range map[string]struct {
		serve func(net.Conn)
		frame bool
		says  string
	}{
		"wrong key":          {r.answered(key, nil), true, "does not speak MPA"},
		"too long":           {r.answered(long, nil), true, "513"},
		"Request, not Reply": {r.answered(echo, nil), true, "both ends are initiators"},
		"other revision":     {r.answered(other, nil), true, "revision"},
		"closes":             {func(c net.Conn) { io.ReadFull(c, make([]byte, 24)); c.Close() }, false, "closed the connection after 0 octets"},
		"closes within":      {r.answered(func(q mpa.Request) []byte { return accept(q)[:22] }, nil), false, "after 22 octets"},
	} {
		err := x.qp.Dial(r.ctx(), r.plainPeer(c.serve), ConnParams{})
		r.says(err, nil, c.says)
		if errors.As(err, &frame) != c.frame {
			r.Errorf("%s: %v", name, err)
		}
	}

	// A Reply that cannot be agreed to gets a Terminate.
	got := make(chan []byte, 1)
	address := r.plainPeer(r.answered(tooMany, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- b
	}))
	err := x.qp.Dial(r.ctx(), address, ConnParams{IRD: 8})
	var mismatch *mpa.Mismatch
	if !errors.As(err, &mismatch) || mismatch.Code != mpa.CodeInsufficientIRD {
		r.Errorf("%v", err)
	}
	// Length 22, untagged and last, Terminate, queue 2, MSN 1; 2/0/06; CRC.
	want := []byte{0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x20, 0x06, 0, 0}
	if b := <-got; len(b) != 28 || !bytes.Equal(b[:24], want) || wire.ReadCRC32C(b[24:]) != wire.CRC32C(b[:24]) {
		r.Errorf("the Terminate is % x", b)
	}
	r.none(x.send)
	if x.qp.State() != Idle {
		r.Errorf("state %v", x.qp.State())
	}
}

// A peer that says nothing is waited for as long as it was asked for, and a
// context or a Close ends the attempt at once.
func TestDialTimeout(t *testing.T) {
	r := newLoopback(t)
	silent := r.plainPeer(func(c net.Conn) { r.Cleanup(func() { c.Close() }) })
	x := r.newEnd(r.a, wants{})
	r.says(x.qp.Dial(r.ctx(), silent, ConnParams{Timeout: 30 * time.Millisecond}), context.DeadlineExceeded, "within 30ms", silent)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("changed my mind")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	r.says(x.qp.Dial(ctx, silent, ConnParams{}), why)
	time.AfterFunc(20*time.Millisecond, func() { r.check(x.qp.Close()) })
	r.says(x.qp.Dial(r.ctx(), silent, ConnParams{}), ErrClosed)
	x.done()

	z := r.newEnd(r.a, wants{})
	time.AfterFunc(20*time.Millisecond, func() { r.check(r.a.Close()) })
	r.says(z.qp.Dial(r.ctx(), silent, ConnParams{}), ErrClosed)
}

func TestDialMistakes(t *testing.T) {
	r := newLoopback(t)
	x, _ := r.connect(wants{})
	r.says(x.qp.Dial(r.ctx(), "127.0.0.1:1", ConnParams{}), ErrConnected)
	y := r.newEnd(r.a, wants{})
	r.says(y.qp.Dial(r.ctx(), "127.0.0.1", ConnParams{}), nil, "missing port")
	r.says(y.qp.Dial(r.ctx(), ":5", ConnParams{}), nil, "no host")
	for _, p := range []ConnParams{{IRD: 129}, {ORD: -2}, {Revision: 3}, {Timeout: -1}} {
		if err := y.qp.Dial(r.ctx(), "127.0.0.1:1", p); err == nil || strings.Contains(err.Error(), "refused") {
			r.Errorf("%+v: %v", p, err)
		}
	}
	r.says(y.qp.Dial(r.ctx(), "127.0.0.1:1", ConnParams{}), nil, "refused")
	// By name.
	l := r.listen(r.b)
	defer l.Close()
	go func() {
		req, err := l.Accept(r.ctx())
		r.check(err)
		r.check(req.Reject(nil))
	}()
	var rejected *mpa.Rejected
	_, service, _ := net.SplitHostPort(l.Addr().String())
	if err := y.qp.Dial(r.ctx(), "localhost:"+service, ConnParams{}); !errors.As(err, &rejected) {
		r.Error(err)
	}
}

// peers plays peers that know no stag.
type peers struct {
	*rig
	l *Listener
}

func (r *rig) peersOf(c ListenConfig) peers {
	r.Helper()
	l, err := r.b.Listen(r.ctx(), "127.0.0.1:0", c)
	r.must(err)
	r.Cleanup(func() { r.check(l.Close()) })
	return peers{r, l}
}

// send connects to the listener and says b.
func (p peers) send(b []byte) net.Conn {
	p.Helper()
	c, err := net.Dial("tcp", p.l.Addr().String())
	p.must(err)
	p.Cleanup(func() { c.Close() })
	c.Write(b)
	return c
}

// closed demands that a peer gets no answer but the end.
func (r *rig) closed(c net.Conn) {
	r.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		r.Errorf("%d octets in answer, %v", n, err)
	}
}

// soundRequest is a Request that nothing is wrong with.
func (r *rig) soundRequest() []byte {
	b, err := mpa.Offer{PeerToPeer: true}.Request()
	r.must(err)
	return b
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
		r.eventually("it is counted", func() bool { return p.l.Stats().Malformed == uint64(i+1) })
	}

	// Gone before it is answered, and an FPDU behind the Request.
	p.send(r.soundRequest()).Close()
	early := p.send(append(r.soundRequest(), 0, 18))
	r.eventually("both have come", func() bool { return p.l.Stats().Requests == 2 })
	ctx, cancel := context.WithCancel(r.ctx())
	accepted := make(chan error, 1)
	go func() {
		_, err := p.l.Accept(ctx)
		accepted <- err
	}()
	r.eventually("neither is accepted", func() bool { s := p.l.Stats(); return s.Gone == 1 && s.Malformed == 7 })
	r.closed(early)
	cancel()
	err := <-accepted
	r.says(err, context.Canceled)
	r.must(p.l.Close())
	_, err = p.l.Accept(r.ctx())
	r.says(err, ErrClosed)
}

// Peers that say nothing, or stop in the middle, hold nobody up.
func TestListenerSilentPeers(t *testing.T) {
	r := newLoopback(t)
	hasty := r.peersOf(ListenConfig{Timeout: 20 * time.Millisecond})
	for i, b := range [][]byte{nil, r.soundRequest()[:10], r.soundRequest()[:21]} {
		r.closed(hasty.send(b))
		r.eventually("it is counted", func() bool { return hasty.l.Stats().Silent == uint64(i+1) })
	}

	p := r.peersOf(ListenConfig{Backlog: 4})
	p.send(nil)
	p.send(r.soundRequest()[:10])
	x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
	accepted := make(chan error, 1)
	go func() {
		req, err := p.l.Accept(r.ctx())
		if err == nil {
			err = req.Accept(r.ctx(), y.qp, ConnParams{})
		}
		accepted <- err
	}()
	r.must(x.qp.Dial(r.ctx(), p.l.Addr().String(), ConnParams{}))
	r.must(<-accepted)
	transferBothWays(r, x, y, 1000)

	// Too many at a time: the oldest make room.
	for range 10 {
		p.send(nil)
	}
	r.eventually("all but four are gone", func() bool { return p.l.Stats().Silent == 8 })
}

func TestListenerOverflow(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{Backlog: 4})
	for i := range 4 {
		p.send(r.soundRequest())
		r.eventually("it waits", func() bool { return p.l.Stats().Requests == uint64(i+1) })
	}
	r.closed(p.send(r.soundRequest()))
	r.eventually("it is counted", func() bool { return p.l.Stats().Overflow == 1 })
	req, err := p.l.Accept(r.ctx())
	r.must(err)
	r.must(req.Reject(nil))
}

// An FPDU that comes between Accept's look and the Reply, or before the
// application has answered, ends the connection.
func TestEarlyOctetsAtAccept(t *testing.T) {
	r := newLoopback(t)
	l := r.listen(r.b)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	r.must(err)
	defer c.Close()
	b, err := (mpa.Offer{}).Request()
	r.must(err)
	c.Write(b)
	req, err := l.Accept(r.ctx())
	r.must(err)
	c.Write([]byte{0})
	r.eventually("it is here", func() bool { octets, _, _ := early(req.s.TCPConn); return octets })
	y := r.newEnd(r.b, wants{})
	// Mistakes of our own leave the request as it is.
	r.says(req.Accept(r.ctx(), y.qp, ConnParams{IRD: 1000}), nil, "IRD")
	r.says(req.Accept(r.ctx(), r.newEnd(r.a, wants{}).qp, ConnParams{}), nil, "another adapter")
	r.says(req.Accept(r.ctx(), y.qp, ConnParams{}), errEarly)
	r.says(req.Accept(r.ctx(), y.qp, ConnParams{}), errAnswered)
	if y.qp.State() != Idle {
		r.Errorf("state %v", y.qp.State())
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		r.Error("it got an answer")
	}
}

// Requests that nobody answers are closed with the adapter.
func TestUnansweredRequests(t *testing.T) {
	r := newLoopback(t)
	l := r.listen(r.b)
	x := r.newEnd(r.a, wants{})
	dialled := make(chan error, 1)
	go func() { dialled <- x.qp.Dial(r.ctx(), l.Addr().String(), ConnParams{}) }()
	req, err := l.Accept(r.ctx())
	r.must(err)
	r.must(l.Close())
	select {
	case err := <-dialled:
		r.Fatalf("the listener's Close ended it: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	r.must(r.b.Close())
	r.says(<-dialled, nil, "closed the connection")
	r.says(req.Reject(nil), errAnswered)
}

// Over ports: destinations that no port leads to are refused, with the way out.
func TestNoPort(t *testing.T) {
	var r *rig
	t.Run("offloaded", func(t *testing.T) {
		r = newHosts(t, pairConfig)
		x := r.newEnd(r.a, wants{})
		own := r.pair.Ends[0].V4.Addr().String()
		r.says(x.qp.Dial(r.ctx(), own+":1", ConnParams{}), ErrNoPort, "KernelPort", r.pair.Ends[0].Name)
		r.says(x.qp.Dial(r.ctx(), "127.0.0.1:1", ConnParams{}), ErrNoPort, "KernelPort")
		r.says(x.qp.Dial(r.ctx(), "203.0.113.1:1", ConnParams{}), nil, "no route")
		at, err := r.a.Attributes()
		r.must(err)
		if p := at.Ports[0]; len(at.Ports) != 1 || p.MTU != 1500 || p.Name != r.pair.Ends[0].Name || !strings.Contains(p.Path, "XDP") || len(p.Addresses) < 2 {
			r.Errorf("%+v", at.Ports)
		}
		// IPv6.
		r.host = "[" + r.pair.Ends[1].V6.Addr().String() + "]"
		x, y := r.connect(wants{})
		transferBothWays(r, x, y, 10000)
	})
}

// A port's carrier is told.
func TestPortEvents(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		for _, up := range []bool{false, true} {
			r.must(r.pair.Do(1, func() error { return setLink(r.pair.Ends[1].Name, up) }))
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
