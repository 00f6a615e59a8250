package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// A peer that tries wrong STags as fast as it can, with a new connection after each Terminate, does no harm to
// another transfer.
func TestFloodOfWrongSTags(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const attempts, messages = 150, 2000
		from, to := r.newEnd(r.neighbour()), r.newEnd(r.a)
		r.connect(r.l, from, to)
		x := begin(r.Ctx(), from, to, messages)
		flooded := make(chan error, 1)
		go func() { flooded <- r.flood(attempts) }()
		r.turnAway(attempts)
		r.Must(<-flooded)
		r.Must(x.wait())
		if err := errors.Join(from.qp.Err(), to.qp.Err()); err != nil {
			r.Error(err)
		}
		r.Check(to.qp.Disconnect(r.Ctx()))
		r.closeEnd(from)
		r.closeEnd(to)
	})
}

// flood connects, writes to STags that do not exist, and is terminated, n times.
func (r *rig) flood(n int) error {
	for i := range n {
		p := r.dial()
		err := p.Octets(usual.Bytes())
		if err == nil {
			_, err = p.Frame()
		}
		if err == nil {
			// Some octets arrive after the first Terminate has been sent.
			var all []byte
			for k := range 50 {
				all = append(all, rawpeer.FPDU(rawpeer.Write(uint32(i*50+k)*0x9e3779b1, 0, make([]byte, 512)))...)
			}
			err = p.Octets(all)
		}
		var got rawpeer.Terminate
		if err == nil {
			got, err = p.Terminated()
		}
		if err != nil || got.String() != "1/1/00" {
			return fmt.Errorf("attempt %d: %v, %w", i, got, err)
		}
		p.Conn.Close()
	}
	return nil
}

// turnAway accepts n peers, each with a QP of its own that is destroyed when
// the peer is gone.
func (r *rig) turnAway(n int) {
	r.Helper()
	pd, err := r.a.AllocPD()
	r.Must(err)
	cq, err := r.a.CreateCQ(16)
	r.Must(err)
	for range n {
		req, err := r.l.Accept(r.Ctx())
		r.Must(err)
		qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
		r.Must(err)
		r.Must(req.Accept(r.Ctx(), qp, usualParams))
		<-qp.Done()
		var e *rdma.QPError
		if !errors.As(qp.Err(), &e) || e.Remote || e.Code != (rdma.TerminateCode{Layer: 1, Type: 1}) {
			r.Fatalf("a peer with a wrong STag: %v", qp.Err())
		}
		r.Must(qp.Close())
	}
	r.Check(cq.Close())
	r.Check(pd.Close())
}

// A terminated peer leaves a flow in TIME-WAIT. Such flows take no room from other flows, however many there are.
func TestFloodTakesNoPlaces(t *testing.T) {
	r := portRig(t, rdma.Config{MaxFlows: 16})
	from, to := r.newEnd(r.neighbour()), r.newEnd(r.a)
	r.connect(r.l, from, to)
	const attempts = 50
	flooded := make(chan error, 1)
	go func() { flooded <- r.flood(attempts) }()
	r.turnAway(attempts)
	r.Must(<-flooded)
	r.Must(begin(r.Ctx(), from, to, 50).wait())
	r.works()
	r.closeEnd(from)
	r.closeEnd(to)
}

// An application that never polls loses its own connections when its CQ is full, and no others.
func TestNeverPolls(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		from, to := r.newEnd(r.neighbour()), r.newEnd(r.a)
		r.connect(r.l, from, to)
		x := begin(r.Ctx(), from, to, 2000)
		for range 5 {
			r.overrun()
		}
		r.Must(x.wait())
		r.Check(to.qp.Disconnect(r.Ctx()))
		r.closeEnd(from)
		r.closeEnd(to)
	})
}

// TestOverrunTerminatesAll checks that every QP of an overrun CQ is terminated, even if its peer has done nothing.
func TestOverrunTerminatesAll(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		pd, err := r.a.AllocPD()
		r.Must(err)
		cq, err := r.a.CreateCQ(4)
		r.Must(err)
		var qps []*rdma.QP
		var peers []*rawpeer.Peer
		for range 3 {
			qp, p := r.wide(pd, cq)
			qps, peers = append(qps, qp), append(peers, p)
		}
		for i := range uint32(5) {
			r.Must(peers[1].Octets(rawpeer.FPDU(rawpeer.Send(i+1, nil))))
		}
		for i, p := range peers {
			if got, err := p.Terminated(); err != nil || got.String() != "0/0/ff" {
				r.Errorf("peer %d gets %v, %v; want 0/0/ff", i, got, err)
			}
			p.Conn.Close()
		}
		for _, qp := range qps {
			<-qp.Done()
			if !errors.Is(qp.Err(), rdma.ErrCQOverrun) {
				r.Errorf("the QP's error is %v; want ErrCQOverrun", qp.Err())
			}
			r.Check(qp.Close())
		}
		r.Check(cq.Close())
		r.Check(pd.Close())
	})
}

// wide returns a connected QP with more receives than its CQ has room for.
func (r *rig) wide(pd *rdma.PD, cq *rdma.CQ) (*rdma.QP, *rawpeer.Peer) {
	r.Helper()
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	r.Must(err)
	for i := range 8 {
		_, err := qp.PostRecv(rdma.RecvWR{ID: uint64(i)})
		r.Must(err)
	}
	p := r.dial()
	r.Must(p.Octets(usual.Bytes()))
	req, err := r.l.Accept(r.Ctx())
	r.Must(err)
	r.Must(req.Accept(r.Ctx(), qp, usualParams))
	_, err = p.Frame()
	r.Must(err)
	return qp, p
}

// overrun makes a CQ of 4 get 5 completions.
func (r *rig) overrun() {
	r.Helper()
	pd, err := r.a.AllocPD()
	r.Must(err)
	cq, err := r.a.CreateCQ(4)
	r.Must(err)
	qp, p := r.wide(pd, cq)
	for i := range uint32(5) {
		r.Must(p.Octets(rawpeer.FPDU(rawpeer.Send(i+1, nil))))
	}
	if got, err := p.Terminated(); err != nil || got.String() != "0/0/ff" {
		r.Errorf("the peer gets %v, %v; want 0/0/ff", got, err)
	}
	p.Conn.Close()
	<-qp.Done()
	if !errors.Is(qp.Err(), rdma.ErrCQOverrun) || !cq.Overrun() {
		r.Errorf("the QP's error is %v, overrun %v; want ErrCQOverrun", qp.Err(), cq.Overrun())
	}
	r.event(func(e rdma.Event) bool { return e.Type == rdma.CQOverrun && e.CQ == cq })
	if got := statuses(cq); len(got) != 4 {
		r.Errorf("the CQ holds %v, want the first four", got)
	}
	r.Check(qp.Close())
	r.Check(cq.Close())
	r.Check(pd.Close())
}

// event waits for an asynchronous event.
func (r *rig) event(is func(rdma.Event) bool) {
	r.Helper()
	for timeout := time.After(10 * time.Second); ; {
		select {
		case e := <-r.a.Events():
			if is(e) {
				return
			}
		case <-timeout:
			r.Error("no event about it")
			return
		}
	}
}

// A QP that is destroyed under traffic, by either end, completes what was posted to it, and its memory belongs to the
// application again.
func TestDestroyedUnderTraffic(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		b := r.neighbour()
		for i := range 20 {
			from, to := r.newEnd(b), r.newEnd(r.a)
			r.connect(r.l, from, to)
			if i%4 < 2 { // the victim's QP sends
				from, to = to, from
			}
			x := begin(r.Ctx(), from, to, 1<<40)
			time.Sleep(time.Duration(i) * time.Millisecond)
			doomed, other := from, to
			if i%2 == 0 {
				doomed, other = to, from
			}
			r.Must(doomed.qp.Close())
			if doomed == to { // the application of the closed QP only reads
				r.still(doomed)
			}
			if err := x.wait(); !errors.Is(err, errFailed) {
				r.Errorf("the transfer ends with %v", err)
			}
			<-other.qp.Done()
			if err := other.qp.Err(); !errors.Is(err, stream.ErrReset) {
				r.Errorf("the other end sees %v, want a reset", err)
			}
			r.closeEnd(from)
			r.closeEnd(to)
		}
	})
}

// still demands that nothing changes the memory of a closed QP.
func (r *rig) still(e *end) {
	r.Helper()
	before := bytes.Clone(e.mr.Bytes())
	time.Sleep(5 * time.Millisecond)
	if !bytes.Equal(e.mr.Bytes(), before) {
		r.Error("the memory of a closed QP was written")
	}
}

// An adapter that is closed under traffic closes all objects that were made with it.
func TestClosedUnderTraffic(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		b := r.neighbour()
		var all []*transfer
		for range 3 {
			from, to := r.newEnd(b), r.newEnd(r.a)
			r.connect(r.l, from, to)
			all = append(all, begin(r.Ctx(), from, to, 1<<40))
		}
		p := r.dial() // a connection that has not even sent a Request
		time.Sleep(50 * time.Millisecond)
		r.gone = true
		r.Must(r.a.Close())
		for _, x := range all {
			if err := x.wait(); err == nil {
				r.Error("a transfer ends without an error")
			}
			r.Check(x.to.qp.Close())
			r.Check(x.to.cq.Close())
			r.Check(x.to.mr.Close())
			r.Check(x.to.pd.Close())
			<-x.from.qp.Done()
			if err := x.from.qp.Err(); !errors.Is(err, stream.ErrReset) {
				r.Errorf("the other end sees %v, want a reset", err)
			}
			r.closeEnd(x.from)
		}
		if _, err := p.End(); err != nil {
			r.Error(err)
		}
		r.Check(r.a.Close())
	})
}
