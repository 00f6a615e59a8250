package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// privates are lengths of private data in octets, near the limits of peers and of the frame. The limit of siw is 256
// with the block, that of the frame 512 with the block.
var privates = []int{0, 251, 252, 256, 508, 509, 512, 513}

// revisions are the heads of frames of each revision, with the room for private data after them.
var revisions = []struct {
	number uint8
	flags  uint8
	block  []byte
	room   int
}{
	{1, rawpeer.CRC, nil, 512},
	{2, rawpeer.CRC | rawpeer.Enhanced, rawpeer.Block(4, 4), 508},
}

func eachPrivate(t *testing.T, f func(r *rig, revision, n, room int, frame func(key string, flags uint8) rawpeer.Frame)) {
	onBothPaths(t, func(r *rig) {
		for _, rev := range revisions {
			for _, n := range privates {
				r.TB.(*testing.T).Run(fmt.Sprintf("revision %d, %d octets", rev.number, n), func(t *testing.T) {
					f(r.with(t), int(rev.number), n, rev.room, func(key string, flags uint8) rawpeer.Frame {
						private := append(bytes.Clone(rev.block), saying(n)...)
						return rawpeer.Frame{Key: key, Flags: rev.flags | flags, Revision: rev.number, Claim: len(private), Private: private}
					})
				})
			}
		}
	})
}

// saying returns n octets of private data.
func saying(n int) (b []byte) {
	for i := range n {
		b = append(b, byte(i*11+1))
	}
	return b
}

// TestPrivateOfInitiators checks that private data of the peer reaches the application, and that of the application the
// peer, octet by octet. Too much data is an error, and the request can still be answered.
func TestPrivateOfInitiators(t *testing.T) {
	eachPrivate(t, func(r *rig, revision, n, room int, frame func(string, uint8) rawpeer.Frame) {
		if n > room {
			badRequest{sends: frame(rawpeer.RequestKey, 0).Bytes(), then: waits, count: malformed}.run(r)
		}
		v := newVictim(r)
		request := frame(rawpeer.RequestKey, 0)
		said := saying(n)
		if n > room {
			request, said = rawpeer.Request(rawpeer.CRC, uint8(revision)), nil
			if revision == 2 {
				request = usual
			}
		}
		v.peer = v.dial()
		v.Must(v.peer.Octets(request.Bytes()))
		req, err := v.l.Accept(v.Ctx())
		v.Must(err)
		if got := req.PrivateData(); !bytes.Equal(got, said) {
			v.Errorf("the application is told %x, want %x", got, said)
		}
		p := usualParams
		p.PrivateData = saying(n)
		err = req.Accept(v.Ctx(), v.qp, p)
		if (err != nil) != (n > room) {
			v.Fatalf("Accept with %d octets: %v", n, err)
		}
		if err != nil {
			if err := req.Reject(saying(n)); err == nil {
				v.Errorf("rejected with %d octets", n)
			}
			p.PrivateData = nil
			v.Must(req.Accept(v.Ctx(), v.qp, p))
		}
		reply, err := v.peer.Frame()
		v.Must(err)
		want := p.PrivateData
		if revision == 2 {
			want = append(rawpeer.Block(4, 4), want...)
		}
		if !bytes.Equal(reply.Private, want) {
			v.Errorf("the Reply has %x, want %x", reply.Private, want)
		}
		v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(1, []byte("begun")))))
		v.received(0, "begun")
		v.closeInOrder()
	})
}

// TestPrivateOfResponders checks that private data in a Reply, and in a Reply that rejects, arrives octet by octet.
func TestPrivateOfResponders(t *testing.T) {
	eachPrivate(t, func(r *rig, revision, n, room int, frame func(string, uint8) rawpeer.Frame) {
		v := newVictim(r)
		p := usualParams
		p.Revision, p.PrivateData = revision, saying(n)
		if n > room {
			if err := v.qp.Dial(v.Ctx(), "192.0.2.1:1", p); err == nil || errors.Is(err, rdma.ErrNoPort) {
				v.Errorf("dialled with %d octets: %v", n, err)
			}
			p.PrivateData = nil
		}
		for _, no := range []uint8{rawpeer.Reject, 0} {
			request, err := v.call(p, replies(frame(rawpeer.ReplyKey, no).Bytes()))
			if got := request.Private; !bytes.HasSuffix(got, p.PrivateData) || len(got)-len(p.PrivateData) != 512-room {
				v.Errorf("the Request has %x, want %x at its end", got, p.PrivateData)
			}
			var rejected *rdma.RejectedError
			var malformed *mpa.FrameError
			switch {
			case n > room:
				if !errors.As(err, &malformed) {
					v.Errorf("%d octets, flags %#x: %v", n, no, err)
				}
			case no != 0:
				if !errors.As(err, &rejected) || !bytes.Equal(rejected.PrivateData, saying(n)) {
					v.Errorf("rejected with %d octets: %v", n, err)
				}
			default:
				v.Must(err)
				if got := v.qp.Conn().PrivateData; !bytes.Equal(got, saying(n)) {
					v.Errorf("the application is told %x, want %x", got, saying(n))
				}
				v.closeCalled()
				return
			}
		}
		v.closeUnused()
	})
}
