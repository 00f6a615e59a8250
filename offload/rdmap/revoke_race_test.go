package rdmap

import (
	"bytes"
	"flag"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// rounds is how often each way to revoke runs under fire.
var rounds = flag.Int("rounds", 0, "how often each way to revoke an STag runs under fire; 0: 200, or 25,000 with STAG_LONG=1")

func revokeRounds() int {
	switch {
	case *rounds != 0:
		return *rounds
	case os.Getenv("STAG_LONG") == "1":
		return 25_000
	}
	return 200
}

const (
	shot   = 512  // octets of each message
	secret = 0xa5 // value of the memory's octets after the revocation
)

// gun is an engine with one QP at a time. The QP's peer writes to an STag and reads it. The
// QP's own requests receive into the STag and send from it. When the table refuses one of
// them, the next QP begins.
type gun struct {
	testing.TB
	table *tpt.Table
	pd    tpt.PD
	stag  *atomic.Uint32
	at    uint64 // offset of its part of the memory
	local bool   // the QP's own requests use the STag, too

	hits atomic.Uint32 // steps in which everything was done

	q  *QP
	st *pipe
	cq *work.CQ
}

func (g *gun) load() {
	g.q, g.st, g.cq = newRTS(g.table, g.pd, qpNumber)
}

// newRTS returns a connected QP with its stream and its CQ.
func newRTS(table *tpt.Table, pd tpt.PD, number uint32) (*QP, *pipe, *work.CQ) {
	board := new(signal.Board)
	cq := work.NewCQ(64, board)
	cq.News.Fire = func() {}
	q := New(Config{Number: number, PD: pd, Table: table, Board: board, SendCQ: cq, RecvCQ: cq, SendDepth: 4, RecvDepth: 4, MaxSGE: 1})
	q.News.Fire = func() {}
	q.Start(mpa.Agreed{Initiator: true, Revision: 2, CRC: true, IRD: 4, ORD: 4})
	return q, &pipe{emss: 1460, room: -1}, cq
}

// fire makes one step with one message of each kind. msn is the number of the step's
// untagged messages.
func (g *gun) fire(r *tpt.Reader, msn uint32) {
	stag := tpt.STag(g.stag.Load())
	mark := bytes.Repeat([]byte{byte(msn) & 0x7f}, shot)
	g.st.in = append(g.st.in, write(uint32(stag), g.at, mark), readRequest(msn, 1, 0, shot, uint32(stag), g.at))
	if g.local {
		sgl := []work.SGE{{LKey: stag, Addr: g.at, Length: shot}}
		g.q.PostRecv(work.RecvWR{SGL: sgl})
		g.q.PostSend(work.SendWR{Op: work.WRSend, SGL: sgl})
		g.st.in = append(g.st.in, send(msn, mark))
	}
	r.Enter()
	g.q.Receive(scriptStart, g.st)
	g.q.Transmit(scriptStart, g.st)
	r.Leave()
	for _, f := range g.st.out {
		if bytes.Contains(f, bytes.Repeat([]byte{secret}, 16)) {
			g.Errorf("an FPDU has octets of revoked memory: %s", describe(f))
		}
	}
	g.st.out = nil
	g.cq.Poll(make([]work.Completion, 8))
	if g.q.State() == RTS {
		g.hits.Add(1)
	}
}

func (g *gun) run(stop *atomic.Bool, join func(*tpt.Table) *tpt.Reader) {
	r := join(g.table)
	defer r.Close()
	for !stop.Load() && !g.Failed() {
		g.load()
		for msn := uint32(1); g.q.State() == RTS && !stop.Load(); msn++ {
			g.fire(r, msn)
			runtime.Gosched()
		}
	}
}

// revoker lends memory by an STag and takes it back. Some ways to take it back are requests
// of the revoker's own QP, or messages of that QP's peer.
type revoker struct {
	testing.TB
	table         *tpt.Table
	pd            tpt.PD
	mem           []byte
	region, other tpt.STag // other is a region over other memory
	window        tpt.STag

	q   *QP
	st  *pipe
	cq  *work.CQ
	r   *tpt.Reader
	msn uint32 // of the last Send of the QP's peer
}

func (v *revoker) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

func (v *revoker) lend() tpt.STag {
	v.Helper()
	var err error
	v.region, err = v.table.Register(tpt.Region{PD: v.pd, Memory: v.mem, Rights: every | tpt.Bind})
	v.must(err)
	return v.region
}

// completes steps the QP until a request or a receive has completed.
func (v *revoker) completes() {
	v.Helper()
	var c [1]work.Completion
	for v.cq.Poll(c[:]) == 0 {
		runtime.Gosched()
		v.r.Enter()
		v.q.Receive(scriptStart, v.st)
		v.q.Transmit(scriptStart, v.st)
		v.r.Leave()
	}
	if c[0].Status != work.Success {
		v.Fatalf("%+v", c[0])
	}
}

// bind binds the window to the elements by a work request. Without elements it unbinds
// the window.
func (v *revoker) bind(to ...work.SGE) tpt.STag {
	v.Helper()
	v.window = v.table.NextSTag(v.window)
	v.q.PostSend(bind(1, v.window, work.RemoteRead|work.RemoteWrite|work.RemoteInvalidate, to...))
	v.completes()
	return v.window
}

func (v *revoker) lendWindow() tpt.STag {
	v.Helper()
	return v.bind(work.SGE{LKey: v.lend(), Length: uint32(len(v.mem))})
}

func (v *revoker) localInvalidate(s tpt.STag) {
	v.Helper()
	v.q.PostSend(invalidation(1, s))
	v.completes()
}

func (v *revoker) peerInvalidates(s tpt.STag) {
	v.Helper()
	v.q.PostRecv(work.RecvWR{})
	v.msn++
	v.st.in = append(v.st.in, untagged(wire.OpSendInvalidate, true, uint32(s), 0, v.msn, 0, nil))
	v.completes()
}

// revocation is a way to take memory back. revoke returns when no engine may use the
// memory any more.
type revocation struct {
	lend   func(*revoker) tpt.STag
	revoke func(*revoker)
	local  bool // the QPs' own requests can use the STag
}

var revocations = map[string]revocation{
	"invalidate":        {(*revoker).lend, func(v *revoker) { v.must(v.table.Invalidate(v.region, v.pd)) }, true},
	"deregister":        {(*revoker).lend, func(v *revoker) { v.must(v.table.Deregister(v.region, v.pd)) }, true},
	"local invalidate":  {(*revoker).lend, func(v *revoker) { v.localInvalidate(v.region) }, true},
	"peer's invalidate": {(*revoker).lend, func(v *revoker) { v.peerInvalidates(v.region) }, true},
	"rebind":            {(*revoker).lendWindow, func(v *revoker) { v.bind(work.SGE{LKey: v.other, Length: uint32(len(v.mem))}) }, false},
	"unbind":            {(*revoker).lendWindow, func(v *revoker) { v.bind() }, false},
}

// TestNothingAfterRevocation floods a region or a window with Writes, Reads, receives and
// Sends of two engines while the memory is taken back. After that the owner changes the
// memory without synchronization, and finds it unchanged. No engine sends an octet of it.
// The race detector checks the same.
func TestNothingAfterRevocation(t *testing.T) {
	for name, c := range revocations {
		t.Run(name, func(t *testing.T) {
			v := newRevoker(t)
			var stag atomic.Uint32
			var stop atomic.Bool
			var firing sync.WaitGroup
			guns := []*gun{{at: 0}, {at: shot}}
			joins := []func(*tpt.Table) *tpt.Reader{(*tpt.Table).Join, (*tpt.Table).JoinShared}
			for i, g := range guns {
				g.TB, g.table, g.pd, g.stag, g.local = t, v.table, v.pd, &stag, c.local
				firing.Go(func() { g.run(&stop, joins[i]) })
			}
			defer firing.Wait()
			defer stop.Store(true)
			for range revokeRounds() {
				clear(v.mem)
				stag.Store(uint32(c.lend(v)))
				for _, g := range guns {
					for before := g.hits.Load(); g.hits.Load() == before && !t.Failed(); {
						runtime.Gosched()
					}
				}
				c.revoke(v)
				v.owns()
				if t.Failed() {
					return
				}
			}
		})
	}
}

func newRevoker(t *testing.T) *revoker {
	table, err := tpt.New(tpt.Config{Entries: 64, Seed: [32]byte{1}})
	v := &revoker{TB: t, table: table, mem: make([]byte, 2*shot)}
	v.must(err)
	v.pd, err = table.NewPD()
	v.must(err)
	v.other, err = table.Register(tpt.Region{PD: v.pd, Memory: make([]byte, 2*shot), Rights: every | tpt.Bind})
	v.must(err)
	v.window, err = table.AllocWindow(v.pd, tpt.Type1)
	v.must(err)
	v.r = table.Join()
	t.Cleanup(v.r.Close)
	v.q, v.st, v.cq = newRTS(table, v.pd, qpNumber+1)
	return v
}

// owns changes the memory that was taken back, and demands that nobody else does. Then it
// deregisters the region.
func (v *revoker) owns() {
	v.Helper()
	for i := range v.mem {
		v.mem[i] = secret
	}
	runtime.Gosched()
	if n := bytes.Count(v.mem, []byte{secret}); n != len(v.mem) {
		v.Errorf("%d octets have changed after the revocation", len(v.mem)-n)
	}
	if info, ok := v.table.Entry(v.region.Index()); ok && info.STag == v.region {
		v.must(v.table.Deregister(v.region, v.pd))
	}
}
