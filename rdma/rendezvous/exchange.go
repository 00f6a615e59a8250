package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// DefaultPort is the TCP port of an Exchange whose Config has none. It is the number of
// RoCEv2's UDP port.
const DefaultPort = 4791

// Config is the configuration of an Exchange. The zero value works.
type Config struct {
	// Port is the TCP port of this Exchange and of all Exchanges that it dials. 0 means
	// DefaultPort.
	Port uint16

	// Addresses are the addresses on which the Exchange listens. Two adapters of one network
	// namespace need different addresses. nil means all.
	Addresses []netip.Addr

	// MaxEarly is how many Requests may wait for a Connect at this end at a time. 0 means
	// 1024. A Request beyond that is sent away, and its sender tries again.
	MaxEarly int
}

// Limits of time.
const (
	// earlyTime is how long a Request waits for a Connect at this end. The other end tries
	// again then.
	earlyTime = 3 * time.Second

	// attemptTime limits one attempt to dial. It is longer than earlyTime.
	attemptTime = 10 * time.Second

	// firstRetry and lastRetry are the first and the longest time between two attempts.
	firstRetry = 5 * time.Millisecond
	lastRetry  = 250 * time.Millisecond

	// presetTimeout limits Connect.
	presetTimeout = 30 * time.Second
)

// peer names a QP.
type peer struct {
	address netip.Addr
	qpn     uint32
}

func (p peer) String() string { return fmt.Sprintf("QP %d at %v", p.qpn, p.address) }

// less orders the ends of a connection. The lower end dials.
func (p peer) less(o peer) bool {
	if c := p.address.Compare(o.address); c != 0 {
		return c < 0
	}
	return p.qpn < o.qpn
}

// plain returns the address without the forms that one end may use and the other may not.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// Exchange connects QPs of one adapter by number. An Exchange is safe for concurrent use.
type Exchange struct {
	adapter   *rdma.Adapter
	cfg       Config
	listeners []*rdma.Listener

	life    context.Context // context that ends when Close begins
	die     context.CancelCauseFunc
	running sync.WaitGroup // goroutines that accept, and calls of Connect

	mu     sync.Mutex       // guards the fields below; held briefly
	waits  map[uint32]*wait // calls of Connect, by the number of their QP
	early  map[*early]struct{}
	closed bool
}

// wait is a call of Connect.
type wait struct {
	from peer                   // QP that the call connects to
	came chan *rdma.ConnRequest // gets the Request of that QP; nil: this end dials
}

// early is a Request that has come before its Connect.
type early struct {
	request *rdma.ConnRequest
	from    peer
	to      uint32 // number of the QP here
	timer   *time.Timer
}

// Open makes an Exchange for the QPs of an adapter.
func Open(ctx context.Context, a *rdma.Adapter, cfg Config) (*Exchange, error) {
	if cfg.Port == 0 {
		cfg.Port = DefaultPort
	}
	if cfg.MaxEarly == 0 {
		cfg.MaxEarly = 1024
	}
	x := &Exchange{adapter: a, cfg: cfg, waits: map[uint32]*wait{}, early: map[*early]struct{}{}}
	x.life, x.die = context.WithCancelCause(context.Background())
	hosts := []string{""}
	if cfg.Addresses != nil {
		hosts = nil
	}
	for _, at := range cfg.Addresses {
		hosts = append(hosts, at.String())
	}
	for _, host := range hosts {
		l, err := a.Listen(ctx, net.JoinHostPort(host, strconv.Itoa(int(cfg.Port))), rdma.ListenConfig{Backlog: cfg.MaxEarly})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open exchange: %w", err), x.Close())
		}
		x.listeners = append(x.listeners, l)
		x.running.Go(func() { x.acceptAll(l) })
	}
	return x, nil
}

// Close ends the Exchange. Calls of Connect return rdma.ErrClosed. QPs that are connected stay
// connected. Close may be called twice.
func (x *Exchange) Close() error {
	x.mu.Lock()
	x.closed = true
	all := x.early
	x.early = map[*early]struct{}{}
	x.mu.Unlock()
	x.die(fmt.Errorf("the exchange is %w", rdma.ErrClosed))
	var errs []error
	for e := range all {
		e.timer.Stop()
		errs = append(errs, e.request.Close())
	}
	for _, l := range x.listeners {
		errs = append(errs, l.Close())
	}
	x.running.Wait()
	return errors.Join(errs...)
}

// acceptAll gives each Request of a Listener to its Connect.
func (x *Exchange) acceptAll(l *rdma.Listener) {
	for {
		r, err := l.Accept(x.life)
		if err != nil {
			return // the Exchange or the adapter is closed
		}
		x.admit(r)
	}
}

// admit gives a Request to its Connect, lets it wait, or sends it away.
func (x *Exchange) admit(r *rdma.ConnRequest) {
	m, ok := parse(r.PrivateData())
	if !ok || m.kind != asks {
		x.reject(r, nil)
		return
	}
	from := peer{plain(r.Peer().Remote.Addr()), m.own}
	x.mu.Lock()
	w := x.waits[m.peer]
	taken, answer := false, notYet
	switch {
	case w == nil:
		taken = x.keep(r, from, m.peer)
	case w.from != from || w.came == nil:
		answer = mistaken
	default:
		select {
		case w.came <- r:
			taken = true
		default: // the call has another Request of that peer
		}
	}
	x.mu.Unlock()
	if !taken {
		x.reject(r, message{answer, m.peer, m.own}.encode())
	}
}

// keep lets a Request wait for its Connect. keep returns false if there is no room. The
// caller must hold x.mu.
func (x *Exchange) keep(r *rdma.ConnRequest, from peer, to uint32) bool {
	if x.closed || len(x.early) >= x.cfg.MaxEarly {
		return false
	}
	e := &early{request: r, from: from, to: to}
	e.timer = time.AfterFunc(earlyTime, func() {
		x.mu.Lock()
		_, waits := x.early[e]
		delete(x.early, e)
		x.mu.Unlock()
		if waits {
			x.reject(r, message{notYet, to, from.qpn}.encode())
		}
	})
	x.early[e] = struct{}{}
	return true
}

// take removes the Requests for the QP with the number to. It returns one of the peer, and all
// others. The caller must hold x.mu.
func (x *Exchange) take(from peer, to uint32) (mine *early, others []*early) {
	for e := range x.early {
		if e.to != to {
			continue
		}
		delete(x.early, e)
		e.timer.Stop()
		if mine == nil && e.from == from {
			mine = e
		} else {
			others = append(others, e)
		}
	}
	return mine, others
}

// reject sends a Request away. The peer may have gone, so that an error does not matter.
func (x *Exchange) reject(r *rdma.ConnRequest, private []byte) {
	if r.Reject(private) != nil {
		_ = r.Close()
	}
}
