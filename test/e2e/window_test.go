package e2e

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/packet"
)

// TestOneOctetSegments lets a peer send segments of one octet, at first while the local side does not read. A segment
// must cost neither a frame nor a drop.
func TestOneOctetSegments(t *testing.T) {
	r := newRig(t, setup{})
	const volume = 20_000
	our, peer := r.connect(way{})
	ulp := newLazy(octets.Plan{Expect: volume, PeerSeed: seedTheirs, Hold: true})
	f := r.take(our, ulp)
	pos := uint64(0)
	trickle := func(n uint64) {
		for end := pos + n; pos < end; pos++ {
			r.Must(writeOctet(peer, seedTheirs, pos))
		}
	}
	trickle(volume / 2)
	r.Eventually("all of it has arrived", func() bool { return r.info(f).Unread == volume/2 })
	if i := r.info(f); i.RcvFrames > 16 {
		t.Errorf("%d octets hold %d frames", i.Unread, i.RcvFrames)
	}
	ulp.reads.Store(true)
	f.Ring()
	trickle(volume / 2)
	r.Eventually("all of it is read", func() bool { return ulp.Received() == volume })
	r.Must(peer.CloseWrite())
	r.Eventually("the end is known", func() bool { return r.info(f).Phase == tcp.CloseWait })
	ulp.Release()
	f.Ring()
	r.endsWith(f, ulp, nil)
	s := f.Final()
	r.Logf("%d octets came in %d segments", volume, s.SegsIn)
	if s.SegsIn < volume/4 {
		t.Errorf("only %d segments brought %d octets: they were not small", s.SegsIn, volume)
	}
}

// writeOctet writes one octet of a pattern. The kernel must not put it into one segment with others.
func writeOctet(c *net.TCPConn, p octets.Pattern, pos uint64) error {
	var b [1]byte
	p.Fill(b[:], pos)
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b[:], unix.MSG_EOR|unix.MSG_NOSIGNAL, nil)
		return !errors.Is(failed, unix.EAGAIN)
	})
	return errors.Join(err, failed)
}

func (r *rig) info(f *nic.Flow) tcp.Info {
	r.Helper()
	i, err := f.Info(r.Ctx())
	r.Must(err)
	return i
}

func (r *rig) stats(f *nic.Flow) (s tcp.Stats) {
	r.Helper()
	r.Must(f.Engine().Inspect(r.Ctx(), f.ID(), func(c *tcp.Conn) { s = c.Stats() }))
	return s
}

// TestPeerNeverReads keeps the peer's window closed. The engine probes it, and finishes when the peer reads at last.
func TestPeerNeverReads(t *testing.T) {
	r := newRig(t, setup{})
	x := r.stuckFlow(16 << 20)
	r.windowCloses(x)
	probes := r.stats(x.flow).ProbesOut
	r.Eventually("the window is probed", func() bool { return r.stats(x.flow).ProbesOut >= probes+2 })
	if i := r.info(x.flow); i.Phase != tcp.Established || i.Queued == 0 {
		t.Errorf("%+v", i)
	}
	r.readAtLast(x)
}

// windowCloses waits until the peer accepts nothing more.
func (r *rig) windowCloses(x running) {
	r.Helper()
	r.Eventually("the peer's window is too small for a segment", func() bool {
		i := r.info(x.flow)
		return i.SndWnd < i.EMSS
	})
}

// readAtLast lets the peer of a stuck flow read to the end.
func (r *rig) readAtLast(x running) {
	r.Helper()
	x.peer.start()
	r.Must(<-x.peer.wrote)
	r.Must(x.peer.conn.CloseWrite())
	x.finishReading()
}

// TestPeerShrinksWindow lets a peer shrink a window that it has advertised, several times. This happens with octets in
// flight, and while the peer does not read. RFC 9293 §3.8.6 requires the sender to survive it.
func TestPeerShrinksWindow(t *testing.T) {
	r := newRig(t, setup{sysctl: map[string]string{"ipv4/tcp_shrink_window": "1"}})
	const volume = 16 << 20
	x := r.stuckFlow(volume)
	r.Must(x.peer.conn.SetReadBuffer(256 << 10))
	r.windowCloses(x)

	slow := &reader{conn: x.peer.conn}
	shrunk := 0
	for range 10 {
		r.Must(x.peer.conn.SetReadBuffer(1 << 20))
		r.Must(slow.read(128 << 10))
		r.Must(x.peer.conn.SetReadBuffer(4 << 10))
		before := r.info(x.flow)
		r.windowCloses(x)
		if after := r.info(x.flow); edge(after).Before(edge(before)) {
			shrunk++
		}
	}
	if shrunk == 0 {
		t.Error("the peer's window has never shrunk")
	}
	x.peer.received.Store(slow.pos)
	r.readAtLast(x)
	s := x.flow.Final()
	r.Logf("shrunk %d times; %d segments, %d sent again, %d probes", shrunk, s.SegsOut, s.Retransmits, s.ProbesOut)
}

// edge returns the end of the window that the peer has advertised.
func edge(i tcp.Info) seq.Num { return i.SndUna.Add(seq.Len(i.SndWnd)) }

// reader reads from a connection in pieces.
type reader struct {
	conn *net.TCPConn
	pos  uint64
}

// read reads n octets and checks them.
func (k *reader) read(n int) error {
	b := make([]byte, n)
	if _, err := readFull(k.conn, b); err != nil {
		return err
	}
	if seedOurs.Differs(b, k.pos) >= 0 {
		return errors.New("an octet is wrong")
	}
	k.pos += uint64(n)
	return nil
}

// TestPeerIgnoresWindow checks that the engine refuses segments beyond the advertised window, even with the right
// octets. The octets within the window are not affected.
func TestPeerIgnoresWindow(t *testing.T) {
	r := newRig(t, setup{sysctl: map[string]string{"ipv4/tcp_timestamps": "0"}})
	const volume = 8 << 20
	our, peer := r.connect(way{})
	ulp := newLazy(octets.Plan{Expect: volume, PeerSeed: seedTheirs, Hold: true})
	f := r.take(our, ulp)
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}).start()
	// A window of less than one unit of window scaling, with Linux's largest default buffers, counts as closed.
	r.Eventually("our window is closed", func() bool { return r.info(f).RcvWnd < 1<<10 && r.still() })

	before, held := r.info(f), r.counters()
	inject := r.beyondWindow(f, tupleOf(our), before)
	r.Eventually("the engine has seen it", func() bool { return dropped(r.counters(), "outside_window") >= dropped(held, "outside_window")+inject })
	after := r.info(f)
	if after.RcvNxt != before.RcvNxt || after.Unread != before.Unread || after.RcvFrames != before.RcvFrames || after.ReorderFrames != 0 {
		t.Errorf("taken from beyond the window: %+v, before %+v", after, before)
	}
	ulp.reads.Store(true)
	f.Ring()
	r.Must(<-k.wrote)
	r.Eventually("everything has arrived", func() bool { return ulp.Received() == volume })
	ulp.Release()
	f.Ring()
	r.Must(<-k.read)
	r.Wait(f.Done(), "the end")
	r.Must(f.Err())
	r.Must(ulp.Err())
}

// beyondWindow sends segments of the running connection beyond the advertised window, from the peer's end of the cable,
// and returns how many. Nothing else is in flight, and the window is closed.
func (r *rig) beyondWindow(f *nic.Flow, t tuple, i tcp.Info) (n uint64) {
	r.Helper()
	pos := uint64(i.Unread + i.RcvWnd)
	edge := uint32(i.RcvNxt) + i.RcvWnd
	b := make([]byte, 1400)
	r.in(theirs, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: r.pair.Ends[theirs].Index}
		for _, ahead := range []uint32{0, 1400, 100_000, 1 << 20, 1 << 30} {
			seedTheirs.Fill(b, pos+uint64(ahead))
			frame := packet.TCP{
				Link: packet.Link{SrcMAC: r.pair.Ends[theirs].MAC.String(), DstMAC: r.pair.Ends[ours].MAC.String()},
				IP:   packet.IP{Src: addrPort(t.remote), Dst: addrPort(t.local)},
				Seq:  edge + ahead, Ack: uint32(i.SndNxt), Flags: "PA", Window: 1000, Payload: b,
			}
			if err := unix.Sendto(fd, frame.Bytes(), 0, to); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n
}

// addrPort returns an address in the form that package packet expects.
func addrPort(a *net.TCPAddr) string {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()).String()
}

// dropped returns how many segments the connections dropped for a reason.
func dropped(c engine.Counters, why string) (n uint64) {
	c.Drops(func(layer, reason string, count uint64) {
		if layer == "tcp" && reason == why {
			n += count
		}
	})
	return n
}
