package tpt

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// guess is a kind of STag that a peer may guess. All are refused with the same code.
type guess struct {
	name  string
	stags []STag
	times [4096]uint64 // number of Checks that took so many ns; the last has all longer ones
}

func (g *guess) median() (ns int) {
	var all, below uint64
	for _, n := range g.times {
		all += n
	}
	for ns = range g.times {
		if below += g.times[ns]; 2*below >= all {
			break
		}
	}
	return ns
}

// beats compares two guesses by the Mann-Whitney rank test with ties. auc is the
// probability that a Check of g takes longer than one of o: 0.5 means that the two are the
// same. z is the test's standard score: beyond ±3.3 the difference is not by chance (p < 0.001).
func (g *guess) beats(o *guess) (auc, z float64) {
	var u, mine, theirs, ties float64
	for ns := range g.times {
		a, b := float64(g.times[ns]), float64(o.times[ns])
		u += a * (theirs + b/2)
		mine, theirs = mine+a, theirs+b
		ties += (a+b)*(a+b)*(a+b) - (a + b)
	}
	n := mine + theirs
	sigma := math.Sqrt(mine * theirs / 12 * (n + 1 - ties/(n*(n-1))))
	return u / (mine * theirs), (u - mine*theirs/2) / sigma
}

// BenchmarkGuess measures how long the table takes to refuse each kind of wrong STag, in
// random order. The metrics compare each kind with a wrong key of a valid entry: medians in
// ns, the probability that the kind takes longer, and the score z of the rank test. "few"
// has 16 STags of each kind, so that all entries are in the processor's cache. "many" has
// 100,000 of each kind, of a table of 64 MiB, and not index 0, which is one entry only.
func BenchmarkGuess(b *testing.B) {
	for _, c := range []struct {
		name  string
		each  int
		size  uint32
		kinds int
	}{{"few", 16, 1 << 16, 5}, {"many", 100_000, 1 << 20, 4}} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, Config{Entries: c.size})
			kinds := s.guesses(c.each)[:c.kinds]
			for b.Loop() {
				g := kinds[rand.N(len(kinds))]
				a := Access{STag: g.stags[rand.N(len(g.stags))], PD: s.pd, QP: 1, Right: RemoteWrite, Len: 8}
				before := time.Now()
				_, f := s.Check(a)
				ns := time.Since(before)
				if f != BadSTag {
					b.Fatal(f)
				}
				g.times[min(int(ns), len(g.times)-1)]++
			}
			b.ReportMetric(float64(kinds[0].median()), "ns-wrong-key")
			for _, g := range kinds[1:] {
				auc, z := g.beats(kinds[0])
				unit := strings.ReplaceAll(g.name, " ", "-")
				b.ReportMetric(float64(g.median()), "ns-"+unit)
				b.ReportMetric(auc, "longer-"+unit)
				b.ReportMetric(z, "z-"+unit)
			}
		})
	}
}

// guesses returns n STags of each kind. Every entry has been read before.
func (s *stage) guesses(n int) []*guess {
	s.t.Helper()
	wrongKey, invalid := &guess{name: "wrong key"}, &guess{name: "invalid"}
	free, beyond, zero := &guess{name: "free index"}, &guess{name: "index beyond"}, &guess{name: "index 0"}
	for range n {
		stag := s.register(s.heap[:64], 0, LocalWrite|RemoteWrite)
		wrongKey.stags = append(wrongKey.stags, NewSTag(stag.Index(), stag.Key()+uint8(1+rand.N(255))))
		stag = s.register(s.heap[:64], 0, LocalWrite|RemoteWrite)
		if err := s.Invalidate(stag, s.pd); err != nil {
			s.t.Fatal(err)
		}
		invalid.stags = append(invalid.stags, stag)
		beyond.stags = append(beyond.stags, NewSTag(uint32(len(s.entries)+rand.N(1<<24-len(s.entries))), uint8(rand.Uint32())))
		zero.stags = append(zero.stags, NewSTag(0, uint8(rand.Uint32())))
	}
	for len(free.stags) < n {
		if index := 1 + rand.N(uint32(len(s.entries)-1)); s.entries[index].load().kind() == KindFree {
			free.stags = append(free.stags, NewSTag(index, uint8(rand.Uint32())))
		}
	}
	return []*guess{wrongKey, invalid, free, beyond, zero}
}
