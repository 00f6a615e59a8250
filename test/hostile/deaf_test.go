package hostile

import (
	"bytes"
	"io"
	"testing"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// A responder's TCP receives the first message, but the responder processes it only when more arrives, as Linux siw
// does. The victim sends it an empty Write, and no more after the responder has sent something.
func TestDeafResponder(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for name, first := range map[string]goodReply{
			"Send": {params: usualParams, sends: usualReply},
			"peer-to-peer": {params: rdma.ConnParams{}, first: rawpeer.Write(0, 0, nil),
				sends: rawpeer.Reply(rawpeer.CRC|rawpeer.Enhanced, 2, rawpeer.Block(rawpeer.PeerToPeer|32, rawpeer.RTRWrite|32)...)},
		} {
			r.TB.(*testing.T).Run(name, func(t *testing.T) {
				v := newVictim(r.with(t))
				_, err := v.call(first.params, replies(first.sends.Bytes()))
				v.Must(err)
				if first.first != nil {
					v.next(first.first)
				} else {
					v.begin([]rdma.SendWR{{ID: 1, Op: rdma.WRSend, Inline: []byte("hello?"), Flags: rdma.Signaled}})
				}
				v.nudged()
				v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(1, []byte("yes?")))))
				v.received(0, "yes?")
				_, err = v.qp.PostSend(rdma.SendWR{ID: 2, Op: rdma.WRSend, Inline: []byte("at last"), Flags: rdma.Signaled})
				v.Must(err)
				msn, done := uint32(1), []rdma.Status{rdma.Success}
				if first.first == nil {
					msn, done = 2, append(done, rdma.Success)
				}
				v.next(rawpeer.Send(msn, []byte("at last")))
				heard := v.peer.Nudges
				v.Must(v.peer.Conn.CloseWrite())
				if end, err := v.peer.End(); err != nil || end != rawpeer.FIN || v.peer.Nudges != heard {
					v.Errorf("the end is %v, %v, behind %d empty Writes; want a FIN", end, err, v.peer.Nudges-heard)
				}
				v.over()
				v.Check(v.qp.Err())
				v.completed(done, []rdma.Status{rdma.Flushed})
				v.intact()
				v.bury()
			})
		}
	})
}

// next demands this FPDU next.
func (v *victim) next(want []byte) {
	v.Helper()
	if ulpdu, err := v.peer.FPDU(); err != nil || !bytes.Equal(ulpdu, want) {
		v.Errorf("the next FPDU is %x, %v; want %x", ulpdu, err, want)
	}
}

// nudged demands an empty Write as the next FPDU.
func (v *victim) nudged() {
	v.Helper()
	want := rawpeer.FPDU(rawpeer.Write(0, 0, nil))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(v.peer.Conn, got); err != nil || !bytes.Equal(got, want) {
		v.Fatalf("%x, %v came to a silent peer; want an empty Write", got, err)
	}
}

// An end that closes such a connection does so after the first empty Write. Otherwise a peer that has not processed its
// first message would lose it.
func TestCloseOfDeafResponder(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		_, err := v.call(usualParams, replies(usualReply.Bytes()))
		v.Must(err)
		v.begin([]rdma.SendWR{{ID: 1, Op: rdma.WRSend, Inline: []byte("good bye"), Flags: rdma.Signaled}})
		closed := make(chan error, 1)
		go func() { closed <- v.qp.Disconnect(v.Ctx()) }()
		v.nudged()
		if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
			v.Errorf("the end is %v, %v; want a FIN", end, err)
		}
		v.peer.Conn.Close()
		v.Must(<-closed)
		v.completed([]rdma.Status{rdma.Success}, flushed)
		v.intact()
		v.bury()
	})
}
