package hostile

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// death is the way in which a peer ends during work.
type death struct {
	name string
	goes func(p *rawpeer.Peer) error
	want error
}

// A peer dies in the middle of a message, with a Read of the victim and a Write of its own outstanding. Everything is
// flushed in order, and nothing hangs.
func TestPeerDies(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, d := range []death{
			{"reset", (*rawpeer.Peer).Kill, stream.ErrReset},
			{"FIN", func(p *rawpeer.Peer) error { return p.Conn.CloseWrite() }, rdmap.ErrTruncated},
		} {
			r.TB.(*testing.T).Run(d.name, func(t *testing.T) {
				v := newVictim(r.with(t))
				v.accept(usual, usualParams)
				v.halfWay()
				v.Must(d.goes(v.peer))
				v.over()
				v.lost(d.want)
				v.completed([]rdma.Status{rdma.Success, rdma.Flushed, rdma.Flushed}, []rdma.Status{rdma.Success, rdma.Flushed})
				v.intact()
				v.bury()
			})
		}
	})
}

// halfWay completes a Send, leaves a Read outstanding and another fenced Read after it, and receives half of a Write
// of the peer.
func (v *victim) halfWay() {
	v.Helper()
	v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(1, nil))))
	v.Must(v.recvs.Wait(v.Ctx()))
	_, err := v.qp.PostSend(
		rdma.SendWR{ID: 1, Op: rdma.WRSend, Flags: rdma.Signaled},
		rdma.SendWR{ID: 2, Op: rdma.WRRead, SGL: []rdma.SGE{v.writable.SGE(0, 100)}, RKey: 1},
		rdma.SendWR{ID: 3, Op: rdma.WRSend, Flags: rdma.Fence},
	)
	v.Must(err)
	for range 2 {
		_, err := v.peer.FPDU()
		v.Must(err)
	}
	v.expect(v.open, 0, []byte("half"))
	v.expect(v.writable, 0, []byte("10 octets."))
	v.Must(v.peer.Octets(rawpeer.FPDUs(
		rawpeer.TaggedSegment(wire.OpReadResponse, false, uint32(v.writable.RKey()), 0, []byte("10 octets.")),
		rawpeer.TaggedSegment(wire.OpWrite, false, uint32(v.open.RKey()), 0, []byte("half")),
	)))
	v.Eventually("the half is there", func() bool { return bytes.Equal(v.open.Bytes()[:4], []byte("half")) })
}

// A silent peer keeps its connection. Destroying the QP flushes the work requests and resets the connection.
func TestSilentPeer(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		v.halfWay()
		v.Must(v.qp.Close())
		if end, err := v.peer.End(); err != nil || end != rawpeer.Reset {
			v.Errorf("the end is %v, %v; want a reset", end, err)
		}
		v.completed([]rdma.Status{rdma.Success, rdma.Flushed, rdma.Flushed}, []rdma.Status{rdma.Success, rdma.Flushed})
		v.intact()
		v.bury()
	})
}

// A Terminate of the peer, in the RFC's form or in siw's, flushes everything. It gives the Read that it names its
// status. The victim answers it with a FIN.
func TestPeerTerminates(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range []struct {
			name    string
			payload func(request []byte) []byte
			want    string
			read    rdma.Status
			swapped bool
		}{
			{"CRC", func([]byte) []byte { return []byte{0x20, 2, 0, 0} }, "2/0/02", rdma.Flushed, false},
			{"CRC, as Chelsio has it", func([]byte) []byte { return []byte{0x23, 2, 0, 0} }, "2/3/02", rdma.Flushed, false},
			{"catastrophe", func([]byte) []byte { return []byte{0, 0xff, 0, 0} }, "0/0/ff", rdma.Flushed, false},
			{"unassigned", func([]byte) []byte { return []byte{0x17, 0x55, 0, 0} }, "1/7/55", rdma.Flushed, false},
			{"the Read, access", func(q []byte) []byte { return append([]byte{0x01, 2, 0xe0, 0, 0, 46}, q...) }, "0/1/02", rdma.RemoteAccessErr, false},
			{"the Read, siw", func(q []byte) []byte { return append([]byte{0x10, 0, 7, 0, 0, 0}, q...) }, "0/1/00", rdma.RemoteAccessErr, true},
			{"announces what is not there", func([]byte) []byte { return []byte{0x01, 2, 0xe0, 0} }, "0/1/02", rdma.Flushed, false},
		} {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) {
				v := newVictim(r.with(t))
				_, err := v.call(usualParams, replies(usualReply.Bytes()))
				v.Must(err)
				_, err = v.qp.PostSend(rdma.SendWR{ID: 2, Op: rdma.WRRead, SGL: []rdma.SGE{v.writable.SGE(0, 100)}, RKey: 1})
				v.Must(err)
				request, err := v.peer.FPDU()
				v.Must(err)
				v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Untagged{Op: wire.OpTerminate, Queue: 2, MSN: 1}.With(c.payload(request)))))
				if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
					v.Errorf("the end is %v, %v; want a FIN and no answer", end, err)
				}
				v.peer.Conn.Close()
				v.over()
				v.blamed(true, c.want)
				var e *rdma.QPError
				if errors.As(v.qp.Err(), &e) && e.Swapped != c.swapped {
					v.Errorf("%v: said to be in siw's order: %v", e, e.Swapped)
				}
				v.completed([]rdma.Status{c.read}, flushed)
				v.intact()
				v.bury()
			})
		}
	})
}

// A peer sends a Terminate and resets the connection at once because it has not read all octets, as Linux siw does. The
// victim still receives the Terminate.
func TestTerminateAndReset(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for range 20 {
			v := newVictim(r)
			v.accept(usual, usualParams)
			v.Must(v.peer.Octets(rawpeer.FPDUs(
				rawpeer.Write(0, 0, nil),
				rawpeer.Untagged{Op: wire.OpTerminate, Queue: 2, MSN: 1}.With([]byte{0x20, 2, 0, 0}),
			)))
			v.Must(v.peer.Kill())
			v.over()
			v.blamed(true, "2/0/02")
			v.completed(nil, flushed)
			v.intact()
			v.bury()
		}
	})
}

// A malformed Terminate is a fault like any other.
func TestBadTerminates(t *testing.T) {
	terminate := rawpeer.Untagged{Op: wire.OpTerminate, Queue: 2, MSN: 1}
	spoilt := func(change func(u *rawpeer.Untagged)) func(*victim) []byte {
		u := terminate
		change(&u)
		return func(*victim) []byte { return u.With([]byte{0x20, 2, 0, 0}) }
	}
	onBothPaths(t, func(r *rig) {
		for _, f := range []fault{
			{name: "queue 0", want: "1/2/01", bad: spoilt(func(u *rawpeer.Untagged) { u.Queue = 0 })},
			{name: "MSN 2", want: "1/2/03", bad: spoilt(func(u *rawpeer.Untagged) { u.MSN = 2 })},
			{name: "offset 4", want: "1/2/04", bad: spoilt(func(u *rawpeer.Untagged) { u.MO = 4 })},
			{name: "three octets", want: "2/0/03", bad: func(*victim) []byte { return terminate.With([]byte{1, 2, 3}) }},
		} {
			r.TB.(*testing.T).Run(f.name, func(t *testing.T) { f.run(r.with(t)) })
		}
	})
}

// The victim sends nothing before the initiator's first FPDU (RFC 5044 §7.1.2).
func TestResponderWaits(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		_, err := v.qp.PostSend(rdma.SendWR{ID: 1, Op: rdma.WRSend, Inline: []byte("patience")})
		v.Must(err)
		v.Must(v.peer.Conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		if ulpdu, err := v.peer.FPDU(); err == nil || errors.Is(err, io.EOF) {
			v.Errorf("before the first FPDU: %x, %v", ulpdu, err)
		}
		v.Must(v.peer.Conn.SetReadDeadline(time.Now().Add(rawpeer.Patience)))
		v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Write(0, 0, nil))))
		if ulpdu, err := v.peer.FPDU(); err != nil || !bytes.Equal(ulpdu, rawpeer.Send(1, []byte("patience"))) {
			v.Errorf("after the first FPDU: %x, %v", ulpdu, err)
		}
		v.Must(v.peer.Kill())
		v.over()
		v.completed(nil, flushed)
		v.bury()
	})
}
