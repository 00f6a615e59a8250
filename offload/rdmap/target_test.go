package rdmap

import (
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

// A Read in front of an atomic operation does not see the effect of the operation, and a
// Read behind it does. An operation behind a Read is executed when the Read has been
// answered. Any other operation is executed at once, so that a Send behind the operation
// finds its effect.
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
