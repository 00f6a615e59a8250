package daemon

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

// In the environment of a process that is a client: the socket, and the address of a peer.
const (
	playsAt   = "STAG_TEST_CLIENT_OF"
	playsWith = "STAG_TEST_PEER"
)

// TestMain runs the tests, or a client that the test below kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(playsAt); path != "" {
		play(path, os.Getenv(playsWith))
		return
	}
	os.Exit(m.Run())
}

// lone stands in for a test in a process that is none.
type lone struct{ testing.TB }

func (lone) Helper()                     {}
func (lone) Cleanup(func())              {}
func (lone) Fatal(a ...any)              { fmt.Println(a...); os.Exit(1) }
func (l lone) Fatalf(f string, a ...any) { l.Fatal(fmt.Sprintf(f, a...)) }
func (l lone) Errorf(f string, a ...any) { l.Fatal(fmt.Sprintf(f, a...)) }

// play is a client with traffic, until it is killed: with itself, and with the peer.
func play(path, peer string) {
	c := clientAt(lone{}, path)
	a, b := pair(c, c)
	from, to := pinned(c, 1<<16), pinned(c, 1<<16)
	mine, theirs := a.region(from, rdma.LocalWrite), b.region(to, rdma.LocalWrite|rdma.RemoteWrite)
	out := c.end()
	e := c.attach(proto.OpEventChannel)
	c.do(proto.OpConnect, c.routed(e, peer), conn(out.qp, "from a process"))
	e.want(cmEstablished)
	fmt.Println("ready")
	for id := uint64(0); ; id++ {
		a.qp.post(rdma.SendWR{ID: id, Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(0, 1<<16)}, RemoteAddr: theirs.addr, RKey: theirs.key})
		out.qp.post(rdma.SendWR{ID: id, Op: rdma.WRSend, Flags: rdma.Signaled})
		a.sends.succeed(id)
		out.sends.succeed(id)
		a.qp.send.Polled, out.qp.send.Polled = uint32(id+1), uint32(id+1)
	}
}

// host is a client that accepts everybody, and counts who goes.
type host struct {
	*raw
	pd     uint64
	cq     *rawCQ
	events *events
	at     string
	gone   atomic.Int64
}

func newHost(s *scene, t *testing.T) *host {
	c := s.client(t)
	h := &host{raw: c, pd: c.pd(), cq: c.cq(1<<16, 0, 0), events: c.attach(proto.OpEventChannel)}
	_, h.at = c.listening(h.events, "127.0.0.1:0")
	return h
}

// run serves until n peers have gone.
func (h *host) run(n int64) {
	qps := map[uint64]*rawQP{}
	for h.gone.Load() < n {
		m := h.events.next()
		switch m.CMEvent().Event {
		case cmConnectRequest:
			q := h.qp(proto.QP{PD: h.pd, SendCQ: h.cq.handle, RecvCQ: h.cq.handle, SendDepth: 1, RecvDepth: 64, SendSGE: 1})
			for id := range uint64(64) {
				q.receive(rdma.RecvWR{ID: id})
			}
			qps[m.Handle] = q
			h.do(proto.OpAccept, m.Handle, conn(q, ""))
		case cmDisconnected, cmConnectError:
			h.destroy(proto.KindID, m.Handle)
			h.destroy(proto.KindQP, qps[m.Handle].handle)
			delete(qps, m.Handle)
			h.gone.Add(1)
			for ok := true; ok; {
				_, ok = h.cq.Next()
			}
		}
	}
}

// deaths is how many clients the test kills.
func deaths() int {
	if os.Getenv("STAG_LONG") != "" {
		return 1000
	}
	return 30
}

// Clients that are killed in the middle of their traffic leave nothing behind, and their peers
// learn that they have gone.
func TestKilledClients(t *testing.T) {
	s := newScene(t)
	h := newHost(s, t)
	before := len(rig.Files(t))
	n := deaths()
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.run(int64(n))
	}()
	for range n {
		killOne(t, s.path, h.at)
	}
	rig.Wait(t, over, "every peer has gone")
	s.Eventually("only the host is left", func() bool { return s.daemon.Clients() == 1 })
	s.Eventually("no QP and no region is left", func() bool {
		at, err := s.adapter.Attributes()
		return err == nil && at.QPs == 0 && at.Regions == 0
	})
	s.Eventually("no descriptor is left", func() bool { return len(rig.Files(t)) <= before })
}

// killOne starts a client, and kills it a moment later.
func killOne(t *testing.T, path, peer string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), playsAt+"="+path, playsWith+"="+peer)
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	rig.Must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("the client says %q, %v", line, err)
	}
	time.Sleep(rand.N(3 * time.Millisecond))
	rig.Must(t, cmd.Process.Signal(unix.SIGKILL))
	cmd.Wait()
}

// A process that has ended is gone, although a child of it still has its connection.
func TestConnectionLeftToChild(t *testing.T) {
	s := newScene(t)
	h := newHost(s, t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.run(1)
	}()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), playsAt+"="+s.path, playsWith+"="+h.at)
	out, err := cmd.StdoutPipe()
	s.Must(err)
	s.Must(cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the client says %q, %v", line, err)
	}
	kept := takeSockets(t, cmd.Process.Pid) // as a child of fork has them
	defer closeAll(kept)
	s.Must(cmd.Process.Kill())
	cmd.Wait()
	rig.Wait(t, served, "the peer learns of the end")
	s.Eventually("the client is gone", func() bool { return s.daemon.Clients() == 1 })
}

// takeSockets duplicates the sockets of another process.
func takeSockets(t *testing.T, pid int) (fds []int) {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	rig.Must(t, err)
	defer unix.Close(pidfd)
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	rig.Must(t, err)
	for _, e := range names {
		var n int
		fmt.Sscan(e.Name(), &n)
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, n)); len(to) > 6 && to[:6] == "socket" {
			fd, err := unix.PidfdGetfd(pidfd, n, 0)
			rig.Must(t, err)
			fds = append(fds, fd)
		}
	}
	if len(fds) == 0 {
		t.Fatal("the process has no sockets")
	}
	return fds
}

// When the daemon ends, its clients learn of it on every way on which they may wait.
func TestDaemonEnds(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e, async := c.attach(proto.OpEventChannel), c.attach(proto.OpAsync)
	h, read := c.channel()
	c.cq(8, h, 1)
	if c.bell.Page[8] != 0 {
		t.Error("gone before the end")
	}
	s.Must(s.daemon.Close(rig.Context(t)))
	if c.bell.Page[8] != 1 {
		t.Error("the bell page does not say that the daemon has gone")
	}
	c.ended()
	for _, conn := range []*events{e, async} {
		conn.conn.SetReadDeadline(rig.Deadline())
		var m proto.Message
		if _, err := readMessage(conn.conn, &m); err == nil || os.IsTimeout(err) {
			t.Errorf("connection for events: %v", err)
		}
	}
	read.SetReadDeadline(rig.Deadline())
	var b [8]byte
	if n, err := read.Read(b[:]); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("completion channel: %d octets, %v", n, err)
	}
	s.Must(s.daemon.Close(context.Background())) // once more does nothing
}

// A client that closes its event channel goes on.
func TestEventChannelCloses(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.attach(proto.OpEventChannel)
	i, _ := c.listening(e, "127.0.0.1:0")
	e.conn.Close()
	s.Eventually("the channel is gone", func() bool {
		_, errno := c.try(proto.OpID, 0, func(m *proto.Message) { *m.ID() = proto.ID{Channel: e.handle, PortSpace: portSpaceTCP} })
		return errno == unix.EINVAL
	})
	c.destroy(proto.KindID, i)
}
