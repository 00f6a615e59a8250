package rdma

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"
)

// sizes are message lengths around every limit: nothing, padding, a segment at MTU 1500,
// several segments, FPDUs of loopback, and long messages.
var sizes = []int{0, 1, 2, 3, 4, 5, 255, 1415, 1416, 1423, 1424, 1425, 1447, 1448, 1460, 2848, 9000, 65400, 65536, 1 << 20}

func TestEveryOperationAtEverySize(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{heap: 2 << 20})
		for i, n := range sizes {
			fill(x.mr.Bytes()[:n], i)
			clear(y.mr.Bytes()[:n+1])
			back := 1 << 20

			x.post(SendWR{ID: 1, Op: WRWrite, SGL: []SGE{x.mr.SGE(0, n)}, RKey: y.mr.RKey()},
				SendWR{ID: 2, Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(back, n)}, RKey: y.mr.RKey()})
			if c := r.ok(x.sent(1))[0]; c.ID != 2 || c.Op != WCRead || int(c.Length) != n || c.QP != x.qp.Number() {
				r.Fatalf("size %d: %+v", n, c)
			}
			same(r, "written and read", n, x.mr.Bytes()[:n], y.mr.Bytes()[:n], x.mr.Bytes()[back:back+n])
			if y.mr.Bytes()[n] != 0 {
				r.Fatalf("size %d: the octet behind was written", n)
			}

			clear(y.mr.Bytes()[:n])
			y.receive(RecvWR{ID: 3, SGL: []SGE{y.mr.SGE(0, n)}})
			x.post(SendWR{ID: 4, Op: WRSend, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, n)}})
			if c := r.ok(y.got(1))[0]; c.ID != 3 || c.Op != WCRecv || int(c.Length) != n || c.Solicited || c.Invalidated != 0 {
				r.Fatalf("size %d: %+v", n, c)
			}
			if c := r.ok(x.sent(1))[0]; c.ID != 4 || c.Op != WCSend {
				r.Fatalf("size %d: %+v", n, c)
			}
			same(r, "sent", n, x.mr.Bytes()[:n], y.mr.Bytes()[:n])
		}
		r.none(x.send)
		r.none(x.recv)
		r.none(y.send)
		r.none(y.recv)
	})
}

func same(r *rig, what string, n int, want []byte, all ...[]byte) {
	r.Helper()
	for _, got := range all {
		if !bytes.Equal(want, got) {
			r.Fatalf("%s, %d octets: not the same", what, n)
		}
	}
}

// Lists have as many elements as permitted, empty elements among them, and are divided
// differently at the two ends.
func TestScatterGather(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{MaxSGE: maxSGE}})
		fill(x.mr.Bytes(), 1)
		var from, to []SGE
		var want []byte
		for i := range maxSGE {
			n := i * 37 % 500
			from = append(from, x.mr.SGE(i*1000+3, n))
			want = append(want, x.mr.Bytes()[i*1000+3:i*1000+3+n]...)
		}
		for i := range maxSGE {
			to = append(to, y.mr.SGE(60000-i*600, 300+i))
		}
		y.receive(RecvWR{SGL: to})
		x.post(SendWR{Op: WRSend, SGL: from}, SendWR{Op: WRWrite, SGL: from, RKey: y.mr.RKey(), RemoteAddr: 7})
		c := r.ok(y.got(1))[0]
		var got []byte
		for _, e := range to {
			got = append(got, y.mr.Bytes()[e.Addr:e.Addr+uint64(e.Length)]...)
		}
		same(r, "scattered", len(want), want, got[:c.Length])
		if int(c.Length) != len(want) {
			r.Errorf("length %d, want %d", c.Length, len(want))
		}
		x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: y.mr.RKey()})
		r.ok(x.sent(1))
		same(r, "gathered", len(want), want, y.mr.Bytes()[7:7+len(want)])
	})
}

func TestInlineIsFreeAtOnce(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{MaxInline: 256}})
		y.receive(RecvWR{SGL: []SGE{y.mr.SGE(0, 256)}})
		data := make([]byte, 256)
		fill(data, 9)
		want := bytes.Clone(data)
		x.post(SendWR{Op: WRWrite, Inline: data, RKey: y.mr.RKey(), RemoteAddr: 1000}, SendWR{Op: WRSend, Inline: data[:100]})
		clear(data)
		r.ok(y.got(1))
		same(r, "inline Send", 100, want[:100], y.mr.Bytes()[:100])
		same(r, "inline Write", 256, want, y.mr.Bytes()[1000:1256])
	})
}

// An unsignaled request makes no completion, and its place in the queue is used again.
func TestUnsignaled(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{SendDepth: 8}})
		const rounds = 200
		for i := range rounds {
			wr := SendWR{ID: uint64(i), Op: WRWrite, Inline: []byte{byte(i)}, RKey: y.mr.RKey(), RemoteAddr: uint64(i)}
			r.Eventually("there is room", func() bool { n, _ := x.qp.PostSend(wr); return n == 1 })
		}
		r.Eventually("there is room", func() bool {
			n, _ := x.qp.PostSend(SendWR{ID: rounds, Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, rounds)}, RKey: y.mr.RKey()})
			return n == 1
		})
		if c := r.ok(x.sent(1))[0]; c.ID != rounds {
			r.Fatalf("%+v", c)
		}
		r.none(x.send)
		for i := range rounds {
			if x.mr.Bytes()[i] != byte(i) {
				r.Fatalf("octet %d is %d", i, x.mr.Bytes()[i])
			}
		}
	})
}

// A Write with Fence that is posted behind a Read of the same memory does not change what
// the Read returns. Without Fence it may.
func TestFence(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		const n = 32 << 10
		x, y := r.connect(wants{heap: 4 * n})
		for i := range 20 {
			fill(x.mr.Bytes()[:n], i+1)
			old := bytes.Clone(y.mr.Bytes()[:n])
			x.post(
				SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(n, n)}, RKey: y.mr.RKey()},
				SendWR{Op: WRWrite, Flags: Fence | Signaled, SGL: []SGE{x.mr.SGE(0, n)}, RKey: y.mr.RKey()},
				SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(2*n, n)}, RKey: y.mr.RKey()})
			r.ok(x.sent(3))
			same(r, "read before the Write", n, old, x.mr.Bytes()[n:2*n])
			same(r, "read behind the Write", n, x.mr.Bytes()[:n], x.mr.Bytes()[2*n:3*n])
		}
	})
}

func TestSolicited(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		for i := range 3 {
			y.receive(RecvWR{ID: uint64(i), SGL: []SGE{y.mr.SGE(i*100, 100)}})
		}
		woken := make(chan error, 1)
		y.recv.Arm(true)
		x.post(SendWR{Op: WRSend, Inline: []byte("one")}, SendWR{Op: WRWrite, Inline: []byte("w"), RKey: y.mr.RKey(), RemoteAddr: 5000},
			SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 1)}, RKey: y.mr.RKey()})
		r.ok(x.sent(1)) // so the first Send has been delivered
		select {
		case <-y.recv.Notify():
			r.Error("an unsolicited Send was notified")
		default:
		}
		r.ok(y.got(1))
		go func() { woken <- y.recv.WaitSolicited(r.Ctx()) }()
		x.post(SendWR{Op: WRSend, Flags: Solicited, Inline: []byte("two")})
		r.Must(<-woken)
		if c := r.ok(y.got(1))[0]; !c.Solicited || c.ID != 1 {
			r.Errorf("%+v", c)
		}
		y.recv.Arm(false)
		x.post(SendWR{Op: WRSend, Inline: []byte("three")})
		select {
		case <-y.recv.Notify():
		case <-time.After(patience):
			r.Fatal("not notified")
		}
		r.ok(y.got(1))
	})
}

func TestSendWithInvalidate(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		lent, err := y.pd.AllocMR(100, all|RemoteInvalidate)
		r.Must(err)
		y.receive(RecvWR{ID: 1, SGL: []SGE{y.mr.SGE(0, 10)}}, RecvWR{ID: 2})
		x.post(SendWR{Op: WRWrite, Inline: []byte("before"), RKey: lent.RKey()},
			SendWR{Op: WRSendInvalidate, Flags: Solicited, Inline: []byte("done"), Invalidate: lent.RKey()})
		c := r.ok(y.got(1))[0]
		if c.Invalidated != lent.RKey() || !c.Solicited || c.Length != 4 {
			r.Errorf("%+v", c)
		}
		if string(lent.Bytes()[:6]) != "before" {
			r.Error("the Write before has not happened")
		}
		x.post(SendWR{Op: WRWrite, Inline: []byte("behind"), RKey: lent.RKey()})
		x.done()
		y.done()
		r.Says(x.qp.Err(), nil, "terminated by the peer", "invalid STag", "RDMA Write", lent.RKey().String())
		r.Says(y.qp.Err(), nil, "terminated by this side", "(1/1/00)")
		if string(lent.Bytes()[:6]) != "before" {
			r.Error("an invalid STag was written to")
		}
		if c := y.got(1)[0]; c.ID != 2 || c.Status != Flushed {
			r.Errorf("%+v", c)
		}
		r.Check(lent.Close())
	})
}

// Two peers use one region. Neither can invalidate it for the other (RFC 5040 §8.1.1
// rule 7), nor invalidate a region that is bound to the other's QP (RFC 5041 §8.2).
func TestSharedRegionStays(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for name, lend := range map[string]func(one, two *end) *MR{
			"shared":      func(one, _ *end) *MR { return one.mr },
			"the other's": func(_, two *end) *MR { return two.lend(all|RemoteInvalidate, MROptions{QP: two.qp}) },
		} {
			evil, good := r.newEnd(r.a, wants{}), r.newEnd(r.a, wants{})
			one := r.newEnd(r.b, wants{})
			two := one.another()
			r.Must(r.join(evil, one, wants{}))
			r.Must(r.join(good, two, wants{}))
			mr := lend(one, two)
			one.receive(RecvWR{ID: 1})
			evil.post(SendWR{Op: WRSendInvalidate, Invalidate: mr.RKey()})
			if c := one.got(1)[0]; c.Status != RemoteInvalidErr {
				r.Errorf("%s: %+v", name, c)
			}
			evil.done()
			r.Says(evil.qp.Err(), nil, "STag cannot be invalidated (0/1/09)")
			good.post(SendWR{Op: WRRead, SGL: []SGE{good.mr.SGE(0, 4)}, RKey: mr.RKey(), Flags: Signaled})
			r.ok(good.sent(1))
			r.Must(evil.qp.Close())
			r.Must(good.qp.Close())
		}
	})
}

// Only the QP to which a region is bound, and that QP's peer, can use the region.
func TestRegionOfOneQP(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		other, two := r.newEnd(r.a, wants{}), y.another()
		r.Must(r.join(other, two, wants{}))
		mr := y.lend(all, MROptions{QP: y.qp})
		x.post(SendWR{Op: WRWrite, Inline: []byte("mine"), RKey: mr.RKey()},
			SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 4)}, RKey: mr.RKey(), Flags: Signaled})
		r.ok(x.sent(1))
		if string(x.mr.Bytes()[:4]) != "mine" {
			r.Errorf("read %q", x.mr.Bytes()[:4])
		}
		other.post(SendWR{Op: WRRead, SGL: []SGE{other.mr.SGE(0, 4)}, RKey: mr.RKey(), Flags: Signaled})
		if c := other.sent(1)[0]; c.Status != RemoteAccessErr {
			r.Errorf("another peer's Read: %+v", c)
		}
		r.Says(other.qp.Err(), nil, "not associated with the stream (0/1/03)")
		local := y.another()
		third := r.newEnd(r.a, wants{})
		r.Must(r.join(third, local, wants{}))
		local.post(SendWR{Op: WRSend, SGL: []SGE{mr.SGE(0, 4)}, Flags: Signaled})
		if c := local.sent(1)[0]; c.Status != LocalProtErr {
			r.Errorf("a Send of another QP: %+v", c)
		}
		_, err := x.pd.RegMR(make([]byte, 1), 0, MROptions{QP: x.another().qp})
		r.Must(err)
		_, err = x.pd.RegMR(make([]byte, 1), 0, MROptions{QP: y.qp})
		r.Says(err, nil, "another protection domain")
		number := y.qp.Number()
		r.Must(y.qp.Close())
		_, err = y.pd.RegMR(make([]byte, 1), 0, MROptions{QP: y.qp})
		r.Says(err, ErrClosed)
		if y.a.numbers.used[number] != 1 {
			r.Error("the number is free while a region is bound to it")
		}
		r.Must(mr.Close())
		if y.a.numbers.used[number] != 0 {
			r.Error("the number is kept when the region is closed")
		}
	})
}

// More Reads than either depth allows wait for each other, and all complete in order.
func TestReadDepths(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for _, c := range []struct{ ord, ird, want int }{{1, 1, 1}, {4, 128, 4}, {128, 2, 2}, {128, 128, 128}} {
			w := wants{qp: QPConfig{SendDepth: 256}, dial: ConnParams{ORD: c.ord}, accept: ConnParams{IRD: c.ird}}
			x, y := r.connect(w)
			if got := x.qp.Conn().ORD; got != c.want {
				r.Errorf("ORD %d with IRD %d: agreed on %d", c.ord, c.ird, got)
			}
			fill(y.mr.Bytes(), 3)
			const n = 200
			for i := range n {
				x.post(SendWR{ID: uint64(i), Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(i*100, 100)}, RemoteAddr: uint64(i * 100), RKey: y.mr.RKey()})
			}
			for i, c := range r.ok(x.sent(n)) {
				if c.ID != uint64(i) {
					r.Fatalf("completion %d is of %d", i, c.ID)
				}
			}
			same(r, "read", n*100, y.mr.Bytes()[:n*100], x.mr.Bytes()[:n*100])
			r.Check(x.qp.Close())
			y.done()
			r.Check(y.qp.Close())
		}
	})
}

func TestNoReads(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for name, w := range map[string]wants{
			"none wanted": {dial: ConnParams{ORD: NoReads}},
			"none served": {accept: ConnParams{IRD: NoReads}},
		} {
			x, y := r.connect(w)
			n, err := x.qp.PostSend(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 1)}, RKey: y.mr.RKey()})
			r.Says(err, ErrNoReads, "IRD")
			if n != 0 || x.qp.Conn().ORD != 0 {
				r.Errorf("%s: %d posted, ORD %d", name, n, x.qp.Conn().ORD)
			}
			// The other direction has its own depth.
			y.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{y.mr.SGE(0, 100)}, RKey: x.mr.RKey()})
			r.ok(y.sent(1))
		}
	})
}

// Either end's application may send first.
func TestResponderSendsFirst(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
		x.receive(RecvWR{ID: 5, SGL: []SGE{x.mr.SGE(0, 10)}})
		r.Must(r.join(x, y, wants{}))
		y.post(SendWR{Op: WRSend, Inline: []byte("first")})
		if c := r.ok(x.got(1))[0]; c.ID != 5 || c.Length != 5 {
			r.Errorf("%+v", c)
		}
	})
}

// Every combination of revision, CRC and Markers carries data.
func TestWaysToConnect(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for _, revision := range []int{0, 1, 2} {
			for bits := range 16 {
				on := func(i int) bool { return bits&(1<<i) != 0 }
				w := wants{heap: 1 << 18,
					dial:   ConnParams{Revision: revision, NoCRC: on(0), Markers: on(1), PrivateData: []byte("question")},
					accept: ConnParams{NoCRC: on(2), Markers: on(3), PrivateData: []byte("answer")}}
				t := fmt.Sprintf("dial %+v accept %+v", w.dial, w.accept)
				x, y := r.connect(w)
				got, peer := x.qp.Conn(), y.qp.Conn()
				if got.CRC != !(on(0) && on(2)) || got.CRC != peer.CRC || got.RecvMarkers != on(1) || got.SendMarkers != on(3) ||
					got.Revision != 2-boolInt(revision == 1) || string(got.PrivateData) != "answer" || string(peer.PrivateData) != "question" ||
					got.Local != peer.Remote || got.Remote != peer.Local || !got.Initiator || peer.Initiator || got.Path != x.path() {
					r.Errorf("%s: %+v and %+v", t, got, peer)
				}
				transferBothWays(r, x, y, 50000)
				r.Check(x.qp.Disconnect(r.Ctx()))
				y.done()
				r.Check(y.qp.Err())
				for _, e := range []*end{x, y} {
					r.Check(e.qp.Close())
					r.Check(e.mr.Close())
				}
			}
		}
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// path returns the Path that the end's connections must have.
func (e *end) path() string {
	at, err := e.a.Attributes()
	e.r.Must(err)
	return at.Ports[0].Path
}

// transferBothWays moves n octets by every operation. The initiator begins.
func transferBothWays(r *rig, x, y *end, n int) {
	r.Helper()
	for i, d := range [][2]*end{{x, y}, {y, x}} {
		from, to := d[0], d[1]
		fill(from.mr.Bytes()[:n], i+100)
		to.receive(RecvWR{SGL: []SGE{to.mr.SGE(n, n)}})
		from.post(SendWR{Op: WRWrite, SGL: []SGE{from.mr.SGE(0, n)}, RemoteAddr: uint64(2 * n), RKey: to.mr.RKey()},
			SendWR{Op: WRSend, SGL: []SGE{from.mr.SGE(0, n)}},
			SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{from.mr.SGE(3*n, n)}, RemoteAddr: uint64(n), RKey: to.mr.RKey()})
		r.ok(to.got(1))
		r.ok(from.sent(1))
		same(r, "transfer", n, from.mr.Bytes()[:n], to.mr.Bytes()[n:2*n], to.mr.Bytes()[2*n:3*n], from.mr.Bytes()[3*n:4*n])
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Says(e.send.Wait(ctx), context.Canceled)
	waiting := make(chan error, 1)
	go func() { waiting <- e.send.Wait(context.Background()) }()
	r.Says(e.send.Close(), ErrInUse, "1 QPs")
	r.Must(e.qp.Close())
	r.Must(e.send.Close())
	r.Says(<-waiting, ErrClosed)
}

// A Local Invalidate takes a region back in the order of the send queue: a Send before it
// uses the region, and afterwards neither this end nor the peer can.
func TestLocalInvalidate(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		lent := x.lend(all)
		y.receive(RecvWR{ID: 1, SGL: []SGE{y.mr.SGE(0, 4)}})
		x.post(SendWR{ID: 2, Op: WRSend, Flags: Signaled, SGL: []SGE{lent.SGE(0, 4)}}, SendWR{ID: 3, Op: WRLocalInvalidate, Flags: Signaled, Invalidate: lent.LKey()})
		r.ok(y.got(1))
		if c := r.ok(x.sent(2)); c[0].Op != WCSend || c[1].ID != 3 || c[1].Op != WCLocalInvalidate {
			r.Fatalf("%+v", c)
		}
		y.post(SendWR{ID: 4, Op: WRWrite, Inline: []byte("late"), RKey: lent.RKey()})
		y.done()
		same(r, "written after the invalidation", 4, make([]byte, 4), lent.Bytes()[:4])
		r.Must(lent.Close())
	})
}
