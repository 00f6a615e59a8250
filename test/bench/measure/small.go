package measure

import (
	"context"
	"sync/atomic"

	"github.com/stag-rdma/stag/rdma"
)

// One call posts rateBatch small messages. Only the last of them has a completion.
// rateBatches batches may be outstanding. They fill 240 segments, about as many as a
// raw stream has in flight (rawWindow).
const (
	rateBatch   = 64
	rateBatches = 64
)

// startSmall connects the sides and starts a stream of small messages from side A to
// side B.
func startSmall(ctx context.Context, st *stage) (v *verbs, err error) {
	v = &verbs{stage: st}
	for side := range v.parties {
		p, err := newSmallParty(st.adapters[side])
		if err != nil {
			return nil, err
		}
		v.parties[side] = []*party{p}
	}
	f := &flood{party: v.parties[from][0], moved: &v.received}
	f.work = f.requests(st.verb, v.parties[to][0])
	roles := [2]role{from: f}
	if st.verb == send {
		f.granting = true
		v.parties[from][0].sparing, v.parties[to][0].sparing = true, true
		roles[to] = &drain{party: v.parties[to][0]}
	}
	return v, v.run(ctx, [][2]role{roles})
}

func newSmallParty(a *rdma.Adapter) (*party, error) {
	const depth = 2 * rateBatch * rateBatches
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: rateBatch * small, Access: rdma.LocalWrite | rdma.RemoteWrite,
		QP: rdma.QPConfig{SendDepth: depth, RecvDepth: depth, MaxSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	return &party{hub: &hub{pd: ep.PD, cq: ep.SendCQ, mr: ep.MR}, qp: ep.QP}, nil
}

// flood posts batch after batch, up to the limit of outstanding batches.
type flood struct {
	*party
	work     []rdma.SendWR // the work requests of one batch
	granting bool          // the receiver acknowledges each batch, for Sends
	posted   int           // number of batches posted
	sent     int           // number of batches completed
	granted  int           // number of batches that the receiver has acknowledged
	moved    *atomic.Uint64
}

func (f *flood) requests(v verb, peer *party) (list []rdma.SendWR) {
	for i := range rateBatch {
		wr := rdma.SendWR{Op: rdma.WRSend, SGL: []rdma.SGE{f.mr.SGE(i*small, small)}}
		if v == write {
			there := peer.mr.SGE(i*small, small)
			wr.Op, wr.RemoteAddr, wr.RKey = rdma.WRWrite, there.Addr, peer.mr.RKey()
		}
		list = append(list, wr)
	}
	list[rateBatch-1].Flags = v.lastOfBatch()
	return list
}

func (f *flood) prepare() error {
	if f.granting {
		return f.expect(2 * rateBatches)
	}
	return nil
}

func (f *flood) begin() error { return f.post() }

func (f *flood) completed(c rdma.Completion) error {
	if c.Op == rdma.WCRecv {
		f.granted++
		if err := f.expect(1); err != nil {
			return err
		}
	} else {
		f.sent++
	}
	return f.post()
}

// post posts as many batches as may be outstanding. A batch counts as moved when it has
// completed and, if the receiver acknowledges batches, has been acknowledged.
func (f *flood) post() error {
	done := f.sent
	if f.granting {
		done = min(done, f.granted)
	}
	f.moved.Store(uint64(done) * rateBatch * small)
	for ; f.posted < done+rateBatches; f.posted++ {
		if _, err := f.qp.PostSend(f.work...); err != nil {
			return err
		}
	}
	return nil
}

// drain receives the flood's Sends and acknowledges each batch.
type drain struct {
	*party
	got int
}

func (d *drain) prepare() error {
	for range rateBatches {
		if err := d.offer(); err != nil {
			return err
		}
	}
	return nil
}

func (d *drain) begin() error { return nil }

func (d *drain) completed(c rdma.Completion) error {
	if c.Op != rdma.WCRecv {
		return nil
	}
	if d.got++; d.got%rateBatch != 0 {
		return nil
	}
	if err := d.offer(); err != nil {
		return err
	}
	return d.thanks()
}

// offer posts the receives of one batch.
func (d *drain) offer() error {
	var wrs [rateBatch]rdma.RecvWR
	var sgl [rateBatch]rdma.SGE
	for i := range wrs {
		sgl[i] = d.mr.SGE(i*small, small)
		wrs[i].SGL = sgl[i : i+1]
	}
	_, err := d.qp.PostRecv(wrs[:]...)
	return err
}
