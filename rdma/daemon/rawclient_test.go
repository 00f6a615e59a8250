package daemon

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/foreign"
	"github.com/stag-rdma/stag/test/rig"
)

// scene is a daemon over the kernel port.
type scene struct {
	rig.Stage
	adapter *rdma.Adapter
	daemon  *Daemon
	path    string
}

// newScene starts a daemon. The test fails if the daemon leaves anything behind.
func newScene(t testing.TB, change ...func(*Config)) *scene {
	s := &scene{Stage: rig.On(t), path: filepath.Join(t.TempDir(), "stagd.sock")}
	rig.NoLeaks(s)
	var err error
	s.adapter, err = rdma.Open(rdma.Config{KernelPort: true, NoControl: true})
	s.Must(err)
	l, err := Listen(s.path, -1)
	s.Must(err)
	cfg := Config{Adapter: s.adapter, Listener: l, Version: "test"}
	for _, f := range change {
		f(&cfg)
	}
	s.daemon, err = New(cfg)
	s.Must(err)
	served := make(chan error, 1)
	go func() { served <- s.daemon.Serve() }()
	t.Cleanup(func() {
		s.Check(s.daemon.Close(rig.Context(t)))
		s.Check(<-served)
		s.Check(s.adapter.Close())
	})
	return s
}

// raw is a client that speaks the protocol by its octets.
type raw struct {
	testing.TB
	path  string
	conn  *net.UnixConn
	token [2]uint64
	bell  foreign.Bell
	maps  [][]byte
	fds   []int
}

// client connects and says HELLO.
func (s *scene) client(t testing.TB, change ...func(*proto.Message)) *raw {
	t.Helper()
	return clientAt(t, s.path, change...)
}

func clientAt(t testing.TB, path string, change ...func(*proto.Message)) *raw {
	t.Helper()
	c := connectTo(t, path)
	m, fds, errno := c.hello(change...)
	if errno != 0 {
		t.Fatalf("HELLO: %v", errno)
	}
	if len(fds) != 2 {
		t.Fatalf("%d descriptors with HELLO", len(fds))
	}
	c.token = m.Hello().Token
	c.bell = foreign.Bell{Page: c.mapped(fds[0], int(m.Hello().BellLen)), FD: fds[1]}
	c.fds = append(c.fds, fds[1])
	return c
}

func connectTo(t testing.TB, path string) *raw {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	c := &raw{TB: t, path: path, conn: conn}
	t.Cleanup(c.close)
	return c
}

// close ends the client.
func (c *raw) close() {
	c.conn.Close()
	for _, m := range c.maps {
		unix.Munmap(m)
	}
	closeAll(c.fds)
	c.maps, c.fds = nil, nil
}

// mapped maps a descriptor of the daemon, and closes it.
func (c *raw) mapped(fd, n int) []byte {
	c.Helper()
	m, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		c.Fatal(err)
	}
	unix.Close(fd)
	c.maps = append(c.maps, m)
	return m
}

func (c *raw) hello(change ...func(*proto.Message)) (*proto.Message, []int, unix.Errno) {
	c.Helper()
	m := &proto.Message{Op: proto.OpHello}
	*m.Hello() = proto.Hello{Version: proto.Version, Layout: proto.LayoutVersion, MessageLen: uint32(proto.MessageLen)}
	for _, f := range change {
		f(m)
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		c.Fatal(err)
	}
	defer mem.Close()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		c.Fatal(err)
	}
	defer maps.Close()
	return c.exchange(m, int(mem.Fd()), int(maps.Fd()))
}

// exchange sends a request and returns the answer.
func (c *raw) exchange(m *proto.Message, fds ...int) (*proto.Message, []int, unix.Errno) {
	c.Helper()
	c.conn.SetDeadline(rig.Deadline())
	if err := writeMessage(c.conn, m, fds); err != nil {
		c.Fatal(err)
	}
	var answer proto.Message
	got, err := readMessage(c.conn, &answer)
	if err != nil {
		c.Fatalf("op %d: %v", m.Op, err)
	}
	if answer.Op != m.Op {
		c.Fatalf("answer to op %d is one to %d", m.Op, answer.Op)
	}
	return &answer, got, unix.Errno(answer.Err)
}

// try executes a request, and returns the answer and its errno.
func (c *raw) try(op proto.Op, handle uint64, fill func(*proto.Message)) (*proto.Message, unix.Errno) {
	c.Helper()
	m := &proto.Message{Op: op, Handle: handle}
	if fill != nil {
		fill(m)
	}
	answer, fds, errno := c.exchange(m)
	closeAll(fds)
	return answer, errno
}

// do executes a request that must succeed.
func (c *raw) do(op proto.Op, handle uint64, fill func(*proto.Message)) *proto.Message {
	c.Helper()
	answer, errno := c.try(op, handle, fill)
	if errno != 0 {
		c.Fatalf("op %d: %v", op, errno)
	}
	return answer
}

// refuse executes a request that must fail with an errno.
func (c *raw) refuse(want unix.Errno, op proto.Op, handle uint64, fill func(*proto.Message)) {
	c.Helper()
	if _, errno := c.try(op, handle, fill); errno != want {
		c.Errorf("op %d with handle %d: %v, want %v", op, handle, errno, want)
	}
}

func (c *raw) pd() uint64 { c.Helper(); return c.do(proto.OpPD, 0, nil).Handle }

func (c *raw) destroy(kind proto.Kind, handle uint64) {
	c.Helper()
	c.do(proto.OpDestroy, handle, func(m *proto.Message) { m.Destroy().Kind = kind })
}

// rawCQ is a CQ of a client.
type rawCQ struct {
	foreign.CQ
	c      *raw
	handle uint64
}

func (c *raw) cq(depth uint32, channel, cookie uint64) *rawCQ {
	c.Helper()
	m := &proto.Message{Op: proto.OpCQ}
	*m.CQ() = proto.CQ{Depth: depth, Channel: channel, Cookie: cookie}
	answer, fds, errno := c.exchange(m)
	if errno != 0 || len(fds) != 1 {
		c.Fatalf("CQ: %v, %d descriptors", errno, len(fds))
	}
	q := &rawCQ{c: c, handle: answer.Handle}
	q.Ring = c.mapped(fds[0], int(answer.CQ().Length))
	return q
}

// wait returns the next completion.
func (q *rawCQ) wait() rdma.Completion {
	q.c.Helper()
	for end := time.Now().Add(rig.Patience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if w, ok := q.Next(); ok {
			return w
		}
	}
	q.c.Fatal("no completion")
	return rdma.Completion{}
}

// channel makes a completion channel, and returns its handle and the end to read.
func (c *raw) channel() (uint64, *os.File) {
	c.Helper()
	answer, fds, errno := c.exchange(&proto.Message{Op: proto.OpChannel})
	if errno != 0 || len(fds) != 1 {
		c.Fatalf("CHANNEL: %v, %d descriptors", errno, len(fds))
	}
	unix.SetNonblock(fds[0], true)
	f := os.NewFile(uintptr(fds[0]), "channel")
	c.Cleanup(func() { f.Close() })
	return answer.Handle, f
}

// cookie reads one event of a completion channel.
func cookie(t testing.TB, f *os.File) uint64 {
	t.Helper()
	var b [8]byte
	f.SetReadDeadline(rig.Deadline())
	if n, err := f.Read(b[:]); n != 8 || err != nil {
		t.Fatalf("event: %d octets, %v", n, err)
	}
	return binary.NativeEndian.Uint64(b[:])
}

// rawQP is a QP of a client.
type rawQP struct {
	c      *raw
	handle uint64
	qpn    uint32
	bit    int
	send   foreign.Send
	recv   foreign.Recv
	body   proto.QP
}

func (c *raw) qp(p proto.QP) *rawQP {
	c.Helper()
	if p.Type == 0 {
		p.Type = typeRC
	}
	m := &proto.Message{Op: proto.OpQP}
	*m.QP() = p
	answer, fds, errno := c.exchange(m)
	if errno != 0 || len(fds) != 1 {
		c.Fatalf("QP: %v, %d descriptors", errno, len(fds))
	}
	b := *answer.QP()
	memory := c.mapped(fds[0], int(b.Length))
	q := &rawQP{c: c, handle: answer.Handle, qpn: b.QPN, bit: int(b.Bit), body: b}
	q.send.Ring = memory[:b.SendLen]
	q.recv.Ring = memory[b.RecvOffset:][:b.RecvLen]
	return q
}

func (q *rawQP) post(wrs ...rdma.SendWR) {
	q.c.Helper()
	for _, w := range wrs {
		if !q.send.Post(w) {
			q.c.Fatal("the send ring is full")
		}
	}
	q.ring()
}

func (q *rawQP) receive(wrs ...rdma.RecvWR) {
	q.c.Helper()
	for _, w := range wrs {
		if !q.recv.Post(w) {
			q.c.Fatal("the receive ring is full")
		}
	}
	q.ring()
}

func (q *rawQP) ring() {
	q.c.Helper()
	if err := q.c.bell.Ring(q.bit); err != nil {
		q.c.Fatal(err)
	}
}

// events is a connection for events.
type events struct {
	t      testing.TB
	conn   *net.UnixConn
	handle uint64
}

func (c *raw) attach(op proto.Op) *events {
	c.Helper()
	e := connectTo(c.TB, c.path)
	m := &proto.Message{Op: op}
	m.Attach().Token = c.token
	answer, _, errno := e.exchange(m)
	if errno != 0 {
		c.Fatalf("attach: %v", errno)
	}
	return &events{c.TB, e.conn, answer.Handle}
}

// next returns the next event.
func (e *events) next() *proto.Message {
	e.t.Helper()
	var m proto.Message
	e.conn.SetReadDeadline(rig.Deadline())
	if _, err := readMessage(e.conn, &m); err != nil {
		e.t.Fatalf("event: %v", err)
	}
	return &m
}

// want returns the next event, which must be of a kind.
func (e *events) want(kind uint32) *proto.Message {
	e.t.Helper()
	m := e.next()
	if m.Op != proto.OpCMEvent || m.CMEvent().Event != kind {
		e.t.Fatalf("event %d with status %d, want %d", m.CMEvent().Event, m.CMEvent().Status, kind)
	}
	return m
}

func (c *raw) id(channel *events, cookie uint64) uint64 {
	c.Helper()
	return c.do(proto.OpID, 0, func(m *proto.Message) {
		*m.ID() = proto.ID{Channel: channel.handle, Cookie: cookie, PortSpace: portSpaceTCP}
	}).Handle
}

// address fills a message with addresses.
func address(src, dst string) func(*proto.Message) {
	return func(m *proto.Message) {
		if src != "" {
			m.Address().Src = sockaddr(netip.MustParseAddrPort(src))
		}
		if dst != "" {
			m.Address().Dst = sockaddr(netip.MustParseAddrPort(dst))
		}
	}
}

// listening makes an identifier that listens, and returns it and its address.
func (c *raw) listening(e *events, at string) (uint64, string) {
	c.Helper()
	i := c.id(e, 77)
	m := c.do(proto.OpBind, i, address(at, ""))
	bound, err := addrPort(m.Address().Src)
	if err != nil || bound.Port() == 0 {
		c.Fatalf("bound to %v, %v", bound, err)
	}
	c.do(proto.OpListen, i, func(m *proto.Message) { m.Address().Backlog = 4 })
	return i, bound.String()
}

// routed makes an identifier that can connect to an address.
func (c *raw) routed(e *events, to string) uint64 {
	c.Helper()
	i := c.id(e, 88)
	c.do(proto.OpResolve, i, address("", to))
	e.want(cmAddrResolved)
	c.do(proto.OpRoute, i, nil)
	e.want(cmRouteResolved)
	return i
}

// rawEnd is one end of a connection.
type rawEnd struct {
	c            *raw
	pd           uint64
	sends, recvs *rawCQ
	qp           *rawQP
	id           uint64
	events       *events
}

// end makes a QP with its CQs and a PD. flags are those of proto.QP.
func (c *raw) end(flags ...uint32) *rawEnd {
	c.Helper()
	e := &rawEnd{c: c, pd: c.pd(), sends: c.cq(64, 0, 1), recvs: c.cq(64, 0, 2)}
	p := proto.QP{PD: e.pd, SendCQ: e.sends.handle, RecvCQ: e.recvs.handle, SendDepth: 16, RecvDepth: 16, SendSGE: 2, InlineLen: 64}
	for _, f := range flags {
		p.Flags |= f
	}
	e.qp = c.qp(p)
	return e
}

// pair connects two clients. Both ends are connected when it returns.
func pair(active, passive *raw) (a, b *rawEnd) {
	active.Helper()
	a, b = active.end(), passive.end()
	meet(a, b)
	return a, b
}

// meet connects two ends.
func meet(a, b *rawEnd) {
	active, passive := a.c, b.c
	active.Helper()
	a.events, b.events = active.attach(proto.OpEventChannel), passive.attach(proto.OpEventChannel)
	_, at := passive.listening(b.events, "127.0.0.1:0")
	a.id = active.routed(a.events, at)
	active.do(proto.OpConnect, a.id, conn(a.qp, "hello"))
	request := b.events.want(cmConnectRequest)
	b.id = request.Handle
	passive.do(proto.OpAccept, b.id, conn(b.qp, "welcome"))
	a.events.want(cmEstablished)
	b.events.want(cmEstablished)
}

func conn(q *rawQP, private string) func(*proto.Message) {
	return func(m *proto.Message) {
		*m.Conn() = proto.Conn{QPN: q.qpn, ResponderResources: 4, InitiatorDepth: 4, Cookie: 99}
		m.PrivateLen = uint32(copy(m.PrivateData[:], private))
	}
}

// rawMR is a region of a client.
type rawMR struct {
	handle uint64
	addr   uint64
	key    rdma.STag
	body   proto.MR
}

func (r rawMR) at(offset uint64, n uint32) rdma.SGE {
	return rdma.SGE{Addr: r.addr + offset, Length: n, LKey: r.key}
}

// pinned returns memory that the garbage collector does not move or free.
func pinned(t testing.TB, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	return m
}

func (e *rawEnd) region(memory []byte, access rdma.Access) rawMR {
	e.c.Helper()
	return e.c.region(e.pd, memory, access)
}

func (c *raw) region(pd uint64, memory []byte, access rdma.Access) rawMR {
	c.Helper()
	at := addressOfMemory(memory)
	m := c.do(proto.OpMR, 0, func(m *proto.Message) {
		*m.MR() = proto.MR{PD: pd, Addr: at, Length: uint64(len(memory)), IOVA: at, Access: uint32(access)}
	})
	return rawMR{m.Handle, at, rdma.STag(m.MR().LKey), *m.MR()}
}

// succeed waits for completions with success, in order.
func (q *rawCQ) succeed(ids ...uint64) {
	q.c.Helper()
	for _, id := range ids {
		if w := q.wait(); w.ID != id || w.Status != rdma.Success {
			q.c.Fatalf("completion %+v, want success of %d", w, id)
		}
	}
}
