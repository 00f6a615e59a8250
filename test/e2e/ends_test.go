package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/netns"
)

// act is the way in which a peer leaves.
type act int

const (
	closes act = iota
	halfCloses
	resets
	dies
)

var acts = []act{closes, halfCloses, resets, dies}

func (a act) String() string { return [...]string{"closes", "half-closes", "resets", "dies"}[a] }

// patience is the user timeout of connections whose peer may die.
const patience = time.Second

// leave makes the peer leave. A peer that dies sends nothing more, and its kernel answers nothing.
func (r *rig) leave(peer *net.TCPConn, a act) error {
	switch a {
	case closes:
		return peer.Close()
	case halfCloses:
		return peer.CloseWrite()
	case resets:
		return errors.Join(peer.SetLinger(0), peer.Close())
	}
	return r.setLink(theirs, false)
}

// setLink takes a side's interface up or down.
func (r *rig) setLink(side pair.Side, up bool) error {
	return r.pair.Do(side, func() error { return netns.SetLink(r.pair.Ends[side].Name, up) })
}

// TestPeerLeavesBefore checks that a connection is refused and stays with the kernel if it is half closed, or if its
// next hop does not answer.
func TestPeerLeavesBefore(t *testing.T) {
	for _, a := range acts {
		t.Run(a.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			our, peer := r.connect(way{})
			r.Must(r.leave(peer, a))
			want := handoff.ErrNotEstablished
			if a == dies {
				want = loader.ErrNoNeighbour
				hop := r.pair.Ends[theirs].V4.Addr()
				r.Eventually("our kernel knows", func() bool { return r.neighbour(hop).HardwareAddr == nil })
			} else {
				r.Eventually("our kernel knows", func() bool { return stateOf(r, our) != unix.BPF_TCP_ESTABLISHED })
			}
			left := r.traces()
			_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
			if !errors.Is(err, want) {
				t.Fatalf("the error is %v", err)
			}
			r.unchanged(left)
			if a == halfCloses { // the other direction still works
				_, err := our.Write([]byte("octets"))
				r.Must(err)
				got := make([]byte, 6)
				if _, err := readFull(peer, got); err != nil || string(got) != "octets" {
					t.Errorf("through the kernel: %q, %v", got, err)
				}
			}
		})
	}
}

// stateOf returns the state of a kernel socket.
func stateOf(r *rig, c *net.TCPConn) (state uint8) {
	r.Helper()
	r.Must(control(c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err == nil {
			state = info.State
		}
		return err
	}))
	return state
}

// TestPeerLeavesMeanwhile lets the peer leave during each step of a take-over. Before that, the peer has sent octets
// that the application has not read. If the connection's segments are not parked yet, the kernel receives the peer's
// last segment, and the take-over is refused. Later the engine receives it.
func TestPeerLeavesMeanwhile(t *testing.T) {
	for _, a := range []act{closes, halfCloses, resets} {
		for step := handoff.StepCheck; step <= handoff.StepInstall; step++ {
			t.Run(fmt.Sprint(a, "/", step), func(t *testing.T) {
				l := leaving{rig: newRig(t, setup{}), act: a}
				l.within(step)
			})
		}
	}
}

// leaving is a connection whose peer leaves after it has sent some octets that the application has not read.
type leaving struct {
	*rig
	act       act
	our, peer *net.TCPConn
}

// early is how many octets the peer has sent before it leaves.
const early = 20000

func (l *leaving) start() {
	l.Helper()
	l.our, l.peer = l.connect(way{})
	b := make([]byte, early)
	seedTheirs.Fill(b, 0)
	_, err := l.peer.Write(b)
	l.Must(err)
}

// plan returns the behaviour of the local side. It sends only to a peer that still reads, and closes last.
func (l *leaving) plan() octets.Plan {
	p := octets.Plan{Expect: early, PeerSeed: seedTheirs, Seed: seedOurs, Hold: true}
	if l.act == halfCloses {
		p.Send = 1 << 20
	}
	return p
}

func (l *leaving) within(step handoff.Step) {
	l.Helper()
	l.start()
	left := l.traces()
	ulp := newGoodbye(l.plan())
	f, err := l.nic.Take(l.Ctx(), l.our, ulp, injecting(hookAt(step, func() error { return l.leaveNoticed(step) })))
	if step > handoff.StepCheck {
		l.Must(err)
		l.ends(f, ulp.Transfer)
		return
	}
	var lost *handoff.LostError
	if !errors.Is(err, handoff.ErrNotEstablished) || errors.As(err, &lost) {
		l.Fatalf("the error is %v", err)
	}
	if l.act != resets {
		got := make([]byte, early)
		if _, err := readFull(l.our, got); err != nil || seedTheirs.Differs(got, 0) >= 0 {
			l.Errorf("the octets before the end are not what they were, %v", err)
		}
	}
	if l.act != halfCloses {
		left.descriptors-- // the peer's own
	}
	l.unchanged(left)
}

// leaveNoticed returns when the local side's kernel or an engine has received the peer's last segment.
func (l *leaving) leaveNoticed(step handoff.Step) error {
	before := l.counters().Parked
	if err := l.leave(l.peer, l.act); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if step == handoff.StepCheck && stateOf(l.rig, l.our) != unix.BPF_TCP_ESTABLISHED || l.counters().Parked > before {
			return nil
		}
	}
	return fmt.Errorf("nothing arrives when the peer %v", l.act)
}

// ends checks the end of a flow whose peer has left.
func (l *leaving) ends(f *nic.Flow, ulp *octets.Transfer) {
	l.Helper()
	if l.act == resets {
		l.endsWith(f, ulp, stream.ErrReset)
		return
	}
	if l.act == halfCloses {
		k := (&talk{conn: l.peer, in: seedOurs}).start()
		l.Must(<-k.read)
		if n := k.received.Load(); n != 1<<20 {
			l.Errorf("the peer got %d octets after it had closed its side, want %d", n, 1<<20)
		}
		l.Must(<-k.wrote)
	}
	l.endsWith(f, ulp, nil)
}

// endsWith waits for a flow's end and demands the same error from the flow and from its upper layer.
func (r *rig) endsWith(f *nic.Flow, ulp interface{ Err() error }, want error) {
	r.Helper()
	r.Wait(f.Done(), "the end of the flow")
	for _, err := range []error{f.Err(), ulp.Err()} {
		if !errors.Is(err, want) || want == nil && err != nil {
			r.Errorf("the connection ended with %v, want %v", err, want)
		}
	}
	r.clean()
	if n := r.sockets(keyTuple(f)); n != 0 {
		r.Errorf("%d sockets of the tuple are left", n)
	}
}

// keyTuple returns a flow's 4-tuple.
func keyTuple(f *nic.Flow) tuple {
	p := f.Placeholder().Tuple()
	return tuple{net.TCPAddrFromAddrPort(p.Local), net.TCPAddrFromAddrPort(p.Remote)}
}

// TestPeerLeavesIdle lets the peer leave right after the take-over, with nothing in flight.
func TestPeerLeavesIdle(t *testing.T) {
	for _, a := range acts {
		t.Run(a.String(), func(t *testing.T) {
			l := leaving{rig: newRig(t, setup{}), act: a}
			l.start()
			for _, o := range [][3]int{
				{unix.SOL_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds())},
				{unix.SOL_TCP, unix.TCP_KEEPIDLE, 1}, {unix.SOL_TCP, unix.TCP_KEEPINTVL, 1},
			} {
				l.Must(setOption(l.our, o[0], o[1], o[2]))
			}
			ulp := newGoodbye(l.plan())
			f := l.take(l.our, ulp)
			l.Eventually("what was unread is read", func() bool { return ulp.Received() == early })
			l.Must(l.leave(l.peer, a))
			if a == dies {
				l.endsWith(f, ulp, stream.ErrTimeout) // the keepalive detects it
				return
			}
			l.ends(f, ulp.Transfer)
		})
	}
}

// TestPeerLeavesInTransfer lets the peer leave while both sides send without pause.
func TestPeerLeavesInTransfer(t *testing.T) {
	for _, a := range acts {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(a, "/", map[bool]string{false: "right after", true: "later"}[late]), func(t *testing.T) {
				r := newRig(t, setup{})
				r.leavesInTransfer(a, late)
			})
		}
	}
}

func (r *rig) leavesInTransfer(a act, late bool) {
	r.Helper()
	our, peer := r.connect(way{})
	r.Must(setOption(our, unix.SOL_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds())))
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 1 << 40}).start()
	plan := octets.Plan{Send: 1 << 40, Seed: seedOurs, Expect: 1 << 40, PeerSeed: seedTheirs}
	if a == halfCloses {
		plan.Send, plan.Expect, plan.Hold = 8<<20, 0, true
		r.Must(k.interrupt())
		plan.Expect = k.sent.Load()
		k = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: plan.Expect + 4<<20, halfShut: true}).after(k)
		plan.Expect += 4 << 20
	}
	ulp := octets.NewTransfer(plan)
	var taker stream.ULP = &goodbye{ulp} // the peer is in TIME-WAIT
	if a == closes {
		taker = stubborn{ulp} // some octets must arrive at the closed socket
	}
	f := r.take(our, taker)
	if late {
		r.Eventually("octets flow both ways", func() bool { return ulp.Received() > 1<<20 && k.received.Load() > 1<<20 })
	}
	if a == halfCloses {
		r.Must(<-k.wrote)
		r.Must(<-k.read)
		r.endsWith(f, ulp, nil)
		return
	}
	r.Must(r.leave(peer, a))
	r.endsWith(f, ulp, map[act]error{closes: stream.ErrReset, resets: stream.ErrReset, dies: stream.ErrTimeout}[a])
}

// TestPeerBlackhole drops the peer's packets from the middle of a transfer on. The link stays up.
func TestPeerBlackhole(t *testing.T) {
	r := newRig(t, setup{})
	our, peer := r.connect(way{})
	r.Must(setOption(our, unix.SOL_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds())))
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 1 << 40}).start()
	ulp := octets.NewTransfer(octets.Plan{Send: 1 << 40, Seed: seedOurs, Expect: 1 << 40, PeerSeed: seedTheirs})
	f := r.take(our, ulp)
	r.Eventually("octets flow both ways", func() bool { return ulp.Received() > 1<<20 && k.received.Load() > 1<<20 })
	r.blackhole()
	r.endsWith(f, ulp, stream.ErrTimeout)
	if n := f.Final().Retransmits; n == 0 {
		t.Error("nothing was sent again before the time was over")
	}
}

// TestPeerGoneBeforeTakeOver checks that the take-over detects a peer that has vanished. The connection stays with the
// kernel.
func TestPeerGoneBeforeTakeOver(t *testing.T) {
	r := newRig(t, setup{})
	our, _ := r.connect(way{})
	r.blackhole()
	left := r.traces()
	_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
	if !errors.Is(err, handoff.ErrUnseen) {
		t.Fatalf("the take-over says %v", err)
	}
	r.unchanged(left)
	if state := stateOf(r, our); state != unix.BPF_TCP_ESTABLISHED {
		t.Errorf("the kernel's connection is in state %v", state)
	}
}

// TestResetWhileParked lets the peer reset the connection while its segments are parked. The flow ends as soon as it is
// installed.
func TestResetWhileParked(t *testing.T) {
	r := newRig(t, setup{})
	for range 20 {
		our, peer := r.connect(way{})
		o := nic.DefaultOptions
		o.Parked = func() error { return r.leave(peer, resets) }
		ulp := octets.NewTransfer(octets.Plan{Expect: 1})
		f, err := r.nic.Take(r.Ctx(), our, ulp, o)
		r.Must(err)
		r.Wait(f.Done(), "the end")
		if !errors.Is(f.Err(), stream.ErrReset) {
			t.Fatalf("the flow ended with %v", f.Err())
		}
	}
	r.clean()
}

// blackhole removes the peer's IPv4 address. The peer's kernel then drops all arriving packets.
func (r *rig) blackhole() {
	r.Helper()
	r.in(theirs, func() error {
		l, err := netlink.LinkByName(r.pair.Ends[theirs].Name)
		if err != nil {
			return err
		}
		all, err := netlink.AddrList(l, netlink.FAMILY_V4)
		for _, a := range all {
			err = errors.Join(err, netlink.AddrDel(l, &a))
		}
		return err
	})
}

// TestOurEnd closes and aborts from the local side while the peer sends.
func TestOurEnd(t *testing.T) {
	r := newRig(t, setup{})
	our, peer := r.connect(way{})
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 1 << 40}).start()
	ulp := octets.NewTransfer(octets.Plan{Send: 1 << 40, Seed: seedOurs, Expect: 1 << 40, PeerSeed: seedTheirs})
	f := r.take(our, ulp)
	r.Eventually("octets arrive", func() bool { return ulp.Received() > 1<<20 })
	ctx, cancel := context.WithTimeout(r.Ctx(), 100*time.Millisecond)
	defer cancel()
	if err := f.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while the peer does not close: %v", err)
	}
	r.Must(f.Engine().Inspect(r.Ctx(), f.ID(), func(c *tcp.Conn) {
		if p := c.Phase(); p == tcp.Established {
			t.Errorf("the connection is in %v after Close", p)
		}
	}))
	r.Must(f.Abort(r.Ctx()))
	r.isReset(<-k.wrote)
	r.endsWith(f, ulp, stream.ErrAborted)
}
