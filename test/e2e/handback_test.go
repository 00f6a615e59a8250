package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
)

// back hands a flow back and checks what the program and the upper layer are told.
func (r *rig) back(f *nic.Flow, ulp *octets.Transfer) *net.TCPConn {
	r.Helper()
	c, err := f.HandBack(r.Ctx())
	r.Must(err)
	r.Cleanup(func() { c.Close() })
	r.Wait(f.Done(), "the flow's end")
	r.Wait(ulp.Done(), "the upper layer's end")
	r.Says(f.Err(), nic.ErrHandedBack)
	r.Says(ulp.Err(), nic.ErrHandedBack)
	r.Says(f.Placeholder().Err(), handoff.ErrClosed)
	return c
}

// goOn continues as the program where an upper layer stopped.
func (r *rig) goOn(c *net.TCPConn, ulp *octets.Transfer, send uint64) *talk {
	k := &talk{conn: c, out: seedOurs, in: seedTheirs, send: send, halfShut: true}
	k.sent.Store(ulp.Sent())
	k.received.Store(ulp.Received())
	return k
}

// ends waits for the end of a talk, which must have read n octets.
func (k *talk) ends(n uint64) error {
	if err := errors.Join(<-k.wrote, <-k.read); err != nil {
		return err
	}
	if got := k.received.Load(); got != n {
		return fmt.Errorf("%d octets have arrived, want %d", got, n)
	}
	return nil
}

// stateOf returns the kernel's number of a connection's state.
func (r *rig) stateOf(c *net.TCPConn) (state uint8) {
	r.Helper()
	raw, err := c.SyscallConn()
	r.Must(err)
	r.Must(raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		r.Check(err)
		state = info.State
	}))
	return state
}

// noResets fails the test if our kernel has sent a reset, or if a connection of the peer's
// kernel has ended by one. The peer's kernel also answers a late duplicate of a connection
// that has ended in good order by a reset, which harms nobody. Our kernel takes each
// connection from ESTABLISHED to CLOSED at a take-over, which its counter of resets shows.
func (r *rig) noResets() {
	r.Helper()
	for _, side := range []pair.Side{ours, theirs} {
		counter := [2]string{ours: "OutRsts", theirs: "EstabResets"}[side]
		b, err := []byte(nil), error(nil)
		r.in(side, func() error {
			b, err = os.ReadFile("/proc/thread-self/net/snmp")
			return err
		})
		names, values, _ := strings.Cut(string(b[bytes.Index(b, []byte("Tcp:")):]), "\n")
		at := slices.Index(strings.Fields(names), counter)
		if n := strings.Fields(values)[at]; n != "0" {
			r.Errorf("side %v: %s is %s", side, counter, n)
		}
	}
}

// openTransfer starts a transfer in both directions. The local end does not close its
// direction while the upper layer has it.
func (r *rig) openTransfer(w way, volume uint64) running {
	r.Helper()
	our, peer := r.connect(w)
	x := running{rig: r, volume: volume}
	x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}).start()
	x.ulp = octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs, Hold: true})
	x.flow = r.take(our, x.ulp)
	return x
}

// TestHandedBackUnderFire hands 52 connections back, each in the middle of a transfer in
// both directions with a kernel's TCP. The program continues with read and write. Every
// octet is right in both directions, and nobody resets a connection.
func TestHandedBackUnderFire(t *testing.T) {
	t.Parallel()
	const volume, rounds = 12 << 20, 13
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			var unread, queued int
			for i := range uint64(rounds) {
				x := r.openTransfer(w, volume)
				x.reach((i + 1) * (volume / (rounds + 3)))
				c := r.back(x.flow, x.ulp)
				k := r.goOn(c, x.ulp, volume).start()
				if k.received.Load() < volume {
					unread++
				}
				if x.peer.received.Load() < k.sent.Load() {
					queued++
				}
				r.Must(k.ends(volume))
				r.Must(x.peer.ends(volume))
				if s := x.flow.Final(); s.OctetsIn == 0 || s.ResetsIn+s.ResetsOut != 0 {
					t.Errorf("counters at the end: %+v", s)
				}
			}
			r.clean()
			r.noResets()
			if unread == 0 || queued == 0 {
				t.Errorf("%d hand-backs were in the middle of receiving, %d in the middle of sending", unread, queued)
			}
		})
	}
}

// TestHandedBackThroughLoss hands connections back while 2% of the segments are lost in
// both directions. The kernel sends again what is lost.
func TestHandedBackThroughLoss(t *testing.T) {
	t.Parallel()
	const volume, rounds = 3 << 20, 4
	r := newRig(t, setup{})
	r.nft(theirs, `table inet loss {
		chain in { type filter hook prerouting priority 0; meta l4proto tcp numgen random mod 50 == 0 drop; }
		chain out { type filter hook postrouting priority 0; meta l4proto tcp numgen random mod 50 == 0 drop; }
	}`)
	for _, w := range ways {
		for i := range uint64(rounds) {
			x := r.openTransfer(w, volume)
			x.reach((i + 1) * (volume / (rounds + 2)))
			k := r.goOn(r.back(x.flow, x.ulp), x.ulp, volume).start()
			r.Must(k.ends(volume))
			r.Must(x.peer.ends(volume))
		}
	}
	r.clean()
	r.noResets()
}

// TestTakenAgain takes a connection over and hands it back ten times, while octets flow in
// both directions.
func TestTakenAgain(t *testing.T) {
	t.Parallel()
	const rounds, part = 10, 1 << 20
	const volume = 5 * rounds * part // more than the rounds can move
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			our, conn := r.connect(w)
			var allowed atomic.Uint64 // octets that either side may have written by now
			pace := func(pos uint64) {
				r.Eventually("the next part", func() bool { return pos <= allowed.Load() })
			}
			peer := (&talk{conn: conn, out: seedTheirs, in: seedOurs, send: volume, halfShut: true, pace: pace}).start()
			k := &talk{conn: our, out: seedOurs, in: seedTheirs}
			for range rounds {
				allowed.Store(k.received.Load() + 2*part)
				k.send = k.sent.Load() + part
				r.Must(k.upTo(k.received.Load() + part))
				ulp := octets.NewTransfer(octets.Plan{Send: k.sent.Load() + part, Seed: seedOurs, Sent: k.sent.Load(),
					Expect: volume, PeerSeed: seedTheirs, Received: k.received.Load(), Hold: true})
				f := r.take(k.conn, ulp)
				f.Ring()
				allowed.Store(ulp.Received() + 2*part)
				at := ulp.Received() + part
				r.Eventually("octets", func() bool { return ulp.Received() >= at })
				k = r.goOn(r.back(f, ulp), ulp, 0)
				k.halfShut = false
			}
			allowed.Store(volume)
			k.send, k.halfShut = volume, true
			k.start()
			r.Must(k.ends(volume))
			r.Must(peer.ends(volume))
			r.clean()
			r.noResets()
		})
	}
}

// numb is an upper layer that does not read.
type numb struct{ *octets.Transfer }

func (numb) Receive(clock.Instant, stream.Stream) {}

// TestHandedBackFull hands a connection back when no queue has room: the upper layer and
// the peer's program do not read, and both send. The windows of both ends are closed.
func TestHandedBackFull(t *testing.T) {
	t.Parallel()
	const volume = 96 << 20
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			our, conn := r.connect(w)
			peer := &talk{conn: conn, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}
			ulp := octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs})
			f := r.take(our, numb{ulp})
			f.Ring()
			written := make(chan error, 1)
			go func() { written <- peer.write() }()
			var before tcp.Info
			r.Eventually("both windows are closed", func() bool {
				i := r.info(f)
				still := i.SndWnd < 1500 && i.RcvWnd < 1500 && i.Unread > 0 && i == before
				before = i
				return still
			})
			c := r.back(f, ulp)
			t.Logf("%d octets unread, %d queued", before.Unread, before.Queued)
			k := r.goOn(c, ulp, volume).start()
			peer.wrote, peer.read = written, make(chan error, 1)
			go func() { peer.read <- peer.readAll() }()
			r.Must(k.ends(volume))
			r.Must(peer.ends(volume))
			r.clean()
			r.noResets()
		})
	}
}

// TestHandedBackHalfClosed hands connections back of which one direction is closed. The
// kernel's connection is in the same state, and the other direction continues.
func TestHandedBackHalfClosed(t *testing.T) {
	const volume = 4 << 20
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			r.peerClosed(w, volume, false)
			r.peerClosed(w, volume, true)
			r.weClosed(w, volume, true)
			r.weClosed(w, volume, false)
			r.clean()
			r.noResets()
		})
	}
}

// The numbers of the kernel's states.
const (
	kernelFinWait1  = 4
	kernelFinWait2  = 5
	kernelCloseWait = 8
)

// peerClosed hands a connection back in CLOSE-WAIT. If unread is set, the upper layer has
// read nothing.
func (r *rig) peerClosed(w way, volume uint64, unread bool) {
	r.Helper()
	const theirs = 20_000
	our, conn := r.connect(w)
	peer := &talk{conn: conn, out: seedTheirs, in: seedOurs, send: theirs, halfShut: true}
	peer.wrote, peer.read = make(chan error, 1), make(chan error, 1)
	ulp := octets.NewTransfer(octets.Plan{Send: volume / 2, Seed: seedOurs, Expect: theirs, PeerSeed: seedTheirs, Hold: true})
	upper := stream.ULP(ulp)
	if unread {
		upper = numb{ulp}
	}
	f := r.take(our, upper)
	f.Ring()
	peer.wrote <- peer.write()
	r.Eventually("CLOSE-WAIT", func() bool { return r.info(f).Phase == tcp.CloseWait })
	r.Eventually("octets that wait for the peer", func() bool { return ulp.Sent() > 20_000 })
	c := r.back(f, ulp)
	if s := r.stateOf(c); s != kernelCloseWait {
		r.Errorf("the kernel's connection is in state %d", s)
	}
	k := r.goOn(c, ulp, volume).start()
	go func() { peer.read <- peer.readAll() }()
	r.Must(k.ends(theirs))
	r.Must(peer.ends(volume))
	us := tupleOf(c)
	r.Must(c.Close())
	r.Eventually("the end of the kernel's connection", func() bool { return r.sockets(us) == 0 })
}

// weClosed hands a connection back whose local end has closed its direction. If acked is
// set, the peer has acknowledged the FIN. Otherwise the FIN waits behind octets for which
// the peer has no room.
func (r *rig) weClosed(w way, volume uint64, acked bool) {
	r.Helper()
	send, phase, want := uint64(20_000), tcp.FinWait2, uint8(kernelFinWait2)
	if !acked {
		send, phase, want = volume, tcp.FinWait1, kernelFinWait1
	}
	our, conn := r.connect(w)
	peer := &talk{conn: conn, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}
	ulp := octets.NewTransfer(octets.Plan{Send: send, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs, Hold: true})
	f := r.take(our, ulp)
	f.Ring()
	if acked {
		r.Eventually("all octets are sent", func() bool { return ulp.Sent() == send })
	} else {
		r.windowCloses(running{rig: r, flow: f})
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Close(r.Ctx()) }()
	r.Eventually(phase.String(), func() bool { return r.info(f).Phase == phase })
	c := r.back(f, ulp)
	r.Says(<-closed, nic.ErrHandedBack)
	if s := r.stateOf(c); s != want {
		r.Errorf("the kernel's connection is in state %d, want %d", s, want)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
		r.Errorf("a write behind the FIN: %v", err)
	}
	k := r.goOn(c, ulp, 0)
	k.halfShut = false
	k.start()
	peer.start()
	r.Must(k.ends(volume))
	r.Must(peer.ends(ulp.Sent()))
	r.Must(c.Close())
}

// TestHandBackRefused refuses a hand-back, and the engine continues the connection.
func TestHandBackRefused(t *testing.T) {
	const volume = 8 << 20
	r := newRig(t, setup{})
	x := r.openTransfer(way{}, volume)
	x.reach(1 << 20)

	without := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its rights
		if err := dropRights(); err != nil {
			without <- err
			return
		}
		_, err := x.flow.HandBack(r.Ctx())
		without <- err
	}()
	r.Says(<-without, handoff.ErrPermission, "CAP_NET_ADMIN")

	broken := errors.New("injected")
	for step := handoff.GiveCheck; step <= handoff.GiveSteer; step++ {
		x.flow.Placeholder().Inject(func(at handoff.GiveStep) error {
			if at == step {
				return broken
			}
			return nil
		})
		_, err := x.flow.HandBack(r.Ctx())
		r.Says(err, broken, step.String())
		r.Must(x.flow.Placeholder().Err())
		x.reach(uint64(step+2) << 19)
	}
	x.flow.Placeholder().Inject(func(at handoff.GiveStep) error {
		// Without the entry, a segment could meet a host without a socket.
		_, err := r.nic.Steering().Lookup(x.flow.Key())
		return err
	})
	k := r.goOn(r.back(x.flow, x.ulp), x.ulp, volume).start()
	r.Must(k.ends(volume))
	r.Must(x.peer.ends(volume))
	_, err := x.flow.HandBack(r.Ctx())
	r.Says(err, engine.ErrNoFlow)

	our, peer := r.connect(way{})
	echo := octets.NewEcho()
	f, err := r.nic.Take(r.Ctx(), our, echo, nic.Options{Kind: bpf.KindRDMA, Queue: nic.AnyQueue})
	r.Must(err)
	_, err = f.HandBack(r.Ctx())
	r.Says(err, nic.ErrNoOctets, "a QP", "rdma")
	words := []byte("a QP stays")
	_, err = peer.Write(words)
	r.Must(err)
	_, err = io.ReadFull(peer, make([]byte, len(words)))
	r.Must(err)
	r.Must(peer.Close())
	r.Wait(f.Done(), "the end")
	r.Must(f.Err())
	r.clean()
	r.noResets()
}

// dropRights takes the effective capabilities off the running thread.
func dropRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective, data[1].Effective = 0, 0
	return unix.Capset(&header, &data[0])
}
