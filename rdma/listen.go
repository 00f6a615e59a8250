package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/mpa"
)

// ListenConfig says how a Listener behaves. The zero value works.
type ListenConfig struct {
	// Timeout is how long a peer may take for its MPA Request. 0 means 5 s.
	Timeout time.Duration
	// Backlog is how many peers may be about to send their Request, and how
	// many Requests may wait for Accept. 0 means 128. When one peer too many
	// comes, the one that has been silent longest has to go.
	Backlog int
}

func (c ListenConfig) fill() (ListenConfig, error) {
	var errs []error
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("a Timeout of %v: choose 0 or more", c.Timeout))
	}
	if c.Backlog < 0 {
		errs = append(errs, fmt.Errorf("a Backlog of %d: choose 1 or more", c.Backlog))
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Backlog == 0 {
		c.Backlog = 128
	}
	return c, errors.Join(errs...)
}

// Listener waits for peers that want to be connected. It is safe for
// concurrent use.
type Listener struct {
	a   *Adapter
	l   *net.TCPListener
	at  netip.AddrPort
	cfg ListenConfig

	life    context.Context // ends when Close begins
	die     context.CancelCauseFunc
	ready   chan *ConnRequest
	running sync.WaitGroup // the one that accepts, and one for each peer
	count   listenCounters

	mu      sync.Mutex     // guards what follows
	talking []*net.TCPConn // peers that have not sent their Request, oldest first
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
	ctx, free := a.while(ctx)
	defer free()
	at, err := listenAddress(ctx, address)
	if err != nil {
		return nil, reason(ctx, err)
	}
	l := &Listener{a: a, cfg: cfg, ready: make(chan *ConnRequest, cfg.Backlog)}
	if err := l.open(ctx, at); err != nil {
		return nil, reason(ctx, err)
	}
	l.at = a.plain(l.l, l.l.Addr(), unix.Getsockname)
	l.life, l.die = context.WithCancelCause(context.Background())
	if !a.hold(l) {
		l.l.Close()
		return nil, fmt.Errorf("the adapter is %w", ErrClosed)
	}
	l.running.Go(l.admitAll)
	return l, nil
}

// listenAddress looks address up: its host may be a name, or empty for every
// address. It may take as long as name servers take, so that nothing of the adapter
// may be held meanwhile.
func listenAddress(ctx context.Context, address string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		number, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
		return netip.AddrPortFrom(netip.Addr{}, uint16(number)), err
	}
	hosts, number, err := resolve(ctx, address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(hosts[0].Unmap(), number), nil
}

// open makes the socket that listens at an address, whose zero Addr means every one.
func (l *Listener) open(ctx context.Context, at netip.AddrPort) error {
	done, err := l.a.use()
	if err != nil {
		return err
	}
	defer done()
	return l.a.space.Do(func() error {
		literal := fmt.Sprintf(":%d", at.Port())
		if at.Addr().IsValid() {
			host, err := numbered(at.Addr())
			if err != nil {
				return err
			}
			literal = netip.AddrPortFrom(host, at.Port()).String()
		}
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // what is not plain TCP cannot be taken over
		lc.Control = l.a.announce
		tcp, err := lc.Listen(ctx, "tcp", literal)
		if err == nil {
			l.l = tcp.(*net.TCPListener)
		}
		return err
	})
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
// answers it by its Accept or Reject. It returns the cause of ctx's end, or
// ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) {
	for {
		select {
		case <-l.life.Done():
			return nil, fmt.Errorf("accept: the listener is %w", ErrClosed)
		default:
		}
		select {
		case r := <-l.ready:
			if err := r.check(); err != nil {
				l.refuse(r.s.TCPConn, err)
				continue
			}
			if !l.a.hold(r) {
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

// Close stops listening. Peers that have not been answered, and are not in the
// hands of the application, are closed. It may be called twice.
func (l *Listener) Close() error {
	l.die(ErrClosed)
	l.a.letGo(l)
	err := l.l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	l.mu.Lock()
	for _, c := range l.talking {
		c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
	for {
		select {
		case r := <-l.ready:
			r.s.Close()
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
		c, err := l.l.AcceptTCP()
		switch {
		case err == nil && l.admit(c):
			mine := number
			number++
			l.running.Go(func() { l.greet(c, mine) })
		case err == nil:
			c.Close()
			return
		case errors.Is(err, net.ErrClosed):
			return
		default:
			l.a.log.Error("cannot accept", "listener", l.Addr(), "err", err)
			select {
			case <-time.After(acceptAgain):
			case <-l.life.Done():
				return
			}
		}
	}
}

// admit enters a peer among those that are to send their Request. false: the
// Listener is being closed.
func (l *Listener) admit(c *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return false
	}
	if len(l.talking) >= l.cfg.Backlog {
		l.talking[0].Close() // its goroutine does the rest
		l.talking = l.talking[1:]
	}
	l.talking = append(l.talking, c)
	return true
}

// dismiss takes a peer off that list.
func (l *Listener) dismiss(c *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.talking = slices.DeleteFunc(l.talking, func(o *net.TCPConn) bool { return o == c })
}

// greet reads a peer's Request and gives it to Accept.
func (l *Listener) greet(c *net.TCPConn, number uint64) {
	r, err := l.request(c)
	l.dismiss(c)
	if err != nil {
		l.refuse(c, err)
		return
	}
	r.number = number
	select {
	case l.ready <- r:
		l.count.requests.Add(1)
	default:
		l.refuse(c, errOverflow)
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
	local, remote := l.a.ends(c)
	p, err := l.a.portFor(l.life, c)
	if err != nil {
		return nil, err
	}
	return &ConnRequest{l: l, s: &socket{c, l.a, p}, r: request, local: local, remote: remote}, nil
}

// errOverflow is why a sound Request is not taken.
var errOverflow = errors.New("too many requests wait for Accept: call it more often, or give Listen a larger Backlog")

// refuse closes the connection of a peer that gets no answer, and counts why.
func (l *Listener) refuse(c *net.TCPConn, err error) {
	_, remote := l.a.ends(c)
	c.Close()
	if l.life.Err() != nil {
		return
	}
	var frame *mpa.FrameError
	switch {
	case errors.Is(err, errSilent), errors.Is(err, net.ErrClosed):
		l.count.silent.Add(1)
	case errors.As(err, &frame), errors.Is(err, errEarly):
		l.count.malformed.Add(1)
	case errors.Is(err, errOverflow):
		l.count.overflow.Add(1)
	case errors.Is(err, ErrNoPort):
		l.count.noPort.Add(1)
	default:
		l.count.gone.Add(1)
	}
	l.a.log.Warn("peer refused", "listener", l.Addr(), "peer", remote, "err", err)
}
