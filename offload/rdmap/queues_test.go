package rdmap

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// A queue is full when its depth is used. It has room again when the oldest request has
// completed silently, or when its completion has been polled.
func TestQueueFull(t *testing.T) {
	s := open(t, withQueues(4), withCQ(64))
	s.st.room = 0
	for id := range uint64(4) {
		s.posts(work.SendWR{ID: id, Op: work.WRSend})
		s.receives(work.RecvWR{ID: id})
	}
	if s.q.PostSend(work.SendWR{}) != 0 || s.q.PostRecv(work.RecvWR{}) != 0 {
		t.Fatal("a fifth was taken")
	}
	s.st.room = 1
	s.turn()
	s.gets(send(1, nil))
	if s.q.PostSend(work.SendWR{ID: 4, Op: work.WRSend, Flags: work.Signaled}) == 0 {
		t.Fatal("no room again")
	}
	if s.q.PostRecv(work.RecvWR{ID: 4}) != 0 {
		t.Fatal("the place of a completion that nobody has polled was given out")
	}
	s.completes(received(0, 0))
	if s.q.PostRecv(work.RecvWR{ID: 4}) == 0 {
		t.Fatal("no room again")
	}
}

// If a list is too long, its first requests are taken. Silent requests leave their
// places at once, both before and behind a request with a completion.
func TestListIsPostedAtOnce(t *testing.T) {
	s := open(t, withQueues(4), withCQ(64))
	list := func(id uint64) (wrs []work.SendWR) {
		for i := range uint64(6) {
			wrs = append(wrs, work.SendWR{ID: id + i, Op: work.WRSend})
		}
		wrs[1].Flags = work.Signaled
		return wrs
	}
	if n := s.q.PostSend(list(0)...); n != 4 {
		t.Fatalf("%d of 6 were taken where there is room for 4", n)
	}
	s.turn()
	if n := s.q.PostSend(list(10)...); n != 3 {
		t.Fatalf("%d of 6 were taken while one of 4 completions waits to be polled", n)
	}
	s.turn()
	s.completes(ok(1, work.WCSend), ok(11, work.WCSend))
	if n := s.q.PostSend(list(20)...); n != 4 {
		t.Fatalf("%d of 6 were taken where all places are free again", n)
	}
}

// Positions wrap around 2^32, as MSNs do (RFC 5041 §4.3).
func TestWrap(t *testing.T) {
	s := open(t, withQueues(4))
	const start = 1<<32 - 2
	q := s.q
	q.sq.Start(start)
	q.rq.Start(start)
	q.msn[wire.QueueSend], q.msn[wire.QueueReadRequest] = start, start
	for i := range uint32(6) {
		s.posts(work.SendWR{ID: uint64(i), Op: work.WRSend, Flags: work.Signaled}, s.reads(100+uint64(i), 0, 1))
		s.receives(work.RecvWR{ID: uint64(i)})
		s.sends(send(start+i, nil), s.request(start+i, 0, 1))
		s.gets(send(1+i, nil), s.answer(true, 0, pattern(0, 1)))
		s.completes(ok(uint64(i), work.WCSend), received(uint64(i), 0), read(100+uint64(i), 1))
	}
}

// One goroutine posts sends, one posts receives, one steps, one polls: everything
// completes once and in order.
func TestPostersAndStepper(t *testing.T) {
	const posts = 2000
	s := open(t, withQueues(8), withCQ(64), withInline(8))
	s.stays = true // posters do not wait
	s.st.out = make([][]byte, 0, posts)
	var posted atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 8)
		for id := range uint64(posts) {
			be.PutUint64(b, id)
			for s.q.PostSend(work.SendWR{ID: id, Op: work.WRSend, Flags: work.Signaled, Inline: b}) == 0 {
				runtime.Gosched()
			}
		}
	})
	wg.Go(func() {
		for id := range uint64(posts) {
			for s.q.PostRecv(work.RecvWR{ID: id, SGL: []work.SGE{s.at(0, 4), s.at(int(id%100)*8, 8)}}) == 0 {
				runtime.Gosched()
			}
		}
	})
	go func() { wg.Wait(); posted.Store(true) }()
	var sent, got uint64
	var cs [8]work.Completion
	for arrived := uint32(0); sent < posts || got < posts; {
		s.st.room = 4 // a step ends, however fast the posters are
		if !s.q.rq.Empty() {
			arrived++
			s.gets(send(arrived, []byte("0123456789")))
		}
		s.turn()
		for _, c := range cs[:s.cq.Poll(cs[:])] {
			next := &sent
			if c.Op == work.WCRecv {
				next = &got
			}
			if c.ID != *next || c.Status != work.Success {
				t.Fatalf("completion %+v, want %d", c, *next)
			}
			*next++
		}
		runtime.Gosched()
	}
	for id, f := range s.st.out {
		if want := send(uint32(id)+1, be.AppendUint64(nil, uint64(id))); !bytes.Equal(f, want) {
			t.Fatalf("FPDU %d: %s", id, describe(f))
		}
	}
	if !posted.Load() {
		wg.Wait()
	}
}

// Requests are posted while the QP dies: each completes exactly once, and in order.
func TestPostsWhileDying(t *testing.T) {
	for round := range 300 {
		s := open(t, withQueues(64), withCQ(256))
		s.st.room = 0
		const each = 40
		var wg sync.WaitGroup
		after := func() {
			if s.q.Dead() {
				s.q.FlushDead()
			}
		}
		wg.Go(func() {
			for id := range uint64(each) {
				s.q.PostSend(work.SendWR{ID: id, Op: work.WRSend})
				after()
			}
		})
		wg.Go(func() {
			for id := range uint64(each) {
				s.q.PostRecv(work.RecvWR{ID: id})
				after()
			}
		})
		wg.Go(func() {
			for range round % 20 {
				runtime.Gosched()
			}
			s.q.Transmit(s.now, s.st)
			s.q.Fault(s.now, stream.ErrReset)
		})
		wg.Wait()
		var next [2]uint64
		got := make([]work.Completion, 256)
		for _, c := range got[:s.cq.Poll(got)] {
			kind := 0
			if c.Op == work.WCRecv {
				kind = 1
			}
			if c.Status != work.Flushed || c.ID != next[kind] {
				t.Fatalf("round %d: completion %+v, want the flush of %d", round, c, next[kind])
			}
			next[kind]++
		}
		if next != [2]uint64{each, each} {
			t.Fatalf("round %d: %v completions of %d each", round, next, each)
		}
	}
}

// Steps allocate nothing once every list has its size.
func TestNoAllocation(t *testing.T) {
	for name, step := range traffic {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			run := step(s, 1000)
			run()
			if n := testing.AllocsPerRun(100, run); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// traffic has one step of each common kind. n is the payload in octets.
var traffic = map[string]func(s *script, n int) func(){
	"receive Write": func(s *script, n int) func() {
		f := write(uint32(s.all), regionStart, pattern(0, n))
		return s.arrival(f)
	},
	"receive Send": func(s *script, n int) func() {
		f := send(1, pattern(0, n))
		msn := uint32(0)
		got := s.arrival(f)
		return func() {
			s.q.PostRecv(work.RecvWR{SGL: []work.SGE{s.at(0, n)}})
			msn++
			renumber(f, msn)
			got()
		}
	},
	"serve Read": func(s *script, n int) func() {
		f := readRequest(1, 1, 0, uint32(n), uint32(s.all), regionStart)
		msn := uint32(0)
		got := s.arrival(f)
		return func() {
			msn++
			renumber(f, msn)
			got()
		}
	},
	"Write": func(s *script, n int) func() {
		return s.departure(work.SendWR{Op: work.WRWrite, Flags: work.Signaled, SGL: []work.SGE{s.at(0, n)}})
	},
	"Send": func(s *script, n int) func() {
		return s.departure(work.SendWR{Op: work.WRSend, Flags: work.Signaled, SGL: []work.SGE{s.at(0, n/2), s.at(0, n-n/2)}})
	},
	"atomic operation": func(s *script, _ int) func() {
		s.q.agree.RFC7306, s.q.atomics = true, newAtomics(s.q.agree)
		f := atomicResponse(1, 1, 1)
		msn := uint32(0)
		post, got := s.departure(s.adds(1, 0, 1)), s.arrival(f)
		return func() {
			post()
			msn++
			be.PutUint32(f[2+18:], msn)
			renumber(f, msn)
			got()
		}
	},
	"serve atomic operation": func(s *script, _ int) func() {
		s.q.agree.RFC7306, s.q.atomics = true, newAtomics(s.q.agree)
		stag, _ := s.target(1, atomicRights)
		f := atomicRequest(1, 0, 1, stag, 0, 1, 0, 0, 0)
		msn := uint32(0)
		got := s.arrival(f)
		return func() {
			msn++
			renumber(f, msn)
			got()
		}
	},
	"Read": func(s *script, n int) func() {
		f := response(uint32(s.all), regionStart, pattern(0, n))
		post, got := s.departure(work.SendWR{Op: work.WRRead, Flags: work.Signaled, SGL: []work.SGE{s.at(0, n)}}), s.arrival(f)
		return func() { post(); got() }
	},
}

// renumber gives an untagged FPDU another MSN.
func renumber(f []byte, msn uint32) {
	be.PutUint32(f[2+10:], msn)
	wire.PutCRC32C(f[len(f)-4:], wire.CRC32C(f[:len(f)-4]))
}

// arrival returns a step in which the FPDU f arrives. The step's output is dropped.
func (s *script) arrival(f []byte) func() {
	views, memory, cs := [][]byte{f}, make([]byte, 2048), make([]work.Completion, 4)
	st := &fixed{pipe: s.st, memory: memory}
	return func() {
		views[0] = f
		s.st.in = views
		s.q.Receive(s.now, st)
		s.q.Transmit(s.now, st)
		if s.cq.Poll(cs); s.q.State() != RTS {
			s.Fatalf("%+v", s.q.Cause())
		}
	}
}

// departure returns a step in which wr is posted and leaves.
func (s *script) departure(wr ...work.SendWR) func() {
	st, cs := &fixed{pipe: s.st, memory: make([]byte, 2048)}, make([]work.Completion, 4)
	return func() {
		if s.q.PostSend(wr...) != len(wr) {
			s.Fatal("the send queue is full")
		}
		s.q.Transmit(s.now, st)
		if s.cq.Poll(cs); s.q.State() != RTS {
			s.Fatalf("%+v", s.q.Cause())
		}
	}
}

// fixed is a pipe whose Emits all get the same memory.
type fixed struct {
	*pipe
	memory []byte
}

func (f *fixed) Emit(n int) []byte { return f.memory[:n] }

// BenchmarkMachine measures the cost of the machine alone, for each FPDU of an EMSS of
// 1460 octets, CRC included: with memory of the region heap, and with other memory,
// which may fault.
func BenchmarkMachine(b *testing.B) {
	for where, memory := range map[string]change{"heap": inHeap, "other": func(*setup) {}} {
		for _, name := range []string{"receive Write", "receive Send", "serve Read", "Write", "Send", "Read"} {
			b.Run(where+"/"+name, func(b *testing.B) {
				const n = 1436 // what fits a Send's segment
				s := open(b, memory)
				run := traffic[name](s, n)
				b.SetBytes(n)
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}
