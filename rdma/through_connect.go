package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/rdma/proto"
)

// Events of the connection manager, with the numbers of librdmacm.
const (
	cmAddrResolved   = 0
	cmRouteResolved  = 2
	cmConnectRequest = 4
	cmConnectError   = 6
	cmUnreachable    = 7
	cmRejected       = 8
	cmEstablished    = 9
	cmDisconnected   = 10

	portSpaceTCP = 0x0106
)

// identifier is an attempt to connect, a connection or a listener in the daemon.
type identifier struct {
	through  *through
	handle   uint64
	cookie   uint64
	qp       *QP       // QP to connect; nil for a listener
	listener *Listener // nil for a connection
	dials    bool
	private  []byte // private data of the peer's request

	steps chan proto.Message // events of the attempt
	over  sync.Once
}

// add makes the identifier known to the reader of events.
func (i *identifier) add() {
	t := i.through
	t.mu.Lock()
	defer t.mu.Unlock()
	i.cookie = t.next()
	t.ids[i.cookie] = i
}

// destroy ends the identifier in the daemon, once.
func (i *identifier) destroy() {
	i.over.Do(func() {
		t := i.through
		t.mu.Lock()
		delete(t.ids, i.cookie)
		t.mu.Unlock()
		if i.handle == 0 {
			return
		}
		if err := t.destroy(proto.KindID, i.handle); err != nil {
			t.adapter.log.Error("cannot destroy an identifier", "err", err)
		}
	})
}

// readEvents handles the events of connections, in their order.
func (t *through) readEvents() {
	for {
		var a answer
		if err := a.read(t.events); err != nil {
			t.lost()
			return
		}
		a.drop() // events have no descriptors
		e := a.CMEvent()
		t.mu.Lock()
		i := t.ids[e.Cookie]
		t.mu.Unlock()
		if i == nil || a.Op != proto.OpCMEvent {
			continue // of an identifier that has been destroyed
		}
		switch e.Event {
		case cmConnectRequest:
			if i.listener != nil {
				i.listener.asked(&a.Message)
			}
		case cmDisconnected:
			if i.qp != nil {
				i.qp.isDown(e.Status)
			}
		case cmEstablished:
			if i.qp != nil {
				i.qp.isUp(i, &a.Message)
			}
			fallthrough
		default:
			select {
			case i.steps <- a.Message:
			default: // the attempt is over
			}
		}
	}
}

// step waits for an event of the attempt.
func (i *identifier) step(ctx context.Context, want uint32) error {
	select {
	case m := <-i.steps:
		return refused(&m, want)
	case <-i.through.over:
		return ErrDaemonGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refused returns an error if the event is not the one that the attempt waits for.
func refused(m *proto.Message, want uint32) error {
	e := m.CMEvent()
	if e.Event == want {
		return nil
	}
	errno := unix.Errno(-e.Status)
	switch e.Event {
	case cmRejected:
		if m.PrivateLen != 0 {
			private := append([]byte(nil), m.PrivateData[:m.PrivateLen]...)
			return &RejectedError{PrivateData: private, cause: &mpa.Rejected{Private: private}}
		}
		return errno
	case cmUnreachable, cmConnectError:
		return refusal(errno)
	}
	return fmt.Errorf("event %d of the daemon while waiting for %d", e.Event, want)
}

// dialThrough is the part of Dial that the daemon does.
func (qp *QP) dialThrough(ctx context.Context, address string, p ConnParams) error {
	to, err := resolveHost(ctx, address)
	if err != nil {
		return err
	}
	for _, remote := range to {
		if err = qp.dialOne(ctx, remote, p); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (qp *QP) dialOne(ctx context.Context, remote netip.AddrPort, p ConnParams) (err error) {
	t := qp.adapter.through
	i := &identifier{through: t, qp: qp, dials: true, steps: make(chan proto.Message, 4)}
	i.add()
	defer func() {
		if err != nil {
			i.destroy()
		}
	}()
	m := &proto.Message{Op: proto.OpID}
	*m.ID() = proto.ID{Channel: t.handles.events, Cookie: i.cookie, PortSpace: portSpaceTCP}
	a, err := t.ask(m, 0)
	if err != nil {
		return err
	}
	i.handle = a.Handle
	if err := t.tell(proto.OpResolve, i.handle, func(m *proto.Message) {
		m.Address().Dst = sockaddrOf(remote)
		if p.Local != (netip.AddrPort{}) {
			m.Address().Src = sockaddrOf(p.Local)
		}
	}); err != nil {
		return err
	}
	if err := i.step(ctx, cmAddrResolved); err != nil {
		return err
	}
	if err := t.tell(proto.OpRoute, i.handle, nil); err != nil {
		return err
	}
	if err := i.step(ctx, cmRouteResolved); err != nil {
		return err
	}
	if err := t.tell(proto.OpConnect, i.handle, p.message(qp, 0)); err != nil {
		return err
	}
	return i.step(ctx, cmEstablished)
}

// message fills a request to connect with the parameters.
func (p *ConnParams) message(qp *QP, cookie uint64) func(*proto.Message) {
	return func(m *proto.Message) {
		*m.Conn() = proto.Conn{Cookie: cookie, QPN: qp.Number(), ResponderResources: uint32(p.IRD), InitiatorDepth: uint32(p.ORD)}
		m.PrivateLen = uint32(copy(m.PrivateData[:], p.PrivateData))
	}
}

// throughDaemon returns an error if the daemon cannot connect with the parameters.
func (p *ConnParams) throughDaemon() error {
	switch {
	case p.Revision == 1, p.NoCRC, p.Markers, p.NoPeerToPeer, p.Eager, p.EagerAfter != 0, p.TOS != 0, p.PeerTimeout != 0, p.Extensions&^ExtRFC7306 != 0, p.PeerRFC7306, p.Requested != nil:
		return fmt.Errorf("fields Revision 1, NoCRC, Markers, NoPeerToPeer, Eager, EagerAfter, TOS, PeerTimeout, PeerRFC7306, Requested or Extensions besides ExtRFC7306: %w", ErrThroughDaemon)
	}
	return nil
}

// resolveHost returns the addresses of "host:port".
func resolveHost(ctx context.Context, address string) (all []netip.AddrPort, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port))}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, ip := range ips {
		all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no address", host)
	}
	return all, err
}

// listenThrough is Listen through a daemon.
func (a *Adapter) listenThrough(ctx context.Context, address string, cfg ListenConfig) (*Listener, error) {
	if cfg.TOS != 0 {
		return nil, fmt.Errorf("TOS: %w", ErrThroughDaemon)
	}
	at, err := resolveHost(ctx, address)
	if err != nil {
		return nil, err
	}
	t := a.through
	l := &Listener{adapter: a, cfg: cfg, ready: make(chan *ConnRequest, cfg.Backlog), silent: newGreetings(cfg.MaxSilent)}
	l.refusals = l.count.limits()
	l.life, l.die = context.WithCancelCause(context.Background())
	i := &identifier{through: t, listener: l}
	l.distant = i
	i.add()
	err = i.listen(at[0], cfg.Backlog)
	if err == nil && !a.hold(l) {
		err = fmt.Errorf("the adapter is %w", ErrClosed)
	}
	if err != nil {
		i.destroy()
		return nil, err
	}
	return l, nil
}

// listen makes the identifier listen.
func (i *identifier) listen(at netip.AddrPort, backlog int) error {
	t := i.through
	m := &proto.Message{Op: proto.OpID}
	*m.ID() = proto.ID{Channel: t.handles.events, Cookie: i.cookie, PortSpace: portSpaceTCP}
	a, err := t.ask(m, 0)
	if err != nil {
		return err
	}
	i.handle = a.Handle
	if err := t.tell(proto.OpBind, i.handle, func(m *proto.Message) { m.Address().Src = sockaddrOf(at) }); err != nil {
		return err
	}
	m = &proto.Message{Op: proto.OpListen, Handle: i.handle}
	m.Address().Backlog = uint32(backlog)
	if a, err = t.ask(m, 0); err != nil {
		return err
	}
	i.listener.at = addrPortOf(a.Address().Src)
	return nil
}

// asked takes the request of a peer.
func (l *Listener) asked(m *proto.Message) {
	e := m.CMEvent()
	r := &ConnRequest{
		listener: l, distant: m.Handle, number: l.count.requests.Add(1), local: addrPortOf(e.Src), remote: addrPortOf(e.Dst),
	}
	r.request.Revision, r.request.CRC, r.request.PeerToPeer, r.request.Enhanced = 2, true, true, true
	r.request.IRD, r.request.ORD = uint16(e.InitiatorDepth), uint16(e.ResponderResources)
	r.request.Private = append([]byte(nil), m.PrivateData[:m.PrivateLen]...)
	select {
	case l.ready <- r:
	default:
		l.count.overflow.Add(1)
		l.adapter.device.Go(func() { r.dropDistant() })
	}
}

// acceptThrough is the part of Accept that the daemon does.
func (r *ConnRequest) acceptThrough(ctx context.Context, qp *QP, p ConnParams) error {
	t := qp.adapter.through
	i := &identifier{through: t, handle: r.distant, qp: qp, private: r.request.Private, steps: make(chan proto.Message, 4)}
	i.add()
	err := t.tell(proto.OpAccept, i.handle, p.message(qp, i.cookie))
	if err == nil {
		err = i.step(ctx, cmEstablished)
	}
	if err != nil {
		i.destroy()
	}
	return err
}

// dropDistant ends a request without an answer.
func (r *ConnRequest) dropDistant() error {
	return r.listener.adapter.through.destroy(proto.KindID, r.distant)
}

// rejectDistant is the part of Reject that the daemon does.
func (r *ConnRequest) rejectDistant(private []byte) error {
	t := r.listener.adapter.through
	err := t.tell(proto.OpReject, r.distant, func(m *proto.Message) { m.PrivateLen = uint32(copy(m.PrivateData[:], private)) })
	return errors.Join(err, r.dropDistant())
}

// sockaddrOf returns an address as struct sockaddr_in or sockaddr_in6.
func sockaddrOf(a netip.AddrPort) (b [proto.AddrLen]byte) {
	b[2], b[3] = byte(a.Port()>>8), byte(a.Port())
	if ip := a.Addr().Unmap(); ip.Is4() {
		nativeOrder.PutUint16(b[:], unix.AF_INET)
		*(*[4]byte)(b[4:]) = ip.As4()
		return b
	}
	nativeOrder.PutUint16(b[:], unix.AF_INET6)
	*(*[16]byte)(b[8:]) = a.Addr().As16()
	if ifc, err := net.InterfaceByName(a.Addr().Zone()); err == nil {
		nativeOrder.PutUint32(b[24:], uint32(ifc.Index))
	}
	return b
}

// addrPortOf is the reverse of sockaddrOf.
func addrPortOf(b [proto.AddrLen]byte) netip.AddrPort {
	port := uint16(b[2])<<8 | uint16(b[3])
	switch nativeOrder.Uint16(b[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case unix.AF_INET6:
		ip := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := nativeOrder.Uint32(b[24:]); scope != 0 {
			if ifc, err := net.InterfaceByIndex(int(scope)); err == nil {
				ip = ip.WithZone(ifc.Name)
			}
		}
		return netip.AddrPortFrom(ip, port)
	}
	return netip.AddrPort{}
}

// closeDistant ends the listener and the requests that nobody has taken.
func (l *Listener) closeDistant() {
	l.distant.destroy()
	for {
		select {
		case r := <-l.ready:
			r.dropDistant()
		default:
			return
		}
	}
}

// acceptDistant is accept through a daemon. p must be filled.
func (r *ConnRequest) acceptDistant(ctx context.Context, qp *QP, p ConnParams) error {
	ctx, free := qp.adapter.device.While(ctx)
	defer free()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, fmt.Errorf("not connected within %v: %w", p.Timeout, context.DeadlineExceeded))
	defer cancel()
	ctx, err := qp.begin(ctx)
	if err != nil {
		return err
	}
	defer qp.settle()
	if err := r.answer(); err != nil {
		return err
	}
	return reason(ctx, r.acceptThrough(ctx, qp, p))
}
