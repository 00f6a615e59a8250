package hostile

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// A peer that demands Markers gets them. A peer that is asked for Markers may send them. The test covers each
// combination in both roles.
func TestMarkers(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range []struct {
			name           string
			called         bool // the victim is the initiator
			demand, asking bool // the peer's demand; ours
		}{
			{"demanded", false, true, false},
			{"asked for", false, false, true},
			{"both", false, true, true},
			{"demanded by a responder", true, true, false},
			{"both, called", true, true, true},
		} {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) {
				v := newVictim(r.with(t))
				v.meet(c.called, c.demand, c.asking)
				v.marked(c.demand, c.asking)
			})
		}
	})
}

// meet connects the victim and demands that the flags on the wire are right.
func (v *victim) meet(called, demand, asking bool) {
	v.Helper()
	flags := byte(rawpeer.CRC | rawpeer.Enhanced)
	if demand {
		flags |= rawpeer.Markers
	}
	params := usualParams
	params.Markers = asking
	var theirs rawpeer.Frame
	if called {
		var err error
		theirs, err = v.call(params, replies(rawpeer.Reply(flags, 2, rawpeer.Block(4, 4)...).Bytes()))
		v.Must(err)
	} else {
		theirs = v.accept(rawpeer.Request(flags, 2, rawpeer.Block(4, 4)...), params)
	}
	if asked := theirs.Flags&rawpeer.Markers != 0; asked != asking {
		v.Errorf("the victim's flag M is %v, want %v", asked, asking)
	}
	if got := v.qp.Conn(); got.SendMarkers != demand || got.RecvMarkers != asking {
		v.Errorf("agreed: %+v", got)
	}
}

// marked writes to the victim and reads from it, with Markers where they are required, in pieces of many lengths.
func (v *victim) marked(demand, asking bool) {
	v.Helper()
	data := make([]byte, 20000)
	rand.NewChaCha8([32]byte{3}).Read(data)
	v.expect(v.open, 0, data)
	var in rawpeer.Marked
	var out []byte
	put := func(ulpdu []byte) {
		if asking {
			out = append(out, in.FPDU(ulpdu)...)
		} else {
			out = append(out, rawpeer.FPDU(ulpdu)...)
		}
	}
	for at, n := 0, 1; at < len(data); at, n = at+n, n%1500+37 {
		n = min(n, len(data)-at)
		put(rawpeer.Write(uint32(v.open.RKey()), uint64(at), data[at:at+n]))
	}
	put(rawpeer.ReadRequest(1, rawpeer.Read{SinkSTag: 9, Size: uint32(len(data)), SourceSTag: v.open.RKey()}))
	v.Must(v.peer.Pieces(out, 777, 0))
	v.unmarked(demand, data)
	v.Must(v.peer.Conn.CloseWrite())
	if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
		v.Errorf("the end is %v, %v; want a FIN", end, err)
	}
	v.over()
	v.Check(v.qp.Err())
	v.completed(nil, flushed)
	v.intact()
	v.bury()
}

// unmarked reads a Response.
func (v *victim) unmarked(demand bool, want []byte) {
	v.Helper()
	var m rawpeer.Marked
	var got []byte
	from := bufio.NewReaderSize(v.peer.Conn, 1<<16)
	for len(got) < len(want) {
		var ulpdu []byte
		var err error
		if demand {
			ulpdu, err = m.Read(from)
		} else {
			ulpdu, err = v.peer.FPDU()
		}
		v.Must(err)
		if len(ulpdu) < wire.TaggedLen {
			v.Fatalf("a ULPDU of %d octets", len(ulpdu))
		}
		got = append(got, ulpdu[wire.TaggedLen:]...)
	}
	if !bytes.Equal(got, want) {
		v.Error("the Response is wrong")
	}
}

// A wrong Marker and a missing Marker are detected.
func TestBadMarkers(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range []struct {
			name string
			m    *rawpeer.Marked
			want []string
		}{
			{"points elsewhere", &rawpeer.Marked{Spoil: 4}, []string{"2/0/03"}},
			// The victim takes the head of an FPDU for the first Marker, and the following octets for another FPDU. The
			// CRC or the length of that FPDU is wrong.
			{"is missing", nil, []string{"2/0/02", "2/0/03"}},
		} {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) {
				v := newVictim(r.with(t))
				v.meet(false, false, true)
				ulpdu := rawpeer.Write(uint32(v.open.RKey()), 0, make([]byte, 1000))
				if c.m != nil {
					v.Must(v.peer.Octets(c.m.FPDU(ulpdu)))
				} else {
					v.Must(v.peer.Octets(rawpeer.FPDU(ulpdu)))
				}
				got, err := v.peer.Terminated()
				v.Must(err)
				if s := got.String(); s != c.want[0] && s != c.want[len(c.want)-1] {
					t.Errorf("the Terminate is %v, want one of %v", got, c.want)
				}
				v.peer.Conn.Close()
				v.over()
				v.completed(nil, flushed)
				v.intact()
				v.bury()
			})
		}
	})
}

// Without the CRC, its field can have any value and is not checked. Both ends must agree to work without it.
func TestNoCRC(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		params := usualParams
		params.NoCRC = true
		reply := v.accept(rawpeer.Request(rawpeer.Enhanced, 2, rawpeer.Block(4, 4)...), params)
		if reply.Flags != rawpeer.Enhanced || v.qp.Conn().CRC {
			v.Errorf("the Reply is %v, agreed %+v; want no CRC", reply, v.qp.Conn())
		}
		v.peer.NoCRC = true
		b := rawpeer.FPDU(rawpeer.Write(uint32(v.open.RKey()), 0, []byte("unchecked")))
		copy(b[len(b)-4:], "junk")
		v.expect(v.open, 0, []byte("unchecked"))
		v.Must(v.peer.Octets(b))
		v.echo(1)
		v.closeInOrder()
	})
}
