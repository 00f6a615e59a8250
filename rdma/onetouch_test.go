package rdma

import (
	"strings"
	"testing"
)

// A region of one touch serves one Write. The second Write is refused and ends the
// connection, and memory has the octets of the first (US 7,299,266, FIG. 18B).
func TestOneTouch(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		once := y.lend(LocalWrite | RemoteWrite | OneTouch)
		report, err := y.a.Report(r.Ctx())
		r.Must(err)
		seen := false
		for _, mr := range report.MRs {
			seen = seen || mr.OneTouch && strings.Contains(strings.Join(mr.Columns(), " "), "one-touch")
		}
		if !seen {
			r.Error("the report has no region of one touch")
		}
		for i, text := range []string{"first", "second"} {
			x.post(SendWR{ID: uint64(i), Op: WRWrite, Inline: []byte(text), RKey: once.RKey(), Flags: Signaled})
		}
		y.done()
		if got := string(once.Bytes()[:6]); got != "first\x00" {
			r.Errorf("memory has %q", got)
		}
		if y.qp.Err() == nil {
			r.Error("the second Write was not refused")
		}
		r.Must(once.Close())
	})
}

// A window of one touch serves one Write. Then it is unbound: the region can be closed, and
// the window can be bound again. A second Write is refused and ends the connection.
func TestOneTouchWindow(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, kind := range []MWType{MWType1, MWType2A, MWType2B} {
			x, y := r.connect(wants{})
			x.hello()
			mr, mw := y.lend(LocalWrite|MWBind), y.window(kind)
			for i, text := range []string{"first", "again"} {
				stag := y.bind(mw, mr, 10*i, 10, RemoteWrite|ZeroBased|OneTouch)
				y.bound()
				r.Says(mr.Close(), ErrInUse, "1 memory windows")
				x.post(SendWR{Op: WRWrite, Inline: []byte(text), RKey: stag})
				x.hello()
			}
			if got := string(mr.Bytes()[:16]); got != "first\x00\x00\x00\x00\x00again\x00" {
				r.Errorf("type %v: memory has %q", kind, got)
			}
			x.post(SendWR{Op: WRWrite, Inline: []byte("second"), RKey: mw.RKey()})
			x.done()
			r.Says(x.qp.Err(), nil, "invalid STag")
			r.Must(mr.Close())
			r.Must(mw.Close())
		}
	})
}

// A region of one touch is the sink of one Read. The second Read completes with
// LocalProtErr when its Response comes.
func TestOneTouchRead(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		x.hello()
		from, once := y.lend(RemoteRead), x.lend(LocalWrite|OneTouch)
		copy(from.Bytes(), "octets")
		for range 2 {
			x.post(SendWR{Op: WRRead, SGL: []SGE{once.SGE(0, 6)}, RKey: from.RKey(), Flags: Signaled})
		}
		if got := x.sent(2); got[0].Status != Success || got[1].Status != LocalProtErr {
			r.Errorf("%+v", got)
		}
		if got := string(once.Bytes()[:7]); got != "octets\x00" {
			r.Errorf("memory has %q", got)
		}
		r.Must(once.Close())
	})
}

// A registration by work request may have one touch, and so may other rights of a region.
func TestOneTouchByRequest(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, rereg := range []bool{false, true} {
			x, y := r.connect(wants{qp: QPConfig{RegMR: true}})
			x.hello()
			mr, stag := y.lend(0), STag(0)
			if rereg {
				r.Must(mr.Rereg(LocalWrite | RemoteWrite | OneTouch))
				stag = mr.RKey()
			} else {
				buf := mr.Bytes()
				reserved, err := y.pd.ReserveMR()
				r.Must(err)
				stag, err = y.qp.PostRegMR(RegWR{MR: reserved, Memory: buf, Access: LocalWrite | RemoteWrite | OneTouch, Flags: Signaled})
				r.Must(err)
				r.ok(y.sent(1))
			}
			for _, text := range []string{"first", "second"} {
				x.post(SendWR{Op: WRWrite, Inline: []byte(text), RKey: stag})
			}
			x.done()
			r.Says(x.qp.Err(), nil, "invalid STag")
			if got := string(mr.Bytes()[:6]); got != "first\x00" {
				r.Errorf("memory has %q", got)
			}
		}
	})
}

// One touch counts Writes of peers and Reads of this end. Without a right for one of them,
// and with a right for other messages, it is refused.
func TestOneTouchRights(t *testing.T) {
	r := newLoopback(t)
	x, _ := r.connect(wants{qp: QPConfig{RegMR: true}})
	mr, mw := x.lend(LocalWrite|MWBind), x.window(MWType1)
	for _, access := range []Access{0, RemoteRead, LocalWrite | RemoteRead, LocalWrite | RemoteWrite | RemoteRead, LocalWrite | RemoteAtomic} {
		access |= OneTouch
		_, err := x.pd.AllocMR(100, access)
		r.Says(err, nil, "one touch counts Writes of peers")
		r.Says(mr.Rereg(access), nil, "one touch counts Writes of peers")
		_, err = x.qp.PostSend(SendWR{Op: WRRegMR, SGL: []SGE{mr.SGE(0, 8)}, Access: access})
		r.Says(err, ErrBadWR, "one touch counts Writes of peers")
		_, err = x.qp.PostSend(SendWR{Op: WRBindMW, RKey: mw.NextRKey(), SGL: []SGE{mr.SGE(0, 8)}, Access: access &^ LocalWrite})
		r.Says(err, ErrBadWR, "one touch counts Writes of peers")
	}
}
