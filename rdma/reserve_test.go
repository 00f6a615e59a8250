package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/tpt"
)

// reserve reserves a region.
func (e *end) reserve(o ...MROptions) *MR {
	e.r.Helper()
	mr, err := e.pd.ReserveMR(o...)
	e.r.Must(err)
	return mr
}

// mapped maps memory of e's region to a reserved region.
func (e *end) mapped(mr *MR, n int) STag {
	e.r.Helper()
	stag, err := mr.Map(e.mr.Bytes()[:n])
	e.r.Must(err)
	return stag
}

func registers(id uint64, stag STag, n int) SendWR {
	return SendWR{ID: id, Op: WRRegMR, Flags: Signaled, SGL: []SGE{{Length: uint32(n), LKey: stag}}, Access: all}
}

// Work requests behind a registration on the same queue use its STag, and so does the
// peer. Before the registration nobody can.
func TestRegisterBySendQueue(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{RegMR: true}})
		for _, mem := range [][]byte{x.mr.Bytes()[1000:1100], make([]byte, 100)} {
			mr := x.reserve(MROptions{Start: 1 << 40})
			fill(mem, 1)
			fill(y.mr.Bytes()[:100], 2)
			stag, err := mr.Map(mem)
			r.Must(err)
			y.receive(RecvWR{ID: 1, SGL: []SGE{y.mr.SGE(200, 100)}})
			x.post(SendWR{ID: 1, Op: WRRegMR, Flags: Signaled, SGL: []SGE{mr.SGE(0, 100)}, Access: all},
				SendWR{ID: 2, Op: WRSend, Flags: Signaled, SGL: []SGE{mr.SGE(0, 100)}},
				SendWR{ID: 3, Op: WRRead, Flags: Signaled, SGL: []SGE{mr.SGE(50, 50)}, RKey: y.mr.RKey()})
			r.ok(y.got(1))
			if c := r.ok(x.sent(3)); c[0].Op != WCRegMR || c[0].ID != 1 || mr.LKey() != stag || mr.Len() != 100 {
				r.Fatalf("%+v", c)
			}
			same(r, "sent", 50, mem[:50], y.mr.Bytes()[200:250])
			same(r, "read", 50, y.mr.Bytes()[:50], mem[50:])
			x.receive(RecvWR{ID: 6})
			x.post(SendWR{ID: 6, Op: WRWrite, Flags: Signaled}) // for the race detector: the engine goes on after the comparisons above
			r.ok(x.sent(1))
			y.post(SendWR{ID: 4, Op: WRWrite, SGL: []SGE{y.mr.SGE(0, 100)}, RKey: stag, RemoteAddr: 1 << 40},
				SendWR{ID: 5, Op: WRRead, Flags: Signaled, SGL: []SGE{y.mr.SGE(300, 100)}, RKey: stag, RemoteAddr: 1 << 40},
				SendWR{ID: 6, Op: WRSend})
			r.ok(y.sent(1))
			r.ok(x.got(1))
			same(r, "written and read by the peer", 100, y.mr.Bytes()[:100], mem, y.mr.Bytes()[300:400])
			_, err = mr.Map(mem)
			r.Says(err, ErrInUse)
			r.Must(mr.Invalidate())
			if next := x.mapped(mr, 10); next == stag || next.Index() != stag.Index() {
				r.Fatalf("%v after %v", next, stag)
			}
			r.Must(mr.Close())
			_, err = mr.Map(mem)
			r.Says(err, ErrClosed)
		}
	})
}

// A QP takes registrations only if it is created with RegMR.
func TestRegisterMustBeEnabled(t *testing.T) {
	r := newLoopback(t)
	x, _ := r.connect(wants{})
	mr := x.reserve()
	stag := x.mapped(mr, 8)
	_, err := x.qp.PostSend(registers(1, stag, 8))
	r.Says(err, ErrBadWR)
	_, err = x.qp.PostRegMR(RegWR{MR: mr, Memory: x.mr.Bytes()[:8]})
	r.Says(err, ErrBadWR)
	if _, err := x.mr.Map(make([]byte, 1)); err == nil {
		t.Error("memory was mapped to a region of AllocMR")
	}
}

// A registration by work request takes a page list. Requests behind it and the peer reach
// its octets in their order, across pages. The next list replaces it.
func TestRegisterPagesBySendQueue(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{RegMR: true}})
		for _, size := range []int{4096, 8192} {
			mr, heap, other := x.reserve(MROptions{Start: 1 << 40, PageSize: size}), x.scatter(size, LocalWrite, MROptions{}), outsideHeap(r, 4*size)
			for round, list := range [][][]byte{heap.Pages(), {other[3*size+100:], other[:2*size], other[2*size:][:50]}} {
				n := len(bytes.Join(list, nil))
				fill(y.mr.Bytes()[:n], round)
				stag, err := x.qp.PostRegMR(RegWR{MR: mr, Pages: list, Access: all, Flags: Signaled})
				r.Must(err)
				x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{mr.SGE(0, n)}, RKey: y.mr.RKey()})
				r.ok(x.sent(2))
				same(r, "read", n, y.mr.Bytes()[:n], content(mr))
				if mr.LKey() != stag || mr.Len() != n || mr.Bytes() != nil || len(mr.Pages()) != len(list) {
					r.Fatalf("region %v of %d octets in %d pieces", mr.LKey(), mr.Len(), len(mr.Pages()))
				}
				x.receive(RecvWR{ID: 6})
				y.post(SendWR{Op: WRWrite, Inline: []byte("across"), RKey: stag, RemoteAddr: 1<<40 + uint64(size) - 103}, SendWR{Op: WRSend})
				r.ok(x.got(1))
				same(r, "written", n, []byte("across"), content(mr)[size-103:][:6])
				_, err = mr.MapPages(list)
				r.Says(err, ErrInUse)
				r.Must(mr.Invalidate())
			}
			_, err := mr.MapPages([][]byte{other[:size], other[:5], other[:size]})
			r.Says(err, nil, "element 1 has 5 octets")
			_, err = x.qp.PostRegMR(RegWR{MR: mr, Pages: heap.Pages(), Memory: other})
			r.Says(err, ErrBadWR, "both Memory and Pages")
			r.Must(errors.Join(mr.Close(), heap.Close()))
		}
	})
}

// A refused post of a registration and a Send posts neither.
func TestRegisterAndSendTogether(t *testing.T) {
	r := newLoopback(t)
	x, _ := r.connect(wants{qp: QPConfig{RegMR: true, SendDepth: 1}})
	mr := x.reserve(MROptions{QP: x.qp})
	reg := RegWR{MR: mr, Memory: x.mr.Bytes()[:8], Access: all}
	send := func(stag STag) SendWR { return SendWR{Op: WRSend, Inline: make([]byte, 4)} }
	_, err := x.qp.PostRegSend(reg, send)
	r.Says(err, ErrQueueFull)
	_, err = x.qp.PostRegSend(reg, func(STag) SendWR { return SendWR{Op: 200} })
	r.Says(err, ErrBadWR)
	var bad *PostError
	if !errors.As(err, &bad) || bad.Index != 1 {
		t.Error(err)
	}
	if info, _ := x.a.table.Entry(mr.LKey().Index()); info.Valid {
		t.Error("the registration was posted")
	}
	reg.Flags = Signaled
	_, err = x.qp.PostRegMR(reg)
	r.Must(err)
	r.ok(x.sent(1))
}

// A registration and a Send with the STag are posted together. The peer places octets and
// answers by a Send with Invalidate. Then the region is gone (US 7,299,266, claims of the
// combined request), and each round has another key.
func TestRegisterAndSend(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{RegMR: true}})
		mr := x.reserve(MROptions{QP: x.qp})
		var last STag
		for round := range 200 {
			buf := x.mr.Bytes()[round*64:][:64]
			fill(y.mr.Bytes()[:64], round)
			x.receive(RecvWR{ID: 1})
			y.receive(RecvWR{ID: 2, SGL: []SGE{y.mr.SGE(100, 4)}})
			stag, err := x.qp.PostRegSend(RegWR{MR: mr, Memory: buf, Access: LocalWrite | RemoteWrite}, func(s STag) SendWR {
				return SendWR{ID: 3, Op: WRSend, Inline: binary.BigEndian.AppendUint32(nil, uint32(s))}
			})
			r.Must(err)
			r.ok(y.got(1))
			told := STag(binary.BigEndian.Uint32(y.mr.Bytes()[100:]))
			if told != stag || stag == last {
				r.Fatalf("round %d: STag %v, told %v, before %v", round, stag, told, last)
			}
			last = stag
			y.post(SendWR{Op: WRWrite, SGL: []SGE{y.mr.SGE(0, 64)}, RKey: told}, SendWR{Op: WRSendInvalidate, Invalidate: told})
			if c := r.ok(x.got(1))[0]; c.Invalidated != stag {
				r.Fatalf("%+v", c)
			}
			same(r, "written", 64, y.mr.Bytes()[:64], buf)
		}
		y.post(SendWR{Op: WRWrite, Inline: []byte("late"), RKey: last})
		x.done()
		y.done()
	})
}

// refusals are the requests that the table refuses, with the reason. Each function posts
// nothing.
var refusals = map[string]struct {
	request func(e *end) SendWR
	reason  tpt.Fault
}{
	"no entry": {func(e *end) SendWR {
		mr := e.reserve()
		stag := e.mapped(mr, 8)
		e.r.Must(mr.Close())
		return registers(3, stag, 8)
	}, tpt.BadSTag},
	"another key": {func(e *end) SendWR {
		mr := e.reserve()
		stag := e.mapped(mr, 8)
		e.mapped(mr, 8)
		return registers(3, stag, 8)
	}, tpt.BadSTag},
	"more than is mapped": {func(e *end) SendWR { return registers(3, e.mapped(e.reserve(), 8), 9) }, tpt.NoSpace},
	"nothing is mapped":   {func(e *end) SendWR { return registers(3, e.reserve().LKey(), 8) }, tpt.NoSpace},
	"registered already":  {func(e *end) SendWR { return registers(3, e.mr.LKey(), 8) }, tpt.Bound},
	"another QP's":        {func(e *end) SendWR { return registers(3, e.mapped(e.reserve(MROptions{QP: e.another().qp}), 8), 8) }, tpt.WrongPD},
	"wrong rights": {func(e *end) SendWR {
		wr := registers(3, e.mapped(e.reserve(), 8), 8)
		wr.Access = RemoteWrite
		return wr
	}, tpt.NoRight},
	"bind to no region":   {func(e *end) SendWR { return e.binds(SGE{LKey: 1 << 30, Length: 8}) }, tpt.BadSTag},
	"bind without MWBind": {func(e *end) SendWR { return e.binds(e.mr.SGE(0, 8)) }, tpt.NoRight},
	"bind out of bounds": {func(e *end) SendWR {
		sge := e.lend(all|MWBind).SGE(0, 8)
		sge.Addr = 4090
		return e.binds(sge)
	}, tpt.OutOfBounds},
	"invalidate nothing": {func(e *end) SendWR { return SendWR{ID: 3, Op: WRLocalInvalidate, Invalidate: 1 << 30} }, tpt.BadSTag},
}

// binds returns the bind of a new window.
func (e *end) binds(to SGE) SendWR {
	e.r.Helper()
	mw, err := e.pd.AllocMW(MWType2A)
	e.r.Must(err)
	return SendWR{ID: 3, Op: WRBindMW, Flags: Signaled, RKey: mw.NextRKey(), SGL: []SGE{to}, Access: RemoteRead}
}

// refused posts a request that the table refuses, between others, and returns the
// completions.
func (e *end) refused(other *end, bad SendWR) []Completion {
	e.r.Helper()
	e.post(SendWR{ID: 1, Op: WRRead, Flags: Signaled, SGL: []SGE{e.mr.SGE(0, 64)}, RKey: other.mr.RKey()},
		SendWR{ID: 2, Op: WRWrite, Flags: Signaled | Fence, Inline: []byte("before"), RKey: other.mr.RKey()},
		bad, SendWR{ID: 4, Op: WRSend, Inline: []byte("behind")}, SendWR{ID: 5, Op: WRWrite, Flags: Signaled, Inline: []byte("behind"), RKey: other.mr.RKey(), RemoteAddr: 32})
	c := e.sent(5)
	for i, want := range []Status{Success, Success, TableErr, Flushed, Flushed} {
		if c[i].ID != uint64(i+1) || c[i].Status != want {
			e.r.Fatalf("completion %d is %+v, want %v", i+1, c[i], want)
		}
	}
	if string(other.mr.Bytes()[32:38]) == "behind" {
		e.r.Fatal("a request behind the refused one was performed")
	}
	return c
}

// Reactive semantics (US 7,299,266, FIG. 11, option 1), for each reason: the send queue is
// drained, receives and the peer's requests work, and after Resume everything works.
func TestRefusedReactive(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{RegMR: true, Reactive: true}})
		r.Says(x.qp.Resume(), ErrNotDrained)
		for name, c := range refusals {
			x.refused(y, c.request(x))
			if err := x.qp.DrainedBy(); x.qp.State() != Drained || !errors.Is(err, ErrTableRefused) || !strings.Contains(err.Error(), c.reason.String()) {
				r.Fatalf("%s: state %v, %v", name, x.qp.State(), err)
			}
			x.receive(RecvWR{ID: 9, SGL: []SGE{x.mr.SGE(100, 8)}})
			y.post(SendWR{ID: 6, Op: WRWrite, Inline: []byte("write"), RKey: x.mr.RKey(), RemoteAddr: 200}, SendWR{ID: 7, Op: WRSend, Inline: []byte(name[:4])},
				SendWR{ID: 8, Op: WRRead, Flags: Signaled, SGL: []SGE{y.mr.SGE(300, 5)}, RKey: x.mr.RKey(), RemoteAddr: 200})
			r.ok(x.got(1))
			r.ok(y.sent(1))
			if string(x.mr.Bytes()[100:104]) != name[:4] || string(y.mr.Bytes()[300:305]) != "write" {
				r.Fatalf("%s: the peer's requests were not performed", name)
			}
			x.post(SendWR{ID: 10, Op: WRWrite, Flags: Signaled, Inline: []byte("behind"), RKey: y.mr.RKey(), RemoteAddr: 32})
			if c := x.sent(1)[0]; c.Status != Flushed {
				r.Fatalf("%s: before Resume %+v", name, c)
			}
			r.Must(x.qp.Resume())
			_, err := x.qp.PostRegMR(RegWR{ID: 11, Flags: Signaled, MR: x.reserve(), Memory: x.mr.Bytes()[:8], Access: all})
			r.Must(err)
			y.receive(RecvWR{ID: 12})
			x.post(SendWR{ID: 13, Op: WRSend, Flags: Signaled})
			r.ok(x.sent(2))
			r.ok(y.got(1))
			if x.qp.State() != RTS || x.qp.DrainedBy() != nil {
				r.Fatalf("%s: after Resume %v, %v", name, x.qp.State(), x.qp.DrainedBy())
			}
		}
	})
}

// A Terminate works in the state Drained, in both directions.
func TestTerminateWhileDrained(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, theirs := range []bool{false, true} {
			x, y := r.connect(wants{qp: QPConfig{RegMR: true, Reactive: true}})
			x.refused(y, registers(3, x.reserve().LKey(), 8))
			y.receive(RecvWR{ID: 1})
			x.receive(RecvWR{ID: 1})
			if theirs { // the peer ends the connection because of its own request
				y.post(SendWR{Op: WRSend, SGL: []SGE{{LKey: 1 << 30, Length: 1}}})
			} else {
				y.post(SendWR{Op: WRWrite, Inline: []byte("x"), RKey: 1 << 30})
			}
			x.done()
			y.done()
			var qe *QPError
			if err := x.qp.Err(); !errors.As(err, &qe) || qe.Remote != theirs {
				r.Fatalf("theirs %v: %v", theirs, err)
			}
			if x.qp.State() != Errored || x.got(1)[0].Status != Flushed || y.got(1)[0].Status != Flushed {
				r.Fatal(x.qp.State())
			}
			r.Says(x.qp.Resume(), ErrNotDrained)
		}
	})
}

// Anticipatory semantics (US 7,299,266, FIG. 11, option 2), for each reason: a Terminate
// ends the connection and everything is flushed.
func TestRefusedAnticipatory(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for name, c := range refusals {
			x, y := r.connect(wants{qp: QPConfig{RegMR: true}})
			x.receive(RecvWR{ID: 9})
			x.refused(y, c.request(x))
			if got := x.got(1)[0]; got.Status != Flushed {
				r.Fatalf("%s: the receive completed as %+v", name, got)
			}
			x.done()
			y.done()
			var theirs *QPError
			if err := x.qp.Err(); !errors.Is(err, ErrTableRefused) || !strings.Contains(err.Error(), c.reason.String()) {
				r.Fatalf("%s: %v", name, err)
			}
			if err := y.qp.Err(); !errors.As(err, &theirs) || !theirs.Remote {
				r.Fatalf("%s: the peer has %v", name, err)
			}
			r.Must(x.qp.Close())
			r.Must(y.qp.Close())
		}
	})
}
