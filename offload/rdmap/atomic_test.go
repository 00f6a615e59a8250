package rdmap

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// target registers n words with the right to atomic operations. Word i has the value i.
func (s *script) target(n int, rights tpt.Rights) (stag uint32, words []atomic.Uint64) {
	s.Helper()
	words = make([]atomic.Uint64, n)
	for i := range words {
		words[i].Store(uint64(i))
	}
	return uint32(s.register(tpt.Region{PD: s.pd, Memory: octetsOf(words), Rights: rights})), words
}

const atomicRights = tpt.LocalWrite | tpt.RemoteAtomic

func TestAtomicsServed(t *testing.T) { // RFC 7306 §5.1
	s := open(t, withRFC7306)
	stag, words := s.target(4, atomicRights|tpt.RemoteRead)
	s.gets(atomicRequest(1, 0, 50, stag, 8, 5, 0, 0, allBits), atomicRequest(2, 2, 51, stag, 8, 70, allBits, 6, allBits), atomicRequest(3, 2, 52, stag, 8, 71, allBits, 6, allBits),
		atomicRequest(4, 2, 53, stag, 24, 9, allBits, 0, 0))
	s.sends(atomicResponse(1, 50, 1), atomicResponse(2, 51, 6), atomicResponse(3, 52, 70), atomicResponse(4, 53, 3))
	if words[1].Load() != 70 || words[3].Load() != 9 || words[0].Load() != 0 || words[2].Load() != 2 {
		t.Errorf("%d %d %d %d", words[0].Load(), words[1].Load(), words[2].Load(), words[3].Load())
	}
	s.completes()
	s.counts(Stats{FPDUsIn: 4, FPDUsOut: 4, AtomicsIn: 4, AtomicsDoneOut: 4, MostReadsIn: 4})
}

// The bits of both operations, against a model that works bit by bit.
func TestMasks(t *testing.T) {
	model := func(old uint64, r *wire.AtomicRequestFields) (next uint64) {
		carry, equal := uint64(0), true
		for i := range 64 {
			bit := func(v uint64) uint64 { return v >> i & 1 }
			equal = equal && (bit(r.CompareMask) == 0 || bit(old) == bit(r.Compare))
			sum := bit(old) + bit(r.Data) + carry
			if carry = sum >> 1; bit(r.Mask) == 1 {
				carry = 0
			}
			if r.Op == wire.FetchAdd {
				next |= sum & 1 << i
			} else if bit(r.Mask) == 1 {
				next |= bit(r.Data) << i
			} else {
				next |= bit(old) << i
			}
		}
		if r.Op == wire.CmpSwap && !equal {
			return old
		}
		return next
	}
	g := rand.New(rand.NewPCG(1, 2))
	some := func() uint64 {
		return [...]uint64{0, allBits, g.Uint64(), g.Uint64() & g.Uint64() & g.Uint64(), 1 << 63, 0x8000800080008000}[g.IntN(6)]
	}
	swapped := 0
	for range 200000 {
		old := some()
		r := wire.AtomicRequestFields{Op: wire.AtomicOp(g.IntN(2) * 2), Data: some(), Mask: some(), Compare: some(), CompareMask: some()}
		if g.IntN(2) == 0 {
			r.Compare = old
		}
		var w atomic.Uint64
		w.Store(old)
		want := model(old, &r)
		if got := modify(&w, &r); got != old || w.Load() != want {
			t.Fatalf("%#x, %+v: returned %#x, became %#x, want %#x", old, r, got, w.Load(), want)
		}
		if r.Op == wire.CmpSwap && want != old {
			swapped++
		}
	}
	if swapped < 1000 {
		t.Errorf("only %d were swapped", swapped)
	}
}

// Hostile Atomic Requests. Nothing changes, and the Terminate quotes the DDP header alone
// (RFC 7306 §8).
func TestAtomicRequestsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		fpdu func(s *script, stag uint32) []byte
		code Code
	}{
		"misaligned offset": {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g, 4, 5, 0, 0, 0) }, OpStream},
		"misaligned memory": {func(s *script, _ uint32) []byte {
			stag := s.register(tpt.Region{PD: s.pd, Memory: s.mem[4:44], Rights: atomicRights})
			return atomicRequest(1, 0, 1, uint32(stag), 8, 5, 0, 0, 0)
		}, OpStream},
		"both, and aligned together": {func(s *script, _ uint32) []byte {
			stag := s.register(tpt.Region{PD: s.pd, Memory: s.mem[4:44], Rights: atomicRights})
			return atomicRequest(1, 0, 1, uint32(stag), 4, 5, 0, 0, 0)
		}, OpStream},
		"reserved operation": {func(_ *script, g uint32) []byte { return atomicRequest(1, 1, 1, g, 0, 5, 0, 0, 0) }, OpUnexpected},
		"unknown operation":  {func(_ *script, g uint32) []byte { return atomicRequest(1, 15, 1, g, 0, 5, 0, 0, 0) }, OpUnexpected},
		"wrong key":          {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g^1, 0, 5, 0, 0, 0) }, ProtInvalidSTag},
		"no right": {func(s *script, _ uint32) []byte {
			return atomicRequest(1, 0, 1, uint32(s.all), regionStart, 5, 0, 0, 0)
		}, ProtAccess},
		"another PD": {func(s *script, _ uint32) []byte {
			stag, _ := s.region(16, s.other, atomicRights)
			return atomicRequest(1, 0, 1, uint32(stag), 0, 5, 0, 0, 0)
		}, ProtStream},
		"out of bounds":     {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g, 16, 5, 0, 0, 0) }, ProtBounds},
		"across the end":    {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g, 12, 5, 0, 0, 0) }, ProtBounds},
		"wraps":             {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g, 1<<64-4, 5, 0, 0, 0) }, ProtWrap},
		"too short":         {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g, 0, 5, 0, 0) }, MarkerError},
		"too long":          {func(_ *script, g uint32) []byte { return atomicRequest(1, 0, 1, g, 0, 5, 0, 0, 0, 0) }, ddpCode(ddp.TooLong)},
		"number on queue 1": {func(_ *script, g uint32) []byte { return atomicRequest(2, 0, 1, g, 0, 5, 0, 0, 0) }, ddpCode(ddp.BadMSN)},
		"on queue 3": {func(*script, uint32) []byte {
			return untagged(wire.OpAtomicRequest, true, 0, 3, 1, 0, make([]byte, 52))
		}, ddpCode(ddp.BadQueue)},
		"more segments follow": {func(*script, uint32) []byte {
			return untagged(wire.OpAtomicRequest, false, 0, 1, 1, 0, make([]byte, 52))
		}, ddpCode(ddp.TooLong)},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, withRFC7306)
			stag, words := s.target(2, atomicRights)
			f := c.fpdu(s, stag)
			s.gets(f)
			if words[0].Load() != 0 || words[1].Load() != 1 {
				t.Error("a word has changed")
			}
			s.untouched(s.mem)
			if c.code.Layer == LayerRDMAP && !strings.Contains((&Error{1, s.q.Cause()}).Error(), "Atomic Request on 0x") {
				t.Errorf("%v", &Error{1, s.q.Cause()})
			}
			if c.code.Layer == LayerLLP {
				s.hasTerminated(c.code)
			} else {
				s.hasTerminated(c.code, f)
			}
		})
	}
}

// Reads and atomic operations of the peer share IRD.
func TestIRDOfAtomics(t *testing.T) {
	s := open(t, withRFC7306, withDepths(0, 2))
	stag, words := s.target(1, atomicRights)
	s.st.room = 0
	s.gets(readRequest(1, 1, 0, 1, uint32(s.all), regionStart), atomicRequest(2, 0, 1, stag, 0, 1, 0, 0, 0))
	s.silent()
	f := atomicRequest(3, 0, 1, stag, 0, 1, 0, 0, 0)
	s.gets(f)
	s.st.room = -1
	s.turn()
	s.hasTerminated(ddpCode(ddp.NoBuffer), f)
	if words[0].Load() != 0 {
		t.Error("executed although a Read waits before it")
	}
}

// A Read before an atomic operation does not see its effect, and one behind it does. The
// operation behind a Read is executed when the Read has been answered, and an operation
// without a Read before it at once, so that a Send behind it finds its effect.
func TestAtomicsAndReadsInOrder(t *testing.T) { // RFC 7306 §7
	s := open(t, withRFC7306)
	stag, words := s.target(2, atomicRights|tpt.RemoteRead)
	s.st.room = 0
	s.receives(work.RecvWR{ID: 1})
	s.st.in = append(s.st.in, atomicRequest(1, 0, 1, stag, 0, 10, 0, 0, 0), send(1, nil))
	s.q.Receive(s.now, s.st) // without a Transmit
	s.completes(received(1, 0))
	if words[0].Load() != 10 {
		t.Fatal("the Send was delivered before the operation was executed")
	}
	s.gets(readRequest(2, 7, 0, 8, stag, 0), atomicRequest(3, 0, 2, stag, 0, 20, 0, 0, 0), readRequest(4, 8, 0, 8, stag, 0))
	if words[0].Load() != 10 {
		t.Fatal("executed although a Read waits before it")
	}
	s.st.room = -1
	s.turn()
	s.sends(atomicResponse(1, 1, 0), response(7, 0, native(10)), atomicResponse(2, 2, 10), response(8, 0, native(30)))
}

// An operation that waits behind a Read is checked when it arrives, not only when its turn
// comes.
func TestWaitingAtomicIsChecked(t *testing.T) {
	s := open(t, withRFC7306)
	stag, _ := s.target(1, atomicRights)
	s.st.room = 0
	f := atomicRequest(2, 0, 1, stag^1, 0, 1, 0, 0, 0)
	s.st.in = append(s.st.in, readRequest(1, 1, 0, 1, uint32(s.all), regionStart), f)
	s.q.Receive(s.now, s.st)
	s.is(Terminate)
	s.st.room = -1
	s.turn()
	s.hasTerminated(ProtInvalidSTag, f)
}

// The region is revoked before an operation that waits behind a Read is executed.
func TestAtomicTargetRevoked(t *testing.T) {
	s := open(t, withRFC7306)
	stag, words := s.target(1, atomicRights)
	s.st.room = 0
	f := atomicRequest(2, 0, 1, stag, 0, 1, 0, 0, 0)
	s.gets(readRequest(1, 1, 0, 1, uint32(s.all), regionStart), f)
	if err := s.table.Invalidate(tpt.STag(stag), s.pd); err != nil {
		t.Fatal(err)
	}
	s.st.room = -1
	s.turn()
	if len(s.st.out) != 2 || words[0].Load() != 0 {
		t.Fatalf("%d FPDUs, word %d", len(s.st.out), words[0].Load())
	}
	s.st.out = s.st.out[1:]
	s.hasTerminated(ProtInvalidSTag, f)
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

// Memory of the word that is gone ends the connection and the region, not the process.
func TestAtomicMemoryGone(t *testing.T) {
	d := open(t, withRFC7306).doomed()
	stag := d.register(tpt.Region{PD: d.pd, Memory: d.mem, Rights: atomicRights})
	d.lose()
	f := atomicRequest(1, 0, 1, uint32(stag), uint64(len(d.mem)/2), 1, 0, 0, 0)
	d.gets(f)
	if d.q.Cause().Err != ErrMemoryGone {
		t.Errorf("%v", d.q.Cause().Err)
	}
	d.hasTerminated(ProtInvalidSTag, f)
}

// The peer's operations and this program's own lose no update of the same word.
func TestAtomicWithTheHost(t *testing.T) {
	const rounds = 2000
	s := open(t, withRFC7306)
	stag, words := s.target(1, atomicRights)
	var wg sync.WaitGroup
	var done atomic.Bool
	var added, swapped uint64
	wg.Go(func() {
		for ; !done.Load(); added++ {
			words[0].Add(1)
		}
	})
	wg.Go(func() {
		for !done.Load() {
			if old := words[0].Load(); words[0].CompareAndSwap(old, old+1) {
				swapped++
			}
		}
	})
	n, last := uint32(0), uint64(0)
	for between := 0; n < rounds || between < rounds/2; n++ { // until the host has come in between often enough
		s.gets(atomicRequest(n+1, 0, n, stag, 0, 1, uint64(n%2)<<63, 0, 0))
		old := be.Uint64(ulpduOf(s.st.out[0])[22:])
		if s.st.out = s.st.out[:0]; old != last {
			between++
		}
		last = old + 1
	}
	done.Store(true)
	wg.Wait()
	if got, want := words[0].Load(), uint64(n)+added+swapped; got != want {
		t.Errorf("the word is %d after %d, %d and %d additions", got, n, added, swapped)
	}
}

// Every kind of operation is atomic with respect to the host's own. The host comes in
// between often, because nothing but the operation runs.
func TestModifyIsAtomic(t *testing.T) {
	for name, r := range map[string]wire.AtomicRequestFields{
		"FetchAdd":        {Op: wire.FetchAdd, Data: 1},
		"masked FetchAdd": {Op: wire.FetchAdd, Data: 1, Mask: 1 << 63},
		"CmpSwap":         {Op: wire.CmpSwap, Mask: 1<<63 | 1, Data: 1, CompareMask: 1}, // changes no other bit than the lowest
	} {
		t.Run(name, func(t *testing.T) {
			var w atomic.Uint64
			var wg sync.WaitGroup
			var done atomic.Bool
			var added, changed uint64
			wg.Go(func() {
				for ; !done.Load(); added++ {
					w.Add(2)
				}
			})
			for last, between := uint64(0), 0; between < 5000; {
				old := modify(&w, &r)
				if old>>1 != last>>1 {
					between++
				}
				switch last = old; {
				case r.Op == wire.FetchAdd:
					last, changed = old+1, changed+1
				case old&1 == 0:
					changed++
					w.Add(allBits) // takes the lowest bit away again
				}
			}
			done.Store(true)
			wg.Wait()
			want := 2 * added
			if r.Op == wire.FetchAdd {
				want += changed
			}
			if got := w.Load(); got != want {
				t.Errorf("the word is %d, want %d", got, want)
			}
		})
	}
}

// What the check refuses.
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
		{func(wr *work.SendWR) { wr.Op = work.WRSendImm }, "post them as a Send before it"},
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
