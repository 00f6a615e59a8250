package measure

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/signal"
	wq "github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
	"github.com/stag-rdma/stag/tpt"
)

// machine is one end of a connection in the simulated world: a QP below the verbs, with
// a region.
type machine struct {
	qp   *rdmap.QP
	cq   *wq.CQ
	stag tpt.STag
}

func newMachine(b *testing.B, table *tpt.Table, a mpa.Agreed) *machine {
	b.Helper()
	pd, err := table.NewPD()
	if err != nil {
		b.Fatal(err)
	}
	board := new(signal.Board)
	m := &machine{cq: wq.NewCQ(4*depth, board)}
	m.cq.News.Fire = func() {}
	m.stag, err = table.Register(tpt.Region{
		PD: pd, Memory: make([]byte, depth*message), Rights: tpt.LocalWrite | tpt.RemoteWrite | tpt.RemoteRead,
	})
	if err != nil {
		b.Fatal(err)
	}
	m.qp = rdmap.New(rdmap.Config{
		Number: 2, PD: pd, Table: table, Board: board, SendCQ: m.cq, RecvCQ: m.cq,
		SendDepth: depth, RecvDepth: depth, MaxSGE: 1,
	})
	m.qp.News.Fire = func() {}
	m.qp.Start(a)
	return m
}

// newMachines makes a simulated world with a connection between two machines.
func newMachines(b *testing.B, crc bool) (w *world.World, id world.Conn, x, y *machine) {
	b.Helper()
	var err error
	var tables [2]*tpt.Table
	for i := range tables {
		if tables[i], err = tpt.New(tpt.Config{Entries: 64}); err != nil {
			b.Fatal(err)
		}
	}
	w, err = world.New(world.Config{
		Link: simnic.Config{Latency: 20 * time.Microsecond, Frames: 4096},
		Edit: func(side int, c *engine.Config) { c.Table = tables[side] },
	})
	if err != nil {
		b.Fatal(err)
	}
	agreed := mpa.Agreed{Initiator: true, Revision: 2, CRC: crc, IRD: depth, ORD: depth}
	x = newMachine(b, tables[0], agreed)
	agreed.Initiator = false
	y = newMachine(b, tables[1], agreed)
	id, err = w.Connect(world.Flow{Window: 1 << 18}, x.qp, y.qp)
	if err != nil {
		b.Fatal(err)
	}
	return w, id, x, y
}

// processorTime returns the processor time of this process. Other work on the machine
// affects it less than the elapsed time.
func processorTime(b *testing.B) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func (m *machine) slot(i int) []wq.SGE {
	return []wq.SGE{{Addr: uint64(i%depth) * message, Length: message, LKey: m.stag}}
}

// BenchmarkVerbs measures the cost of two engines, their QPs and the simulated link for
// each message of 64 KiB. No kernel is involved. The benchmark compares changes on a
// machine where other work makes streams vary.
func BenchmarkVerbs(b *testing.B) {
	for _, c := range []struct {
		name string
		op   wq.WROp
		crc  bool
	}{
		{"write", wq.WRWrite, true}, {"write no CRC", wq.WRWrite, false},
		{"read", wq.WRRead, true}, {"send", wq.WRSend, true},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkVerb(b, c.op, c.crc) })
	}
}

func benchmarkVerb(b *testing.B, op wq.WROp, crc bool) {
	w, id, x, y := newMachines(b, crc)
	b.ReportAllocs()
	b.SetBytes(message)
	var done [depth]wq.Completion
	before := processorTime(b)
	defer func() { b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	for posted, got := 0, 0; b.Loop(); got++ {
		for ; posted < got+depth/2; posted++ {
			x.qp.PostSend(wq.SendWR{
				Op: op, Flags: wq.Signaled, SGL: x.slot(posted), RemoteAddr: y.slot(posted)[0].Addr, RKey: y.stag,
			})
			y.qp.PostRecv(wq.RecvWR{SGL: y.slot(posted)})
		}
		w.Engines[0].Ring(id.ID[0])
		for x.cq.Poll(done[:1]) == 0 {
			if !w.Step(w.Now().Add(time.Second)) {
				b.Fatal("nothing happens any more")
			}
		}
		if done[0].Status != wq.Success {
			b.Fatal(done[0].Status, x.qp.Cause(), y.qp.Cause())
		}
		y.cq.Poll(done[:])
	}
}
