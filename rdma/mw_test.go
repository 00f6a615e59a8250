package rdma

import (
	"testing"
)

// window allocates a memory window, and fails the test if it cannot.
func (e *end) window(t MWType) *MW {
	e.r.Helper()
	mw, err := e.pd.AllocMW(t)
	e.r.Must(err)
	return mw
}

// bind posts the request that binds the window to n octets of mr, and returns the STag.
func (e *end) bind(mw *MW, mr *MR, off, n int, access Access) STag {
	e.r.Helper()
	stag := mw.NextRKey()
	e.post(SendWR{ID: 77, Op: WRBindMW, RKey: stag, SGL: []SGE{mr.SGE(off, n)}, Access: access, Flags: Signaled})
	return stag
}

// bound waits for the completion of a bind or an unbind.
func (e *end) bound() {
	e.r.Helper()
	if c := e.r.ok(e.sent(1))[0]; c.ID != 77 || c.Op != WCBindMW {
		e.r.Fatalf("%+v", c)
	}
}

// unbind posts the request that unbinds the window, and waits for its completion.
func (e *end) unbind(mw *MW) {
	e.r.Helper()
	e.post(SendWR{ID: 77, Op: WRBindMW, RKey: mw.NextRKey(), Flags: Signaled})
	e.bound()
}

// hello sends an empty Read, so that the responder may send.
func (e *end) hello() {
	e.r.Helper()
	e.post(SendWR{Op: WRRead, Flags: Signaled})
	e.r.ok(e.sent(1))
}

// reads posts a Read of n octets at the offset, and returns its status.
func (e *end) reads(stag STag, to uint64, n int) Status {
	e.r.Helper()
	e.post(SendWR{Op: WRRead, SGL: []SGE{e.mr.SGE(0, n)}, RKey: stag, RemoteAddr: to, Flags: Signaled})
	return e.sent(1)[0].Status
}

// A window of each type is bound, used, revoked, and then refused. The region has no
// remote right. A bind and the Send that tells the peer the STag are posted together.
func TestWindow(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for _, kind := range []MWType{MWType1, MWType2A, MWType2B} {
			for _, way := range []string{"unbind", "local invalidate", "close"} {
				x, y := r.connect(wants{})
				x.hello()
				mr, mw := y.lend(LocalWrite|MWBind), y.window(kind)
				x.receive(RecvWR{SGL: []SGE{x.mr.SGE(0, 4)}})
				stag := mw.NextRKey()
				y.post(SendWR{ID: 77, Op: WRBindMW, RKey: stag, SGL: []SGE{mr.SGE(101, 11)}, Access: RemoteWrite | RemoteRead, Flags: Signaled},
					SendWR{Op: WRSend, Inline: []byte("STag")})
				y.bound()
				r.ok(x.got(1))
				x.post(SendWR{Op: WRWrite, Inline: []byte("hello there"), RKey: stag, RemoteAddr: 101})
				if s := x.reads(stag, 101, 11); s != Success || string(mr.Bytes()[101:112]) != "hello there" {
					r.Fatalf("type %v, %s: %v, %q", kind, way, s, mr.Bytes()[101:112])
				}
				r.Says(mr.Close(), ErrInUse, "1 memory windows")
				r.Says(mr.Invalidate(), ErrInUse, "1 memory windows")
				r.Says(mr.Rereg(0), ErrInUse, "1 memory windows")
				r.Says(y.pd.Close(), ErrInUse)
				switch way {
				case "unbind":
					y.unbind(mw)
				case "local invalidate":
					y.post(SendWR{Op: WRLocalInvalidate, Invalidate: stag, Flags: Signaled})
					r.ok(y.sent(1))
				case "close":
					r.Must(mw.Close())
				}
				r.Must(mr.Close())
				if s := x.reads(stag, 101, 11); s != RemoteAccessErr {
					r.Errorf("type %v, %s: a Read afterwards: %v", kind, way, s)
				}
				x.done()
				r.Says(x.qp.Err(), nil, "invalid STag (0/1/00)")
				r.Must(mw.Close())
				r.Must(y.qp.Close())
			}
		}
	})
}

// A window of type 1 serves the peers of all QPs of the PD, and can be bound again. A
// window of type 2 serves one QP. Its peer's Send with Invalidate unbinds it.
func TestWindowTypes(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		other, two := r.newEnd(r.a, wants{}), y.another()
		r.Must(r.join(other, two, wants{}))
		x.hello()
		other.hello()
		mr := y.lend(LocalWrite | MWBind)
		one, own := y.window(MWType1), y.window(MWType2A)
		old := y.bind(one, mr, 0, 8, RemoteRead)
		y.bound()
		stag := y.bind(one, mr, 8, 8, RemoteRead|ZeroBased)
		y.bound()
		if s := other.reads(stag, 0, 8); s != Success {
			r.Errorf("another QP of the PD: %v", s)
		}
		if old == stag || one.RKey() != stag {
			r.Errorf("%v after %v", stag, old)
		}
		mine := y.bind(own, mr, 0, 4, RemoteRead)
		y.bound()
		y.receive(RecvWR{ID: 1})
		x.post(SendWR{Op: WRSendInvalidate, Invalidate: mine})
		if c := r.ok(y.got(1))[0]; c.Invalidated != mine {
			r.Errorf("%+v", c)
		}
		mine = y.bind(own, mr, 0, 4, RemoteRead) // it is free again
		y.bound()
		if s := other.reads(mine, 0, 4); s != RemoteAccessErr {
			r.Errorf("another QP, window of type 2: %v", s)
		}
		other.done()
		r.Says(other.qp.Err(), nil, "not associated with the stream (0/1/03)")
		if s := x.reads(mine, 0, 4); s != Success {
			r.Errorf("its own QP: %v", s)
		}
	})
}

// A refused bind completes with TableErr. The region and the old binding stay as they
// were, also after the end of the connection.
func TestRefusedBind(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for name, wr := range map[string]func(y *end, mw *MW, mr *MR) SendWR{
			"no window right": func(y *end, mw *MW, mr *MR) SendWR {
				return SendWR{RKey: mw.NextRKey(), SGL: []SGE{y.mr.SGE(0, 8)}, Access: RemoteRead}
			},
			"bounds": func(_ *end, mw *MW, mr *MR) SendWR {
				return SendWR{RKey: mw.NextRKey(), SGL: []SGE{{Addr: 4090, Length: 7, LKey: mr.LKey()}}, Access: RemoteRead}
			},
			"stranger": func(y *end, _ *MW, mr *MR) SendWR {
				return SendWR{RKey: r.newEnd(r.b, wants{}).window(MWType1).NextRKey(), SGL: []SGE{mr.SGE(0, 8)}, Access: RemoteRead}
			},
			"no window": func(y *end, _ *MW, mr *MR) SendWR {
				return SendWR{RKey: mr.LKey(), SGL: []SGE{mr.SGE(0, 8)}, Access: RemoteRead}
			},
		} {
			x, y := r.connect(wants{})
			other, two := r.newEnd(r.a, wants{}), y.another()
			r.Must(r.join(other, two, wants{}))
			x.hello()
			other.hello()
			mr, mw := y.lend(LocalWrite|MWBind), y.window(MWType1)
			stag := y.bind(mw, mr, 16, 8, RemoteRead)
			y.bound()
			bad := wr(y, mw, mr)
			bad.Op, bad.ID = WRBindMW, 5
			y.post(bad)
			if c := y.sent(1)[0]; c.Status != TableErr || c.ID != 5 {
				r.Errorf("%s: %+v", name, c)
			}
			y.done()
			if s := other.reads(stag, 16, 8); s != Success {
				r.Errorf("%s: through the old binding: %v", name, s)
			}
			r.Says(mr.Close(), ErrInUse, "1 memory windows")
			r.Must(mw.Close())
			r.Must(mr.Close())
		}
	})
}

// PostSend refuses a bind that is malformed.
func TestMalformedBind(t *testing.T) {
	r := newLoopback(t)
	_, y := r.connect(wants{})
	mr, mw := y.lend(MWBind), y.window(MWType1)
	list := []SGE{mr.SGE(0, 8), mr.SGE(8, 8)}
	for name, wr := range map[string]SendWR{
		"two elements": {Op: WRBindMW, RKey: mw.NextRKey(), SGL: list},
		"local right":  {Op: WRBindMW, RKey: mw.NextRKey(), SGL: list[:1], Access: LocalWrite},
		"unknown":      {Op: WRBindMW, RKey: mw.NextRKey(), SGL: list[:1], Access: 1 << 20},
		"inline":       {Op: WRBindMW, RKey: mw.NextRKey(), Inline: []byte("x")},
		"solicited":    {Op: WRBindMW, RKey: mw.NextRKey(), SGL: list[:1], Flags: Solicited},
		"of a Send":    {Op: WRSend, Access: RemoteRead},
	} {
		n, err := y.qp.PostSend(wr)
		if n != 0 {
			r.Errorf("%s: posted", name)
		}
		r.Says(err, ErrBadWR)
	}
}

// A QP cannot be closed while windows of type 2B are bound to it. Its windows of type 2A
// are unbound then, so that no other QP with its number can use them.
func TestWindowsOfClosedQP(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		x.hello()
		mr, a, b := y.lend(MWBind), y.window(MWType2A), y.window(MWType2B)
		for _, mw := range []*MW{a, b} {
			y.bind(mw, mr, 0, 8, RemoteRead)
			y.bound()
		}
		r.Says(y.qp.Close(), ErrInUse, "1 windows of type 2B")
		if s := x.reads(a.RKey(), 0, 8); s != Success {
			r.Errorf("after the refused Close: %v", s)
		}
		y.unbind(b)
		r.Must(y.qp.Close())
		r.Must(mr.Close())
		r.Must(a.Close())
		r.Says(y.pd.Close(), ErrInUse)
		r.Must(b.Close())
		r.Must(b.Close())
	})
}

// A region gets other rights and keeps its STag.
func TestRereg(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		mr := y.lend(0)
		r.Must(mr.Rereg(LocalWrite | RemoteRead))
		if s := x.reads(mr.RKey(), 0, 8); s != Success {
			r.Errorf("with the right: %v", s)
		}
		r.Must(mr.Rereg(LocalWrite))
		if s := x.reads(mr.RKey(), 0, 8); s != RemoteAccessErr {
			r.Errorf("without the right: %v", s)
		}
		r.Says(mr.Rereg(RemoteWrite), nil, "local write")
		r.Says(mr.Rereg(1<<20), nil, "unknown")
		r.Must(mr.Close())
		r.Says(mr.Rereg(LocalWrite), ErrClosed)
	})
}
