package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// window allocates a window of type 1.
func (s *script) window() tpt.STag {
	s.Helper()
	stag, err := s.table.AllocWindow(s.pd, tpt.Type1)
	if err != nil {
		s.Fatal(err)
	}
	return stag
}

func bind(id uint64, stag tpt.STag, access work.Access, sgl ...work.SGE) work.SendWR {
	return work.SendWR{ID: id, Op: work.WRBindMW, Flags: work.Signaled, RKey: stag, Access: access, SGL: sgl}
}

// A bind sends nothing. The peer may use the window when a Send behind the bind arrives,
// and no longer when the window is unbound.
func TestBind(t *testing.T) {
	s := open(t)
	region, mem := s.region(64, s.pd, tpt.LocalWrite|tpt.Bind)
	w := s.window()
	s.posts(bind(1, w, work.RemoteWrite, work.SGE{LKey: region, Addr: 3, Length: 5}), work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCBindMW), ok(2, work.WCSend))
	s.gets(tagged(0, true, uint32(w), 3, []byte("hello")))
	if string(mem[3:8]) != "hello" {
		t.Errorf("placed %q", mem[3:8])
	}
	zero := w + 1
	s.posts(bind(3, zero, work.RemoteWrite|work.ZeroBased, work.SGE{LKey: region, Addr: 8, Length: 5}))
	s.pass(settleAgain)
	s.gets(tagged(0, true, uint32(zero), 0, []byte("there")))
	if string(mem[3:13]) != "hellothere" {
		t.Errorf("placed %q", mem[3:13])
	}
	s.posts(bind(4, w+2, 0))
	s.pass(settleAgain)
	s.completes(ok(3, work.WCBindMW), ok(4, work.WCBindMW))
	s.gets(tagged(0, true, uint32(zero), 0, []byte("x")))
	s.is(Terminate)
	if string(mem[3:13]) != "hellothere" {
		t.Errorf("placed %q after the unbind", mem[3:13])
	}
}

// The table's refusal ends the connection, also for requests that were posted unchecked.
func TestBindRefused(t *testing.T) {
	s := open(t)
	region, _ := s.region(64, s.pd, tpt.LocalWrite|tpt.Bind)
	good := work.SGE{LKey: region, Length: 5}
	for name, c := range map[string]struct {
		wr  work.SendWR
		why tpt.Fault
	}{
		"bounds":       {bind(1, s.window(), work.RemoteRead, work.SGE{LKey: region, Addr: 60, Length: 5}), tpt.OutOfBounds},
		"region":       {bind(1, s.window(), work.RemoteRead, work.SGE{LKey: s.all, Addr: regionStart, Length: 5}), tpt.NoRight},
		"local right":  {bind(1, s.window(), work.LocalWrite, good), tpt.NoRight},
		"unknown flag": {bind(1, s.window(), 1<<20, good), tpt.NoRight},
		"one touch":    {bind(1, s.window(), work.RemoteRead|work.OneTouch, good), tpt.NoRight},
		"no window":    {bind(1, region, 0, good), tpt.BadSTag},
	} {
		t.Run(name, func(t *testing.T) {
			first := s
			s := open(t, func(set *setup) { set.beside = first })
			s.q.cfg.PD = first.pd
			s.posts(c.wr)
			s.sends(terminateFPDU(LocalCatastrophic))
			s.completes(failed(1, work.WCBindMW, work.TableErr))
			if err := s.q.Cause().Err; err != refusedBy[c.why] {
				t.Error(err)
			}
		})
	}
}

// BenchmarkBind binds and unbinds a window through the send queue, 64 requests in a post
// and a step.
func BenchmarkBind(b *testing.B) {
	s := open(b, withQueues(64))
	region, _ := s.region(64, s.pd, tpt.LocalWrite|tpt.Bind)
	w, r, at := s.window(), s.table.Join(), 0
	var wrs [64]work.SendWR
	list, done := []work.SGE{{LKey: region, Length: 8}}, make([]work.Completion, 64)
	b.ReportAllocs()
	for b.Loop() {
		wr := &wrs[at]
		w = tpt.NewSTag(w.Index(), w.Key()+1)
		*wr = work.SendWR{Op: work.WRBindMW, RKey: w, Access: work.RemoteWrite, SGL: list[:at&1]}
		if at++; at < len(wrs) {
			continue
		}
		wr.Flags, at = work.Signaled, 0
		if s.q.PostSend(wrs[:]...) != len(wrs) {
			b.Fatal("the queue is full")
		}
		for n := 0; n == 0; n = s.cq.Poll(done) {
			r.Enter()
			s.q.Transmit(s.now, s.st)
			r.Leave()
		}
	}
}
