package measure

import (
	"slices"
	"testing"
	"time"

	wq "github.com/stag-rdma/stag/offload/work"
)

// BenchmarkSmall measures the cost of both ends and of the simulated link for each
// message of 64 octets. The messages are posted in lists. No kernel is involved.
func BenchmarkSmall(b *testing.B) {
	for _, c := range []struct {
		name string
		op   wq.WROp
	}{{"write", wq.WRWrite}, {"send", wq.WRSend}} {
		b.Run(c.name, func(b *testing.B) { benchmarkSmall(b, c.op) })
	}
}

func benchmarkSmall(b *testing.B, op wq.WROp) {
	w, id, x, y := newMachines(b, true)
	wrs := slices.Repeat([]wq.SendWR{{Op: op, SGL: []wq.SGE{{Length: small, LKey: x.stag}}, RKey: y.stag}}, depth)
	wrs[depth-1].Flags = wq.Signaled
	recvs := slices.Repeat([]wq.RecvWR{{SGL: []wq.SGE{{Length: small, LKey: y.stag}}}}, depth)
	var done [depth]wq.Completion
	b.ReportAllocs()
	b.SetBytes(small)
	for left := 0; b.Loop(); left-- {
		if left > 0 {
			continue // a completion of an earlier list
		}
		if op == wq.WRSend {
			y.qp.PostRecv(recvs...)
		}
		left = x.qp.PostSend(wrs...)
		w.Engines[0].Ring(id.ID[0])
		for sent, got := 0, 0; sent == 0 || op == wq.WRSend && got < depth; {
			if !w.Step(w.Now().Add(time.Second)) {
				b.Fatal("nothing happens any more")
			}
			sent += x.cq.Poll(done[:1])
			got += y.cq.Poll(done[:])
		}
	}
}
