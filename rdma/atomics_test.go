package rdma

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

// extended is a connection with RFC 7306.
var extended = wants{
	access: all | RemoteAtomic,
	dial:   ConnParams{Extensions: ExtRFC7306}, accept: ConnParams{Extensions: ExtRFC7306},
}

func old(e *end, off int) uint64 { return binary.NativeEndian.Uint64(e.mr.Bytes()[off:]) }

// Every atomic operation, with the old value and the effect that RFC 7306 §5.1 gives it.
func TestAtomics(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(extended)
		word := y.mr.Uint64(64)
		for i, c := range []struct {
			wr     SendWR
			op     WCOp
			before uint64
			after  uint64
		}{
			{SendWR{Op: WRFetchAdd, CompareAdd: 5}, WCFetchAdd, 10, 15},
			{SendWR{Op: WRFetchAdd, CompareAdd: 1<<64 - 1}, WCFetchAdd, 10, 9},
			{SendWR{Op: WRMaskedFetchAdd, CompareAdd: 1<<32 | 1, CompareAddMask: 1<<63 | 1<<31}, WCFetchAdd, 1<<32 - 1, 1 << 32},
			{SendWR{Op: WRCompareSwap, CompareAdd: 10, Swap: 20}, WCCompareSwap, 10, 20},
			{SendWR{Op: WRCompareSwap, CompareAdd: 11, Swap: 20}, WCCompareSwap, 10, 10},
			{SendWR{Op: WRMaskedCompareSwap, CompareAdd: 0xff, CompareAddMask: 0x0f, Swap: 0xabcd, SwapMask: 0xff00}, WCCompareSwap, 0x123f, 0xab3f},
			{SendWR{Op: WRSwap, Swap: 77}, WCCompareSwap, 10, 77},
		} {
			word.Store(c.before)
			c.wr.ID, c.wr.Flags, c.wr.SGL = uint64(i), Signaled, []SGE{x.mr.SGE(8, 8)}
			c.wr.RKey, c.wr.RemoteAddr = y.mr.RKey(), y.mr.Addr()+64
			x.post(c.wr)
			got := r.ok(x.sent(1))[0]
			if got.Op != c.op || got.Length != 8 || got.ID != uint64(i) {
				r.Errorf("%v: %+v", c.wr.Op, got)
			}
			if old(x, 8) != c.before || word.Load() != c.after {
				r.Errorf("%v: returned %#x, became %#x; want %#x, %#x", c.wr.Op, old(x, 8), word.Load(), c.before, c.after)
			}
		}
		if s := x.qp.Conn(); !s.RFC7306 || s.Extensions != ExtRFC7306 {
			r.Errorf("%+v", s)
		}
	})
}

// A counter is shared by two peers and by the program that owns it. No addition is lost,
// and no old value is returned twice.
func TestSharedCounter(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		const rounds, depth = 300, 16
		one, two := r.newEnd(r.a, extended), r.newEnd(r.a, extended)
		home := r.newEnd(r.b, extended)
		r.Must(r.join(one, home, extended))
		r.Must(r.join(two, home.another(), extended))
		counter := home.mr.Uint64(0)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range rounds {
				counter.Add(1 << 32)
			}
		})
		seen := map[uint32]bool{}
		for range rounds {
			for _, e := range []*end{one, two} {
				for i := range depth {
					e.post(SendWR{Op: WRFetchAdd, Flags: Signaled, SGL: []SGE{e.mr.SGE(8*i, 8)}, RKey: home.mr.RKey(), CompareAdd: 1})
				}
			}
			for _, e := range []*end{one, two} {
				r.ok(e.sent(depth))
				for i := range depth {
					v := uint32(old(e, 8*i))
					if seen[v] {
						r.Fatalf("%d was returned twice", v)
					}
					seen[v] = true
				}
			}
		}
		wg.Wait()
		if got := counter.Load(); got != rounds<<32+2*depth*rounds {
			r.Errorf("the counter is %#x", got)
		}
	})
}

// The receive of Immediate Data completes when the octets of the Write before it are there.
func TestImmediate(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(extended)
		for i := range 4 {
			y.receive(RecvWR{ID: uint64(i)})
		}
		fill(x.mr.Bytes()[:20000], 1)
		x.post(SendWR{ID: 1, Op: WRWriteImm, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 20000)}, RKey: y.mr.RKey(), RemoteAddr: 100, Imm: 0x1122334455667788},
			SendWR{ID: 2, Op: WRWriteImm, Flags: Signaled | Solicited, Inline: []byte("inline"), RKey: y.mr.RKey(), Imm: 1},
			SendWR{ID: 3, Op: WRSendImm, Flags: Signaled, Imm: 1<<64 - 1}, SendWR{ID: 4, Op: WRSend, Flags: Signaled})
		got := r.ok(y.got(4))
		want := []Completion{
			{ID: 0, Op: WCRecvImm, WithImm: true, Imm: 0x1122334455667788}, {ID: 1, Op: WCRecvImm, WithImm: true, Imm: 1, Solicited: true},
			{ID: 2, Op: WCRecvImm, WithImm: true, Imm: 1<<64 - 1}, {ID: 3, Op: WCRecv},
		}
		for i := range want {
			if want[i].QP = y.qp.Number(); got[i] != want[i] {
				r.Errorf("%+v, want %+v", got[i], want[i])
			}
		}
		same(r, "written", 20000, x.mr.Bytes()[:20000], y.mr.Bytes()[100:20100])
		same(r, "inline", 6, []byte("inline"), y.mr.Bytes()[:6])
		for i, op := range []WCOp{WCWrite, WCWrite, WCSend, WCSend} {
			if c := r.ok(x.sent(1))[0]; c.ID != uint64(i+1) || c.Op != op || c.WithImm {
				r.Errorf("%+v", c)
			}
		}
	})
}

// With ExtImmediate both operations do what programs for InfiniBand expect, over the kernel's
// TCP and over an engine.
func TestImmediateOfInfiniBand(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		p := ConnParams{Extensions: ExtRFC7306 | ExtImmediate}
		x, y := r.connect(wants{dial: p, accept: p})
		if q := r.reportOf(x); !slices.Equal(q.Extensions, []string{"rfc7306", "immediate"}) {
			t.Errorf("the report names %v", q.Extensions)
		}
		for i := range 4 {
			y.receive(RecvWR{ID: uint64(i), SGL: []SGE{y.mr.SGE(40000, 20000)}})
		}
		fill(x.mr.Bytes()[:20000], 1)
		_, err := x.qp.PostSend(SendWR{Op: WRSendImm, Imm: 1 << 32})
		r.Says(err, ErrImmediate, "32 bits")
		x.post(SendWR{ID: 1, Op: WRWriteImm, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 20000)}, RKey: y.mr.RKey(), RemoteAddr: 100, Imm: 0xfedcba98},
			SendWR{ID: 2, Op: WRSendImm, Flags: Signaled | Solicited, SGL: []SGE{x.mr.SGE(0, 19999)}, Imm: 5},
			SendWR{ID: 3, Op: WRSendImm, Flags: Signaled, Inline: []byte("inline")}, SendWR{ID: 4, Op: WRWriteImm, Flags: Signaled, RKey: y.mr.RKey(), Imm: 6})
		got := r.ok(y.got(4))
		want := []Completion{
			{ID: 0, Op: WCRecvImm, WithImm: true, Imm: 0xfedcba98, Length: 20000}, {ID: 1, Op: WCRecv, WithImm: true, Imm: 5, Length: 19999, Solicited: true},
			{ID: 2, Op: WCRecv, WithImm: true, Length: 6}, {ID: 3, Op: WCRecvImm, WithImm: true, Imm: 6},
		}
		for i := range want {
			if want[i].QP = y.qp.Number(); got[i] != want[i] {
				r.Errorf("%+v, want %+v", got[i], want[i])
			}
		}
		same(r, "written", 20000, x.mr.Bytes()[:20000], y.mr.Bytes()[100:20100])
		same(r, "sent", 19999, append([]byte("inline"), x.mr.Bytes()[6:19999]...), y.mr.Bytes()[40000:59999])
		r.ok(x.sent(4))
	})
}

// Without ExtImmediate at both ends a Send with Immediate has no octets.
func TestImmediateOfOneEnd(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{dial: ConnParams{Extensions: ExtRFC7306 | ExtImmediate}, accept: ConnParams{Extensions: ExtRFC7306}})
	for _, e := range []*end{x, y} {
		_, err := e.qp.PostSend(SendWR{Op: WRSendImm, Inline: []byte("a")})
		r.Says(err, ErrImmediate, "has no octets")
	}
	r.Says(x.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{Extensions: ExtImmediate}), nil, "ExtImmediate without ExtRFC7306")
}

// Without agreement nothing of RFC 7306 can be posted, whichever end has not asked for it.
// An application that knows its peer needs no trailer.
func TestRFC7306Agreement(t *testing.T) {
	r := newLoopback(t)
	for bits := range 16 {
		w := wants{access: all | RemoteAtomic}
		for i, p := range []*ConnParams{&w.dial, &w.accept} {
			if bits>>i&1 != 0 {
				p.Extensions = ExtRFC7306
			}
			p.PeerRFC7306 = bits>>(2+i)&1 != 0
		}
		x, y := r.connect(w)
		both := bits&3 == 3
		for i, e := range []*end{x, y} {
			want := both || bits>>(2+i)&1 != 0
			if got := e.qp.Conn(); got.RFC7306 != want || (got.Extensions != 0) != both {
				r.Errorf("%#b: %+v", bits, got)
			}
			if want {
				continue
			}
			for _, op := range []WROp{WRWriteImm, WRSendImm, WRFetchAdd, WRCompareSwap, WRSwap, WRMaskedCompareSwap, WRMaskedFetchAdd} {
				wr := SendWR{Op: op}
				if op.Completes() >= WCCompareSwap {
					wr.SGL = []SGE{e.mr.SGE(0, 8)}
				}
				n, err := e.qp.PostSend(wr)
				if r.Says(err, ErrNoRFC7306, "both ends must ask for them"); n != 0 {
					r.Errorf("%v was posted", op)
				}
			}
		}
		if bits>>2 == 3 {
			x.post(SendWR{Op: WRFetchAdd, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: y.mr.RKey(), CompareAdd: 1})
			r.ok(x.sent(1))
		}
		r.Check(x.qp.Close())
		r.Check(y.qp.Close())
	}
}

// An operation on a peer that has not agreed ends the connection, and its region does not
// change.
func TestRFC7306Unasked(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{access: all | RemoteAtomic, dial: ConnParams{PeerRFC7306: true}})
		x.post(SendWR{Op: WRFetchAdd, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: y.mr.RKey(), CompareAdd: 1})
		x.done()
		r.Says(x.qp.Err(), nil, "terminated by the peer", "unexpected opcode (0/2/06)", "Atomic Request")
		if y.mr.Uint64(0).Load() != 0 {
			r.Error("executed")
		}
	})
}

// The peer refuses wrong atomic operations. Each case has its status and its cause.
func TestAtomicsRefused(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for _, c := range []struct {
			name   string
			access Access
			addr   uint64
			status Status
			says   string
		}{
			{"no right", all, 0, RemoteAccessErr, "access rights violation (0/1/02)"},
			{"out of bounds", all | RemoteAtomic, 4096, RemoteAccessErr, "base or bounds violation (0/1/01)"},
			{"misaligned", all | RemoteAtomic, 4, RemoteOperationErr, "catastrophic for this stream (0/2/07)"},
		} {
			x, y := r.connect(extended)
			lent := y.lend(c.access)
			x.post(SendWR{Op: WRFetchAdd, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: lent.RKey(), RemoteAddr: c.addr, CompareAdd: 1})
			if got := x.sent(1)[0]; got.Status != c.status || got.Op != WCFetchAdd {
				r.Errorf("%s: %+v", c.name, got)
			}
			x.done()
			y.done()
			r.Says(x.qp.Err(), nil, "terminated by the peer", c.says, "Atomic Request")
			r.Says(y.qp.Err(), nil, "terminated by this side", c.says, "Atomic Request on "+lent.RKey().String())
			for _, b := range lent.Bytes() {
				if b != 0 {
					r.Fatalf("%s: the region has changed", c.name)
				}
			}
		}
	})
}

// A region cannot give the right to atomic operations without being writable here.
func TestRemoteAtomicNeedsLocalWrite(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	_, err := x.pd.AllocMR(8, RemoteAtomic)
	r.Says(err, nil, "add local write")
}

func TestWords(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	x.mr.Uint64(16).Store(0x0102030405060708)
	if old(x, 16) != 0x0102030405060708 {
		r.Error("the word is elsewhere")
	}
	odd, err := x.pd.RegMR(x.mr.Bytes()[4:44], all)
	r.Must(err)
	shifted, err := x.pd.RegMR(x.mr.Bytes()[:40], all, MROptions{Start: 4})
	r.Must(err)
	for _, c := range []struct {
		mr   *MR
		off  int
		says string
	}{
		{x.mr, 4, "must be multiples of 8"}, {odd, 0, "must be multiples of 8"}, {odd, 4, "must be multiples of 8"},
		{shifted, 0, "must be multiples of 8"}, {x.mr, x.mr.Len(), "out of range"}, {x.mr, -8, "out of range"},
	} {
		func() {
			defer func() {
				p := recover()
				err, _ := p.(error)
				text, _ := p.(string)
				if err != nil {
					text = err.Error()
				}
				if !strings.Contains(text, c.says) {
					r.Errorf("octet %d of %v: %v, want %q", c.off, c.mr.RKey(), p, c.says)
				}
			}()
			c.mr.Uint64(c.off)
		}()
	}
	r.Check(errors.Join(odd.Close(), shifted.Close()))
}
