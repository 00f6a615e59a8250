package tpt

import (
	"flag"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// half is how many octets of the region each of two engines writes.
const half = 4096

// placer is an engine that writes to the region whenever Check allows it.
type placer struct {
	*stage
	join   func(*Table) *Reader
	stag   *atomic.Uint32 // the present STag
	at     uint64         // offset of its half of the region
	placed atomic.Uint64
}

func (p *placer) run(stop *atomic.Bool, mark byte) {
	r := p.join(p.Table)
	defer r.Close()
	var m Memo
	for !stop.Load() {
		r.Enter()
		a := Access{STag: STag(p.stag.Load()), PD: p.pd, Right: RemoteWrite, TO: p.at, Len: half}
		if mem, f := m.Check(p.Table, a); f == OK {
			for ; len(mem) != 0; mem = m.Next() {
				for i := range mem {
					mem[i] = mark
				}
			}
			p.placed.Add(1)
		}
		r.Leave()
		runtime.Gosched()
	}
}

// revocations are the ways to invalidate an STag and get the memory back.
var revocations = map[string]func(s *stage, stag STag) error{
	"invalidate": func(s *stage, stag STag) error { return s.Invalidate(stag, s.pd) },
	"deregister": func(s *stage, stag STag) error { return s.Deregister(stag, s.pd) },
	"engine's": func(s *stage, stag STag) error {
		k, f := s.StartDeregister(stag, s.pd, 1)
		for f == OK && !s.Passed(k) {
			runtime.Gosched()
		}
		return nil
	},
	"peer's": func(s *stage, stag STag) error {
		k, f := s.StartInvalidate(stag, s.pd, 1)
		for f == OK && !s.Passed(k) {
			runtime.Gosched()
		}
		return nil
	},
}

// TestNothingIsPlacedAfter lets two engines write through a Memo each while a third
// goroutine revokes the STag. After that this goroutine writes the memory without
// synchronization, and must find it unchanged. The race detector checks the same.
func TestNothingIsPlacedAfter(t *testing.T) {
	for name, revoke := range revocations {
		t.Run(name, func(t *testing.T) {
			everywhere(t, 64, func(t *testing.T, c Config) {
				s := newStage(t, c)
				for _, mem := range [][]byte{s.heap[:2*half], make([]byte, 2*half)} {
					revokeUnderFire(t, s, mem, Region{Memory: mem}, revoke)
					revokeUnderFire(t, s, mem, Region{Pages: [][]byte{mem[half+100:], mem[:half+100]}, PageSize: pageSize}, revoke)
				}
			})
		})
	}
}

var rounds = flag.Int("rounds", 0, "how often each way to revoke an STag runs under fire, for each of the eight kinds of table, memory and region; 0: 100, or 3,000 with STAG_LONG=1")

func revokeRounds() int {
	switch {
	case *rounds != 0:
		return *rounds
	case os.Getenv("STAG_LONG") == "1":
		return 3000
	}
	return 100
}

// revokeUnderFire registers r again and again. mem are the octets of r.
func revokeUnderFire(t *testing.T, s *stage, mem []byte, r Region, revoke func(*stage, STag) error) {
	rounds := revokeRounds()
	var stag atomic.Uint32
	var stop atomic.Bool
	var running sync.WaitGroup
	engines := []*placer{{stage: s, stag: &stag, join: (*Table).Join}, {stage: s, stag: &stag, at: half, join: (*Table).JoinShared}}
	for i, p := range engines {
		running.Go(func() { p.run(&stop, byte(i+1)) })
	}
	defer running.Wait()
	defer stop.Store(true)
	for round := range rounds {
		r.PD, r.Rights = s.pd, LocalWrite|RemoteWrite|RemoteInvalidate
		now, err := s.Register(r)
		if err != nil {
			t.Fatal(err)
		}
		stag.Store(uint32(now))
		for _, p := range engines { // each engine has written at least once
			for before := p.placed.Load(); p.placed.Load() == before; {
				runtime.Gosched()
			}
		}
		if err := revoke(s, now); err != nil {
			t.Fatal(err)
		}
		for i := range mem {
			mem[i] = 0xee
		}
		runtime.Gosched()
		for i := range mem {
			if mem[i] != 0xee {
				t.Fatalf("round %d: octet %d is %#x after the STag was revoked", round, i, mem[i])
			}
		}
		if _, ok := s.Entry(now.Index()); ok {
			if err := s.Deregister(now, s.pd); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNoTornEntry registers two different regions with one entry in turn, while other
// goroutines read the entry without being Readers, as tools do. Each use raises the
// generation by four, so the generation says which region the entry must show.
func TestNoTornEntry(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		if c.Memory == nil {
			c.Entries = 2
		}
		s := newStage(t, c)
		other := s.domain()
		regions := [2]Region{
			{PD: s.pd, Memory: s.heap[64:128], Start: 0, Rights: LocalWrite},
			{PD: other, Memory: make([]byte, 8192), Start: 1 << 40, Rights: RemoteRead},
		}
		// All other entries are taken, so that one entry is used again and again.
		for s.Stats().Used < s.Stats().Entries-1 {
			s.register(s.heap[:1], 0, 0)
		}
		probe := s.register(s.heap[:1], 0, 0)
		info, _ := s.Entry(probe.Index())
		even := int(info.Generation/4+1) & 1 // selects regions[0]
		if err := s.Deregister(probe, s.pd); err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		var looking sync.WaitGroup
		var hits [2]atomic.Uint64
		for range 2 {
			looking.Go(func() { lookForTears(t, s, probe.Index(), regions, even, &stop, &hits) })
		}
		for round := range 200000 {
			r := regions[round&1]
			stag, err := s.Register(r)
			if err != nil {
				t.Error(err)
				break
			}
			hit := &hits[round&1]
			for before := hit.Load(); round%1024 < 2 && hit.Load() == before && !t.Failed(); { // now and then the readers must find the entry
				runtime.Gosched()
			}
			if err := s.Deregister(stag, r.PD); err != nil {
				t.Error(err)
				break
			}
		}
		stop.Store(true)
		looking.Wait()
	})
}

func lookForTears(t *testing.T, s *stage, index uint32, regions [2]Region, even int, stop *atomic.Bool, hits *[2]atomic.Uint64) {
	for looks := 0; !stop.Load(); looks++ {
		if looks&255 == 0 {
			runtime.Gosched() // there may be fewer processors than goroutines
		}
		info, ok := s.Entry(index)
		if !ok {
			continue
		}
		which := int(info.Generation/4)&1 ^ even
		r := regions[which]
		if info.PD != r.PD || info.Start != r.Start || info.Length != uint64(len(r.Memory)) || info.Rights != r.Rights|LocalRead {
			t.Errorf("torn: %+v, want %+v", info, r)
			return
		}
		// Each of these accesses is right for one of the regions.
		for i, a := range regions {
			right := LocalWrite
			if i == 1 {
				right = RemoteRead
			}
			mem, f := s.Check(Access{STag: info.STag, PD: a.PD, Right: right, TO: a.Start, Len: uint32(len(a.Memory))})
			if now, _ := s.Entry(index); now.Generation != info.Generation {
				break // the entry is another one now, and may have the same key by chance
			}
			if f == OK && (i != which || &mem[0] != &r.Memory[0] || len(mem) != len(r.Memory)) {
				t.Errorf("%v allowed an access to region %d, but is region %d", info.STag, i, which)
				return
			}
			if f == OK {
				hits[which].Add(1)
			}
		}
	}
}

// TestWritersAgainstEachOther lets many goroutines revoke the same entries in every
// way. Each entry is freed once, and the free list stays correct.
func TestWritersAgainstEachOther(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		s := newStage(t, c)
		r := s.Join()
		for range 5000 {
			var stags []STag
			for range 63 {
				stags = append(stags, s.register(s.heap[:8], 0, RemoteRead|RemoteInvalidate))
			}
			var gone [63]atomic.Uint32
			var writing sync.WaitGroup
			for g := range 4 {
				writing.Go(func() {
					for i := range stags {
						at := (i*5 + g*16) % len(stags)
						if g&1 == 0 {
							_, _ = s.StartInvalidate(stags[at], s.pd, 0)
							_ = s.Invalidate(stags[at], s.pd)
						}
						ok := false
						if g == 1 {
							_, f := s.StartDeregister(stags[at], s.pd, 0)
							ok = f == OK
						} else {
							ok = s.Deregister(stags[at], s.pd) == nil
						}
						if ok {
							gone[at].Add(1)
						}
					}
				})
			}
			for range 20 { // an engine runs meanwhile
				r.Enter()
				runtime.Gosched()
				r.Leave()
			}
			writing.Wait()
			for i := range gone {
				if n := gone[i].Load(); n != 1 {
					t.Fatalf("%v was given up %d times", stags[i], n)
				}
			}
		}
		if used := s.Stats().Used; used != 0 {
			t.Errorf("%d entries in use", used)
		}
		free := map[uint32]bool{}
		for range 63 {
			index, ok := s.slots.take()
			if !ok || index == 0 || free[index] {
				t.Fatalf("entry %d is free twice, or not at all", index)
			}
			free[index] = true
		}
	})
}
