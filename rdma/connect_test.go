package rdma

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

// plainPeer listens without stag and calls serve for each connection.
func (r *rig) plainPeer(serve func(c net.Conn)) (address string) {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
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

// answered reads a whole Request from each connection, writes a Reply, and calls then.
func (r *rig) answered(reply func(mpa.Request) []byte, then func(c net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		frame, err := readFrame(c, "Request")
		if err != nil {
			r.Error(err)
			return
		}
		request, err := mpa.ReadRequest(frame)
		r.Check(err)
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

// deafPeer connects to a peer that accepts the connection and then does nothing.
func (r *rig) deafPeer() (*end, net.Conn) {
	r.Helper()
	c := make(chan net.Conn, 1)
	address := r.plainPeer(func(conn net.Conn) {
		frame, _ := readFrame(conn, "Request")
		request, err := mpa.ReadRequest(frame)
		r.Check(err)
		conn.Write(accept(request))
		c <- conn
	})
	x := r.newEnd(r.a, wants{})
	r.Must(x.qp.Dial(r.Ctx(), address, ConnParams{}))
	return x, <-c
}

func TestRejectCarriesPrivateData(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, revision := range []int{1, 2} {
			for _, private := range [][]byte{nil, []byte("busy"), bytes.Repeat([]byte("x"), maxPrivate)} {
				l := r.listen(r.b)
				go func() {
					req, err := l.Accept(r.Ctx())
					if err != nil {
						r.Error(err)
						return
					}
					if string(req.PrivateData()) != "may I?" || req.Peer().Revision != revision {
						r.Errorf("%+v %q", req.Peer(), req.PrivateData())
					}
					r.Says(req.Reject(make([]byte, 1000)), nil, "room for")
					r.Check(req.Reject(private))
					r.Says(req.Reject(nil), ErrAnswered)
				}()
				x := r.newEnd(r.a, wants{})
				err := x.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{PrivateData: []byte("may I?"), Revision: revision})
				var rejected *RejectedError
				if !errors.As(err, &rejected) || !bytes.Equal(rejected.PrivateData, private) {
					r.Errorf("%v: %+v", err, rejected)
				}
				// The QP is as it was before Dial.
				if x.qp.State() != Idle || x.qp.Err() != nil {
					r.Errorf("state %v, %v", x.qp.State(), x.qp.Err())
				}
				r.Must(l.Close())
				y := r.newEnd(r.b, wants{})
				r.Must(r.join(x, y, wants{}))
				transferBothWays(r, x, y, 1000)
			}
		}
	})
}

// Private data of every permitted size arrives.
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
		err := x.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{PrivateData: make([]byte, c.n), Revision: c.revision})
		r.Says(err, nil, "private data")
	}
}

// Dial returns the right error for each peer that breaks the protocol. The QP stays as it
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
		b[22], b[23] = b[22]|0x01, 0 // ORD 256, which this end does not serve
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
		err := x.qp.Dial(r.Ctx(), r.plainPeer(c.serve), ConnParams{})
		r.Says(err, nil, c.says)
		if errors.As(err, &frame) != c.frame {
			r.Errorf("%s: %v", name, err)
		}
	}

	// A Reply to which this end cannot agree gets a Terminate.
	got := make(chan []byte, 1)
	address := r.plainPeer(r.answered(tooMany, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- b
	}))
	err := x.qp.Dial(r.Ctx(), address, ConnParams{IRD: 8})
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

// Dial waits for a silent peer as long as Timeout says. The end of the context or a Close
// ends the attempt at once.
func TestDialTimeout(t *testing.T) {
	r := newLoopback(t)
	silent := r.plainPeer(func(c net.Conn) { r.Cleanup(func() { c.Close() }) })
	x := r.newEnd(r.a, wants{})
	r.Says(x.qp.Dial(r.Ctx(), silent, ConnParams{Timeout: 30 * time.Millisecond}), context.DeadlineExceeded, "within 30ms", silent)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("changed my mind")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	r.Says(x.qp.Dial(ctx, silent, ConnParams{}), why)
	time.AfterFunc(20*time.Millisecond, func() { r.Check(x.qp.Close()) })
	r.Says(x.qp.Dial(r.Ctx(), silent, ConnParams{}), ErrClosed)
	x.done()

	z := r.newEnd(r.a, wants{})
	time.AfterFunc(20*time.Millisecond, func() { r.Check(r.a.Close()) })
	r.Says(z.qp.Dial(r.Ctx(), silent, ConnParams{}), ErrClosed)
}

func TestDialMistakes(t *testing.T) {
	r := newLoopback(t)
	x, _ := r.connect(wants{})
	r.Says(x.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{}), ErrConnected)
	y := r.newEnd(r.a, wants{})
	r.Says(y.qp.Dial(r.Ctx(), "127.0.0.1", ConnParams{}), nil, "missing port")
	r.Says(y.qp.Dial(r.Ctx(), ":5", ConnParams{}), nil, "no host")
	for _, p := range []ConnParams{{IRD: 129}, {ORD: -2}, {Revision: 3}, {Timeout: -1}} {
		if err := y.qp.Dial(r.Ctx(), "127.0.0.1:1", p); err == nil || strings.Contains(err.Error(), "refused") {
			r.Errorf("%+v: %v", p, err)
		}
	}
	r.Says(y.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{}), nil, "refused")
	// Dial by host name.
	l := r.listen(r.b)
	defer l.Close()
	go func() {
		req, err := l.Accept(r.Ctx())
		r.Check(err)
		r.Check(req.Reject(nil))
	}()
	var rejected *RejectedError
	_, service, _ := net.SplitHostPort(l.Addr().String())
	if err := y.qp.Dial(r.Ctx(), "localhost:"+service, ConnParams{}); !errors.As(err, &rejected) {
		r.Error(err)
	}
}
