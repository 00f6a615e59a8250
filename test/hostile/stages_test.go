package hostile

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// seed is the seed of the random choices below. It is the same in every run.
const seed = 7

// goes ends a connection in one of four ways: a FIN, a FIN in the middle of an FPDU, a reset, or a close after a
// fault.
func goes(p *rawpeer.Peer, how int) error {
	fpdu := rawpeer.FPDU(rawpeer.Write(1, 0, []byte("nowhere")))
	switch how {
	case 0:
		return p.Conn.CloseWrite()
	case 1:
		p.Octets(fpdu[:20])
		return p.Conn.CloseWrite()
	case 2:
		return p.Kill()
	}
	p.Octets(fpdu)
	return p.Conn.Close()
}

// A peer leaves by a FIN or a reset at any time from its Request on, while the connection is accepted and taken over.
// The victim gets an error, or a connection that ends. All work requests are flushed once.
func TestGoesWhileAccepted(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		random := rand.New(rand.NewPCG(seed, 1))
		var refused, ended int
		for range 60 {
			v := newVictim(r)
			v.peer = v.dial()
			v.Must(v.peer.Octets(usual.Bytes()))
			req, err := v.l.Accept(v.Ctx())
			v.Must(err)
			gone := make(chan error, 1)
			go func(after time.Duration, how int) {
				time.Sleep(after)
				gone <- goes(v.peer, how)
			}(time.Duration(random.IntN(15000))*time.Microsecond, random.IntN(4))
			if err := req.Accept(v.Ctx(), v.qp, usualParams); err != nil {
				refused++
			} else {
				v.over()
				ended++
			}
			<-gone // a peer that cannot send this any more is also gone
			v.Must(v.qp.Close())
			v.completed(nil, flushed)
			v.bury()
		}
		r.Logf("%d peers were gone before they were accepted, %d afterwards", refused, ended)
		r.works()
	})
}

// The test is the same with the roles exchanged: the peer leaves at any time from its Reply on.
func TestGoesWhileDialled(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		random := rand.New(rand.NewPCG(seed, 2))
		var refused, ended int
		for range 60 {
			v := newVictim(r)
			after, how := time.Duration(random.IntN(15000))*time.Microsecond, random.IntN(4)
			gone := make(chan error, 1)
			_, err := v.call(usualParams, func(rawpeer.Frame) []byte {
				v.Must(v.peer.Octets(usualReply.Bytes()))
				go func() {
					time.Sleep(after)
					gone <- goes(v.peer, how)
				}()
				return nil
			})
			if err != nil {
				refused++
			} else {
				v.over()
				ended++
			}
			<-gone
			v.Must(v.qp.Close())
			v.completed(nil, flushed)
			v.bury()
		}
		r.Logf("%d calls failed, %d connections ended", refused, ended)
		r.works()
	})
}

// Closing a QP that is being connected ends the attempt.
func TestClosedWhileConnecting(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		random := rand.New(rand.NewPCG(seed, 3))
		for i := range 40 {
			v := newVictim(r)
			after := time.Duration(random.IntN(15000)) * time.Microsecond
			closed := make(chan error, 1)
			_, err := v.call(usualParams, func(rawpeer.Frame) []byte {
				go func() {
					time.Sleep(after)
					closed <- v.qp.Close()
				}()
				if i%4 == 0 {
					return nil // no Reply at all
				}
				return usualReply.Bytes()
			})
			v.Must(<-closed)
			if err == nil {
				v.blamedLocally()
			}
			if s := v.qp.State(); s != rdma.Errored {
				v.Errorf("after Close the QP is %v; Dial returned %v", s, err)
			}
			if _, err := v.peer.End(); err != nil {
				v.Error(err)
			}
			v.completed(nil, flushed)
			v.bury()
		}
		r.works()
	})
}

// A responder closes right after its Reply, perhaps with a message in between. The kernel's connection is then half
// closed: the message and the FIN arrive. Such a connection cannot be taken over, and Dial returns that error.
func TestClosesBehindReply(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, word := range []string{"", "hello"} {
			v := newVictim(r)
			all := usualReply.Bytes()
			if word != "" {
				all = append(all, rawpeer.FPDUs(rawpeer.Send(1, []byte(word)))...)
			}
			_, err := v.call(usualParams, func(rawpeer.Frame) []byte {
				v.Must(v.peer.Octets(all))
				v.Must(v.peer.Conn.CloseWrite())
				return nil
			})
			if err == nil { // the FIN came after the take-over, or there is none
				if word != "" {
					v.received(0, word)
				}
				v.over()
				v.Check(v.qp.Err())
			} else {
				v.refusedHalfClosed(err)
			}
			v.Must(v.qp.Close())
			v.intact()
			v.bury()
		}
		r.works()
	})
}

// refusedHalfClosed demands that Dial said that the peer has closed, and that
// the QP says the same.
func (v *victim) refusedHalfClosed(err error) {
	v.Helper()
	for _, err := range []error{err, v.qp.Err()} {
		if !errors.Is(err, handoff.ErrNotEstablished) || !strings.Contains(err.Error(), "the peer ended the connection before it was taken over") {
			v.Errorf("the error does not say that the peer has closed: %v", err)
		}
	}
	at, unknown := v.a.Attributes()
	v.Must(unknown)
	if at.Ports[0].Name == "" {
		v.Errorf("the kernel's connection need not be taken over: %v", err)
	}
	v.completed(nil, flushed)
}
