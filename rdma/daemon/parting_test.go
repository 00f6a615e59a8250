package daemon

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

// bothStyles runs f with two connected clients of each personality.
func (s *scene) bothStyles(t *testing.T, f func(t *testing.T, a, b *rawEnd)) {
	for name, style := range map[string]proto.Personality{"iwarp": proto.PersonalityIWARP, "roce": proto.PersonalityRoCE} {
		t.Run(name, func(t *testing.T) {
			as := func(m *proto.Message) { m.Hello().Personality = style }
			a, b := pair(s.client(t, as), s.client(t, as))
			f(t, a, b)
		})
	}
}

// The client hears that its peer has disconnected before receives are flushed. The flush comes
// when the client disconnects too, destroys the identifier, or puts the QP into the error state.
func TestReceivesOutlastPeer(t *testing.T) {
	s := newScene(t, func(c *Config) { c.FlushDelay = time.Hour })
	for name, end := range map[string]func(*rawEnd){
		"disconnects": func(b *rawEnd) { b.c.do(proto.OpDisconnect, b.id, nil) },
		"destroys":    func(b *rawEnd) { b.c.destroy(proto.KindID, b.id) },
		"fails":       func(b *rawEnd) { b.qp.modify(proto.QPAttr{Mask: maskState, State: stateErr}) },
	} {
		t.Run(name, func(t *testing.T) {
			s.bothStyles(t, func(t *testing.T, a, b *rawEnd) {
				b.qp.receive(rdma.RecvWR{ID: 8}, rdma.RecvWR{ID: 9})
				a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRSend, Flags: rdma.Signaled})
				a.sends.succeed(1)
				a.c.do(proto.OpDisconnect, a.id, nil)
				b.events.want(cmDisconnected)
				b.recvs.succeed(8)
				if w, ok := b.recvs.Next(); ok {
					t.Fatalf("completion %+v", w)
				}
				end(b)
				if w := b.recvs.wait(); w.ID != 9 || w.Status != rdma.Flushed {
					t.Errorf("completion %+v", w)
				}
			})
		})
	}
}

// The end that disconnects finds its receives flushed when it gets the event, as with every
// adapter. At the other end they are flushed by themselves after a time.
func TestReceivesAreFlushed(t *testing.T) {
	s := newScene(t, func(c *Config) { c.FlushDelay = time.Millisecond })
	s.bothStyles(t, func(t *testing.T, a, b *rawEnd) {
		a.qp.receive(rdma.RecvWR{ID: 8})
		b.qp.receive(rdma.RecvWR{ID: 9})
		a.c.do(proto.OpDisconnect, a.id, nil)
		a.events.want(cmDisconnected)
		if w, ok := a.recvs.Next(); !ok || w.ID != 8 || w.Status != rdma.Flushed {
			t.Errorf("completion %+v", w)
		}
		b.events.want(cmDisconnected)
		if w := b.recvs.wait(); w.ID != 9 || w.Status != rdma.Flushed {
			t.Errorf("completion %+v", w)
		}
	})
}

// A connection that ends in error has no delay.
func TestReceivesAfterError(t *testing.T) {
	s := newScene(t, func(c *Config) { c.FlushDelay = time.Hour })
	s.bothStyles(t, func(t *testing.T, a, b *rawEnd) {
		b.qp.receive(rdma.RecvWR{ID: 9})
		a.qp.modify(proto.QPAttr{Mask: maskState, State: stateErr})
		if w := b.recvs.wait(); w.ID != 9 || w.Status != rdma.Flushed {
			t.Errorf("completion %+v", w)
		}
		if m := b.events.want(cmDisconnected); m.CMEvent().Status != -int32(unix.ECONNRESET) {
			t.Errorf("status %d", m.CMEvent().Status)
		}
	})
}

// A program that disconnects and destroys everything at once loses nothing that it has sent.
func TestDestroyAfterDisconnect(t *testing.T) {
	s := newScene(t)
	for range 10 {
		s.bothStyles(t, func(t *testing.T, a, b *rawEnd) {
			a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRSend, Flags: rdma.Signaled}, rdma.SendWR{ID: 2, Op: rdma.WRSend, Flags: rdma.Signaled})
			a.sends.succeed(1, 2)
			a.c.do(proto.OpDisconnect, a.id, nil)
			destroyed := make(chan struct{})
			go func() {
				defer close(destroyed)
				a.c.destroy(proto.KindID, a.id)
				a.c.destroy(proto.KindQP, a.qp.handle)
			}()
			time.Sleep(5 * time.Millisecond) // for a reset, which must not come
			b.qp.receive(rdma.RecvWR{ID: 8}, rdma.RecvWR{ID: 9})
			b.recvs.succeed(8, 9)
			if m := b.events.want(cmDisconnected); m.CMEvent().Status != 0 {
				t.Errorf("status %d", m.CMEvent().Status)
			}
			rig.Wait(t, destroyed, "the QP is destroyed")
		})
	}
}
