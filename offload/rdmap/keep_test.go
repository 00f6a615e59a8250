package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
)

func keeping(s *setup) { s.KeepReceives = true }

// With KeepReceives, receives stay posted after a close in good order, whichever end begins,
// and also those that are posted later. Sends of later are flushed. A reset that the owner asks
// for flushes everything.
func TestKeepReceives(t *testing.T) {
	for name, end := range map[string]func(*script){
		"the peer closes": func(s *script) { s.finishes(send(1, nil)) },
		"this end closes": func(s *script) { s.gets(send(1, nil)); s.q.Disconnect(); s.turn(); s.finishes() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, keeping)
			s.receives(work.RecvWR{ID: 1}, work.RecvWR{ID: 2})
			s.posts(work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled})
			end(s)
			s.completes(ok(3, work.WCSend), received(1, 0))
			s.is(Idle)
			if !s.q.Dead() {
				t.Fatal("the QP has a stream")
			}
			s.receives(work.RecvWR{ID: 4})
			s.posts(work.SendWR{ID: 5, Op: work.WRSend})
			s.completes(flushed(5, work.WCSend))
			s.q.Abort()
			s.q.FlushDead()
			s.completes(flushed(2, work.WCRecv), flushed(4, work.WCRecv))
		})
	}
}

// After any other end nothing is kept.
func TestKeepReceivesAfterErrors(t *testing.T) {
	for name, end := range map[string]func(*script){
		"reset":      func(s *script) { s.fault(stream.ErrReset) },
		"abort":      func(s *script) { s.q.Abort(); s.turn() },
		"Terminate":  func(s *script) { s.gets(terminateFPDU(OpStream)) },
		"truncation": func(s *script) { s.finishes(send(1, nil)[:9]) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, keeping)
			s.receives(work.RecvWR{ID: 1})
			end(s)
			s.completes(flushed(1, work.WCRecv))
		})
	}
}
