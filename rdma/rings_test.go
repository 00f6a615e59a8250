package rdma

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/foreign"
)

// Two programs that only access their mappings of rings, completions and bells have a
// connection: every octet arrives, places become free, and everything can be unmapped as
// soon as it is closed.
func TestRings(t *testing.T) { onBothPaths(t, testRings) }

func testRings(r *rig) {
	for _, srq := range []bool{false, true} {
		x, y := r.stranger(r.a, srq), r.stranger(r.b, srq)
		r.meet(x, y)
		fill(x.mr.Bytes(), 1)
		const length = 3000
		sge := func(c *stranger, i int) []SGE {
			return []SGE{{Addr: uint64(i % strangerDepth * length), Length: length, LKey: c.mr.LKey()}}
		}
		for i := range 200 {
			id := uint64(i)
			y.receive(RecvWR{ID: id, SGL: sge(y, i)})
			x.post(SendWR{ID: id, Op: WRSend, Flags: Signaled, SGL: sge(x, i)})
			x.wants(id, WCSend, Success)
			y.wants(id, WCRecv, Success)
			if at := i % strangerDepth * length; !bytes.Equal(x.mr.Bytes()[at:at+length], y.mr.Bytes()[at:at+length]) {
				r.Fatalf("round %d: other octets have come", i)
			}
			clear(y.mr.Bytes())
		}
		x.close()
		y.close()
	}
}

// The calls of this process for queues of another one say why they do nothing.
func TestRingsBelongToAnother(t *testing.T) {
	r := newLoopback(t)
	for _, srq := range []bool{false, true} {
		c := r.stranger(r.a, srq)
		_, err := c.qp.PostSend(SendWR{Op: WRSend})
		r.Says(err, ErrMapped)
		_, err = c.qp.PostRecv(RecvWR{})
		r.Says(err, ErrMapped)
		r.Says(c.cq.Wait(r.Ctx()), ErrMapped)
		_, err = c.cq.Next(r.Ctx())
		r.Says(err, ErrMapped)
		r.Says(c.cq.Resize(64), nil, "ResizeIn")
		if srq {
			_, err = c.srq.PostRecv(RecvWR{})
			r.Says(err, ErrMapped)
		}
		c.close()
	}
	e := r.newEnd(r.a, wants{})
	_, err := e.send.ResizeIn(make([]byte, CQRingLen(64)), 64)
	r.Says(err, nil, "does not belong")
}

// Memory of another length or alignment is refused, and so are rings that contradict the rest
// of the configuration.
func TestRingsAreChecked(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	share := func(n int) []byte {
		memory, _, _ := foreign.Memory(r, n)
		return memory
	}
	send, recv := share(SendRingLen(8, 4, 64)), share(RecvRingLen(8, 4))
	for name, rings := range map[string]*Rings{
		"Rings.Send":               {Recv: recv},
		"Rings.Recv":               {Send: send},
		"Rings.Send: send ring":    {Send: send[:len(send)-1], Recv: recv},
		"Rings.Recv: receive ring": {Send: send, Recv: recv[1:]},
	} {
		_, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv, SendDepth: 8, RecvDepth: 8, Rings: rings})
		r.Says(err, nil, name)
	}
	srq, err := e.pd.CreateSRQ(SRQConfig{Depth: 8})
	r.Must(err)
	_, err = e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv, SendDepth: 8, SRQ: srq, Rings: &Rings{send, recv}})
	r.Says(err, nil, "Rings.Recv and SRQ")
	_, err = e.pd.CreateSRQ(SRQConfig{Depth: 8, Rings: &Rings{send, recv}})
	r.Says(err, nil, "Rings.Send is set")
	_, err = e.pd.CreateSRQ(SRQConfig{Depth: 9, Rings: &Rings{Recv: recv}})
	r.Says(err, nil, "Rings.Recv")
	_, err = r.a.CreateCQ(8, CQOptions{Memory: recv})
	r.Says(err, nil, "completion ring")
	_, err = r.a.NewBell(recv, func(int) {})
	r.Says(err, nil, "bell")
	r.Must(srq.Close())

}

// The handler of a CQ runs for each arming, and for no completion in between.
func TestForeignArm(t *testing.T) { onBothPaths(t, testForeignArm) }

func testForeignArm(r *rig) {
	x, y := r.stranger(r.a, false), r.stranger(r.b, false)
	r.meet(x, y)
	for round := range int64(300) {
		y.done.Arm()
		for range 2 {
			y.receive(RecvWR{ID: 1})
			x.post(SendWR{ID: 2, Op: WRSend, Flags: Signaled})
			x.wants(2, WCSend, Success)
			y.wants(1, WCRecv, Success)
		}
		r.Eventually("the handler has run", func() bool { return y.heard.Load() > round })
		if n := y.heard.Load(); n != round+1 {
			r.Fatalf("round %d: the handler has run %d times", round, n)
		}
	}
	if n := x.heard.Load(); n != 0 {
		r.Errorf("the handler of a CQ that nobody armed has run %d times", n)
	}
	x.close()
	y.close()
}

// The completions of a CQ continue in other memory, with none lost.
func TestResizeIn(t *testing.T) { onBothPaths(t, testResizeIn) }

func testResizeIn(r *rig) {
	x, y := r.stranger(r.a, false), r.stranger(r.b, false)
	r.meet(x, y)
	id := uint64(0)
	for _, depth := range []int{64, 4, 16, 16} {
		var ring []byte
		for range 3 { // these wait in the old memory
			id++
			y.receive(RecvWR{ID: id})
			x.post(SendWR{ID: id, Op: WRSend, Flags: Signaled})
			x.wants(id, WCSend, Success)
		}
		r.Eventually("three wait", func() bool { return y.cq.queue.Len() == 3 })
		if depth == 4 {
			_, err := y.cq.ResizeIn(y.share(CQRingLen(2), &ring), 2)
			r.Says(err, ErrInUse)
		}
		memory := y.share(CQRingLen(depth), &ring)
		_, err := y.cq.ResizeIn(memory[:len(memory)-64], depth)
		r.Says(err, nil, "memory")
		from, err := y.cq.ResizeIn(memory, depth)
		r.Must(err)
		for i := range uint64(3) {
			y.wants(id-2+i, WCRecv, Success)
		}
		if from != y.done.Head {
			r.Errorf("continues at %d instead of %d", from, y.done.Head)
		}
		y.done.Move(ring)
		if y.cq.Depth() != depth {
			r.Errorf("depth %d instead of %d", y.cq.Depth(), depth)
		}
	}
	x.close()
	y.close()
}

// The limit of an SRQ in foreign memory raises its event, and a QP that ends leaves the
// receives to the others.
func TestForeignSRQLimit(t *testing.T) { onBothPaths(t, testForeignSRQLimit) }

func testForeignSRQLimit(r *rig) {
	x, y := r.stranger(r.a, false), r.stranger(r.b, true)
	r.meet(x, y)
	y.receive(RecvWR{ID: 1})
	y.receive(RecvWR{ID: 2})
	r.Must(y.srq.SetLimit(2))
	r.noEvents(r.b)
	x.post(SendWR{ID: 3, Op: WRSend})
	if e := r.eventOf(r.b, SRQLimitReached); e.SRQ != y.srq {
		r.Errorf("%+v", e)
	}
	y.wants(1, WCRecv, Success)
	r.Must(x.qp.Close())
	<-y.qp.Done()
	if n := y.srq.Posted(); n != 1 {
		r.Errorf("%d receives are posted", n)
	}
	x.close()
	y.close()
}

// An adapter with queues of another process is not handed over.
func TestRingsStay(t *testing.T) {
	t.Run("offloaded", func(t *testing.T) {
		r := newStage(t, pairConfig)
		r.openHosts(func(side pair.Side) Config {
			return Config{Ports: []string{r.pair.Ends[side].Name}, Upgrade: func(context.Context, func(string)) (HandedOver, error) { return HandedOver{}, errors.ErrUnsupported }}
		})
		c := r.stranger(r.a, true)
		for _, object := range []string{"QP", "SRQ", "CQ", "bell"} {
			r.Says(r.a.movable(), nil, object)
			switch object {
			case "QP":
				r.Must(c.qp.Close())
			case "SRQ":
				r.Must(c.srq.Close())
			case "CQ":
				r.Must(c.cq.Close())
			}
		}
		c.close()
		r.Must(c.mr.Close())
		r.Must(r.a.movable())
	})
}
