package tpt

import (
	"fmt"
	"testing"
	"time"
)

// tables runs a benchmark over both kinds of memory of a table.
func tables(b *testing.B, run func(b *testing.B, s *stage)) {
	b.Run("plain", func(b *testing.B) { run(b, newStage(b, Config{})) })
	b.Run("mapped", func(b *testing.B) { run(b, newStage(b, Config{Memory: mapped(b, defaultEntries)})) })
}

// quiet adds an engine that has joined and sleeps.
func quiet(b *testing.B, s *stage) {
	r := s.Join()
	b.Cleanup(r.Close)
}

func BenchmarkRegisterDeregister(b *testing.B) {
	external := make([]byte, 4096)
	for name, mem := range map[string]func(s *stage) []byte{
		"heap":     func(s *stage) []byte { return s.heap[:4096] },
		"external": func(*stage) []byte { return external },
	} {
		b.Run(name, func(b *testing.B) {
			tables(b, func(b *testing.B, s *stage) {
				quiet(b, s)
				m := mem(s)
				b.ReportAllocs()
				for b.Loop() {
					stag, err := s.Register(Region{PD: s.pd, Memory: m, Rights: LocalWrite | RemoteWrite})
					if err != nil {
						b.Fatal(err)
					}
					if err := s.Deregister(stag, s.pd); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkInvalidate measures the verb with an engine that sleeps, and an engine's
// work for a Send with Invalidate. Each round makes the entry valid again, which costs
// one store.
func BenchmarkInvalidate(b *testing.B) {
	for name, revoke := range map[string]func(s *stage, stag STag) bool{
		"verb": func(s *stage, stag STag) bool { return s.Invalidate(stag, s.pd) == nil },
		"engine": func(s *stage, stag STag) bool {
			k, f := s.StartInvalidate(stag, s.pd, 1)
			return f == OK && s.Passed(k)
		},
	} {
		b.Run(name, func(b *testing.B) {
			tables(b, func(b *testing.B, s *stage) {
				quiet(b, s)
				stag := s.register(s.heap[:4096], 0, RemoteRead|RemoteInvalidate)
				e, _ := s.at(stag)
				b.ReportAllocs()
				for b.Loop() {
					if !revoke(s, stag) {
						b.Fatal("refused")
					}
					e.publish(e.load() | wordValid)
				}
			})
		})
	}
}

// BenchmarkCheck measures one access of an engine's step, to the same entry and to
// different entries.
func BenchmarkCheck(b *testing.B) {
	for _, c := range []struct {
		name    string
		entries int
		check   func(t *Table) func(Access) ([]byte, Fault)
	}{
		{"one", 1, func(t *Table) func(Access) ([]byte, Fault) { return t.Check }},
		{"one again", 1, again},
		{"60000", 60000, func(t *Table) func(Access) ([]byte, Fault) { return t.Check }},
	} {
		b.Run(c.name, func(b *testing.B) {
			tables(b, func(b *testing.B, s *stage) {
				stags := make([]STag, c.entries)
				for i := range stags {
					stags[i] = s.register(s.heap[:4096], 0, LocalWrite|RemoteWrite)
				}
				i, check := 0, c.check(s.Table)
				b.ReportAllocs()
				for b.Loop() {
					a := Access{STag: stags[i], PD: s.pd, QP: 1, Right: RemoteWrite, TO: 1024, Len: 1440}
					if _, f := check(a); f != OK {
						b.Fatal(f)
					}
					if i++; i == len(stags) {
						i = 0
					}
				}
			})
		})
	}
}

// again returns a function that checks with one Memo.
func again(t *Table) func(Access) ([]byte, Fault) {
	m := new(Memo)
	return func(a Access) ([]byte, Fault) { return m.Check(t, a) }
}

// BenchmarkEnterLeave measures the additional cost of each step of an engine.
func BenchmarkEnterLeave(b *testing.B) {
	r := newStage(b, Config{}).Join()
	b.ReportAllocs()
	for b.Loop() {
		r.Enter()
		r.Leave()
	}
}

// stepLen is how many work requests a step of an engine handles in these benchmarks.
const stepLen = 64

// BenchmarkBind binds and unbinds a window in turn, as an engine does in its steps.
func BenchmarkBind(b *testing.B) {
	tables(b, func(b *testing.B, s *stage) {
		r := s.Join()
		region, w := s.register(s.heap[:4096], 0, LocalWrite|Bind), s.window(Type1)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%stepLen == 0 {
				r.Leave()
				r.Enter()
			}
			w = NewSTag(w.Index(), w.Key()+1)
			_, f := s.Bind(&Binding{STag: w, Region: region, PD: s.pd, TO: 100, Len: uint64(i & 1 * 1000), Rights: RemoteWrite})
			if f != OK {
				b.Fatal(f)
			}
		}
		r.Leave()
	})
}

// BenchmarkRegisterInvalidate allocates and registers an entry, and then an engine
// invalidates and deregisters the entry. BenchmarkDeregister measures the last alone.
func BenchmarkRegisterInvalidate(b *testing.B) {
	tables(b, func(b *testing.B, s *stage) {
		r := s.Join()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%stepLen == 0 {
				r.Leave()
				r.Enter()
			}
			stag, err := s.Register(Region{PD: s.pd, Memory: s.heap[:4096], Rights: LocalWrite | RemoteWrite | RemoteInvalidate})
			if err != nil {
				b.Fatal(err)
			}
			_, f := s.StartInvalidate(stag, s.pd, 1)
			if _, g := s.StartDeregister(stag, s.pd, 1); f != OK || g != OK {
				b.Fatal(f, g)
			}
		}
		r.Leave()
	})
}

// BenchmarkDeregister measures the deregistration by an engine, with the Leave that
// frees the entries.
func BenchmarkDeregister(b *testing.B) {
	tables(b, func(b *testing.B, s *stage) {
		r := s.Join()
		var stags [stepLen]STag
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if n == 0 {
				b.StopTimer()
				for i := range stags {
					stags[i] = s.register(s.heap[:4096], 0, LocalWrite)
				}
				b.StartTimer()
				r.Enter()
			}
			if _, f := s.StartDeregister(stags[n], s.pd, 1); f != OK {
				b.Fatal(f)
			}
			if n++; n == stepLen {
				r.Leave()
				n = 0
			}
		}
		r.Leave()
	})
}

// BenchmarkJoin measures the join and the close of a Reader beside 30,000 others.
func BenchmarkJoin(b *testing.B) {
	s := newStage(b, Config{})
	for range 30000 {
		s.JoinShared()
	}
	b.ReportAllocs()
	for b.Loop() {
		s.JoinShared().Close()
	}
}

// BenchmarkPageList compares a region with page lists of the same octets: segments of 1440
// octets, one behind the other. "check" and "memo" measure the check and its first piece,
// "pieces" measures all pieces of the segment. The kinds of translation take turns in batches, and each result is
// the time of the fastest batch, so that other load on the machine does not count.
func BenchmarkPageList(b *testing.B) {
	for _, c := range []struct {
		name  string
		check func(t *Table) func(Access) int
	}{
		{"check", func(t *Table) func(Access) int { return func(a Access) int { mem, _ := t.Check(a); return len(mem) } }},
		{"memo", func(t *Table) func(Access) int {
			m := new(Memo)
			return func(a Access) int { mem, _ := m.Check(t, a); return len(mem) }
		}},
		{"pieces", func(t *Table) func(Access) int { m := new(Memo); return func(a Access) int { return m.all(t, a) } }},
	} {
		for _, size := range []uint64{MinPageSize, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", c.name, size), func(b *testing.B) { comparePages(b, size, c.check) })
		}
	}
}

// all checks an access and returns the number of its octets.
func (m *Memo) all(t *Table, a Access) (n int) {
	mem, _ := m.Check(t, a)
	for ; len(mem) != 0; mem = m.Next() {
		n += len(mem)
	}
	return n
}

func comparePages(b *testing.B, size uint64, check func(t *Table) func(Access) int) {
	const batch, segment = 700, 1440
	heap := make([]byte, 1024*size)
	s := newStage(b, Config{Heap: heap})
	few, many := 64*size, uint64(len(heap))
	kinds := []struct {
		name   string
		stag   STag
		length uint64
		best   float64
	}{
		{name: "direct", stag: s.register(heap, 0, LocalWrite|RemoteWrite), length: many},
		{name: "first", stag: s.mustPages([][]byte{heap[few/2 : few], heap[:few/2]}, size, 0, LocalWrite|RemoteWrite), length: few},
		{name: "second", stag: s.mustPages([][]byte{heap[many/2:], heap[:many/2]}, size, 0, LocalWrite|RemoteWrite), length: many},
	}
	do := check(s.Table)
	for b.Loop() {
		for i := range kinds {
			k := &kinds[i]
			a := Access{STag: k.stag, PD: s.pd, QP: 1, Right: RemoteWrite, Len: segment}
			began := time.Now()
			for range batch {
				if do(a) == 0 {
					b.Fatal("refused")
				}
				if a.TO += segment; a.TO+segment > k.length {
					a.TO = 0
				}
			}
			if took := float64(time.Since(began)) / batch; k.best == 0 || took < k.best {
				k.best = took
			}
		}
	}
	for _, k := range kinds {
		b.ReportMetric(k.best, k.name+"-ns")
		b.ReportMetric(k.best/kinds[0].best, k.name+"/direct")
	}
	b.ReportMetric(0, "ns/op")
}
