package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// counts checks for exactly these counters.
func (s *script) counts(want Stats) {
	s.Helper()
	if got := s.q.Stats(); got != want {
		s.Fatalf("counters\n got %+v\nwant %+v", got, want)
	}
}

// TestStats: each segment counts, a message counts with its last segment, and octets
// count without headers.
func TestStats(t *testing.T) {
	s := open(t, withEMSS(100)) // 64 octets in a Write's segment, 60 in a Send's at most
	s.counts(Stats{})
	s.posts(work.SendWR{Op: work.WRWrite, SGL: []work.SGE{s.at(0, 150)}, RKey: peerSTag})
	if len(s.st.out) != 2 {
		t.Fatalf("%d FPDUs", len(s.st.out))
	}
	want := Stats{FPDUsOut: 2, WritesOut: 1, WriteOctetsOut: 150}
	s.counts(want)
	s.posts(work.SendWR{Op: work.WRSend, SGL: []work.SGE{s.at(0, 10)}}, work.SendWR{Op: work.WRSendInvalidate, Flags: work.Solicited, Invalidate: 5}, work.SendWR{Op: work.WRSendInvalidate, Invalidate: 5})
	want.FPDUsOut, want.SendsOut, want.SendOctetsOut, want.InvalidatesOut = 5, 3, 10, 2
	s.counts(want)

	s.gets(tagged(wire.OpWrite, false, uint32(s.all), regionStart, []byte("abc")))
	want.FPDUsIn, want.WriteOctetsIn = 1, 3
	s.counts(want)
	s.gets(tagged(wire.OpWrite, true, uint32(s.all), regionStart, []byte("de")))
	want.FPDUsIn, want.WritesIn, want.WriteOctetsIn = 2, 1, 5
	s.counts(want)
	s.receives(work.RecvWR{SGL: []work.SGE{s.at(0, 10)}}, work.RecvWR{}, work.RecvWR{})
	spare, _ := s.region(1, s.pd, every)
	s.gets(send(1, []byte("1234")), untagged(wire.OpSendSE, true, 0, 0, 2, 0, nil), untagged(wire.OpSendInvalidate, true, uint32(spare), 0, 3, 0, nil))
	want.FPDUsIn, want.SendsIn, want.SendOctetsIn, want.InvalidatesIn = 5, 3, 4, 1
	s.counts(want)
}

// TestStatsOfReads: Reads that were asked for, Reads that were answered, and the most
// at a time.
func TestStatsOfReads(t *testing.T) {
	s := open(t)
	s.posts(s.reads(1, 0, 4), s.reads(2, 10, 4), s.reads(3, 20, 0))
	want := Stats{FPDUsOut: 3, ReadRequestsOut: 3, MostReadsOut: 3}
	s.counts(want)
	s.gets(s.answer(false, 0, []byte("ab")), s.answer(true, 2, []byte("cd")), s.answer(true, 10, []byte("efgh")), s.answer(true, 0, nil))
	want.FPDUsIn, want.ReadResponsesIn, want.ReadOctetsIn = 4, 3, 8
	s.counts(want)
	s.posts(s.reads(4, 0, 1)) // fewer at a time than before
	want.FPDUsOut, want.ReadRequestsOut = 4, 4
	s.counts(want)

	s.gets(readRequest(1, 0x77, 0, 7, uint32(s.all), regionStart))
	want.FPDUsIn, want.ReadRequestsIn, want.MostReadsIn = 5, 1, 1
	want.FPDUsOut, want.ReadResponsesOut, want.ReadOctetsOut = 5, 1, 7
	s.counts(want)
}

// TestStatsOfRefusals: a refused message does not count, and our Terminate counts as a
// segment. Earlier counts stay.
func TestStatsOfRefusals(t *testing.T) {
	s := open(t)
	s.gets(write(uint32(s.all), regionStart, []byte("ok")), write(0xbad00, 0, []byte("not ok")), write(uint32(s.all), regionStart, []byte("too late")))
	want := Stats{FPDUsIn: 1, WritesIn: 1, WriteOctetsIn: 2, FPDUsOut: 1}
	s.counts(want)
	s.is(Terminate)
	s.finishes()
	if !s.q.Dead() {
		t.Fatal("not dead")
	}
	s.counts(want)

	s = open(t)
	s.gets(terminateFPDU(OpVersion))
	s.counts(Stats{FPDUsIn: 1})
}

// TestStatsOfReadiness: the ready-to-receive message of an initiator counts as a
// message of its kind.
func TestStatsOfReadiness(t *testing.T) {
	s := open(t, withRTR(mpa.RTRRead))
	s.turn()
	if len(s.st.out) != 1 {
		t.Fatalf("%d FPDUs", len(s.st.out))
	}
	if got := s.q.Stats(); got.FPDUsOut != 1 || got.WritesOut+got.SendsOut+got.ReadRequestsOut != 1 {
		t.Errorf("%+v", got)
	}
}
