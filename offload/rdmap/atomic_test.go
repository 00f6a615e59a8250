package rdmap

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// adds returns a signalled Fetch and Add of the peer's word, whose old value comes to off
// octets behind the region's begin.
func (s *script) adds(id uint64, off int, n uint64) work.SendWR {
	return work.SendWR{ID: id, Op: work.WRFetchAdd, Flags: work.Signaled, SGL: []work.SGE{s.at(off, 8)}, RKey: peerSTag, RemoteAddr: 0x98, CompareAdd: n}
}

// added returns the Atomic Request that adds sends.
func added(msn uint32, n uint64) []byte {
	return atomicRequest(msn, 0, msn, peerSTag, 0x98, n, 0, 0, allBits)
}

func native(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

func oldValue(id uint64, op work.WCOp) work.Completion {
	return work.Completion{ID: id, Op: op, Length: 8}
}

// Each operation becomes the request of RFC 7306 §5.1. The Response places the old value
// in the byte order of this machine.
func TestAtomicsSent(t *testing.T) {
	for _, c := range []struct {
		op   work.WROp
		wire uint32
		want [4]uint64 // data, mask, compare, compare mask
		ends work.WCOp
	}{
		{work.WRFetchAdd, 0, [4]uint64{1, 0, 0, allBits}, work.WCFetchAdd},
		{work.WRMaskedFetchAdd, 0, [4]uint64{1, 3, 0, allBits}, work.WCFetchAdd},
		{work.WRCompareSwap, 2, [4]uint64{2, allBits, 1, allBits}, work.WCCompareSwap},
		{work.WRMaskedCompareSwap, 2, [4]uint64{2, 4, 1, 3}, work.WCCompareSwap},
		{work.WRSwap, 2, [4]uint64{2, allBits, 0, 0}, work.WCCompareSwap},
	} {
		s := open(t, withRFC7306)
		wr := work.SendWR{
			ID: 1, Op: c.op, Flags: work.Signaled, SGL: []work.SGE{s.at(3, 8)}, RKey: 0x300, RemoteAddr: 0x4000,
			CompareAdd: 1, Swap: 2, CompareAddMask: 3, SwapMask: 4,
		}
		if err := s.q.CheckSend(&wr); err != nil {
			t.Fatal(err)
		}
		s.posts(wr)
		s.sends(atomicRequest(1, c.wire, 1, 0x300, 0x4000, c.want[:]...))
		s.completes()
		s.gets(atomicResponse(1, 1, 0x1122334455667788))
		s.completes(oldValue(1, c.ends))
		s.untouched(s.mem, 3, native(0x1122334455667788))
		s.is(RTS)
	}
}

// Atomic operations and Reads share ORD, the numbers of queue 1, fences, and the order of
// completions (RFC 7306 §5.4, §7).
func TestAtomicsAmongReads(t *testing.T) {
	s := open(t, withRFC7306, withDepths(2, 2))
	s.posts(s.reads(1, 0, 1), s.adds(2, 8, 5), s.adds(3, 16, 6),
		work.SendWR{ID: 4, Op: work.WRSend, Flags: work.Signaled}, work.SendWR{ID: 5, Op: work.WRSend, Flags: work.Fence | work.Signaled})
	s.sends(s.request(1, 0, 1), added(2, 5))
	s.gets(s.answer(true, 0, []byte("a")))
	s.sends(added(3, 6), send(1, nil))
	s.completes(read(1, 1))
	s.gets(atomicResponse(1, 2, 77))
	s.sends()
	s.completes(oldValue(2, work.WCFetchAdd))
	s.gets(atomicResponse(2, 3, 78))
	s.sends(send(2, nil))
	s.completes(oldValue(3, work.WCFetchAdd), ok(4, work.WCSend), ok(5, work.WCSend))
	s.counts(Stats{FPDUsOut: 5, FPDUsIn: 3, ReadRequestsOut: 1, ReadResponsesIn: 1, ReadOctetsIn: 1, SendsOut: 2, AtomicsOut: 2, AtomicsDoneIn: 2, MostReadsOut: 2})
}

// A Response that does not belong to the oldest request changes no memory.
func TestWrongAtomicResponses(t *testing.T) {
	for name, c := range map[string]struct {
		fpdu func(s *script) []byte
		code Code
		ends work.Status // of the atomic operation, the first request
	}{
		"another identifier": {func(*script) []byte { return atomicResponse(1, 9, 1) }, OpStream, work.BadResponseErr},
		"MSN":                {func(*script) []byte { return atomicResponse(2, 1, 1) }, ddpCode(ddp.BadMSN), work.Flushed},
		"too short":          {func(*script) []byte { return untagged(wire.OpAtomicResponse, true, 0, 3, 1, 0, make([]byte, 11)) }, MarkerError, work.Flushed},
		"too long":           {func(*script) []byte { return untagged(wire.OpAtomicResponse, true, 0, 3, 1, 0, make([]byte, 13)) }, ddpCode(ddp.TooLong), work.Flushed},
		"more to come":       {func(*script) []byte { return untagged(wire.OpAtomicResponse, false, 0, 3, 1, 0, make([]byte, 12)) }, ddpCode(ddp.TooLong), work.Flushed},
		"another queue":      {func(*script) []byte { return untagged(wire.OpAtomicResponse, true, 0, 0, 1, 0, make([]byte, 12)) }, ddpCode(ddp.BadQueue), work.Flushed},
		"a Read Response":    {func(s *script) []byte { return s.answer(true, 8, make([]byte, 8)) }, OpUnexpected, work.BadResponseErr},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, withRFC7306)
			s.posts(s.adds(1, 8, 1), s.reads(2, 0, 1))
			s.st.out = nil
			f := c.fpdu(s)
			s.gets(f)
			s.completes(failed(1, work.WCFetchAdd, c.ends), flushed(2, work.WCRead))
			s.untouched(s.mem)
			if c.code.Layer == LayerLLP {
				s.hasTerminated(c.code)
			} else {
				s.hasTerminated(c.code, f)
			}
		})
	}
	t.Run("nothing asked", func(t *testing.T) {
		s := open(t, withRFC7306)
		f := atomicResponse(1, 1, 1)
		s.gets(f)
		s.hasTerminated(ddpCode(ddp.NoBuffer), f)
	})
	t.Run("a Read asked", func(t *testing.T) {
		s := open(t, withRFC7306)
		s.posts(s.reads(1, 0, 1))
		s.st.out = nil
		f := atomicResponse(1, 1, 1)
		s.gets(f)
		s.completes(failed(1, work.WCRead, work.BadResponseErr))
		s.hasTerminated(OpStream, f)
	})
}

// The memory for the old value is revoked before the Response comes.
func TestAtomicSinkRevoked(t *testing.T) {
	s := open(t, withRFC7306)
	sink, mem := s.region(8, s.pd, tpt.LocalWrite)
	wr := s.adds(1, 0, 1)
	wr.SGL[0] = work.SGE{LKey: sink, Length: 8}
	s.posts(wr)
	s.st.out = nil
	if err := s.table.Invalidate(sink, s.pd); err != nil {
		t.Fatal(err)
	}
	s.gets(atomicResponse(1, 1, 1))
	s.completes(failed(1, work.WCFetchAdd, work.LocalProtErr))
	s.hasTerminated(Code{1, 0, 0})
	s.untouched(mem)
}

// A Terminate that quotes an Atomic Request gives the request its status, and flushes the
// others.
func TestAtomicRefusedByPeer(t *testing.T) {
	for code, status := range map[Code]work.Status{
		ProtAccess: work.RemoteAccessErr, OpStream: work.RemoteOperationErr, {1, 2, 2}: work.Flushed,
	} {
		s := open(t, withRFC7306)
		s.posts(s.adds(1, 0, 1), s.adds(2, 8, 2), s.adds(3, 16, 3))
		s.st.out = nil
		s.gets(atomicResponse(1, 1, 0), terminateFPDU(code, added(3, 3)))
		s.completes(oldValue(1, work.WCFetchAdd), flushed(2, work.WCFetchAdd), failed(3, work.WCFetchAdd, status))
	}
}

// CheckSend refuses malformed atomic operations.
func TestAtomicsChecked(t *testing.T) {
	s := open(t, withRFC7306)
	for _, c := range []struct {
		change func(*work.SendWR)
		want   string
	}{
		{func(wr *work.SendWR) { wr.SGL = nil }, "needs one element of 8 octets"},
		{func(wr *work.SendWR) { wr.SGL[0].Length = 7 }, "needs one element of 8 octets"},
		{func(wr *work.SendWR) { wr.SGL = append(wr.SGL, s.at(0, 0)) }, "takes one"},
		{func(wr *work.SendWR) { wr.SGL, wr.Inline = nil, make([]byte, 8) }, "leave Inline out"},
		{func(wr *work.SendWR) { wr.Flags = work.Solicited }, "leave Solicited out"},
	} {
		wr := s.adds(1, 0, 1)
		c.change(&wr)
		if err := s.q.CheckSend(&wr); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", wr, err, c.want)
		}
	}
	small := open(t, withRFC7306, withInline(0), func(s *setup) { s.MaxSGE = 1 })
	wr := small.adds(1, 0, 1)
	if err := small.q.CheckSend(&wr); err != nil {
		t.Error(err)
	}
	wr.Op = work.WRMaskedFetchAdd
	if err := small.q.CheckSend(&wr); err == nil || !strings.Contains(err.Error(), "MaxSGE 3") {
		t.Error(err)
	}
	wide := open(t, withRFC7306, withInline(400))
	if err := wide.q.CheckSend(&work.SendWR{Op: work.WRWriteImm, Inline: make([]byte, 256)}); err == nil || !strings.Contains(err.Error(), "at most 255") {
		t.Error(err)
	}
}
