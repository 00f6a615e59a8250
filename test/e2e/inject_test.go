package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

var errInjected = errors.New("injected")

// failAt returns an Options.Inject that fails at one step.
func failAt(step handoff.Step) func(handoff.Step) error {
	return hookAt(step, func() error { return errInjected })
}

// hookAt returns an Options.Inject that calls f at one step.
func hookAt(step handoff.Step, f func() error) func(handoff.Step) error {
	return func(at handoff.Step) error {
		if at == step {
			return f()
		}
		return nil
	}
}

// injecting returns DefaultOptions with a hook.
func injecting(f func(handoff.Step) error) nic.Options {
	o := nic.DefaultOptions
	o.Inject = f
	return o
}

// TestInjected makes the take-over of a connection under traffic fail at each step, more often than the interface has
// room for flows. As long as the kernel has its connection, the connection continues there. After that, the error says
// that the connection is lost.
func TestInjected(t *testing.T) {
	const room = 3
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{nic: nic.Config{MaxFlows: room}})
			for step := handoff.StepCheck; step <= handoff.StepInstall; step++ {
				for range room + 1 {
					if step < handoff.StepReplace {
						r.failsEarly(w, step)
					} else {
						r.failsLate(w, step)
					}
				}
			}
			r.clean()
			r.fillsUp(w, room)
		})
	}
}

// failsEarly tests a failure that leaves the connection with the kernel.
func (r *rig) failsEarly(w way, step handoff.Step) {
	r.Helper()
	const total = 2 << 20
	our, peer := r.connect(w)
	r.Must(setOption(our, unix.SOL_TCP, unix.TCP_USER_TIMEOUT, 54321))
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: total}).start()
	before := r.talkUntil(our, total/8, total)
	settings, left := liveness(r, our), r.traces()

	_, err := r.nic.Take(r.Ctx(), our, octets.NewSink(0, 0), injecting(failAt(step)))
	r.failed(err, step, false)
	r.unchanged(left)
	if now := liveness(r, our); now != settings {
		r.Fatalf("%v: keepalive, its idle time and the user timeout are %v, they were %v", step, now, settings)
	}
	if n := r.sockets(tupleOf(our)); n != 1 {
		r.Fatalf("%v: %d sockets have the tuple, want the kernel's connection", step, n)
	}
	after := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: total, halfShut: true}).after(before)
	r.Must(<-k.wrote)
	r.Must(peer.CloseWrite())
	for _, end := range []chan error{after.wrote, after.read, k.read} {
		r.Must(<-end)
	}
	if ours, theirs := after.received.Load(), k.received.Load(); ours != total || theirs != total {
		r.Fatalf("%d and %d octets came through the kernel, want %d", ours, theirs, total)
	}
	r.Must(errors.Join(our.Close(), peer.Close()))
}

// failsLate tests a failure that loses the connection.
func (r *rig) failsLate(w way, step handoff.Step) {
	r.Helper()
	our, peer := r.connect(w)
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 1 << 40}).start()
	r.talkUntil(our, 64<<10, 1<<40)
	left := r.traces()

	_, err := r.nic.Take(r.Ctx(), our, octets.NewSink(0, 0), injecting(failAt(step)))
	r.failed(err, step, true)
	r.unchanged(left)
	if n := r.sockets(tupleOf(our)); n != 0 {
		r.Fatalf("%v: %d sockets of the tuple are left", step, n)
	}
	// The peer sends all the time, so the kernel resets it.
	r.isReset(<-k.wrote)
	<-k.read
	r.Must(errors.Join(our.Close(), peer.Close()))
}

// failed checks the error of Take.
func (r *rig) failed(err error, step handoff.Step, lost bool) {
	r.Helper()
	var gone *handoff.LostError
	switch {
	case !errors.Is(err, errInjected):
		r.Fatalf("%v: the error is %v", step, err)
	case errors.As(err, &gone) != lost:
		r.Fatalf("%v: the error says that the connection is lost: %v; want %v: %v", step, !lost, lost, err)
	}
}

// talkUntil lets the local kernel socket talk until that many octets have arrived. It then stops the socket while the
// peer still sends.
func (r *rig) talkUntil(our *net.TCPConn, enough, total uint64) *talk {
	r.Helper()
	k := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: total}).start()
	r.Eventually("the peer's octets arrive", func() bool { return k.received.Load() >= enough })
	r.Must(k.interrupt())
	return k
}

// after starts k where before stopped.
func (k *talk) after(before *talk) *talk {
	k.sent.Store(before.sent.Load())
	k.received.Store(before.received.Load())
	return k.start()
}

// isReset checks that the error is that of a peer whose connection was reset.
func (r *rig) isReset(err error) {
	r.Helper()
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		r.Fatalf("the peer got %v, want a reset", err)
	}
}

// liveness returns the settings with which a socket detects that its peer is gone.
func liveness(r *rig, c *net.TCPConn) (v [3]int) {
	r.Helper()
	r.Must(control(c, func(fd int) (err error) {
		for i, o := range [][2]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.SOL_TCP, unix.TCP_KEEPIDLE}, {unix.SOL_TCP, unix.TCP_USER_TIMEOUT},
		} {
			if v[i], err = unix.GetsockoptInt(fd, o[0], o[1]); err != nil {
				return err
			}
		}
		return nil
	}))
	return v
}

func setOption(c *net.TCPConn, level, name, value int) error {
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, level, name, value) })
}

// fillsUp takes over as many connections as there is room for. One more connection is refused and continues in the
// kernel. It is taken over after one of the others has ended.
func (r *rig) fillsUp(w way, room int) {
	r.Helper()
	flows, peers := make([]*nic.Flow, room), make([]*net.TCPConn, room)
	for i := range flows {
		var our *net.TCPConn
		our, peers[i] = r.connect(w)
		flows[i] = r.take(our, octets.NewEcho())
	}
	our, peer := r.connect(w)
	left := r.traces()
	_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
	var lost *handoff.LostError
	if !errors.Is(err, engine.ErrFlowsFull) || errors.As(err, &lost) {
		r.Fatalf("the take-over beyond %d flows: %v", room, err)
	}
	r.unchanged(left)
	go func() { // the kernel runs this connection
		var b [4]byte
		our.Read(b[:])
		our.Write(b[:])
	}()
	r.pingPong(peer)

	r.Must(peers[0].Close())
	r.Wait(flows[0].Done(), "the first flow's end")
	r.Eventually("the first flow is gone", func() bool { return len(r.nic.Flows()) == room-1 })
	r.take(our, octets.NewEcho())
	r.pingPong(peer)
	for _, p := range append(peers[1:], peer) {
		r.Must(p.Close())
	}
	r.clean()
}

// pingPong sends four octets to an echo and expects the same octets back.
func (r *rig) pingPong(c *net.TCPConn) {
	r.Helper()
	got := make([]byte, 4)
	if _, err := c.Write([]byte("ping")); err != nil {
		r.Fatal(err)
	}
	if _, err := readFull(c, got); err != nil || string(got) != "ping" {
		r.Fatalf("the echo is %q, %v", got, err)
	}
}

// TestTakeCancelled ends the context at each step. As long as the kernel has its connection, the take-over is undone.
// After that, it is completed.
func TestTakeCancelled(t *testing.T) {
	r := newRig(t, setup{})
	for step := handoff.StepCheck; step <= handoff.StepInstall; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			our, peer := r.connect(way{})
			left := r.traces()
			ctx, cancel := context.WithCancel(r.Ctx())
			defer cancel()
			_, err := r.nic.Take(ctx, our, octets.NewEcho(), injecting(hookAt(step, func() error { cancel(); return nil })))
			if step < handoff.StepReplace {
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("the error is %v", err)
				}
				r.unchanged(left)
				r.take(our, octets.NewEcho()) // another try succeeds
			} else {
				r.Must(err)
			}
			r.pingPong(peer)
			r.Must(peer.Close())
			r.clean()
		})
	}
}

// TestTakeWhileClosing closes the interface at each step. As long as the kernel has its connection, the connection
// continues there. After that it is lost, and the error says so.
func TestTakeWhileClosing(t *testing.T) {
	for step := handoff.StepCheck; step <= handoff.StepInstall; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			r := newRig(t, setup{})
			our, peer := r.connect(way{})
			_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), injecting(hookAt(step, r.nic.Close)))
			var lost *handoff.LostError
			if isLost := errors.As(err, &lost); err == nil || isLost != (step >= handoff.StepReplace) {
				t.Fatalf("the error is %v", err)
			}
			if step < handoff.StepReplace {
				if !errors.Is(err, nic.ErrClosed) {
					t.Errorf("the error is %v", err)
				}
				go peer.Write([]byte("octets"))
				got := make([]byte, 6)
				if _, err := readFull(our, got); err != nil || string(got) != "octets" {
					t.Errorf("through the kernel: %q, %v", got, err)
				}
			} else if n := r.sockets(tupleOf(our)); n != 0 {
				t.Errorf("%d sockets of the tuple are left", n)
			}
			if x := r.link(ours).Attrs().Xdp; x != nil && x.Attached {
				t.Error("a program is left on the interface")
			}
		})
	}
}
