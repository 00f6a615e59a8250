package hostile

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// victim is a QP with two posted receives, and regions of every kind.
type victim struct {
	*rig
	pd, otherPD *rdma.PD
	sends       *rdma.CQ
	recvs       *rdma.CQ
	qp          *rdma.QP
	peer        *rawpeer.Peer

	open     *rdma.MR // everything is allowed
	readable *rdma.MR // peers may read
	writable *rdma.MR // peers may write
	local    *rdma.MR // peers may do nothing; receives land here
	foreign  *rdma.MR // of another protection domain
	revoked  *rdma.MR // invalidated
	closed   rdma.STag

	images map[*rdma.MR][]byte // what each must hold
	quit   bool
}

const (
	regionLen = 1 << 16
	recvLen   = 64 // octets of each receive
	everyone  = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead
)

func newVictim(r *rig) *victim {
	r.Helper()
	v := &victim{rig: r, images: map[*rdma.MR][]byte{}}
	var err error
	v.pd, err = r.a.AllocPD()
	r.Must(err)
	v.otherPD, err = r.a.AllocPD()
	r.Must(err)
	v.open = v.region(v.pd, everyone)
	v.readable = v.region(v.pd, rdma.RemoteRead)
	v.writable = v.region(v.pd, rdma.LocalWrite|rdma.RemoteWrite)
	v.local = v.region(v.pd, rdma.LocalWrite)
	v.foreign = v.region(v.otherPD, everyone)
	v.revoked = v.region(v.pd, everyone)
	r.Must(v.revoked.Invalidate())
	gone, err := v.pd.AllocMR(regionLen, everyone)
	r.Must(err)
	v.closed = gone.RKey()
	r.Must(gone.Close())
	v.sends, err = r.a.CreateCQ(64)
	r.Must(err)
	v.recvs, err = r.a.CreateCQ(64)
	r.Must(err)
	v.qp, err = v.pd.CreateQP(rdma.QPConfig{SendCQ: v.sends, RecvCQ: v.recvs, SendDepth: 16, RecvDepth: 16})
	r.Must(err)
	r.Cleanup(v.bury)
	_, err = v.qp.PostRecv(
		rdma.RecvWR{ID: 1, SGL: []rdma.SGE{v.local.SGE(0, recvLen)}},
		rdma.RecvWR{ID: 2, SGL: []rdma.SGE{v.local.SGE(recvLen, recvLen)}},
	)
	r.Must(err)
	return v
}

// region registers a region with a pattern.
func (v *victim) region(pd *rdma.PD, access rdma.Access) *rdma.MR {
	v.Helper()
	mr, err := pd.AllocMR(regionLen, access)
	v.Must(err)
	for i := range mr.Bytes() {
		mr.Bytes()[i] = byte(i*7 + len(v.images))
	}
	v.images[mr] = bytes.Clone(mr.Bytes())
	return mr
}

// expect records that mr will hold b at off.
func (v *victim) expect(mr *rdma.MR, off int, b []byte) { copy(v.images[mr][off:], b) }

// intact fails the test if memory differs from what is expected. Nothing may write to it any more.
func (v *victim) intact() {
	v.Helper()
	names := map[*rdma.MR]string{
		v.open: "open", v.readable: "readable", v.writable: "writable",
		v.local: "local", v.foreign: "foreign", v.revoked: "revoked",
	}
	for mr, want := range v.images {
		if bytes.Equal(mr.Bytes(), want) {
			continue
		}
		for i := range want {
			if mr.Bytes()[i] != want[i] {
				v.Errorf("octet %d of the region %q is %02x, want %02x", i, names[mr], mr.Bytes()[i], want[i])
				break
			}
		}
	}
}

// bury closes everything and checks that there is no error.
func (v *victim) bury() {
	v.Helper()
	if v.quit {
		return
	}
	v.quit = true
	v.Check(v.qp.Close())
	v.Check(v.sends.Close())
	v.Check(v.recvs.Close())
	for mr := range v.images {
		v.Check(mr.Close())
	}
	v.Check(v.pd.Close())
	v.Check(v.otherPD.Close())
}

// usual is a valid Request, and a valid Reply.
var (
	usual       = rawpeer.Request(rawpeer.CRC|rawpeer.Enhanced, 2, rawpeer.Block(4, 4)...)
	usualReply  = rawpeer.Reply(rawpeer.CRC|rawpeer.Enhanced, 2, rawpeer.Block(4, 4)...)
	usualParams = rdma.ConnParams{IRD: 4, ORD: 4, NoPeerToPeer: true, Timeout: 10 * time.Second}
)

// accept connects the victim to a peer that sends this Request, and returns
// the Reply.
func (v *victim) accept(request rawpeer.Frame, p rdma.ConnParams) rawpeer.Frame {
	v.Helper()
	v.peer = v.dial()
	v.Must(v.peer.Octets(request.Bytes()))
	req, err := v.l.Accept(v.Ctx())
	v.Must(err)
	v.Must(req.Accept(v.Ctx(), v.qp, p))
	reply, err := v.peer.Frame()
	v.Must(err)
	return reply
}

// call connects the victim to a peer that answers with the frames of reply. It returns
// the Request and Dial's error.
func (v *victim) call(p rdma.ConnParams, reply func(request rawpeer.Frame) []byte) (rawpeer.Frame, error) {
	v.Helper()
	l := v.listen()
	dialled := make(chan error, 1)
	go func() { dialled <- v.qp.Dial(v.Ctx(), l.Addr().String(), p) }()
	c, err := l.Accept()
	v.Must(err)
	v.peer = v.rig.peer(c)
	request, err := v.peer.Frame()
	v.Must(err)
	if b := reply(request); b != nil {
		v.Must(v.peer.Octets(b))
	}
	return request, <-dialled
}

// replies returns a function for call that returns these frames for every Request.
func replies(frames ...[]byte) func(rawpeer.Frame) []byte {
	return func(rawpeer.Frame) []byte { return bytes.Join(frames, nil) }
}

// over waits until the connection is gone.
func (v *victim) over() {
	v.Helper()
	select {
	case <-v.qp.Done():
	case <-time.After(time.Minute):
		v.Fatalf("the connection is not gone within a minute: %v, %v", v.qp.State(), v.qp.Err())
	}
}

// statuses returns the statuses of everything posted to a queue. The connection must have ended.
func statuses(cq *rdma.CQ) (all []rdma.Status) {
	var some [16]rdma.Completion
	for {
		n := cq.Poll(some[:])
		if n == 0 {
			return all
		}
		for _, c := range some[:n] {
			all = append(all, c.Status)
		}
	}
}

// completed demands these statuses in this order.
func (v *victim) completed(sends, recvs []rdma.Status) {
	v.Helper()
	if got := statuses(v.sends); !slices.Equal(got, sends) {
		v.Errorf("sends completed with %v, want %v", got, sends)
	}
	if got := statuses(v.recvs); !slices.Equal(got, recvs) {
		v.Errorf("receives completed with %v, want %v", got, recvs)
	}
}

// flushed are the statuses of two receives that got no message.
var flushed = []rdma.Status{rdma.Flushed, rdma.Flushed}

// blamed demands that the QP has ended for this reason.
func (v *victim) blamed(remote bool, code string) {
	v.Helper()
	var e *rdma.QPError
	if err := v.qp.Err(); !errors.As(err, &e) {
		v.Errorf("the QP's error is %v, want a QPError", err)
		return
	}
	got := rawpeer.Terminate{Layer: e.Code.Layer, Type: e.Code.Type, Code: e.Code.Code}.String()
	if e.Remote != remote || got != code {
		v.Errorf("the QP's error is %q (remote %v, %s); want remote %v, %s", e, e.Remote, got, remote, code)
	}
}

// lost demands that the QP has ended without a Terminate, because of want.
func (v *victim) lost(want error) {
	v.Helper()
	var e *rdma.QPError
	if err := v.qp.Err(); !errors.As(err, &e) || !errors.Is(err, want) {
		v.Errorf("the QP's error is %v, want a QPError that is %v", err, want)
	} else if e.Code != (rdma.TerminateCode{}) {
		v.Errorf("the QP's error has the code %v, want none", e.Code)
	}
}
