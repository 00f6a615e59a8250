package tpt

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkCheckCold measures Check in a table that fits into no cache, and beside it one
// load of each entry's state, in turn in the same run. Both walk the same way through the
// table: which entry comes next depends on what the last one returned, so that no two
// accesses to memory overlap. The walks begin far apart, because one would otherwise find
// the entries of another one in the cache. A third walk touches no entry, and shows the
// time of the loop and of the list of STags.
func BenchmarkCheckCold(b *testing.B) {
	const entries, batch = 1 << 20, 1 << 14
	s := newStage(b, Config{Entries: entries, Memory: mapped(b, entries)})
	stags := make([]STag, entries)
	for range entries - 1 { // index 0 belongs to nobody
		stag := s.register(s.heap[:4096], 0, LocalWrite|RemoteWrite)
		stags[stag.Index()] = stag
	}
	stags[0] = stags[1]
	walks := []struct {
		name string
		load func(STag) uint32 // returns 0, after what it has to load
		took []float64
		at   uint32
	}{
		{name: "loop", load: func(STag) uint32 { return 0 }},
		{name: "load", load: func(g STag) uint32 {
			e, _ := s.at(g)
			return uint32(e.length.Load()) - 4096
		}},
		{name: "check", load: func(g STag) uint32 {
			mem, f := s.Check(Access{STag: g, PD: s.pd, QP: 1, Right: RemoteWrite, TO: 1024, Len: 1440})
			if f != OK {
				b.Fatal(f)
			}
			return uint32(mem[0]) // the length is known without the entry, the address is not
		}},
	}
	for i := range walks {
		walks[i].at = uint32(i) * entries / 3
	}
	for b.Loop() {
		for i := range walks {
			w := &walks[i]
			began := time.Now()
			for range batch {
				// This sequence visits every number below entries before it repeats one.
				w.at = (w.at*1664525 + 1013904223 + w.load(stags[w.at])) % entries
			}
			w.took = append(w.took, float64(time.Since(began))/batch)
		}
	}
	median := func(i int) float64 {
		slices.Sort(walks[i].took)
		return walks[i].took[len(walks[i].took)/2]
	}
	b.ReportMetric(0, "ns/op")
	for i := range walks {
		b.ReportMetric(median(i), walks[i].name+"-ns")
	}
	b.ReportMetric(median(2)/median(1), "check/load")
}
