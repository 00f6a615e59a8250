package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

// A client that speaks another version learns the daemon's, and gets nothing else.
func TestHelloOfAnotherVersion(t *testing.T) {
	s := newScene(t)
	for name, change := range map[string]func(*proto.Hello){
		"version": func(h *proto.Hello) { h.Version++ },
		"layout":  func(h *proto.Hello) { h.Layout-- },
		"length":  func(h *proto.Hello) { h.MessageLen = 8 },
	} {
		c := connectTo(t, s.path)
		m, fds, errno := c.hello(func(m *proto.Message) { change(m.Hello()) })
		if errno != unix.EPROTONOSUPPORT || len(fds) != 0 {
			t.Errorf("%s: %v, %d descriptors", name, errno, len(fds))
		}
		if h := m.Hello(); h.Version != proto.Version || h.Layout != proto.LayoutVersion || int(h.MessageLen) != proto.MessageLen {
			t.Errorf("%s: the daemon says %+v", name, *h)
		}
		c.ended()
	}
}

// ended waits for the end of the connection.
func (c *raw) ended() {
	c.Helper()
	c.conn.SetReadDeadline(rig.Deadline())
	var m proto.Message
	if fds, err := readMessage(c.conn, &m); err == nil {
		closeAll(fds)
		c.Errorf("op %d instead of the end of the connection", m.Op)
	} else if os.IsTimeout(err) {
		c.Error("the connection does not end")
	}
}

// The daemon reads only files of /proc that cannot make it wait.
func TestHelloNeedsMemory(t *testing.T) {
	s := newScene(t)
	var pipe [2]int
	s.Must(unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer closeAll(pipe[:])
	plain, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	s.Must(err)
	defer plain.Close()
	status, err := os.Open("/proc/self/status")
	s.Must(err)
	defer status.Close()
	maps, err := os.Open("/proc/self/maps")
	s.Must(err)
	defer maps.Close()
	for name, fds := range map[string][]int{
		"none": nil, "one": {int(maps.Fd())}, "pipe": {pipe[0], int(maps.Fd())}, "plain file": {int(plain.Fd()), int(maps.Fd())},
		"other file of /proc": {int(status.Fd()), int(maps.Fd())}, "exchanged": {int(maps.Fd()), int(status.Fd())},
		"three": {int(maps.Fd()), int(maps.Fd()), int(maps.Fd())},
	} {
		c := connectTo(t, s.path)
		m := &proto.Message{Op: proto.OpHello}
		*m.Hello() = proto.Hello{Version: proto.Version, Layout: proto.LayoutVersion, MessageLen: uint32(proto.MessageLen)}
		if _, _, errno := c.exchange(m, fds...); errno != unix.EINVAL {
			t.Errorf("%s: %v", name, errno)
		}
		c.ended()
	}
}

// A message of another length, or a first message of another kind, ends the connection.
func TestConnectionsThatSayNothing(t *testing.T) {
	s := newScene(t, func(c *Config) { c.HelloTimeout = 100 * time.Millisecond })
	silent := connectTo(t, s.path)
	silent.ended()
	for _, n := range []int{1, 8, proto.MessageLen - 1, proto.MessageLen + 1, 4000} {
		c := connectTo(t, s.path)
		if _, err := c.conn.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		c.ended()
	}
	c := connectTo(t, s.path)
	if _, _, errno := c.exchange(&proto.Message{Op: proto.OpPD}); errno != unix.EPROTO {
		t.Errorf("PD first: %v", errno)
	}
	c.ended()
}

// Requests that nobody knows are refused, and the client goes on.
func TestUnknownRequests(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	for _, op := range []proto.Op{0, proto.OpHello, proto.OpAsync, proto.OpAsyncEvent, proto.OpEventChannel, proto.OpCMEvent, 9, 1000, 1<<32 - 1} {
		c.refuse(unix.EOPNOTSUPP, op, 0, nil)
	}
	c.pd()
}

// Descriptors that come with a request are closed.
func TestUnwantedDescriptors(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	var pipe [2]int
	s.Must(unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	if _, _, errno := c.exchange(&proto.Message{Op: proto.OpPD}, pipe[1], pipe[1]); errno != 0 {
		t.Fatal(errno)
	}
	unix.Close(pipe[1])
	c.pd() // the daemon has closed those of the request before
	var b [1]byte
	if n, err := unix.Read(pipe[0], b[:]); n != 0 || err != nil {
		t.Errorf("the daemon still has the descriptor: %d, %v", n, err)
	}
}

// An event connection needs the token of a client.
func TestTokens(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	for _, token := range [][2]uint64{{}, {c.token[0]}, {c.token[0], c.token[1] + 1}} {
		e := connectTo(t, s.path)
		m := &proto.Message{Op: proto.OpEventChannel}
		m.Attach().Token = token
		if _, _, errno := e.exchange(m); errno != unix.ENOENT {
			t.Errorf("token %x: %v", token, errno)
		}
		e.ended()
	}
}

func TestLimitsOfClients(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Clients, c.ClientsPerUser = 3, 2 })
	a, b := s.client(t), s.client(t)
	refused := func() unix.Errno {
		c := connectTo(t, s.path)
		_, fds, errno := c.hello()
		closeAll(fds)
		c.close()
		return errno
	}
	if errno := refused(); errno != unix.EDQUOT {
		t.Errorf("a third client of the user: %v", errno)
	}
	a.close()
	s.Eventually("a place is free", func() bool { return refused() == 0 })
	s.Eventually("only one client is left", func() bool { return s.daemon.Clients() == 1 })
	b.pd()
}

// The device, its port and its addresses.
func TestDeviceAndPorts(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	d := c.do(proto.OpDevice, 0, nil).Device()
	if name := strings.TrimRight(string(d.Name[:]), "\x00"); name != DeviceName || d.Ports != 1 || d.MaxQP == 0 || d.MaxSGE == 0 || d.MaxCQE == 0 || d.MaxMRSize == 0 {
		t.Errorf("device %q: %+v", name, d)
	}
	p := c.do(proto.OpPort, 0, func(m *proto.Message) { m.Port().PortNum = 1 }).Port()
	if p.State != portActive || p.GIDs == 0 {
		t.Errorf("port: %+v", p)
	}
	for i := range p.GIDs {
		g := c.do(proto.OpGID, 0, func(m *proto.Message) { m.GID().PortNum, m.GID().Index = 1, i }).GID()
		if g.GID == ([16]byte{}) {
			t.Errorf("GID %d is empty", i)
		}
	}
	c.refuse(unix.ENODATA, proto.OpGID, 0, func(m *proto.Message) { m.GID().PortNum, m.GID().Index = 1, p.GIDs })
	for _, n := range []uint32{0, 2, 1<<32 - 1} {
		c.refuse(unix.EINVAL, proto.OpPort, 0, func(m *proto.Message) { m.Port().PortNum = n })
		c.refuse(unix.EINVAL, proto.OpGID, 0, func(m *proto.Message) { m.GID().PortNum = n })
	}
}

func TestAskForPorts(t *testing.T) {
	s := newScene(t)
	if names, err := Ask(s.path); err != nil || len(names) != 1 || names[0] != "" {
		t.Errorf("%q, %v", names, err)
	}
	s.Eventually("the question is no client any more", func() bool { return s.daemon.Clients() == 0 })
}

// A socket that nobody serves is replaced. A socket that is served is not.
func TestSocketPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, os.Getegid())
	rig.Must(t, err)
	st, err := os.Stat(path)
	rig.Must(t, err)
	if st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v with a group", st.Mode())
	}
	if _, err := Listen(path, -1); err == nil {
		t.Error("a second listener at the same path")
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if l, err = Listen(path, -1); err != nil {
		t.Fatal(err)
	}
	if st, err = os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("without a group: %v, %v", st, err)
	}
	l.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the path is left: %v", err)
	}
}
