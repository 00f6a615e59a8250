package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// stage is how far an identifier has come.
type stage uint8

const (
	fresh stage = iota
	bound
	resolved
	routed
	listening
	requested // a peer's request that waits for an answer
	connecting
	connected
	disconnected
	destroyed
)

var stageNames = [...]string{"new", "bound", "resolved", "routed", "listening", "requested", "connecting", "connected", "disconnected", "destroyed"}

func (s stage) String() string { return stageNames[s] }

// id is an identifier of the connection manager (struct rdma_cm_id).
type id struct {
	client *client
	handle uint64
	sent   counter

	mu     sync.Mutex // guards the fields below; held briefly
	stage  stage
	stream *stream
	cookie uint64

	tos        uint8
	reuse      bool
	onlyV6     bool
	ackTimeout uint8

	local, remote netip.AddrPort
	explicit      bool     // the client has chosen the local address or port
	place         *place   // the local port, while nothing else keeps it
	listener      *backlog // of a listening identifier
	request       *request // of a peer's request
	qp            *qp
	cancel        context.CancelFunc // ends the attempt to connect
	parted        chan struct{}      // closed when the client has disconnected, or destroyed the identifier
}

// Numbers of librdmacm.
const (
	portSpaceTCP = 0x0106

	cmAddrResolved    = 0
	cmRouteResolved   = 2
	cmConnectRequest  = 4
	cmConnectResponse = 5
	cmConnectError    = 6
	cmUnreachable     = 7
	cmRejected        = 8
	cmEstablished     = 9
	cmDisconnected    = 10
	cmTimewaitExit    = 15

	optionID         = 0
	optionTOS        = 0
	optionReuse      = 1
	optionOnlyV6     = 2
	optionAckTimeout = 3

	// Reasons of InfiniBand for a rejection.
	rejectedByConsumer = 28
	rejectedNoListener = 8
)

func (c *client) makeID(m *proto.Message) (reply, error) {
	p := m.ID()
	if p.PortSpace != portSpaceTCP {
		return reply{}, fmt.Errorf("port space %#x: %w", p.PortSpace, unix.EOPNOTSUPP)
	}
	s, err := named[*stream](&c.objects, p.Channel, "event channel")
	if err != nil {
		return reply{}, err
	}
	if err := c.account.take(ofIDs, 1); err != nil {
		return reply{}, err
	}
	i := &id{client: c, handle: c.daemon.handle(), stream: s, cookie: p.Cookie, parted: make(chan struct{})}
	m.Handle = i.handle
	if err := c.objects.add(i.handle, i); err != nil {
		i.close()
		return reply{}, err
	}
	return reply{}, nil
}

func (i *id) kind() proto.Kind { return proto.KindID }
func (i *id) events() uint32   { return i.sent.count() }

// close destroys the identifier. A connection that it has made is reset, unless the client has
// disconnected it.
func (i *id) close() error {
	i.mu.Lock()
	was, q := i.stage, i.qp
	i.stage = destroyed
	stays := i.part()
	l, r, cancel, s := i.listener, i.request, i.cancel, i.stream
	i.listener, i.request, i.cancel, i.qp = nil, nil, nil, nil
	i.free()
	i.mu.Unlock()
	if was == destroyed {
		return nil
	}
	if cancel != nil {
		cancel()
	}
	if q != nil && (was == connected && stays || was == disconnected) {
		q.qp.Fail()
	}
	if r != nil {
		r.drop()
	}
	if l != nil {
		l.close()
	}
	for _, q := range s.take(i.handle) {
		if q.m.Handle != i.handle { // a request that the client has not seen
			i.client.forget(q.m.Handle)
		}
	}
	i.client.account.give(ofIDs, 1)
	return nil
}

// forget destroys an object whose handle the client does not know.
func (c *client) forget(handle uint64) {
	if o := c.objects.find(handle); o != nil {
		c.objects.remove(handle)
		o.close()
	}
}

// free gives the local port back. The caller must hold i.mu.
func (i *id) free() {
	if i.place != nil {
		i.place.free()
		i.place = nil
	}
}

// event sends an event of the identifier to the client. event reports false if the
// identifier has been destroyed.
func (i *id) event(kind uint32, status int32, fill func(*proto.Message)) bool {
	m := &proto.Message{Op: proto.OpCMEvent, Handle: i.handle}
	e := m.CMEvent()
	e.Event, e.Status = kind, status
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stage == destroyed {
		return false
	}
	e.Cookie, e.Src, e.Dst = i.cookie, sockaddr(i.local), sockaddr(i.remote)
	if i.qp != nil {
		e.QPN = i.qp.qp.Number()
	}
	if fill != nil {
		fill(m)
	}
	i.stream.add(m, &i.sent)
	return true
}

// wrongStage is the error of a request that the identifier cannot execute now. The caller
// must hold i.mu.
func (i *id) wrongStage(what string) error {
	return fmt.Errorf("%s: the identifier is %v: %w", what, i.stage, unix.EINVAL)
}

// idOf returns the identifier that a message names.
func (c *client) idOf(m *proto.Message) (*id, error) {
	return named[*id](&c.objects, m.Handle, "identifier")
}

func (c *client) migrate(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	p := m.Migrate()
	to, err := named[*stream](&c.objects, p.Channel, "event channel")
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	unsent := i.stream.take(i.handle)
	i.stream, i.cookie = to, p.Cookie
	p.Events = i.sent.count()
	for _, q := range unsent {
		q.m.CMEvent().Cookie = i.cookie
		to.add(q.m, q.sent)
	}
	return reply{}, nil
}

func (c *client) setOption(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	o := m.Option()
	if o.Length < 1 || o.Length > proto.OptionLen {
		return reply{}, fmt.Errorf("an option of %d octets: %w", o.Length, unix.EINVAL)
	}
	if o.Level != optionID {
		return reply{}, fmt.Errorf("option level %d: %w", o.Level, unix.ENOSYS)
	}
	value := o.Value[0]
	i.mu.Lock()
	defer i.mu.Unlock()
	switch o.Name {
	case optionTOS:
		i.tos = value &^ 3 // the low bits are ECN
	case optionReuse, optionOnlyV6:
		if i.stage != fresh {
			return reply{}, i.wrongStage("set option")
		}
		if o.Name == optionReuse {
			i.reuse = value != 0
		} else {
			i.onlyV6 = value != 0
		}
	case optionAckTimeout:
		i.ackTimeout = value
	default:
		return reply{}, fmt.Errorf("option %d: %w", o.Name, unix.ENOSYS)
	}
	return reply{}, nil
}

func (c *client) getOption(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	o := m.Option()
	if o.Level != optionID {
		return reply{}, fmt.Errorf("option level %d: %w", o.Level, unix.ENOSYS)
	}
	truth := map[bool]byte{true: 1}
	i.mu.Lock()
	defer i.mu.Unlock()
	values := map[uint32]byte{optionTOS: i.tos, optionReuse: truth[i.reuse], optionOnlyV6: truth[i.onlyV6], optionAckTimeout: i.ackTimeout}
	value, ok := values[o.Name]
	if !ok {
		return reply{}, fmt.Errorf("option %d: %w", o.Name, unix.ENOSYS)
	}
	o.Value[0], o.Length = value, 1
	return reply{}, nil
}

func (c *client) establish(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stage != connected {
		return reply{}, i.wrongStage("establish")
	}
	return reply{}, nil
}

// isUp is called when the connection is there. kind is the event to send.
func (i *id) isUp(q *qp, kind uint32) {
	conn := q.qp.Conn()
	i.mu.Lock()
	if i.stage != connecting {
		i.mu.Unlock()
		q.qp.Fail() // the identifier was destroyed meanwhile
		return
	}
	i.stage, i.local, i.remote = connected, conn.Local, conn.Remote
	i.mu.Unlock()
	i.event(kind, 0, func(m *proto.Message) {
		e := m.CMEvent()
		e.ResponderResources, e.InitiatorDepth = uint32(conn.IRD), uint32(conn.ORD)
		e.PortNum = i.client.daemon.portOf(conn.Local.Addr())
		if kind != cmEstablished || conn.Initiator {
			m.PrivateLen = uint32(copy(m.PrivateData[:], conn.PrivateData))
		}
	})
	i.client.aside.Go(func() { i.follow(q) })
}

// depth turns a read depth of librdmacm into one of ConnParams.
func depth(n uint32) int {
	const most = 128
	if n == 0 {
		return rdma.NoReads
	}
	return int(min(n, most))
}
