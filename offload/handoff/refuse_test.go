package handoff

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// control runs f on the connection's descriptor.
func control(t testing.TB, c *net.TCPConn, f func(fd int) error) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	if err := errors.Join(raw.Control(func(fd uintptr) { inner = f(int(fd)) }), inner); err != nil {
		t.Fatal(err)
	}
}

// Each is refused with its own error, and the connection is not touched.
func TestOpenRefuses(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, a, b *net.TCPConn)
		want    error
		text    string // in the error
		alive   bool   // octets still travel both ways afterwards
	}{
		{"signed", func(t *testing.T, a, b *net.TCPConn) {
			control(t, a, func(fd int) error { return sign(fd, b.LocalAddr().(*net.TCPAddr)) })
		}, ErrMD5, "", false},
		{"urgent", func(t *testing.T, a, b *net.TCPConn) {
			control(t, b, func(fd int) error { return unix.Sendto(fd, []byte{1}, unix.MSG_OOB, nil) })
			rig.Eventually(t, "urgent data", func() bool {
				var events int16
				control(t, a, func(fd int) (err error) {
					events, err = (&Socket{fd: fd}).poll(unix.POLLPRI)
					return err
				})
				return events&unix.POLLPRI != 0
			})
		}, ErrUrgent, "", true},
		{"IP options", func(t *testing.T, a, _ *net.TCPConn) {
			control(t, a, func(fd int) error {
				return unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, "\x01\x01\x01\x00")
			})
		}, ErrOptions, "", true},
		{"a locked filter", func(t *testing.T, a, _ *net.TCPConn) {
			control(t, a, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1) })
		}, ErrFilter, "", true},
		{"the peer has closed", func(t *testing.T, a, b *net.TCPConn) {
			b.CloseWrite()
			awaitState(t, a, 8)
		}, ErrNotEstablished, "CLOSE-WAIT", false},
		{"we have closed", func(t *testing.T, a, _ *net.TCPConn) {
			a.CloseWrite()
			awaitState(t, a, 5)
		}, ErrNotEstablished, "FIN-WAIT-2", false},
		{"reset", func(t *testing.T, a, b *net.TCPConn) {
			b.SetLinger(0)
			b.Close()
			awaitState(t, a, closed)
		}, ErrNotEstablished, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := w.connect(how{})
			c.prepare(t, a, b)
			before := len(rig.Files(t))
			s, err := Open(a)
			if s != nil {
				s.Close()
			}
			wantErr(t, err, c.want)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%q does not say %q", err, c.text)
			}
			if now := len(rig.Files(t)); now != before {
				t.Errorf("%d descriptors, before %d", now, before)
			}
			if c.alive {
				w.Must(exchange(a, b))
			}
		})
	}
}

// awaitState waits until the kernel's connection is in a state.
func awaitState(t *testing.T, c *net.TCPConn, state uint8) {
	t.Helper()
	rig.Eventually(t, stateName(state), func() bool {
		var info tcpInfo
		control(t, c, func(fd int) (err error) {
			info, err = getTCPInfo(fd)
			return err
		})
		return info.State == state
	})
}

// sign sets a TCP-MD5 key for a peer: struct tcp_md5sig (linux/tcp.h).
func sign(fd int, peer *net.TCPAddr) error {
	var b [216]byte
	b[0] = unix.AF_INET
	copy(b[4:], peer.IP.To4())
	const keyAt, lenAt = 136, 130
	b[lenAt] = 3
	copy(b[keyAt:], "key")
	return unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_MD5SIG, string(b[:]))
}

// An urgent octet that has been read out of turn leaves a hole in the queue.
func TestTakeRefusesUrgentHole(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	if _, err := b.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	control(t, b, func(fd int) error { return unix.Sendto(fd, []byte{1}, unix.MSG_OOB, nil) })
	control(t, a, func(fd int) error {
		for {
			_, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_OOB)
			if err == nil {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
	})
	s, err := Open(a)
	w.Must(err)
	defer s.Close()
	st := w.steps(s)
	wantErr(t, s.Take(t.Context(), st, &w.grace), ErrUrgent)
	if st.unparked != 1 {
		t.Errorf("unparked %d times", st.unparked)
	}
	if got := readSoon(t, a, 6); string(got) != "before" {
		t.Errorf("read %q", got)
	}
	w.Must(exchange(a, b))
}

func TestOpenRefusesOtherSockets(t *testing.T) {
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = Open(c.(*net.TCPConn))
	wantErr(t, err, ErrLocal)
	_, err = Open(l.(*net.TCPListener))
	wantErr(t, err, ErrNotEstablished)
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	_, err = Open(u.(*net.UDPConn))
	wantErr(t, err, ErrNotTCP)
}

func TestOpenRefusesMultipath(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{mptcp: true})
	if multi, _ := a.MultipathTCP(); !multi {
		t.Fatal("the connection is not a Multipath one")
	}
	_, err := Open(a)
	wantErr(t, err, ErrMPTCP)
	w.Must(exchange(a, b))
}

// Without CAP_NET_ADMIN the error says so, before anything is parked.
func TestOpenWithoutCapability(t *testing.T) {
	w := newWorld(t)
	need.Root(t)
	a, b := w.connect(how{})
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its rights
		if err := dropCapabilities(); err != nil {
			done <- err
			return
		}
		s, err := Open(a)
		if s != nil {
			s.Close()
		}
		done <- err
	}()
	wantErr(t, <-done, ErrPermission)
	w.Must(exchange(a, b))
}

// dropCapabilities takes the effective capabilities off the running thread.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective, data[1].Effective = 0, 0
	return unix.Capset(&header, &data[0])
}

// If the steering does not work, the kernel continues to receive segments: the take-over
// gives up, and the connection with all its settings is the kernel's again.
func TestTakeGivesUpWhileSegmentsArrive(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	sniffer := w.sniff(pair.B)
	w.Must(exchange(a, b))
	segment := lastFrom(t, sniffer, uint16(b.LocalAddr().(*net.TCPAddr).Port))
	before := settings(t, a)
	s, err := Open(a)
	w.Must(err)
	defer s.Close()
	rounds := 0
	s.settling = func() {
		rounds++
		was, err := getTCPInfo(s.fd)
		w.Must(err)
		if _, err := unix.Write(sniffer, segment); err != nil { // an old one, again
			t.Error(err)
		}
		rig.Eventually(t, "the segment", func() bool {
			now, err := getTCPInfo(s.fd)
			return err == nil && now.Segs_in != was.Segs_in
		})
	}
	st := &leaky{steps{heard: closedChannel()}}
	wantErr(t, s.Take(t.Context(), st, &w.grace), ErrMoving)
	if rounds != maxRounds {
		t.Errorf("gave up after %d rounds", rounds)
	}
	if st.parked != 1 || st.unparked != 1 {
		t.Errorf("parked %d times, unparked %d times", st.parked, st.unparked)
	}
	if after := settings(t, a); after != before {
		t.Errorf("socket options %v, before %v", after, before)
	}
	w.Must(exchange(a, b))
}

// leaky is an engine whose steering does nothing.
type leaky struct{ steps }

func (l *leaky) Park() error { l.parked++; return nil }
func (l *leaky) Unpark()     { l.unparked++ }
