// Package pair makes two network namespaces, and joins them by a veth pair, by two or by a router. `stag demo` and every test
// that needs privileges run their traffic between these namespaces.
//
// The package belongs to the command, because `stag demo` is the only part of the product that needs it. The package is
// not below cmd/stag/internal, because tests of every package import it.
//
// The namespaces have no names. A namespace exists as long as the Pair, or as long as a thread or socket is inside it.
// If the process is killed, nothing is left.
package pair

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
)

// Side is an end of the pair.
type Side int

// A and B are the sides of every Pair. They index Pair.Ends.
const (
	A Side = iota
	B
)

func (s Side) String() string { return string(rune('A' + s)) }

// Other returns the opposite side.
func (s Side) Other() Side { return 1 - s }

// Config describes a pair. The zero value works.
type Config struct {
	MTU    int // MTU of every link: 68 (1280 for IPv6) to 65535 octets; 0 means 1500
	Queues int // number of receive queues and of transmit queues of each end; 0 means 1

	// ChecksumOffload leaves the transmit checksum offload of both ends on,
	// as veth has it by default. AF_XDP then receives segments of the other
	// end's kernel with incomplete checksums.
	ChecksumOffload bool

	// ThreadedNAPI runs the packet processing of each end in kernel threads instead of in the context of the sender.
	// It turns generic receive offload on, because veth has NAPI only with that or with an XDP program.
	ThreadedNAPI bool

	// Router is the router between the sides. If it is nil, one cable connects the sides.
	Router *Router

	// Twin connects the sides with two cables. Each side has an address on its loopback interface, and a route over
	// each cable to the other side's. The kernel prefers the first cable while it has a carrier. See Pull and Plug.
	Twin bool
}

func (c Config) fill() (Config, error) {
	if c.MTU == 0 {
		c.MTU = 1500
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	var errs []error
	if c.MTU < 1280 || c.MTU > 65535 {
		errs = append(errs, fmt.Errorf("MTU %d: want 1280 to 65535", c.MTU))
	}
	if c.Queues < 0 || c.Queues > 64 {
		errs = append(errs, fmt.Errorf("%d queues: want 1 to 64", c.Queues))
	}
	if c.Router != nil {
		errs = append(errs, c.Router.check())
	}
	if c.Router != nil && c.Twin {
		errs = append(errs, errors.New("two cables and a router: choose one"))
	}
	return c, errors.Join(errs...)
}

// End is one side's interface. It does not change while the Pair lives.
type End struct {
	Name  string // name of the interface, unique on this machine
	Index int    // interface index in the namespace of the end
	MAC   net.HardwareAddr
	V4    netip.Prefix // address with prefix length
	V6    netip.Prefix
}

// Pair is two namespaces and the cables or the router between them. It is safe for concurrent use.
type Pair struct {
	Ends  [2]End // the interfaces of the two sides, indexed by Side
	Ports [2]End // the router's or the first twin's interfaces between the sides, indexed by the Side that they lead to

	Seconds  [2]End        // the interfaces of the second cable, indexed by Side
	Services [2]netip.Addr // addresses on the loopback interfaces, which both cables lead to, indexed by Side

	id [3]byte // number of this pair, for the names of its interfaces

	mu     sync.Mutex
	spaces [2]*os.File // namespaces of the sides; nil after Close
	middle *os.File    // namespace of Ports; nil if there are none
}

// ErrClosed is the error of a Pair's methods after Close.
var ErrClosed = errors.New("the pair of namespaces has been closed")

// New makes a pair. Both links and the loopbacks are up, and the IPv4 and IPv6 addresses are usable at once. New
// needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
func New(c Config) (*Pair, error) {
	c, err := c.fill()
	if err != nil {
		return nil, err
	}
	p := &Pair{}
	if _, err := rand.Read(p.id[:]); err != nil {
		return nil, err
	}
	if err := p.build(c); err != nil {
		p.Close()
		return nil, fmt.Errorf("make a veth pair between two namespaces: %w", err)
	}
	return p, nil
}

func (p *Pair) build(c Config) (err error) {
	for side := range p.spaces {
		if p.spaces[side], err = newNamespace(); err != nil {
			return err
		}
	}
	switch {
	case c.Twin:
		err = p.buildTwin(c)
	case c.Router == nil:
		err = p.buildDirect(c)
	default:
		err = p.buildRouted(c)
	}
	if err != nil {
		return err
	}
	// This is done last, when all ends exist: a link runs only when its peer is up.
	for _, side := range []Side{A, B} {
		if err := p.Do(side, func() error { return awaitUsable(p.Ends[side]) }); err != nil {
			return err
		}
	}
	return nil
}

// buildDirect connects the sides with one cable.
func (p *Pair) buildDirect(c Config) error {
	for side := range p.Ends {
		p.Ends[side] = p.newEnd('a'+byte(side), addresses[side])
	}
	return p.lay(&p.Ends, c)
}

// lay makes the cable between two ends, and brings both ends up.
func (p *Pair) lay(ends *[2]End, c Config) error {
	far := func() (*os.File, error) { return p.space(B) }
	if err := p.Do(A, func() error { return cable(&ends[A], &ends[B], far, c) }); err != nil {
		return err
	}
	for _, side := range []Side{A, B} {
		if err := p.Do(side, func() error { return configure(&ends[side], c) }); err != nil {
			return fmt.Errorf("side %v: %w", side, err)
		}
	}
	return nil
}

// Do runs f on the calling goroutine. While f runs, the goroutine's OS thread is in the network namespace of side.
// Sockets that f opens and processes that f starts stay in that namespace. Goroutines that f starts do not run in that
// namespace. Do returns f's error.
func (p *Pair) Do(side Side, f func() error) error {
	return within(func() (*os.File, error) { return p.space(side) }, f)
}

// DoRouter runs f in the namespace of Ports. Otherwise it is the same as Do.
func (p *Pair) DoRouter(f func() error) error {
	return within(func() (*os.File, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.middle == nil {
			return nil, ErrClosed
		}
		return dup(p.middle)
	}, f)
}

// space returns a new descriptor of side's namespace. The caller closes it.
func (p *Pair) space(side Side) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spaces[side] == nil {
		return nil, ErrClosed
	}
	return dup(p.spaces[side])
}

// Close removes the cables and releases the namespaces. It may be called twice.
func (p *Pair) Close() error {
	var errs []error
	for _, side := range []Side{A, B} {
		for _, end := range []End{p.Ends[side], p.Seconds[side]} {
			if end.Index == 0 {
				continue
			}
			err := p.Do(side, func() error { return removeLink(end.Index) })
			if err != nil && !errors.Is(err, ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for side, f := range p.spaces {
		if f != nil {
			errs = append(errs, f.Close())
		}
		p.spaces[side] = nil
	}
	if p.middle != nil {
		errs = append(errs, p.middle.Close())
		p.middle = nil
	}
	return errors.Join(errs...)
}
