package handoff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/tcp"
)

// plan is how a socket in repair mode gets a state.
type plan struct {
	rcvNxt seq.Num // RCV.NXT of the socket before a FIN of the peer
	sndUna seq.Num // SND.UNA of the socket before a FIN of this end is acknowledged
	sent   []byte  // octets that were sent and are not acknowledged
	unsent []byte
	fin    bool // this end has closed its direction
	peer   bool // a segment of the peer must follow: its FIN, or its ACK of the FIN of this end
}

func newPlan(st *tcp.State) (p plan, err error) {
	p = plan{rcvNxt: st.RcvNxt, sndUna: st.SndUna}
	switch st.Phase {
	case tcp.Established:
	case tcp.CloseWait:
		p.rcvNxt, p.peer = st.RcvNxt.Back(1), true
	case tcp.FinWait1:
		p.fin = true
	case tcp.FinWait2:
		p.sndUna, p.fin, p.peer = st.SndUna.Back(1), true, true
	default:
		return plan{}, fmt.Errorf("%w: it is in %v", ErrBothClosed, st.Phase)
	}
	sent := min(len(st.Queue), int(st.SndUna.Until(st.SndNxt)))
	p.sent, p.unsent = st.Queue[:sent], st.Queue[sent:]
	return p, nil
}

// connect disconnects the placeholder and connects it again in repair mode, with the
// options that the handshake agreed on. Nothing leaves. The socket's filter stays.
func (g *giveback) connect() error {
	fd, st := g.s.fd, g.st
	if err := disconnect(fd); err != nil {
		return err
	}
	for _, f := range []func() error{
		g.makeRoom,
		func() error { return g.set(unix.TCP_MAXSEG, firstMSS(st, g.s.mss)) },
		func() error { return g.s.bind(fd) },
		func() error { return g.setSeq(receiveQueue, g.plan.rcvNxt.Back(seq.Len(len(st.Unread)))) },
		func() error { return g.setSeq(sendQueue, g.plan.sndUna) },
		func() error { return os.NewSyscallError("connect", unix.Connect(fd, g.s.remote)) },
		func() error {
			return os.NewSyscallError("setsockopt TCP_REPAIR_OPTIONS",
				unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_REPAIR_OPTIONS, handshake(st)))
		},
		g.setClock,
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// firstMSS returns the TCP_MAXSEG with which the socket connects. The kernel derives the
// length of its segments from TCP_MAXSEG and the path MTU. TCP_REPAIR_OPTIONS does not
// change that length.
//
// The kernel also takes TCP_MAXSEG for the MSS that it has announced, and forgets the
// timestamps there. Therefore firstMSS subtracts them if another take-over would find an
// MSS above the limit of Socket.Limit otherwise.
func firstMSS(st *tcp.State, limit int) int {
	headers := 40
	if st.V6 {
		headers = 60
	}
	mss := min(int(st.MSS), int(st.MTU)-headers)
	if limit != 0 && st.Timestamps {
		mss = min(mss, limit-timestampLen)
	}
	return max(mss, minMSS)
}

// sendSlack is room in the send buffer for the bookkeeping of the kernel, in octets.
const sendSlack = 64 << 10

// makeRoom makes the buffers large enough for both queues and for the window that the
// peer knows. The kernel would drop octets within that window otherwise. The kernel
// doubles the value of the options. makeRoom restores the locks of the buffers, so that
// the kernel can still tune them. Linux before 5.16 leaves them locked.
func (g *giveback) makeRoom() error {
	fd, st := g.s.fd, g.st
	locks, unknown := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK)
	for _, b := range []struct{ get, force, want int }{
		{unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, 2*len(st.Queue) + sendSlack},
		{unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, int(st.RcvWnd) + len(st.Unread)},
	} {
		have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, b.get)
		if err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
		if have >= 2*b.want {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.force, b.want); err != nil {
			return fmt.Errorf("make a buffer of %d octets: %w", b.want, err)
		}
	}
	if unknown != nil {
		return nil
	}
	return os.NewSyscallError("setsockopt SO_BUF_LOCK", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK, locks))
}

func (g *giveback) set(name, value int) error {
	if err := unix.SetsockoptInt(g.s.fd, unix.SOL_TCP, name, value); err != nil {
		return fmt.Errorf("set TCP option %d to %d: %w", name, value, err)
	}
	return nil
}

func (g *giveback) selectQueue(queue int) error { return g.set(unix.TCP_REPAIR_QUEUE, queue) }

func (g *giveback) setSeq(queue int, n seq.Num) error {
	if err := g.selectQueue(queue); err != nil {
		return err
	}
	return g.set(unix.TCP_QUEUE_SEQ, int(int32(n)))
}

// handshake returns the options of the handshake as an array of struct tcp_repair_opt. The
// kinds are those of RFC 9293 §3.1, RFC 7323 and RFC 2018. The kernel takes a missing
// window scale for one of its own, so that handshake always contains one.
func handshake(st *tcp.State) string {
	const mss, scale, sack, timestamps = 2, 3, 4, 8
	var b []byte
	add := func(kind, value uint32) {
		b = binary.NativeEndian.AppendUint32(b, kind)
		b = binary.NativeEndian.AppendUint32(b, value)
	}
	add(mss, uint32(st.MSS))
	add(scale, uint32(st.SndScale)|uint32(st.RcvScale)<<16)
	if st.SACK {
		add(sack, 0)
	}
	if st.Timestamps {
		add(timestamps, 0)
	}
	return string(b)
}

// setClock makes the kernel's timestamps continue behind those of the engine. The lowest
// bit tells the kernel the unit: 1 means microseconds.
func (g *giveback) setClock() error {
	st := g.st
	if !st.Timestamps {
		return nil
	}
	tick := st.TSTick
	if tick == 0 {
		tick = time.Millisecond
	}
	now := st.TSNow + uint32(max(0, clock.Now().Sub(st.At))/tick) + 1
	if tick == time.Microsecond {
		now |= 1
	} else {
		now = (now + 1) &^ 1
	}
	return g.set(unix.TCP_TIMESTAMP, int(int32(now)))
}

// fill puts the octets into the queues. The kernel does not send them, because the socket
// is in repair mode, or because the peer's window is closed in it. Octets of the send
// queue count as sent while that queue is selected.
func (g *giveback) fill() error {
	if err := g.put(receiveQueue, g.st.Unread); err != nil {
		return fmt.Errorf("fill the receive queue: %w", err)
	}
	if err := g.put(sendQueue, g.plan.sent); err != nil {
		return fmt.Errorf("fill the send queue: %w", err)
	}
	if err := g.setWindow(0, g.plan.rcvNxt); err != nil {
		return err
	}
	if len(g.plan.unsent) == 0 {
		return nil
	}
	if err := g.putUnsent(); err != nil {
		return fmt.Errorf("fill the send queue: %w", err)
	}
	return nil
}

// piece is how many octets one call puts into a queue. The kernel makes one buffer of
// them.
const piece = 32 << 10

func (g *giveback) put(queue int, b []byte) error {
	if err := g.selectQueue(queue); err != nil {
		return err
	}
	return g.write(b)
}

func (g *giveback) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.SendmsgN(g.s.fd, b[:min(len(b), piece)], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("%d octets do not fit: %w", len(b), err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

// putUnsent writes the unsent octets. In repair mode the kernel would count them as sent.
// The option TCP_NOTSENT_LOWAT would limit them.
func (g *giveback) putUnsent() error {
	lowat, err := unix.GetsockoptInt(g.s.fd, unix.SOL_TCP, unix.TCP_NOTSENT_LOWAT)
	if err != nil {
		return os.NewSyscallError("getsockopt TCP_NOTSENT_LOWAT", err)
	}
	const unlimited = 1<<31 - 1
	for _, f := range []func() error{
		func() error { return g.set(unix.TCP_NOTSENT_LOWAT, unlimited) },
		func() error { return g.selectQueue(noQueue) },
		func() error { return g.repair(unix.TCP_REPAIR_OFF_NO_WP) },
		func() error { return g.write(g.plan.unsent) },
		func() error { return g.repair(unix.TCP_REPAIR_ON) },
		func() error { return g.set(unix.TCP_NOTSENT_LOWAT, lowat) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// setWindow sets both windows. next is RCV.NXT of the socket. The window of this end is
// counted from the last ACK, which is not after next.
func (g *giveback) setWindow(peer uint32, next seq.Num) error {
	st := g.st
	wup := seq.Earlier(st.RcvWup, next)
	own := st.RcvWnd + uint32(wup.Until(st.RcvWup))
	var b []byte
	for _, v := range []uint32{uint32(st.SndWL1), peer, max(st.MaxWnd, st.SndWnd), own, uint32(wup)} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return os.NewSyscallError("setsockopt TCP_REPAIR_WINDOW",
		unix.SetsockoptString(g.s.fd, unix.SOL_TCP, unix.TCP_REPAIR_WINDOW, string(b)))
}
