package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/order"
)

// ListenConfig is the configuration of a Listener. The zero value works.
type ListenConfig struct {
	// Timeout is how long a peer may take to send its MPA Request. 0 means 5 s.
	Timeout time.Duration
	// Backlog is how many Requests may wait for Accept. 0 means 128.
	Backlog int
	// MaxSilent is the largest number of connected peers whose Request has not come yet.
	// Each takes a descriptor and a goroutine. 0 means 1024, or Backlog if that is more.
	// If one more peer connects, the Listener looks for the source with the most such
	// peers, and drops the peer of that source that has been silent longest. A source is
	// an IPv4 address, or the first 64 bits of an IPv6 address.
	MaxSilent int
	// Order is how long a Request waits for those of peers that connected before. Requests
	// that come within this time go to Accept in the order in which their peers connected.
	// 0 means 20 ms.
	Order time.Duration
	// TOS is the IPv4 TOS or the IPv6 traffic class of the packets of accepted connections,
	// from the SYN-ACK on. Its low two bits must be 0, because they are the ECN bits (RFC
	// 3168 §5).
	TOS uint8
}

func (c ListenConfig) fill() (ListenConfig, error) {
	var errs []error
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("a Timeout of %v: choose 0 or more", c.Timeout))
	}
	if c.Backlog < 0 {
		errs = append(errs, fmt.Errorf("a Backlog of %d: choose 1 or more", c.Backlog))
	}
	if c.MaxSilent < 0 {
		errs = append(errs, fmt.Errorf("a MaxSilent of %d: choose 1 or more", c.MaxSilent))
	}
	if c.Order < 0 {
		errs = append(errs, fmt.Errorf("an Order of %v: choose 0 or more", c.Order))
	}
	if err := adapter.TOS(c.TOS).Check(); err != nil {
		errs = append(errs, err)
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Backlog == 0 {
		c.Backlog = 128
	}
	if c.Order == 0 {
		c.Order = presetOrder
	}
	if c.MaxSilent == 0 {
		c.MaxSilent = max(1024, c.Backlog)
	}
	return c, errors.Join(errs...)
}

// presetOrder is what an Order of 0 means.
const presetOrder = 20 * time.Millisecond

// Listener accepts connection requests of peers. A Listener is safe for concurrent use.
type Listener struct {
	adapter *Adapter
	socket  *net.TCPListener
	at      netip.AddrPort
	distant *identifier // the listener in the daemon, instead of socket; nil: there is no daemon
	cfg     ListenConfig

	life    context.Context // context that ends when Close begins
	die     context.CancelCauseFunc
	ready   chan *ConnRequest
	running sync.WaitGroup // the goroutine that accepts, and one for each peer
	line    order.Line     // peers in the order in which they connected
	count   listenCounters

	refusals map[*atomic.Uint64]*logLimit // limits of the log lines about refused peers, by the counter of the reason; the map never changes
	trouble  logLimit                     // limits the log lines about failed accept calls

	mu     sync.Mutex    // guards the fields below
	silent greetings     // peers that have not sent their Request yet
	heard  int           // peers whose Request has been read, and waits for its turn
	again  chan struct{} // channel that is closed when a pause ends; nil: there is no pause
	rests  bool          // the goroutine that accepts waits for again
}

// ListenStats counts the peers of a Listener by outcome.
type ListenStats struct {
	Requests  uint64 // peers with a valid Request that went to Accept or waits for Accept
	Silent    uint64 // peers that sent no Request in time, or were dropped in favor of others
	Malformed uint64 // peers that sent an invalid Request, or more than a Request
	Gone      uint64 // peers that closed the connection before an answer
	NoPort    uint64 // peers whose way leads through no port
	Overflow  uint64 // peers that found too many Requests waiting for Accept
}

type listenCounters struct{ requests, silent, malformed, gone, noPort, overflow atomic.Uint64 }

// limits makes a limit of log lines for each reason to refuse a peer. With one limit for
// all reasons, many lines with one reason would suppress the lines with another reason.
func (c *listenCounters) limits() map[*atomic.Uint64]*logLimit {
	return map[*atomic.Uint64]*logLimit{
		&c.silent: {}, &c.malformed: {}, &c.gone: {}, &c.noPort: {}, &c.overflow: {},
	}
}

// Listen waits for peers at address, "host:port", in the adapter's network namespace. An
// empty host means every address. Port 0 means any free port. The caller must close the
// Listener. The adapter's Close also closes it. If the adapter has lost its last port,
// Listen returns the reason.
func (a *Adapter) Listen(ctx context.Context, address string, cfg ListenConfig) (*Listener, error) {
	l, err := a.listen(ctx, address, cfg)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

func (a *Adapter) listen(ctx context.Context, address string, cfg ListenConfig) (*Listener, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	ctx, free := a.device.While(ctx)
	defer free()
	if a.through != nil {
		l, err := a.listenThrough(ctx, address, cfg)
		return l, reason(ctx, err)
	}
	socket, err := a.device.Listen(ctx, address, adapter.TOS(cfg.TOS))
	if err != nil {
		return nil, reason(ctx, err)
	}
	l, err := a.newListener(socket, cfg)
	if err != nil {
		return nil, err
	}
	// newListener has registered l, so that the loss of the last port from now on ends l.
	if err := a.withoutPorts(); err != nil {
		l.Close()
		return nil, err
	}
	l.running.Go(l.admitAll)
	return l, nil
}

// newListener makes a Listener that does not accept yet. It takes the socket over.
func (a *Adapter) newListener(socket *net.TCPListener, cfg ListenConfig) (*Listener, error) {
	l := &Listener{adapter: a, socket: socket, at: a.device.ListenerAddr(socket), cfg: cfg, ready: make(chan *ConnRequest, cfg.Backlog), silent: newGreetings(cfg.MaxSilent)}
	l.line.Patience = cmp.Or(cfg.Order, presetOrder) // an inherited configuration has none
	l.line.Most = l.line.Patience
	l.refusals = l.count.limits()
	l.life, l.die = context.WithCancelCause(context.Background())
	if !a.hold(l) {
		l.socket.Close()
		return nil, fmt.Errorf("the adapter is %w", ErrClosed)
	}
	return l, nil
}

// Addr returns the address on which the Listener listens.
func (l *Listener) Addr() netip.AddrPort { return l.at }

// Stats returns the counts since Listen.
func (l *Listener) Stats() ListenStats {
	c := &l.count
	return ListenStats{
		Requests: c.requests.Load(), Silent: c.silent.Load(), Malformed: c.malformed.Load(),
		Gone: c.gone.Load(), NoPort: c.noPort.Load(), Overflow: c.overflow.Load(),
	}
}

// Accept returns the next connection request. The peer's MPA Request has been read and
// is valid. A peer that sends no Request delays no other peer. The caller answers the
// request by ConnRequest.Accept or Reject. The error is the cause of ctx's end,
// ErrClosed, or the reason why the adapter has lost its last port.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) {
	for {
		select {
		case <-l.life.Done():
			return nil, l.over()
		default:
		}
		select {
		case r := <-l.ready:
			if r.distant != 0 {
				if !l.adapter.hold(r) {
					r.Close()
					continue
				}
				return r, nil
			}
			if err := r.check(); err != nil {
				l.refuse(r.socket.TCPConn, err)
				continue
			}
			if !l.adapter.hold(r) {
				r.Close()
				continue
			}
			return r, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("accept: %w", context.Cause(ctx))
		case <-l.life.Done():
		}
	}
}

// over returns the reason why Accept returns no more requests.
func (l *Listener) over() error {
	if cause := context.Cause(l.life); !errors.Is(cause, ErrClosed) {
		return fmt.Errorf("accept: %w", cause)
	}
	return fmt.Errorf("accept: the listener is %w", ErrClosed)
}

// Close stops listening. Close closes the connections of all peers without an answer,
// except those whose ConnRequest the application has. Close may be called twice.
func (l *Listener) Close() error {
	l.die(ErrClosed)
	l.adapter.letGo(l)
	if l.distant != nil {
		l.closeDistant()
		return nil
	}
	err := l.socket.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	l.mu.Lock()
	l.silent.all(func(g *greeting) { drop(g.c) })
	l.mu.Unlock()
	l.running.Wait()
	for {
		select {
		case r := <-l.ready:
			r.socket.Close()
		default:
			return err
		}
	}
}

// acceptAgain is how long the Listener waits after an accept call that failed, for
// example because descriptors or memory are short.
const acceptAgain = 50 * time.Millisecond

// admitAll accepts connections. admitAll starts a goroutine for each connection.
func (l *Listener) admitAll() {
	for number := uint64(1); ; {
		c, err := l.socket.AcceptTCP()
		switch {
		case err == nil:
			g := l.admit(c, number)
			if g == nil {
				c.Close()
				return
			}
			number++
			place := l.line.Join()
			l.running.Go(func() { defer place.Leave(); l.greet(g, place) })
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.rest()
		default:
			l.trouble.log(l.adapter.log, slog.LevelError, "cannot accept", "listener", l.Addr(), "err", err)
			select {
			case <-time.After(acceptAgain):
			case <-l.life.Done():
				return
			}
		}
	}
}

// admit adds a connected peer to those that have not sent their Request yet. admit
// returns nil if the Listener is being closed.
func (l *Listener) admit(c *net.TCPConn, number uint64) *greeting {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil
	}
	g, evicted := l.silent.add(c, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(), number)
	if evicted != nil {
		drop(evicted.c) // the peer's goroutine gets an error and ends
	}
	return g
}

// hear moves a peer from those that have not sent their Request yet to those whose Request
// has been read. The caller must call dismiss.
func (l *Listener) hear(g *greeting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent.remove(g)
	l.heard++
}

// dismiss undoes hear when somebody else has the peer.
func (l *Listener) dismiss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard--
}

// greet reads a peer's Request and passes it to Accept when it has its turn.
func (l *Listener) greet(g *greeting, place *order.Place) {
	r, err := l.request(g.c)
	l.hear(g)
	defer l.dismiss()
	if errors.Is(err, net.ErrClosed) {
		err = errCrowded
	}
	if err != nil {
		l.refuse(g.c, err)
		return
	}
	r.number = g.number
	place.Wait(l.life)
	select {
	case l.ready <- r:
		l.count.requests.Add(1)
	default:
		l.refuse(g.c, errOverflow)
	}
}

func (l *Listener) request(c *net.TCPConn) (*ConnRequest, error) {
	c.SetDeadline(time.Now().Add(l.cfg.Timeout))
	frame, err := readFrame(c, "Request")
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Time{})
	request, err := mpa.ReadRequest(frame)
	if err != nil {
		return nil, err
	}
	s, err := l.adapter.device.Socket(l.life, c)
	if err != nil {
		return nil, err
	}
	local, remote := s.Ends()
	return &ConnRequest{listener: l, socket: s, request: request, local: local, remote: remote}, nil
}

// errCrowded is the error for a peer that is evicted while its Request could still come.
var errCrowded = errors.New("too many peers have sent no MPA Request, most of them from its address: raise MaxSilent if you trust them")

// errOverflow is the error for a valid Request that finds the backlog full.
var errOverflow = errors.New("too many requests wait for Accept: call it more often, or give Listen a larger Backlog")

// refuse closes the connection of a peer that gets no answer. refuse counts the reason.
func (l *Listener) refuse(c *net.TCPConn, err error) {
	_, remote := l.adapter.device.Ends(c)
	count := l.count.of(err)
	if count == &l.count.silent {
		drop(c)
	} else {
		c.Close()
	}
	if l.life.Err() != nil {
		return
	}
	count.Add(1)
	l.refusals[count].log(l.adapter.log, slog.LevelWarn, "peer refused", "listener", l.Addr(), "peer", remote, "err", err)
}

// of returns the counter for the error err of a refused peer.
func (c *listenCounters) of(err error) *atomic.Uint64 {
	var frame *mpa.FrameError
	switch {
	case errors.Is(err, errSilent), errors.Is(err, errCrowded):
		return &c.silent
	case errors.As(err, &frame), errors.Is(err, errEarly):
		return &c.malformed
	case errors.Is(err, errOverflow):
		return &c.overflow
	case errors.Is(err, ErrNoPort):
		return &c.noPort
	}
	return &c.gone
}
