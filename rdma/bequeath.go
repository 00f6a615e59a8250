package rdma

import (
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/work"
)

// endWait is how long a hand-over waits for connections that were about to end when the
// others left their engines.
const endWait = time.Second

// ExportLayer implements adapter.Heir.
func (l layer) ExportLayer(now clock.Instant) (o portable.Object, err error) {
	a := l.Adapter
	a.closeFiles()
	x := &legacy{lastCQ: a.lastCQ.Load(), lastSRQ: a.lastSRQ.Load(), lastQP: a.numbers.last}
	places := places{}
	for _, qp := range a.sortedQPs() { // before the CQs, because the requests of a dead QP may be flushed now
		q, err := qp.bequeath(now)
		if err != nil {
			return o, err
		}
		x.qps = append(x.qps, q)
		places.add(qp)
	}
	for pd := range a.objects.pds {
		x.pds = append(x.pds, uint32(pd.domain))
	}
	for m := range a.objects.mrs {
		if !m.closed.Load() {
			x.mrs = append(x.mrs, m.bequeath())
		}
	}
	for m := range a.objects.mws {
		x.mws = append(x.mws, legacyMW{m.rkey, uint32(m.pd.domain), m.kind})
	}
	for s := range a.srqs {
		places[s.queue.Places] = placesOfSRQ(s.number)
		x.srqs = append(x.srqs, legacySRQ{number: s.number, pd: uint32(s.pd.domain), depth: s.cfg.Depth, maxSGE: s.cfg.MaxSGE, state: s.queue.Export()})
	}
	for c := range a.cqs {
		x.cqs = append(x.cqs, legacyCQ{c.number, c.told, c.queue.Export(places.name)})
	}
	for _, s := range a.listeners() {
		f, err := s.file()
		if err != nil {
			return o, fmt.Errorf("listener %v: %w", s.at, err)
		}
		a.files = append(a.files, f)
		x.listeners = append(x.listeners, s.cfg)
	}
	data, err := legacyFormat.Encode(nil, x.code)
	return portable.Object{Kind: legacyKind, Data: data, Files: a.files}, err
}

// closeFiles closes the descriptors of an earlier ExportLayer.
func (a *Adapter) closeFiles() {
	for _, f := range a.files {
		f.Close()
	}
	a.files = []*os.File(nil)
}

func (a *Adapter) sortedQPs() []*QP {
	list := a.allQPs()
	sort.Slice(list, func(i, j int) bool { return list[i].Number() < list[j].Number() })
	return list
}

// places names the places of all queues, for the completions that wait in CQs.
type places map[*work.Places]uint32

// The names of the places of the queues of a QP and of an SRQ.
func placesOfSends(qp uint32) uint32    { return qp<<2 | 1 }
func placesOfReceives(qp uint32) uint32 { return qp<<2 | 2 }
func placesOfSRQ(srq uint32) uint32     { return srq<<2 | 3 }

func (p places) add(qp *QP) {
	send, recv := qp.machine.Places()
	p[send] = placesOfSends(qp.Number())
	if qp.cfg.SRQ == nil {
		p[recv] = placesOfReceives(qp.Number())
	}
}

// name returns 0 for a queue of a closed QP.
func (p places) name(q *work.Places) uint32 { return p[q] }

func (m *MR) bequeath() legacyMR {
	x := legacyMR{stag: m.stag, pd: uint32(m.pd.domain), start: m.start, size: uint64(m.size)}
	if m.size != 0 {
		x.offset = m.pd.adapter.device.Heap().Offset(m.Bytes())
	}
	return x
}

// bequeath returns the QP without its machine, if a connection brings the machine.
func (qp *QP) bequeath(now clock.Instant) (q legacyQP, err error) {
	cfg := &qp.cfg
	q = legacyQP{
		number: qp.Number(), pd: uint32(qp.pd.domain), sendCQ: cfg.SendCQ.number, recvCQ: cfg.RecvCQ.number,
		sendDepth: cfg.SendDepth, recvDepth: cfg.RecvDepth, maxSGE: cfg.MaxSGE, maxInline: cfg.MaxInline,
		sigAll: cfg.SQSigAll, regMR: cfg.RegMR, reactive: cfg.Reactive, asyncNotify: cfg.AsyncNotify, hold: cfg.Hold, client: cfg.Client, keep: cfg.KeepReceives, access: qp.PeerAccess(), frames: cfg.ClientFrames,
		fatal: qp.fatal.Load() != untold, last: qp.last.Load() != untold, heard: qp.heard.Load() != untold, empty: qp.empty.Load() != untold,
		started: qp.started.Load(), stage: qp.stage, agreed: qp.agreed,
	}
	if cfg.SRQ != nil {
		q.srq = cfg.SRQ.number
	}
	if qp.machine.Exported() {
		q.flow = qp.conn.Load().Flow()
		return q, nil
	}
	if c := qp.conn.Load(); c != nil && !qp.ends() {
		return q, fmt.Errorf("QP %d to %v is about to end, and has not within %v", q.number, q.agreed.Remote, endWait)
	}
	q.image, err = qp.machine.Image(now).Encode(nil)
	return q, err
}

// ends waits until the connection of the QP, which was about to end, is gone.
func (qp *QP) ends() bool {
	for limit := time.Now().Add(endWait); !qp.machine.Dead(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}
