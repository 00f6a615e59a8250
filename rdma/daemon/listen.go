package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// backlog is the listener of an identifier.
type backlog struct {
	id       *id
	listener *rdma.Listener
	slots    chan struct{} // one for each request that waits for an answer
	over     chan struct{} // closed when nothing is accepted any more
}

// mostBacklog is the backlog of a client that asks for none or for more, as in Linux.
const mostBacklog = 1024

// listen is OpListen.
func (c *client) listen(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	a := m.Address()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stage == fresh {
		if err := i.bind(netip.AddrPort{}); err != nil {
			return reply{}, err
		}
		i.stage = bound
	}
	if i.stage != bound {
		return reply{}, i.wrongStage("listen")
	}
	n := int(a.Backlog)
	if n < 1 || n > mostBacklog {
		n = mostBacklog
	}
	l, err := c.daemon.adapter.Listen(c.life, addressOf(i.local), rdma.ListenConfig{Backlog: n, TOS: i.tos, Order: c.daemon.cfg.Order})
	if err != nil {
		return reply{}, err
	}
	i.place.yield() // the listener has the port now
	i.stage = listening
	i.local = netip.AddrPortFrom(i.local.Addr(), l.Addr().Port())
	i.listener = &backlog{id: i, listener: l, slots: make(chan struct{}, n), over: make(chan struct{})}
	a.Src, a.PortNum = sockaddr(i.local), c.daemon.portOf(i.local.Addr())
	c.aside.Go(i.listener.accept)
	return reply{}, nil
}

// addressOf returns an address for Listen. An unspecified address means every address.
func addressOf(at netip.AddrPort) string {
	if at.Addr().IsUnspecified() {
		return fmt.Sprintf(":%d", at.Port())
	}
	return at.String()
}

// accept turns the requests of peers into events.
func (b *backlog) accept() {
	defer close(b.over)
	for {
		r, err := b.listener.Accept(b.id.client.life)
		if err != nil {
			return
		}
		select {
		case b.slots <- struct{}{}:
			b.ask(r)
		case <-b.id.client.life.Done():
			r.Close()
			return
		case <-time.After(b.id.client.daemon.cfg.RequestTimeout):
			r.Close() // the client has answered nothing for as long
		}
	}
}

func (b *backlog) close() {
	b.listener.Close()
	for {
		select { // a place in the backlog, for accept to go on
		case <-b.slots:
		case <-b.over:
			return
		}
	}
}

// request is a peer's request that waits for the client's answer.
type request struct {
	backlog *backlog
	request *rdma.ConnRequest
	timer   *time.Timer
	once    sync.Once
}

// ask makes an identifier of a request, and sends CONNECT_REQUEST.
func (b *backlog) ask(r *rdma.ConnRequest) {
	parent := b.id
	c := parent.client
	q := &request{backlog: b, request: r}
	if err := c.account.take(ofIDs, 1); err != nil {
		c.refused(proto.OpListen, err)
		q.drop()
		return
	}
	peer := r.Peer()
	parent.mu.Lock()
	child := &id{
		client: c, handle: c.daemon.handle(), stage: requested, stream: parent.stream, tos: parent.tos,
		local: peer.Local, remote: peer.Remote, request: q, parted: make(chan struct{}),
	}
	gone := parent.stage == destroyed
	parent.mu.Unlock()
	if gone || c.objects.add(child.handle, child) != nil {
		child.close()
		return
	}
	child.mu.Lock()
	if child.request != nil { // otherwise the client has ended
		q.timer = time.AfterFunc(c.daemon.cfg.RequestTimeout, child.late)
	}
	child.mu.Unlock()
	told := parent.event(cmConnectRequest, 0, func(m *proto.Message) {
		m.Handle = child.handle
		e := m.CMEvent()
		e.Listener, e.Src, e.Dst = parent.handle, sockaddr(peer.Local), sockaddr(peer.Remote)
		e.PortNum = c.daemon.portOf(peer.Local.Addr())
		e.ResponderResources, e.InitiatorDepth = offered(peer)
		m.PrivateLen = uint32(copy(m.PrivateData[:], r.PrivateData()))
	})
	if !told {
		c.forget(child.handle)
	}
}

// offered returns the read depths of a request. Revision 1 of MPA has none.
func offered(p rdma.Peer) (responder, initiator uint32) {
	const most, unknown = 128, 32
	if !p.Depths {
		return unknown, unknown
	}
	return uint32(min(p.ORD, most)), uint32(min(p.IRD, most))
}

// late is called when the client has not answered the request in time.
func (i *id) late() {
	i.mu.Lock()
	q := i.request
	if i.stage != requested || q == nil {
		i.mu.Unlock()
		return
	}
	i.stage, i.request = disconnected, nil
	i.mu.Unlock()
	q.drop()
	i.event(cmUnreachable, -int32(unix.ETIMEDOUT), nil)
}

// answered frees the place of the request in the backlog.
func (q *request) answered() {
	q.once.Do(func() {
		if q.timer != nil {
			q.timer.Stop()
		}
		select {
		case <-q.backlog.slots:
		default: // the backlog is closed
		}
	})
}

// drop ends the request without an answer.
func (q *request) drop() {
	q.answered()
	q.request.Close()
}

// accept is OpAccept.
func (c *client) accept(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	p, err := c.params(m)
	if err != nil {
		return reply{}, err
	}
	q, err := c.numbered(m.Conn().QPN)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stage != requested {
		return reply{}, i.wrongStage("accept")
	}
	if err := q.attach(); err != nil {
		return reply{}, err
	}
	if q.qp.Config().Hold != 0 { // a C program, or one that behaves like one
		p.EagerAfter = eagerAfter
	}
	r := i.request
	if err := c.run(func() { i.admit(r, q, p) }); err != nil {
		q.detach()
		return reply{}, err
	}
	i.stage, i.request, i.qp, i.cookie = connecting, nil, q, m.Conn().Cookie
	r.answered()
	return reply{}, nil
}

// eagerAfter is how long a QP that was accepted waits for the peer's first message. Programs that
// were written for InfiniBand expect that the server can send first. Peers such as Linux's siw do not
// promise a first message. They read the Reply within some milliseconds.
const eagerAfter = 100 * time.Millisecond

// admit connects the peer, and tells the client how it went.
func (i *id) admit(r *request, q *qp, p rdma.ConnParams) {
	err := r.request.Accept(i.client.life, q.qp, p)
	if err == nil {
		i.isUp(q, cmEstablished)
		return
	}
	r.request.Close()
	i.client.log.Info("not accepted", "err", err)
	i.mu.Lock()
	if i.stage == connecting {
		i.stage = disconnected
	}
	i.qp = nil
	i.mu.Unlock()
	q.detach()
	status := -int32(unix.ECONNRESET)
	if errno := errnoOf(err); errors.Is(err, errno) {
		status = -int32(errno)
	}
	i.event(cmConnectError, status, nil)
}

// reject is OpReject.
func (c *client) reject(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	r := i.request
	if i.stage != requested {
		defer i.mu.Unlock()
		return reply{}, i.wrongStage("reject")
	}
	if most := len(m.PrivateData) - 4; int(m.PrivateLen) > most {
		defer i.mu.Unlock()
		return reply{}, fmt.Errorf("%d octets of private data, and %d is the most: %w", m.PrivateLen, most, unix.EINVAL)
	}
	i.stage, i.request = disconnected, nil
	i.mu.Unlock()
	r.answered()
	err = r.request.Reject(m.PrivateData[:m.PrivateLen])
	r.request.Close()
	return reply{}, err
}
