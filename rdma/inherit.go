package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Inherit says what the program adds to the objects that it gets from another process. The
// zero value adds nothing. The functions must not call Succeed's adapter except for
// CreateCompChannel.
type Inherit struct {
	// CQ returns the options of a CQ (CreateCQ), whose number is that in the other process.
	CQ func(a *Adapter, number uint32) CQOptions
	// Context returns QPConfig.Context of a QP.
	Context func(number uint32) any
}

// Estate is everything that an adapter has got from the other process: its objects, by the
// names that they had there, and what the program has handed over. All objects are the
// program's, as if it had made them. An Estate does not change.
type Estate struct {
	// Program is what HandOver.Program of the other process has returned. The caller owns the
	// files.
	Program Bequest

	// Lost are the connections that could not be continued. Their QPs are dead, with the same
	// error.
	Lost []error

	pds       map[uint32]*PD
	mrs       map[STag]*MR
	mws       map[STag]*MW
	cqs       map[uint32]*CQ
	srqs      map[uint32]*SRQ
	qps       map[uint32]*QP
	listeners []*Listener
}

// PD returns the protection domain that had this number (PD.Number), or nil.
func (e *Estate) PD(number uint32) *PD { return e.pds[number] }

// MR returns the region with this STag, or nil. Its octets are the same memory as in the
// other process, at another address.
func (e *Estate) MR(stag STag) *MR { return e.mrs[stag] }

// MW returns the memory window with this STag (MW.RKey), or nil.
func (e *Estate) MW(stag STag) *MW { return e.mws[stag] }

// CQ returns the completion queue that had this number (CQ.Number), or nil. The completions
// that nobody had polled are in it. It is not armed.
func (e *Estate) CQ(number uint32) *CQ { return e.cqs[number] }

// SRQ returns the shared receive queue that had this number (SRQ.Number), or nil.
func (e *Estate) SRQ(number uint32) *SRQ { return e.srqs[number] }

// QP returns the QP with this number (QP.Number), or nil.
func (e *Estate) QP(number uint32) *QP { return e.qps[number] }

// QPs returns all QPs, in the order of their numbers.
func (e *Estate) QPs() []*QP { return sorted(e.qps) }

// MRs returns all regions, in the order of their STags.
func (e *Estate) MRs() []*MR { return sorted(e.mrs) }

// CQs returns all completion queues, in the order of their numbers.
func (e *Estate) CQs() []*CQ { return sorted(e.cqs) }

// Listeners returns the Listeners, which accept already. Listener.Addr tells them apart.
func (e *Estate) Listeners() []*Listener { return e.listeners }

// Succeed opens an adapter that continues everything of the adapter of the process at the
// other end of c, which calls HandOver, and closes c. The adapter must have the same ports.
// RegionHeap, MaxRegions and MaxPages are not used, because the heap and the table are those
// of the other process. Everything else in cfg may differ.
//
// When Succeed returns, the connections run. If Succeed fails, nothing is left here, and the
// other process continues everything.
func Succeed(ctx context.Context, c *net.UnixConn, cfg Config, how Inherit) (*Adapter, *Estate, error) {
	a, device := newAdapter(cfg)
	s := &succession{how: how, flows: map[engine.FlowID]*heirQP{}, estate: &Estate{
		pds: map[uint32]*PD{}, mrs: map[STag]*MR{}, mws: map[STag]*MW{}, cqs: map[uint32]*CQ{}, srqs: map[uint32]*SRQ{}, qps: map[uint32]*QP{},
	}}
	a.inherits = s
	_, lost, err := adapter.Succeed(ctx, c, device, adapter.Succession{Objects: s.program}, layer{a})
	if err != nil {
		return nil, nil, err
	}
	a.inherits = nil
	s.estate.Lost = lost
	return a, s.estate, nil
}

// succession is a Succeed in progress.
type succession struct {
	how    Inherit
	estate *Estate
	places map[uint32]*work.Places
	flows  map[engine.FlowID]*heirQP
}

// heirQP is a QP whose connection has not come yet.
type heirQP struct {
	qp    *QP
	state legacyQP
}

func (s *succession) program(list []portable.Object) error {
	if len(list) != 1 || list[0].Kind != bequestKind {
		return fmt.Errorf("%w: %d objects of the program", portable.ErrKind, len(list))
	}
	s.estate.Program = Bequest{Data: list[0].Data, Files: list[0].Files}
	return nil
}

func contradiction(format string, args ...any) error {
	return fmt.Errorf("%w: %s", pack.ErrCorrupt, fmt.Sprintf(format, args...))
}

// ImportLayer implements adapter.Heir.
func (l layer) ImportLayer(d *adapter.Adapter, now clock.Instant, o portable.Object) error {
	a, s := l.Adapter, l.inherits
	if o.Kind != legacyKind {
		return fmt.Errorf("%w: %s", portable.ErrKind, o.Kind)
	}
	x := new(legacy)
	if err := legacyFormat.Decode(o.Data, x.code); err != nil {
		return err
	}
	a.standOn(d)
	a.lastCQ.Store(x.lastCQ)
	a.lastSRQ.Store(x.lastSRQ)
	a.numbers = qpNumbers{last: x.lastQP, used: map[uint32]int{}}
	s.places = map[uint32]*work.Places{}
	for _, n := range x.pds {
		s.estate.pds[n] = a.newPD(tpt.PD(n))
	}
	for _, step := range []func() error{
		func() error { return s.makeCQs(a, x.cqs) },
		func() error { return s.makeSRQs(x.srqs) },
		func() error { return s.makeQPs(a, x.qps, now) },
		func() error { return s.makeMRs(a, x.mrs) },
		func() error { return s.makeMWs(x.mws) },
		func() error { return s.fillCQs(x.cqs) },
		func() error { return s.makeListeners(a, x.listeners, o.Files) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *succession) makeCQs(a *Adapter, list []legacyCQ) error {
	for i := range list {
		x := &list[i]
		if err := checkCQDepth(int(x.state.Size)); err != nil || s.estate.cqs[x.number] != nil {
			return contradiction("CQ %d for %d completions: %v", x.number, x.state.Size, err)
		}
		c := a.newCQ(x.number, work.NewCQ(int(x.state.Size), a.board))
		c.told = x.told
		if s.how.CQ != nil {
			if err := c.choose([]CQOptions{s.how.CQ(a, x.number)}); err != nil {
				return fmt.Errorf("CQ %d: %w", x.number, err)
			}
		}
		a.mu.Lock()
		a.cqs[c] = struct{}{}
		a.mu.Unlock()
		s.estate.cqs[x.number] = c
	}
	return nil
}

func (s *succession) makeSRQs(list []legacySRQ) error {
	for i := range list {
		x := &list[i]
		pd := s.estate.pds[x.pd]
		if pd == nil || s.estate.srqs[x.number] != nil {
			return contradiction("SRQ %d of PD %d", x.number, x.pd)
		}
		if err := pd.enter(&pd.srqs); err != nil {
			return err
		}
		q := pd.newSRQ(x.number, SRQConfig{Depth: x.depth, MaxSGE: x.maxSGE}, nil)
		if err := q.queue.Import(&x.state); err != nil {
			return fmt.Errorf("SRQ %d: %w", x.number, err)
		}
		s.places[placesOfSRQ(x.number)] = q.queue.Places
		s.estate.srqs[x.number] = q
	}
	return nil
}

// makeQPs makes the QPs. Those with a connection get their machines with it.
func (s *succession) makeQPs(a *Adapter, list []legacyQP, now clock.Instant) error {
	for i := range list {
		x := &list[i]
		pd, send, recv, srq := s.estate.pds[x.pd], s.estate.cqs[x.sendCQ], s.estate.cqs[x.recvCQ], s.estate.srqs[x.srq]
		if pd == nil || send == nil || recv == nil || (srq == nil) != (x.srq == 0) || (srq == nil) != (x.recvDepth != 0) || s.estate.qps[x.number] != nil {
			return contradiction("QP %d of PD %d, CQs %d and %d, SRQ %d", x.number, x.pd, x.sendCQ, x.recvCQ, x.srq)
		}
		qp := &QP{adapter: a, pd: pd, done: make(chan struct{}), denied: denied(x.access), cfg: QPConfig{
			SendCQ: send, RecvCQ: recv, SendDepth: x.sendDepth, RecvDepth: x.recvDepth, MaxSGE: x.maxSGE, MaxInline: x.maxInline,
			SQSigAll: x.sigAll, RegMR: x.regMR, Reactive: x.reactive, SRQ: srq, AsyncNotify: x.asyncNotify, Hold: x.hold, Client: x.client, ClientFrames: x.frames, KeepReceives: x.keep,
		}}
		if s.how.Context != nil {
			qp.cfg.Context = s.how.Context(x.number)
		}
		for state, was := range map[interface{ Store(uint32) }]bool{&qp.fatal: x.fatal, &qp.last: x.last, &qp.heard: x.heard, &qp.empty: x.empty} {
			if was {
				state.Store(told)
			}
		}
		qp.started.Store(x.started)
		qp.stage, qp.agreed = x.stage, x.agreed
		s.places[placesOfSends(x.number)], s.places[placesOfReceives(x.number)] = new(work.Places), new(work.Places)
		a.numbers.used[x.number] = 1
		s.estate.qps[x.number] = qp
		if x.flow != 0 {
			s.flows[x.flow] = &heirQP{qp, *x}
			continue
		}
		if err := s.give(qp, x.number, x.image, now); err != nil {
			return err
		}
	}
	return nil
}

// give gives a QP its machine.
func (s *succession) give(qp *QP, number uint32, image []byte, at clock.Instant) error {
	i, err := rdmap.ParseImage(image, at)
	if err != nil {
		return fmt.Errorf("QP %d: %w", number, err)
	}
	c := qp.config(number)
	c.SendPlaces, c.RecvPlaces = s.places[placesOfSends(number)], s.places[placesOfReceives(number)]
	if qp.machine, err = rdmap.Import(c, i); err != nil {
		return err
	}
	qp.cfg.Rate = qp.machine.Rate()
	qp.machine.News.Fire = qp.news
	return qp.enlist()
}

func (s *succession) makeMRs(a *Adapter, list []legacyMR) error {
	for i := range list {
		x := &list[i]
		pd := s.estate.pds[x.pd]
		info, ok := a.table.Entry(x.stag.Index())
		if pd == nil || s.estate.mrs[x.stag] != nil || !ok || info.STag != x.stag || info.PD != pd.domain || info.Length != x.size && info.Valid || x.size > 1<<62 {
			return contradiction("region %v of PD %d, with %d octets", x.stag, x.pd, x.size)
		}
		m := &MR{pd: pd, stag: x.stag, start: x.start, size: int(x.size)}
		if x.size != 0 {
			mem, part, err := a.device.Heap().Hand(x.offset, x.size)
			if err != nil {
				return contradiction("region %v at %d of the heap: %v", x.stag, x.offset, err)
			}
			m.first, m.part = &mem[0], part
		}
		if info.QP != 0 {
			a.numbers.used[info.QP]++ // see holdNumber
		}
		if err := pd.enter(&pd.mrs); err != nil {
			return err
		}
		remember(a, &a.objects.mrs, m)
		s.estate.mrs[x.stag] = m
	}
	return nil
}

func (s *succession) makeMWs(list []legacyMW) error {
	for _, x := range list {
		pd := s.estate.pds[x.pd]
		if pd == nil || x.kind < MWType1 || x.kind > MWType2B || s.estate.mws[x.rkey] != nil {
			return contradiction("window %v of PD %d", x.rkey, x.pd)
		}
		if err := pd.enter(&pd.mws); err != nil {
			return err
		}
		s.estate.mws[x.rkey] = pd.newMW(x.kind, x.rkey)
	}
	return nil
}

// fillCQs gives the CQs the completions that wait.
func (s *succession) fillCQs(list []legacyCQ) error {
	for i := range list {
		x := &list[i]
		x.state.Armed = 0 // nobody waits here
		if err := s.estate.cqs[x.number].queue.Import(&x.state, func(name uint32) *work.Places { return s.places[name] }); err != nil {
			return fmt.Errorf("CQ %d: %w", x.number, err)
		}
	}
	return nil
}

func (s *succession) makeListeners(a *Adapter, list []ListenConfig, files []*os.File) error {
	if len(list) != len(files) {
		return contradiction("%d listeners and %d sockets", len(list), len(files))
	}
	for i, cfg := range list {
		x, err := a.inheritListener(files[i], cfg)
		if err != nil {
			return fmt.Errorf("listener %d: %w", i+1, err)
		}
		s.estate.listeners = append(s.estate.listeners, x)
	}
	return nil
}

// ImportULP implements adapter.Heir.
func (l layer) ImportULP(now clock.Instant, id engine.FlowID, o portable.Object) (stream.ULP, error) {
	if o.Kind != rdmap.ImageKind {
		return nil, fmt.Errorf("%w: %s", portable.ErrKind, o.Kind)
	}
	x := l.inherits.flows[id]
	if x == nil || x.qp.machine != nil {
		return nil, contradiction("flow %#x is the connection of no QP", uint32(id))
	}
	if err := l.inherits.give(x.qp, x.state.number, o.Data, now); err != nil {
		return nil, err
	}
	return x.qp.machine, nil
}

// Installed implements adapter.Heir.
func (l layer) Installed(id engine.FlowID, c *adapter.Conn) {
	qp := l.inherits.flows[id].qp
	qp.conn.Store(c)
	qp.follow()
	c.Wake() // a step may have to finish what was held
}

// Moved returns the function that the device calls after each move of a connection.
func (l layer) Moved(id engine.FlowID) func() { return l.inherits.flows[id].qp.follow }

// errLostWay is the error of a QP whose connection did not arrive.
var errLostWay = errors.New("the connection was lost when it was handed over")

// Opened implements adapter.Heir.
func (l layer) Opened() {
	a, s := l.Adapter, l.inherits
	for number, x := range s.flows {
		if x.qp.machine == nil { // impossible unless the other process is broken
			x.qp.machine = rdmap.New(x.qp.config(x.state.number))
			x.qp.machine.News.Fire = x.qp.news
			a.log.Error("a connection did not come", "qp", x.state.number, "flow", uint32(number), "err", x.qp.enlist())
		}
		if x.qp.conn.Load() == nil && !x.qp.machine.Dead() {
			x.qp.kill(errLostWay)
		}
	}
	for _, qp := range s.estate.qps {
		qp.news() // News was raised in the other process
	}
	for _, x := range s.estate.listeners {
		x.running.Go(x.admitAll)
	}
	a.log.Info("objects taken over", "qps", len(s.estate.qps), "regions", len(s.estate.mrs))
}

// Dropped implements adapter.Heir.
func (l layer) Dropped() {
	for _, x := range l.inherits.estate.listeners {
		x.socket.Close()
	}
	for _, m := range l.inherits.estate.mrs {
		_ = m.release() // the heap is closed next
	}
}

var _ adapter.Heir = layer{}
