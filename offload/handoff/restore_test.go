package handoff

import (
	"encoding/binary"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/tcp"
)

// restore builds a kernel connection from what was taken over and lets its
// segments through: proof that the state is complete and right, as only then
// can the kernel carry on. The placeholder goes.
func (w *world) restore(st *steps, s *Socket) *net.TCPConn {
	w.Helper()
	w.Must(st.placeholder.Close())
	var fd int
	w.Must(w.Do(pair.A, func() (err error) {
		fd, err = unix.Socket(s.domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	}))
	f := os.NewFile(uintptr(fd), "restored")
	defer f.Close()
	w.Must(refill(fd, s, st.state))
	w.rule(st.port, passAll)
	w.Must(unix.SetNonblock(fd, true))
	w.Must(unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF))
	c, err := net.FileConn(f)
	w.Must(err)
	w.Cleanup(func() { c.Close() })
	if unsent := st.state.Queue[st.state.SndUna.Until(st.state.SndNxt):]; len(unsent) > 0 {
		_, err := c.Write(unsent)
		w.Must(err)
	}
	return c.(*net.TCPConn)
}

// refill gives a fresh socket the state, in repair mode.
func refill(fd int, s *Socket, st tcp.State) error {
	ints := func(name int, values ...int) error {
		for _, v := range values {
			if err := unix.SetsockoptInt(fd, unix.SOL_TCP, name, v); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
		return nil
	}
	setSeq := func(queue int, n seq.Num) error {
		if err := ints(unix.TCP_REPAIR_QUEUE, queue); err != nil {
			return err
		}
		return ints(unix.TCP_QUEUE_SEQ, int(int32(n)))
	}
	sent := st.Queue[:st.SndUna.Until(st.SndNxt)]
	for _, f := range []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) },
		func() error { return ints(unix.TCP_REPAIR, unix.TCP_REPAIR_ON) },
		func() error { return unix.Bind(fd, s.local) },
		func() error { return setSeq(sendQueue, st.SndUna) },
		func() error { return setSeq(receiveQueue, st.RcvNxt.Back(seq.Len(len(st.Unread)))) },
		func() error { return unix.Connect(fd, s.remote) },
		func() error {
			return unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_REPAIR_OPTIONS, options(st))
		},
		func() error { return ints(unix.TCP_TIMESTAMP, int(int32(st.TSNow))) },
		func() error { return put(fd, receiveQueue, st.Unread) },
		func() error { return put(fd, sendQueue, sent) },
		func() error {
			return unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_REPAIR_WINDOW, window(st))
		},
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// put fills a queue of a socket in repair mode.
func put(fd, queue int, b []byte) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR_QUEUE, queue); err != nil {
		return err
	}
	for len(b) > 0 {
		n, err := unix.Write(fd, b[:min(len(b), 1000)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// options returns an array of struct tcp_repair_opt: kinds of RFC 9293 §3.1.
func options(st tcp.State) string {
	var b []byte
	add := func(kind, value uint32) {
		b = binary.NativeEndian.AppendUint32(b, kind)
		b = binary.NativeEndian.AppendUint32(b, value)
	}
	add(2, uint32(st.MSS))
	if st.SndScale != 0 || st.RcvScale != 0 {
		add(3, uint32(st.SndScale)|uint32(st.RcvScale)<<16)
	}
	if st.SACK {
		add(4, 0)
	}
	if st.Timestamps {
		add(8, 0)
	}
	return string(b)
}

// window is struct tcp_repair_window.
func window(st tcp.State) string {
	var b []byte
	for _, v := range []uint32{uint32(st.SndWL1), st.SndWnd, st.MaxWnd, st.RcvWnd, uint32(st.RcvWup)} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return string(b)
}
