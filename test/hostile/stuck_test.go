package hostile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// stuff requests more than all buffers hold, and reads none of it, until nothing moves any more.
func (v *victim) stuff() {
	v.Helper()
	v.Must(v.peer.Conn.SetReadBuffer(256 << 10))
	var all []byte
	for i := range uint32(100) {
		all = append(all, rawpeer.FPDU(rawpeer.ReadRequest(i+1, rawpeer.Read{
			Size: regionLen, SourceSTag: v.open.RKey(),
		}))...)
	}
	v.Must(v.peer.Octets(all))
	time.Sleep(300 * time.Millisecond)
}

// deep permits this many Reads at a time.
var deep = rdma.ConnParams{IRD: 128, ORD: 4, NoPeerToPeer: true}

// A peer that reads slowly gets everything.
func TestSlowReader(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, deep)
		v.stuff()
		for range 100 {
			v.readBack(0, 0, v.images[v.open])
		}
		v.Must(v.peer.Conn.CloseWrite())
		if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
			v.Errorf("the end is %v, %v; want a FIN", end, err)
		}
		v.over()
		v.Check(v.qp.Err())
		v.completed(nil, flushed)
		v.intact()
		v.bury()
	})
}

// A peer that reads nothing cannot receive its Terminate, and a peer that has read it may not close. The victim resets
// both after a while. The test does not say how long that is. All work requests are flushed.
func TestTerminatedPeersLinger(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		stuffed, lingers := newVictim(r), newVictim(r)
		stuffed.accept(usual, deep)
		stuffed.stuff()
		lingers.accept(usual, usualParams)
		for _, v := range []*victim{stuffed, lingers} {
			v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(7, nil))))
		}
		_, err := lingers.peer.Terminated()
		r.Must(err)
		for _, v := range []*victim{stuffed, lingers} {
			v.over()
			v.blamed(false, "1/2/03")
			v.Eventually("the reset", func() bool { return v.peer.Octets([]byte{0}) != nil })
			v.completed(nil, flushed)
			v.intact()
			v.bury()
		}
	})
}

// A QP whose peer reads nothing can be closed.
func TestClosedWhileStuffed(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, deep)
		v.stuff()
		v.Must(v.qp.Close())
		v.blamedLocally()
		v.completed(nil, flushed)
		v.intact()
		v.bury()
	})
}

// blamedLocally demands that the application has ended the connection.
func (v *victim) blamedLocally() {
	v.Helper()
	if err := v.qp.Err(); !errors.Is(err, rdma.ErrClosed) && !errors.Is(err, stream.ErrAborted) {
		v.Errorf("the QP's error is %v, want that it was closed", err)
	}
}

// A peer that does not close its side delays Disconnect until its context ends, and no longer.
func TestDisconnectFromStubborn(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		v.echo(1)
		ctx, cancel := context.WithTimeout(v.Ctx(), 100*time.Millisecond)
		defer cancel()
		if err := v.qp.Disconnect(ctx); !errors.Is(err, context.DeadlineExceeded) {
			v.Errorf("Disconnect returns %v", err)
		}
		if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
			v.Errorf("the end is %v, %v; want a FIN", end, err)
		}
		v.Must(v.qp.Close())
		v.completed(nil, []rdma.Status{rdma.Flushed})
		v.intact()
		v.bury()
	})
}

// A peer that closes its side while a Read of the victim is outstanding cannot answer any more.
func TestPeerClosesBeforeResponse(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		_, err := v.call(usualParams, replies(usualReply.Bytes()))
		v.Must(err)
		v.begin([]rdma.SendWR{{ID: 1, Op: rdma.WRRead, SGL: []rdma.SGE{v.writable.SGE(0, 100)}, RKey: 1}})
		v.Must(v.peer.Conn.CloseWrite())
		v.over()
		v.lost(rdmap.ErrPeerClosed)
		v.completed([]rdma.Status{rdma.Flushed}, flushed)
		v.intact()
		v.bury()
	})
}

// A peer that closes its side still receives. It gets all posted messages, and a FIN. Only a Read ends the connection
// with an error when it is next, because the peer cannot answer it. Earlier work requests have completed, and their
// data still arrives.
func TestPeerClosesBeforeOurMessages(t *testing.T) {
	const writes, each = 15, 4 * regionLen // together more than all buffers hold
	onBothPaths(t, func(r *rig) {
		for _, reads := range []bool{false, true} {
			v := newVictim(r)
			_, err := v.call(usualParams, replies(usualReply.Bytes()))
			v.Must(err)
			v.Must(v.peer.Conn.SetReadBuffer(64 << 10))
			var posted []rdma.SendWR
			var ends []rdma.Status
			whole := v.open.SGE(0, regionLen)
			for range writes {
				posted = append(posted, rdma.SendWR{Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{whole, whole, whole, whole}, RKey: 5})
				ends = append(ends, rdma.Success)
			}
			if reads {
				posted = append(posted, rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{v.writable.SGE(0, 100)}, RKey: 1})
				ends = append(ends, rdma.Flushed)
			}
			_, err = v.qp.PostSend(posted...)
			v.Must(err)
			v.Must(v.peer.Conn.CloseWrite())
			image := bytes.Repeat(v.images[v.open], 2)
			for got := 0; got < writes*each; {
				ulpdu, err := v.peer.FPDU()
				v.Must(err)
				h, payload, ok := wire.ParseTagged(ulpdu)
				if from := got % regionLen; !ok || h.Opcode() != wire.OpWrite || !bytes.Equal(payload, image[from:from+len(payload)]) {
					v.Fatalf("after %d octets: %x", got, ulpdu[:14])
				}
				got += len(payload)
			}
			ulpdu, err := v.peer.FPDU()
			if reads && err == nil { // the Read left before the FIN was seen
				h, _, ok := wire.ParseUntagged(ulpdu)
				if !ok || h.Opcode() != wire.OpReadRequest {
					v.Errorf("behind the Writes comes %x", ulpdu)
				}
				_, err = v.peer.FPDU()
			}
			if !errors.Is(err, io.EOF) {
				v.Errorf("the end is %v, want a FIN", err)
			}
			v.over()
			if reads {
				v.lost(rdmap.ErrPeerClosed)
			} else {
				v.Check(v.qp.Err())
			}
			v.completed(ends, flushed)
			v.intact()
			v.bury()
		}
	})
}

// A peer that has closed both sides answers all further segments with a reset. No call hangs.
func TestPeerIsGoneBeforeOurMessages(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		_, err := v.call(usualParams, replies(usualReply.Bytes()))
		v.Must(err)
		v.Must(v.peer.Conn.SetReadBuffer(64 << 10))
		whole := v.open.SGE(0, regionLen)
		for range 15 {
			_, err = v.qp.PostSend(rdma.SendWR{Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{whole, whole, whole, whole}, RKey: 5})
			v.Must(err)
		}
		v.Must(v.peer.Conn.CloseWrite())
		v.Must(v.peer.Conn.Close())
		v.over()
		v.lost(stream.ErrReset)
		all := statuses(v.sends)
		if i := slices.Index(all, rdma.Flushed); len(all) != 15 || i >= 0 && slices.Contains(all[i:], rdma.Success) {
			v.Errorf("sends completed with %v", all)
		}
		v.completed(nil, flushed)
		v.intact()
		v.bury()
	})
}

// An RTR message must be the one that the Reply names, and empty. Otherwise the peer gets a Terminate at once, and
// nothing is placed.
func TestWrongRTR(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range []struct {
			name     string
			ird, ord uint16 // IRD and ORD of the Request's block
			first    func(v *victim) []byte
		}{
			{"a Send with octets", rawpeer.RTRSend | 4, 4, func(*victim) []byte { return rawpeer.Send(1, []byte("not empty")) }},
			{"a Write with octets", 4, rawpeer.RTRWrite | 4, func(v *victim) []byte {
				return rawpeer.Write(uint32(v.open.RKey()), 0, []byte("8 octets"))
			}},
			{"a Send for a Write", 4, rawpeer.RTRWrite | 4, func(*victim) []byte { return rawpeer.Send(1, nil) }},
			{"a Write for a Read", 4, rawpeer.RTRRead | 4, func(*victim) []byte { return rawpeer.Write(1, 0, nil) }},
		} {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) {
				v := newVictim(r.with(t))
				v.accept(rawpeer.Request(rawpeer.CRC|rawpeer.Enhanced, 2, rawpeer.Block(rawpeer.PeerToPeer|c.ird, c.ord)...), usualParams)
				v.Must(v.peer.Octets(rawpeer.FPDU(c.first(v))))
				got, err := v.peer.Terminated()
				v.Must(err)
				if got.String() != "2/0/07" || got.Header != nil {
					v.Errorf("the Terminate is %v, %+v; want 2/0/07", got, got)
				}
				v.peer.Conn.Close()
				v.over()
				v.blamed(false, "2/0/07")
				v.completed(nil, flushed)
				v.intact()
				v.bury()
			})
		}
	})
}

// Everything of a connection can come in one segment with its end: messages, a
// Terminate, a FIN.
func TestAllAtOnce(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		v.expect(v.open, 3, []byte("last words"))
		v.Must(v.peer.Octets(rawpeer.FPDUs(
			rawpeer.Write(uint32(v.open.RKey()), 3, []byte("last words")),
			rawpeer.Send(1, nil),
			rawpeer.Untagged{Op: wire.OpTerminate, Queue: 2, MSN: 1}.With([]byte{0x02, 7, 0, 0}),
			rawpeer.Write(uint32(v.open.RKey()), 0, bytes.Repeat([]byte{0xaa}, 100)), // after it nothing counts
		)))
		v.Must(v.peer.Conn.CloseWrite())
		if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
			v.Errorf("the end is %v, %v; want a FIN", end, err)
		}
		v.over()
		v.blamed(true, "0/2/07")
		v.completed(nil, []rdma.Status{rdma.Success, rdma.Flushed})
		v.intact()
		v.bury()
	})
}
