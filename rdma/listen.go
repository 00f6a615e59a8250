package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
)

// ListenConfig says how a Listener behaves. The zero value works.
type ListenConfig struct {
	// Timeout is how long a peer may take for its MPA Request. 0 means 5 s.
	Timeout time.Duration
	// Backlog is how many Requests may wait for Accept. 0 means 128.
	Backlog int
	// MaxSilent is how many peers may be about to send their Request: each takes a
	// descriptor and a goroutine. 0 means 1024, or Backlog if that is more. When one
	// peer too many comes, the source that has most of them (an IPv4 address, 64 bits
	// of IPv6) loses the one that has been silent longest.
	MaxSilent int
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
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Backlog == 0 {
		c.Backlog = 128
	}
	if c.MaxSilent == 0 {
		c.MaxSilent = max(1024, c.Backlog)
	}
	return c, errors.Join(errs...)
}

// Listener waits for peers that want to be connected. It is safe for
// concurrent use.
type Listener struct {
	adapter *Adapter
	socket  *net.TCPListener
	at      netip.AddrPort
	cfg     ListenConfig

	life    context.Context // ends when Close begins
	die     context.CancelCauseFunc
	ready   chan *ConnRequest
	running sync.WaitGroup // the one that accepts, and one for each peer
	count   listenCounters

	refusals map[*atomic.Uint64]*logLimit // what is logged of refusals, by their count; fixed
	trouble  logLimit                     // of what the kernel cannot accept

	mu     sync.Mutex // guards what follows
	silent greetings  // peers that have not sent their Request
}

// ListenStats is what has become of a Listener's peers.
type ListenStats struct {
	Requests  uint64 // were sound, and given to Accept or waiting for it
	Silent    uint64 // sent no Request in time, or had to make room for others
	Malformed uint64 // sent something else, or more
	Gone      uint64 // closed the connection before they were answered
	NoPort    uint64 // came by a way that leads through no port
	Overflow  uint64 // found too many waiting for Accept
}

type listenCounters struct{ requests, silent, malformed, gone, noPort, overflow atomic.Uint64 }

// limits makes a limit of log lines for each kind of refusal: many of one kind do not
// hide another.
func (c *listenCounters) limits() map[*atomic.Uint64]*logLimit {
	return map[*atomic.Uint64]*logLimit{
		&c.silent: {}, &c.malformed: {}, &c.gone: {}, &c.noPort: {}, &c.overflow: {},
	}
}

// Listen waits for peers at address, "host:port", in the adapter's network
// namespace; an empty host means every address, port 0 any free one. The
// caller closes the Listener; the adapter's Close does as well.
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
	socket, err := a.device.Listen(ctx, address)
	if err != nil {
		return nil, reason(ctx, err)
	}
	l := &Listener{adapter: a, socket: socket, at: a.device.ListenerAddr(socket), cfg: cfg, ready: make(chan *ConnRequest, cfg.Backlog), silent: newGreetings(cfg.MaxSilent)}
	l.refusals = l.count.limits()
	l.life, l.die = context.WithCancelCause(context.Background())
	if !a.hold(l) {
		l.socket.Close()
		return nil, fmt.Errorf("the adapter is %w", ErrClosed)
	}
	l.running.Go(l.admitAll)
	return l, nil
}

// Addr is where the Listener listens.
func (l *Listener) Addr() netip.AddrPort { return l.at }

// Stats counts until now.
func (l *Listener) Stats() ListenStats {
	c := &l.count
	return ListenStats{
		Requests: c.requests.Load(), Silent: c.silent.Load(), Malformed: c.malformed.Load(),
		Gone: c.gone.Load(), NoPort: c.noPort.Load(), Overflow: c.overflow.Load(),
	}
}

// Accept returns the next request for a connection, whose MPA Request has been
// read and is sound; peers that never send one hold nobody up. The caller
// answers it by its Accept or Reject. It returns the cause of ctx's end,
// ErrClosed, or, when the adapter has lost its last port, why.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) {
	for {
		select {
		case <-l.life.Done():
			return nil, l.over()
		default:
		}
		select {
		case r := <-l.ready:
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

// over is why Accept returns nothing any more.
func (l *Listener) over() error {
	if cause := context.Cause(l.life); !errors.Is(cause, ErrClosed) {
		return fmt.Errorf("accept: %w", cause)
	}
	return fmt.Errorf("accept: the listener is %w", ErrClosed)
}

// Close stops listening. Peers that have not been answered, and are not in the
// hands of the application, are closed. It may be called twice.
func (l *Listener) Close() error {
	l.die(ErrClosed)
	l.adapter.letGo(l)
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

// acceptAgain is how long the Listener waits when the kernel cannot accept, for
// want of descriptors or memory.
const acceptAgain = 50 * time.Millisecond

// admitAll accepts peers, and talks to each in a goroutine of its own.
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
			l.running.Go(func() { l.greet(g) })
		case errors.Is(err, net.ErrClosed):
			return
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

// admit enters a peer among those that are to send their Request. nil: the Listener
// is being closed.
func (l *Listener) admit(c *net.TCPConn, number uint64) *greeting {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil
	}
	g, evicted := l.silent.add(c, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(), number)
	if evicted != nil {
		drop(evicted.c) // its goroutine does the rest
	}
	return g
}

// dismiss takes a peer off that list.
func (l *Listener) dismiss(g *greeting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent.remove(g)
}

// greet reads a peer's Request and gives it to Accept.
func (l *Listener) greet(g *greeting) {
	r, err := l.request(g.c)
	if l.dismiss(g); errors.Is(err, net.ErrClosed) {
		err = errCrowded
	}
	if err != nil {
		l.refuse(g.c, err)
		return
	}
	r.number = g.number
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

// errCrowded is why a peer has to go that might still have sent its Request.
var errCrowded = errors.New("too many peers have sent no MPA Request, most of them from its address: raise MaxSilent if they are friends")

// errOverflow is why a sound Request is not taken.
var errOverflow = errors.New("too many requests wait for Accept: call it more often, or give Listen a larger Backlog")

// refuse closes the connection of a peer that gets no answer, and counts why.
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

// of is the counter of a reason to refuse a peer.
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
