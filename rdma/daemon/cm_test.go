package daemon

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

func TestBind(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.attach(proto.OpEventChannel)
	for at, want := range map[string]unix.Errno{
		"192.0.2.77:0": unix.ENODEV, "[2001:db8::77]:5000": unix.ENODEV,
	} {
		c.refuse(want, proto.OpBind, c.id(e, 0), address(at, ""))
	}
	family := func(m *proto.Message) { m.Address().Src[0], m.Address().Src[1] = 99, 0 }
	c.refuse(unix.EAFNOSUPPORT, proto.OpBind, c.id(e, 0), family)

	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		i := c.id(e, 0)
		m := c.do(proto.OpBind, i, address(at, ""))
		got, err := addrPort(m.Address().Src)
		if err != nil || got.Port() == 0 || got.Addr() != netip.MustParseAddrPort(at).Addr() {
			t.Errorf("%s: bound to %v, %v", at, got, err)
		}
		if on := m.Address().PortNum; on != 0 == got.Addr().IsUnspecified() {
			t.Errorf("%s: port %d", at, on)
		}
		c.refuse(unix.EINVAL, proto.OpBind, i, address(at, "")) // once only
		c.refuse(unix.EADDRINUSE, proto.OpBind, c.id(e, 0), address(got.String(), ""))
		c.destroy(proto.KindID, i)
		c.do(proto.OpBind, c.id(e, 0), address(got.String(), "")) // free again
	}
}

// Two identifiers share a port if both want to. Only one listens.
func TestBindTwice(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.attach(proto.OpEventChannel)
	option := func(m *proto.Message) { m.Option().Name, m.Option().Length, m.Option().Value[0] = optionReuse, 4, 1 }
	a, b := c.id(e, 0), c.id(e, 0)
	c.do(proto.OpSetOption, a, option)
	c.do(proto.OpSetOption, b, option)
	at := c.do(proto.OpBind, a, address("127.0.0.1:0", "")).Address().Src
	same := func(m *proto.Message) { m.Address().Src = at }
	c.do(proto.OpBind, b, same)
	c.refuse(unix.EINVAL, proto.OpSetOption, b, option)
	c.do(proto.OpListen, a, nil)
	c.refuse(unix.EADDRINUSE, proto.OpListen, b, nil)
	c.refuse(unix.EADDRINUSE, proto.OpBind, c.id(e, 0), same)
}

// A program that has ended leaves its port to its successor at once.
func TestBindAfterEnd(t *testing.T) {
	s := newScene(t)
	at := "127.0.0.1:0"
	for range 20 {
		c := s.client(t)
		e := c.attach(proto.OpEventChannel)
		i := c.id(e, 0)
		m := c.do(proto.OpBind, i, address(at, ""))
		c.do(proto.OpListen, i, nil)
		bound, err := addrPort(m.Address().Src)
		s.Must(err)
		at = bound.String()
		c.close()
	}
}

// A port that another program of the host listens at is taken.
func TestBindTaken(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.Must(err)
	defer l.Close()
	e := c.attach(proto.OpEventChannel)
	c.refuse(unix.EADDRINUSE, proto.OpBind, c.id(e, 0), address(l.Addr().String(), ""))
}

func TestOptions(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	i := c.id(c.attach(proto.OpEventChannel), 0)
	for name, value := range map[uint32]byte{optionTOS: 0x10, optionReuse: 1, optionOnlyV6: 1, optionAckTimeout: 19} {
		c.do(proto.OpSetOption, i, func(m *proto.Message) { m.Option().Name, m.Option().Length, m.Option().Value[0] = name, 1, value })
		if o := c.do(proto.OpGetOption, i, func(m *proto.Message) { m.Option().Name = name }).Option(); o.Value[0] != value || o.Length != 1 {
			t.Errorf("option %d: %d in %d octets", name, o.Value[0], o.Length)
		}
	}
	for _, bad := range []proto.Option{{Level: 1, Name: 1, Length: 1}, {Name: 4, Length: 1}} {
		c.refuse(unix.ENOSYS, proto.OpSetOption, i, func(m *proto.Message) { *m.Option() = bad })
		c.refuse(unix.ENOSYS, proto.OpGetOption, i, func(m *proto.Message) { *m.Option() = bad })
	}
	for _, n := range []uint32{0, proto.OptionLen + 1, 1<<32 - 1} {
		c.refuse(unix.EINVAL, proto.OpSetOption, i, func(m *proto.Message) { m.Option().Length = n })
	}
}

// Each request of the connection manager is refused in every stage in which it has no sense.
func TestIllegalOrder(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.attach(proto.OpEventChannel)
	end := c.end()
	_, at := c.listening(c.attach(proto.OpEventChannel), "127.0.0.1:0")
	requests := map[proto.Op]func(*proto.Message){
		proto.OpBind: address("127.0.0.1:0", ""), proto.OpResolve: address("", at), proto.OpRoute: nil, proto.OpListen: nil,
		proto.OpConnect: conn(end.qp, ""), proto.OpAccept: conn(end.qp, ""), proto.OpReject: nil,
		proto.OpDisconnect: nil, proto.OpEstablish: nil,
	}
	for name, st := range map[string]struct {
		reach   func() uint64
		allowed []proto.Op
	}{
		"fresh": {func() uint64 { return c.id(e, 0) }, []proto.Op{proto.OpBind, proto.OpResolve, proto.OpListen}},
		"bound": {func() uint64 { i := c.id(e, 0); c.do(proto.OpBind, i, address("127.0.0.1:0", "")); return i }, []proto.Op{proto.OpResolve, proto.OpListen}},
		"resolved": {func() uint64 {
			i := c.id(e, 0)
			c.do(proto.OpResolve, i, address("", at))
			e.want(cmAddrResolved)
			return i
		}, []proto.Op{proto.OpRoute}},
		"routed":    {func() uint64 { return c.routed(e, at) }, []proto.Op{proto.OpConnect}},
		"listening": {func() uint64 { i, _ := c.listening(e, "127.0.0.1:0"); return i }, nil},
	} {
		i := st.reach()
		for op, fill := range requests {
			legal := false
			for _, a := range st.allowed {
				legal = legal || a == op
			}
			if !legal {
				if _, errno := c.try(op, i, fill); errno != unix.EINVAL {
					t.Errorf("op %d of an identifier that is %s: %v", op, name, errno)
				}
			}
		}
	}
}

// A connection from request to end, with the events that librdmacm knows.
func TestConnection(t *testing.T) {
	s := newScene(t)
	active, passive := s.client(t), s.client(t)
	a, b := active.end(), passive.end()
	ea, eb := active.attach(proto.OpEventChannel), passive.attach(proto.OpEventChannel)
	listener, at := passive.listening(eb, "127.0.0.1:0")
	i := active.routed(ea, at)
	active.do(proto.OpConnect, i, func(m *proto.Message) {
		conn(a.qp, "hello")(m)
		m.Conn().ResponderResources, m.Conn().InitiatorDepth = 3, 5
	})
	active.refuse(unix.EINVAL, proto.OpConnect, i, conn(a.qp, ""))
	m := eb.want(cmConnectRequest)
	r := m.CMEvent()
	src, _ := addrPort(r.Src)
	if r.Listener != listener || r.Cookie != 77 || m.Handle == listener || r.ResponderResources != 5 || r.InitiatorDepth != 3 || src.String() != at || r.PortNum != 1 {
		t.Errorf("request: %+v", r)
	}
	if got := string(m.PrivateData[:m.PrivateLen]); got != "hello" {
		t.Errorf("private data of the request: %q", got)
	}
	passive.refuse(unix.EINVAL, proto.OpDisconnect, m.Handle, nil)
	passive.do(proto.OpAccept, m.Handle, conn(b.qp, "welcome"))
	passive.refuse(unix.EINVAL, proto.OpAccept, m.Handle, conn(b.qp, ""))
	up := eb.want(cmEstablished)
	if up.Handle != m.Handle || up.CMEvent().Cookie != 99 || up.CMEvent().QPN != b.qp.qpn {
		t.Errorf("established there: handle %d, %+v", up.Handle, up.CMEvent())
	}
	up = ea.want(cmEstablished)
	if got := string(up.PrivateData[:up.PrivateLen]); up.Handle != i || up.CMEvent().Cookie != 88 || got != "welcome" {
		t.Errorf("established here: handle %d, %+v, %q", up.Handle, up.CMEvent(), got)
	}
	active.do(proto.OpEstablish, i, nil)
	active.do(proto.OpDisconnect, i, nil)
	if d := ea.want(cmDisconnected); d.Handle != i {
		t.Errorf("disconnected: handle %d", d.Handle)
	}
	if d := eb.want(cmDisconnected); d.Handle != m.Handle {
		t.Errorf("disconnected: handle %d", d.Handle)
	}
	active.do(proto.OpDisconnect, i, nil) // once more does nothing
	passive.do(proto.OpDisconnect, m.Handle, nil)
	if n := active.do(proto.OpDestroy, i, nil).Destroy().Events; n != 4 {
		t.Errorf("%d events were sent for the identifier", n)
	}
}

// With STAG_CONN_RESPONSE the active end gets CONNECT_RESPONSE.
func TestConnectResponse(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	a, b := c.end(), c.end()
	e, other := c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel)
	_, at := c.listening(other, "127.0.0.1:0")
	i := c.routed(e, at)
	c.do(proto.OpConnect, i, func(m *proto.Message) { conn(a.qp, "")(m); m.Conn().Flags = proto.ConnResponse })
	c.do(proto.OpAccept, other.want(cmConnectRequest).Handle, conn(b.qp, "x"))
	if m := e.want(cmConnectResponse); string(m.PrivateData[:m.PrivateLen]) != "x" {
		t.Errorf("private data: %q", m.PrivateData[:m.PrivateLen])
	}
	c.do(proto.OpEstablish, i, nil)
}

// The personality decides which reasons and events a client gets.
func TestPersonalities(t *testing.T) {
	s := newScene(t)
	for style, want := range map[proto.Personality]struct{ rejected, nobody int32 }{
		proto.PersonalityIWARP: {-int32(unix.ECONNREFUSED), -int32(unix.ECONNREFUSED)},
		proto.PersonalityRoCE:  {rejectedByConsumer, rejectedNoListener},
	} {
		c := s.client(t, func(m *proto.Message) { m.Hello().Personality = style })
		e, other := c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel)
		a := c.end()
		listener, at := c.listening(other, "127.0.0.1:0")
		i := c.routed(e, at)
		c.do(proto.OpConnect, i, conn(a.qp, ""))
		request := other.want(cmConnectRequest).Handle
		c.do(proto.OpReject, request, func(m *proto.Message) { m.PrivateLen = uint32(copy(m.PrivateData[:], "no")) })
		c.refuse(unix.EINVAL, proto.OpReject, request, nil)
		m := e.want(cmRejected)
		if got := string(m.PrivateData[:m.PrivateLen]); got != "no" || m.CMEvent().Status != want.rejected {
			t.Errorf("personality %d: rejected with %d, %q", style, m.CMEvent().Status, got)
		}
		c.do(proto.OpConnect, i, conn(a.qp, "")) // the identifier may try again
		c.do(proto.OpAccept, other.want(cmConnectRequest).Handle, conn(c.end().qp, ""))
		e.want(cmEstablished)
		other.want(cmEstablished)
		c.do(proto.OpDisconnect, i, nil)
		e.want(cmDisconnected)
		if style == proto.PersonalityRoCE {
			e.want(cmTimewaitExit)
		}
		c.destroy(proto.KindID, listener)
		i = c.routed(e, at)
		c.do(proto.OpConnect, i, conn(c.end().qp, ""))
		if m := e.want(cmRejected); m.CMEvent().Status != want.nobody {
			t.Errorf("personality %d: nobody listens: %d", style, m.CMEvent().Status)
		}
	}
	c := connectTo(t, s.path)
	if _, _, errno := c.hello(func(m *proto.Message) { m.Hello().Personality = 2 }); errno != unix.EINVAL {
		t.Errorf("personality 2: %v", errno)
	}
}

// A request that the client does not answer ends, and the peer learns of it.
func TestRequestWithoutAnswer(t *testing.T) {
	s := newScene(t, func(c *Config) { c.RequestTimeout = 50 * time.Millisecond })
	c := s.client(t)
	e, other := c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel)
	_, at := c.listening(other, "127.0.0.1:0")
	i := c.routed(e, at)
	c.do(proto.OpConnect, i, conn(c.end().qp, ""))
	request := other.want(cmConnectRequest).Handle
	if m := other.want(cmUnreachable); m.Handle != request || m.CMEvent().Status != -int32(unix.ETIMEDOUT) {
		t.Errorf("handle %d, %+v", m.Handle, m.CMEvent())
	}
	c.refuse(unix.EINVAL, proto.OpAccept, request, conn(c.end().qp, ""))
	if m := e.next(); m.CMEvent().Event == cmEstablished || m.Handle != i {
		t.Errorf("the peer gets event %d", m.CMEvent().Event)
	}
	c.destroy(proto.KindID, request)
}

// Requests beyond the backlog wait. Each answer admits the next one.
func TestBacklog(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	other := c.attach(proto.OpEventChannel)
	i := c.id(other, 0)
	at := c.do(proto.OpBind, i, address("127.0.0.1:0", "")).Address().Src
	c.do(proto.OpListen, i, func(m *proto.Message) { m.Address().Backlog = 1 })
	to, _ := addrPort(at)
	var events []*events
	for range 2 {
		e := c.attach(proto.OpEventChannel)
		c.do(proto.OpConnect, c.routed(e, to.String()), conn(c.end().qp, ""))
		events = append(events, e)
	}
	first := other.want(cmConnectRequest)
	other.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var m proto.Message
	if _, err := readMessage(other.conn, &m); err == nil {
		t.Fatal("a second request while the first one waits")
	}
	c.do(proto.OpReject, first.Handle, nil)
	c.do(proto.OpReject, other.want(cmConnectRequest).Handle, nil)
	for _, e := range events {
		e.want(cmRejected)
	}
}

// A listener that is destroyed takes the requests along that the client has not seen.
func TestDestroyListener(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e, other := c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel)
	listener, at := c.listening(other, "127.0.0.1:0")
	for range 6 {
		c.do(proto.OpConnect, c.routed(c.attach(proto.OpEventChannel), at), conn(c.end().qp, ""))
	}
	seen := other.want(cmConnectRequest)
	c.destroy(proto.KindID, listener)
	c.do(proto.OpReject, seen.Handle, nil) // that one is the client's
	c.do(proto.OpConnect, c.routed(e, at), conn(c.end().qp, ""))
	e.want(cmRejected)
}

// An identifier moves to another event channel with a new cookie.
func TestMigrate(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	from, to, other := c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel)
	_, at := c.listening(other, "127.0.0.1:0")
	i := c.routed(from, at)
	m := c.do(proto.OpMigrate, i, func(m *proto.Message) { *m.Migrate() = proto.Migrate{Channel: to.handle, Cookie: 123} })
	if m.Migrate().Events != 2 {
		t.Errorf("%d events came to the old channel", m.Migrate().Events)
	}
	c.do(proto.OpConnect, i, conn(c.end().qp, ""))
	c.do(proto.OpAccept, other.want(cmConnectRequest).Handle, conn(c.end().qp, ""))
	if m := to.want(cmEstablished); m.CMEvent().Cookie != 123 {
		t.Errorf("cookie %d", m.CMEvent().Cookie)
	}
}

// An identifier that is destroyed ends its connection, also while it connects.
func TestDestroyConnection(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	a.c.destroy(proto.KindID, a.id)
	b.events.want(cmDisconnected)

	silent, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	s.Must(err)
	defer silent.Close()
	c := s.client(t)
	end := c.end()
	i := c.routed(c.attach(proto.OpEventChannel), silent.Addr().String())
	c.do(proto.OpConnect, i, conn(end.qp, ""))
	c.destroy(proto.KindID, i)
	s.Eventually("the QP can be connected again", func() bool {
		e := c.attach(proto.OpEventChannel)
		_, errno := c.try(proto.OpConnect, c.routed(e, silent.Addr().String()), conn(end.qp, ""))
		return errno == 0
	})
}

// A QP is connected only once.
func TestConnectedQPAgain(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	_, at := b.c.listening(b.events, "127.0.0.1:0")
	i := a.c.routed(a.events, at)
	a.c.refuse(unix.EINVAL, proto.OpConnect, i, conn(a.qp, ""))
}

func TestResolve(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.attach(proto.OpEventChannel)
	for _, bad := range []string{"0.0.0.0:1", "[::]:1", ""} {
		c.refuse(unix.EINVAL, proto.OpResolve, c.id(e, 0), address("", bad))
	}
	c.refuse(unix.ENODEV, proto.OpResolve, c.id(e, 0), address("192.0.2.77:5", "127.0.0.1:1"))
	i := c.id(e, 5)
	m := c.do(proto.OpResolve, i, address("127.0.0.1:0", "127.0.0.1:1"))
	local, _ := addrPort(m.Address().Src)
	if local.Addr() != netip.MustParseAddr("127.0.0.1") || local.Port() == 0 || m.Address().PortNum != 1 {
		t.Errorf("local address %v, port %d", local, m.Address().PortNum)
	}
	if got := e.want(cmAddrResolved); got.CMEvent().Src != m.Address().Src || got.CMEvent().Cookie != 5 {
		t.Errorf("event: %+v", got.CMEvent())
	}
}

// The library of the adapter itself and a client speak to each other.
func TestAgainstLibrary(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	end := c.end()
	e := c.attach(proto.OpEventChannel)
	l, err := s.adapter.Listen(rig.Context(t), "127.0.0.1:0", rdma.ListenConfig{})
	s.Must(err)
	defer l.Close()
	ep, err := s.adapter.CreateEndpoint(rdma.EndpointConfig{})
	s.Must(err)
	defer ep.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(context.Background())
		if err == nil {
			err = ep.Accept(context.Background(), r, rdma.ConnParams{PrivateData: []byte("go")})
		}
		accepted <- err
	}()
	c.do(proto.OpConnect, c.routed(e, l.Addr().String()), conn(end.qp, strings.Repeat("x", 100)))
	if m := e.want(cmEstablished); string(m.PrivateData[:m.PrivateLen]) != "go" {
		t.Errorf("private data %q", m.PrivateData[:m.PrivateLen])
	}
	s.Must(<-accepted)
	_, err = ep.QP.PostRecv(rdma.RecvWR{ID: 1})
	s.Must(err)
	end.qp.post(rdma.SendWR{ID: 2, Op: rdma.WRSend, Flags: rdma.Signaled})
	if w, err := ep.Received(rig.Context(t)); err != nil || w.ID != 1 {
		t.Errorf("%+v, %v", w, err)
	}
}

// A server of a C program may send first, also to a peer that promises no first message. A program
// that asks for QPs without a Hold gets what RFC 5044 demands.
func TestServerSendsFirst(t *testing.T) {
	for name, c := range map[string]struct {
		flags uint32
		first bool
	}{"C program": {0, true}, "Go program": {proto.QPNoHold, false}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			passive := s.client(t)
			b := passive.end(c.flags)
			b.events = passive.attach(proto.OpEventChannel)
			_, at := passive.listening(b.events, "127.0.0.1:0")
			a, err := s.adapter.CreateEndpoint(rdma.EndpointConfig{})
			s.Must(err)
			defer a.Close()
			dialed := make(chan error, 1)
			go func() { dialed <- a.Dial(context.Background(), at, rdma.ConnParams{NoPeerToPeer: true}) }()
			passive.do(proto.OpAccept, b.events.want(cmConnectRequest).Handle, conn(b.qp, ""))
			s.Must(<-dialed)
			b.events.want(cmEstablished)
			_, err = a.QP.PostRecv(rdma.RecvWR{ID: 1})
			s.Must(err)
			b.qp.post(rdma.SendWR{ID: 2, Op: rdma.WRSend, Flags: rdma.Signaled})
			if !c.first {
				time.Sleep(2 * eagerAfter)
				if n := a.RecvCQ.Poll(make([]rdma.Completion, 1)); n != 0 {
					t.Fatal("the server has sent before its peer")
				}
				_, err = a.QP.PostSend(rdma.SendWR{ID: 3, Op: rdma.WRWrite})
				s.Must(err)
			}
			if w, err := a.Received(rig.Context(t)); err != nil || w.ID != 1 {
				t.Errorf("%+v, %v", w, err)
			}
		})
	}
}

func TestPrivateDataLimits(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	end := c.end()
	e, other := c.attach(proto.OpEventChannel), c.attach(proto.OpEventChannel)
	_, at := c.listening(other, "127.0.0.1:0")
	most := c.do(proto.OpDevice, 0, nil).Device().MaxPrivate
	i := c.routed(e, at)
	long := func(n uint32) func(*proto.Message) {
		return func(m *proto.Message) { conn(end.qp, "")(m); m.PrivateLen = n }
	}
	c.refuse(unix.EINVAL, proto.OpConnect, i, long(most+1))
	c.do(proto.OpConnect, i, long(most))
	if m := other.want(cmConnectRequest); m.PrivateLen != most {
		t.Errorf("%d octets of private data, want %d", m.PrivateLen, most)
	}
	if _, err := c.conn.Write(func() []byte { m := proto.Message{Op: proto.OpPD, PrivateLen: proto.PrivateMax + 1}; return m.Bytes() }()); err != nil {
		t.Fatal(err)
	}
	c.ended()
}
