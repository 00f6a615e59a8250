package goodput

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
	"github.com/stag-rdma/stag/tpt"
)

// paced is two QPs over a simulated link. The first one has a rate.
type paced struct {
	testing.TB
	w      *world.World
	conn   world.Conn
	boards [2]signal.Board
	tables [2]*tpt.Table
	qps    [2]*rdmap.QP
	cqs    [2]*work.CQ
	stags  [2]tpt.STag
}

const pacedLength = 1 << 20 // octets of a Write

func newPaced(t *testing.T, rate uint64) *paced {
	t.Helper()
	p := &paced{TB: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range p.qps {
		var err error
		p.tables[i], err = tpt.New(tpt.Config{Entries: 16, Seed: [32]byte{1, byte(i)}})
		must(err)
		pd, err := p.tables[i].NewPD()
		must(err)
		p.stags[i], err = p.tables[i].Register(tpt.Region{PD: pd, Memory: make([]byte, pacedLength), Rights: tpt.LocalRead | tpt.LocalWrite | tpt.RemoteWrite})
		must(err)
		p.cqs[i] = work.NewCQ(64, &p.boards[i])
		p.cqs[i].News.Fire = func() {}
		c := rdmap.Config{
			Number: uint32(1 + i), PD: pd, Table: p.tables[i], Board: &p.boards[i],
			SendCQ: p.cqs[i], RecvCQ: p.cqs[i], SendDepth: 32, RecvDepth: 1, MaxSGE: 1,
		}
		if i == 0 {
			c.Rate = rate
		}
		p.qps[i] = rdmap.New(c)
		p.qps[i].News.Fire = func() {}
		p.qps[i].Start(mpa.Agreed{Initiator: i == 0, Revision: 2, CRC: true})
	}
	var err error
	p.w, err = world.New(world.Config{
		Link: simnic.Config{Latency: 100 * time.Microsecond, Seed: 3},
		Edit: func(side int, c *engine.Config) { c.Table, c.After = p.tables[side], p.boards[side].Deliver },
	})
	must(err)
	p.conn, err = p.w.Connect(world.Flow{Scale: 7, Window: 4 << 20}, p.qps[0], p.qps[1])
	must(err)
	return p
}

// TestRate: over a link in virtual time, a QP with a rate delivers its Writes at that rate
// in every tenth of a second.
func TestRate(t *testing.T) {
	for _, rate := range []uint64{1e6, 20e6, 100e6} {
		p := newPaced(t, rate)
		for range 32 {
			wr := work.SendWR{Op: work.WRWrite, SGL: []work.SGE{{LKey: p.stags[0], Length: pacedLength}}, RKey: p.stags[1]}
			if p.qps[0].PostSend(wr) != 1 {
				t.Fatal("the send queue is full")
			}
		}
		p.w.Engines[0].Ring(p.conn.ID[0])
		p.w.Pass(20 * time.Millisecond) // the first round trips
		const window = 100 * time.Millisecond
		want := float64(rate) * window.Seconds()
		for i := range 3 {
			before := p.qps[1].Stats().WriteOctetsIn
			p.w.Pass(window)
			got := float64(p.qps[1].Stats().WriteOctetsIn - before)
			if slack := 0.01*want + 2e-3*float64(rate) + 1500; got < want-slack || got > want+slack {
				t.Errorf("rate %d, window %d: %.0f octets, want %.0f", rate, i, got, want)
			}
		}
	}
}
