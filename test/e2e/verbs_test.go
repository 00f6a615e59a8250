package e2e

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
)

// adapter opens an adapter on a side. Its port is that side's interface, or the kernel's TCP.
func (r *rig) adapter(side pair.Side, c rdma.Config) (a *rdma.Adapter) {
	r.Helper()
	if !c.KernelPort {
		c.Ports = []string{r.pair.Ends[side].Name}
	}
	c.RegionHeap = 32 << 20
	r.in(side, func() (err error) {
		a, err = rdma.Open(c)
		return err
	})
	r.Cleanup(func() { r.Check(a.Close()) })
	return a
}

// verbs is one end of a connection with the memory for its work.
type verbs struct {
	*rig
	side pair.Side
	ep   *rdma.Endpoint // with one CQ
	qp   *rdma.QP       // of ep
	src  *rdma.MR       // octets to send, of ep; peers may read them
	dst  *rdma.MR       // peers may write to it
	sink *rdma.MR       // memory for the results of Reads
	recv *rdma.MR       // memory of receives
	once []*rdma.MR     // regions that a Send invalidates
	jobs []job

	initiator bool
}

const (
	verbsLen  = 1 << 20
	verbsRecv = 8 << 10 // octets of each receive
	verbsRecs = 64
)

func (r *rig) newVerbs(side pair.Side, a *rdma.Adapter) *verbs {
	r.Helper()
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: verbsLen, Access: rdma.RemoteRead, QP: rdma.QPConfig{SendDepth: 128, RecvDepth: verbsRecs},
	})
	r.Must(err)
	v := &verbs{rig: r, side: side, ep: ep, qp: ep.QP, src: ep.MR, jobs: jobs}
	for _, m := range []struct {
		mr     **rdma.MR
		access rdma.Access
	}{
		{&v.dst, rdma.LocalWrite | rdma.RemoteWrite}, {&v.sink, rdma.LocalWrite}, {&v.recv, rdma.LocalWrite},
	} {
		*m.mr, err = ep.PD.AllocMR(verbsLen, m.access)
		r.Must(err)
	}
	seed := [32]byte{byte(side)}
	rand.NewChaCha8(seed).Read(v.src.Bytes())
	return v
}

// receives posts n receives.
func (v *verbs) receives(n int) {
	v.Helper()
	for i := range n {
		_, err := v.qp.PostRecv(rdma.RecvWR{ID: uint64(i), SGL: []rdma.SGE{v.recv.SGE(i*verbsRecv, verbsRecv)}})
		v.Must(err)
	}
}

// close closes everything and checks that there is no error.
func (v *verbs) close() {
	v.Helper()
	v.Check(v.qp.Close())
	for _, mr := range append(v.once, v.dst, v.sink, v.recv) {
		v.Check(mr.Close())
	}
	v.Check(v.ep.Close())
}

// meet connects two ends. from dials.
func (r *rig) meet(from, to *verbs, a *rdma.Adapter, v6 bool, p, answer rdma.ConnParams) {
	r.Helper()
	l, err := a.Listen(r.Ctx(), net.JoinHostPort(r.addr(to.side, v6), "0"), rdma.ListenConfig{})
	r.Must(err)
	defer l.Close()
	dialled := make(chan error, 1)
	go func() { dialled <- from.qp.Dial(r.Ctx(), l.Addr().String(), p) }()
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	if !bytes.Equal(req.PrivateData(), p.PrivateData) {
		r.Errorf("the Request's private data is %x", req.PrivateData())
	}
	r.Must(req.Accept(r.Ctx(), to.qp, answer))
	r.Must(<-dialled)
	if got := from.qp.Conn().PrivateData; !bytes.Equal(got, answer.PrivateData) {
		r.Errorf("the Reply's private data is %x", got)
	}
}

// job is one message of an end.
type job struct {
	op wire.Opcode // opcode of the message, or OpReadRequest
	n  int         // octets
}

// jobs has every operation, in sizes around the sizes of segments.
var jobs = []job{
	{wire.OpWrite, 0}, {wire.OpWrite, 1}, {wire.OpWrite, 1428}, {wire.OpWrite, 1429}, {wire.OpWrite, 4096}, {wire.OpWrite, 65536},
	{wire.OpReadRequest, 0}, {wire.OpReadRequest, 1}, {wire.OpReadRequest, 3000}, {wire.OpReadRequest, 70001},
	{wire.OpSend, 0}, {wire.OpSend, 1}, {wire.OpSend, 1424}, {wire.OpSend, 1425}, {wire.OpSend, 8192},
	{wire.OpSendSE, 0}, {wire.OpSendSE, 333}, {wire.OpSendSE, 5000},
	{wire.OpSendInvalidate, 0}, {wire.OpSendInvalidate, 77}, {wire.OpSendInvalidate, 3000},
	{wire.OpSendSEInvalidate, 0}, {wire.OpSendSEInvalidate, 5001},
	{wire.OpWrite, 300000}, {wire.OpReadRequest, 200000},
}

// request returns the work request for j to peer.
func (v *verbs) request(j job, peer *verbs) rdma.SendWR {
	v.Helper()
	wr := rdma.SendWR{Flags: rdma.Signaled, SGL: []rdma.SGE{v.src.SGE(0, j.n/3), v.src.SGE(j.n/3, j.n-j.n/3)}}
	switch j.op {
	case wire.OpWrite:
		wr.Op, wr.RKey = rdma.WRWrite, peer.dst.RKey()
	case wire.OpReadRequest:
		wr.Op, wr.RKey, wr.SGL = rdma.WRRead, peer.src.RKey(), []rdma.SGE{v.sink.SGE(0, j.n)}
	case wire.OpSend, wire.OpSendSE:
		wr.Op = rdma.WRSend
	default:
		wr.Op = rdma.WRSendInvalidate
		once, err := peer.ep.PD.AllocMR(1, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteInvalidate)
		v.Must(err)
		peer.once = append(peer.once, once)
		wr.Invalidate = once.RKey()
	}
	if j.op == wire.OpSendSE || j.op == wire.OpSendSEInvalidate {
		wr.Flags |= rdma.Solicited
	}
	return wr
}

// isSend reports whether j uses a receive.
func (j job) isSend() bool { return j.op != wire.OpWrite && j.op != wire.OpReadRequest }

// shorter returns the jobs whose messages and answers have at most that many octets.
func shorter(own, answers int) (some []job) {
	for _, j := range jobs {
		if j.op == wire.OpReadRequest && j.n <= answers || j.op != wire.OpReadRequest && j.n <= own {
			some = append(some, j)
		}
	}
	return some
}

// work does all jobs of both ends at the same time.
func (v *verbs) work(peer *verbs) {
	v.Helper()
	for _, way := range [][2]*verbs{{v, peer}, {peer, v}} {
		for _, j := range way[0].jobs {
			_, err := way[0].qp.PostSend(way[0].request(j, way[1]))
			v.Must(err)
		}
	}
	v.complete(v.jobs, peer.jobs)
	peer.complete(peer.jobs, v.jobs)
}

// pace does the jobs of both ends one after the other.
func (v *verbs) pace(peer *verbs) {
	v.Helper()
	for _, way := range [][2]*verbs{{v, peer}, {peer, v}} {
		for _, j := range way[0].jobs {
			_, err := way[0].qp.PostSend(way[0].request(j, way[1]))
			v.Must(err)
			way[0].complete([]job{j}, nil)
			way[1].complete(nil, []job{j})
			if j.op == wire.OpWrite { // a Write may complete before it has been placed
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
}

// complete waits for the completions of the end's own jobs and of the peer's jobs.
func (v *verbs) complete(own, others []job) {
	v.Helper()
	sends, recvs := len(own), 0
	for _, j := range others {
		if j.isSend() {
			recvs++
		}
	}
	var some [16]rdma.Completion
	for sends > 0 || recvs > 0 {
		v.Must(v.ep.SendCQ.Wait(v.Ctx()))
		for _, c := range some[:v.ep.SendCQ.Poll(some[:])] {
			if c.Status != rdma.Success {
				v.Fatalf("side %v: %+v: %v", v.side, c, v.qp.Err())
			}
			if c.Op == rdma.WCRecv {
				recvs--
			} else {
				sends--
			}
		}
	}
}

// verify checks that the memory contains the results of the jobs.
func (v *verbs) verify(peer *verbs) {
	v.Helper()
	written, read, i := 0, 0, 0
	for _, j := range v.jobs {
		if j.op == wire.OpReadRequest {
			read = max(read, j.n)
		}
	}
	for _, j := range peer.jobs {
		if j.op == wire.OpWrite {
			written = max(written, j.n)
		}
		if j.isSend() {
			if !bytes.Equal(v.recv.Bytes()[i*verbsRecv:][:j.n], peer.src.Bytes()[:j.n]) {
				v.Errorf("side %v: receive %d is wrong", v.side, i)
			}
			i++
		}
	}
	if !bytes.Equal(v.dst.Bytes()[:written], peer.src.Bytes()[:written]) {
		v.Errorf("side %v: the Writes are wrong", v.side)
	}
	if !bytes.Equal(v.sink.Bytes()[:read], peer.src.Bytes()[:read]) {
		v.Errorf("side %v: the Reads are wrong", v.side)
	}
}

// part closes the connection normally, and then everything of both ends.
func (v *verbs) part(peer *verbs) {
	v.Helper()
	v.Must(v.qp.Disconnect(v.Ctx()))
	v.Wait(peer.qp.Done(), "the other end")
	v.Check(errors.Join(v.qp.Err(), peer.qp.Err()))
	v.verify(peer)
	peer.verify(v)
	v.close()
	peer.close()
}
