package loader

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Mover moves addresses between the interfaces of one network namespace, and announces
// them. It is safe for concurrent use.
type Mover struct {
	net     *Net
	packets packets

	mu      sync.Mutex // held during a move, and during an announcement after one
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup // announcements
}

// NewMover returns a Mover for the network namespace of the calling OS thread. It needs
// CAP_NET_RAW. Moves also need CAP_NET_ADMIN and the right to write to RuntimeDir.
func NewMover() (*Mover, error) {
	n, err := Open()
	if err != nil {
		return nil, err
	}
	p, err := openPackets()
	if err != nil {
		n.Close()
		return nil, err
	}
	m := &Mover{net: n, packets: p}
	m.life, m.end = context.WithCancel(context.Background())
	return m, nil
}

// Close ends the announcements that are still to come and closes the sockets.
func (m *Mover) Close() error {
	m.end()
	m.running.Wait()
	return errors.Join(m.packets.close(), m.net.Close())
}

// MoveOptions are the options of a move.
type MoveOptions struct {
	// Last is what the interface had when it was last in order. A deleted interface has
	// lost everything, and an interface that is down has lost its routes and its IPv6
	// addresses. Without Last such things are lost.
	Last *Holdings
}

// Moved says what a move has done.
type Moved struct {
	Addresses []netip.Addr // the addresses that the next interface has now
	Routes    int          // number of routes that lead through it now; the kernel makes others with the addresses
	Left      []string     // routes that still lead through the old interface, with the reason
}

// announceAfter are the times of the announcements after a move.
var announceAfter = [...]time.Duration{0, 100 * time.Millisecond, time.Second}

// MoveAddresses moves all addresses of from, except link-local ones, and the routes
// through from, to the interface to. Both must be in the Mover's namespace and on the
// same link. The addresses are added to the next interface before they are removed from
// the old one. An address or a route that the kernel refuses stays, and the error
// says so. MoveAddresses returns after the first announcement; two more follow.
//
// A journal in RuntimeDir describes the move until it is complete. If the process is
// killed, RepairMoves completes the move. Every step can be done again.
//
// Errors: ErrLinkDown if the interface to is down. ErrNoLink if the interface to is gone, or
// if from is gone and o.Last is nil. ErrInstanceBusy if another process moves addresses
// in the namespace for too long.
func (m *Mover) MoveAddresses(ctx context.Context, from, to Link, o MoveOptions) (Moved, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := claimMoves(ctx, m.net.cookie)
	if err != nil {
		return Moved{}, err
	}
	defer c.Close()
	j, err := m.plan(from, to, o)
	if err != nil {
		return Moved{}, err
	}
	if err := j.write(); err != nil {
		return Moved{}, fmt.Errorf("keep a journal of the move in %s: %w", j.path, err)
	}
	moved, err := m.execute(j)
	m.announceLater(j.To, moved.Addresses)
	return moved, errors.Join(err, j.remove())
}

// Plan returns the steps that MoveAddresses would take now, one a line: commands of ip,
// and comments that begin with #. Plan changes nothing.
func (m *Mover) Plan(from, to Link, o MoveOptions) (lines []string, err error) {
	j, err := m.plan(from, to, o)
	if err != nil {
		return nil, err
	}
	adds, removes := m.steps(j)
	for _, s := range slices.Concat(adds, removes) {
		lines = append(lines, s.text)
	}
	for _, addr := range j.What.IPs() {
		lines = append(lines, fmt.Sprintf("# announce %v at %v on %s after 0, 100 and 1000 ms", addr, j.To.MAC, j.To.Name))
	}
	return append(lines, j.What.Left...), nil
}

// plan finds out what is to be moved.
func (m *Mover) plan(from, to Link, o MoveOptions) (*journal, error) {
	if from.Index == to.Index {
		return nil, fail(ErrNoLink, nil, "%s cannot take its own addresses over: name another interface", from.Name)
	}
	if err := m.net.upAt(to.Index); err != nil {
		return nil, err
	}
	now, err := m.net.LinkAt(to.Index)
	if err != nil {
		return nil, err
	}
	what, err := m.toMove(from, o.Last)
	if err != nil {
		return nil, err
	}
	return newJournal(m.net.cookie, from, now, what)
}

// toMove returns what the interface has. What it has lost is taken from last.
func (m *Mover) toMove(from Link, last *Holdings) (*Holdings, error) {
	what, err := m.net.holdings(from.Index)
	if err != nil {
		return nil, err
	}
	up := m.net.upAt(from.Index)
	if errors.Is(up, ErrNoLink) && last == nil {
		return nil, fail(ErrNoLink, nil, "%s is gone, and its addresses are not known: add them to another interface by hand", from.Name)
	}
	if up != nil {
		what = what.union(last)
	}
	return what, nil
}

// step is one change of an address or of a route.
type step struct {
	kind  int
	flags int
	body  message
	text  string
	done  []error // these errors mean that the step was done before
	moves message // the address or the route of the Holdings
}

// These errors of the kernel say that a step was done before, or that the interface is
// gone and has taken along what was to be removed.
var (
	added   = []error{unix.EEXIST}
	removed = []error{unix.EADDRNOTAVAIL, unix.ESRCH, unix.ENODEV, unix.ENOENT}
)

// steps returns the steps of a move. Secondary addresses are removed before their
// primary one, because the kernel removes them together with it.
func (m *Mover) steps(j *journal) (adds, removes []step) {
	age := boottime() - j.What.Taken
	there := m.net.upAt(j.From.Index)
	for _, a := range j.What.Addresses {
		body, ok := a.addressFor(j.From, j.To, age)
		if !ok {
			continue
		}
		adds = append(adds, step{kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, body: body,
			text: ip(a) + "addr add " + body.addressText(j.To.Name, true), done: added, moves: a})
		removes = append(removes, step{kind: unix.RTM_DELADDR, body: a.addressOn(j.From.Index),
			text: ip(a) + "addr del " + a.addressText(j.From.Name, false), done: removed, moves: a})
	}
	slices.Reverse(removes)
	var routes []step
	for _, r := range j.What.Routes {
		body, by := r.routeThrough(j.To.Index), j.What.implies(r)
		if by == nil || j.every {
			adds = append(adds, step{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_APPEND, body: body,
				text: ip(r) + "route append " + body.routeText(j.To.Name), done: added, moves: r})
		}
		if by == nil || !by.takesRoute() {
			routes = append(routes, step{kind: unix.RTM_DELROUTE, body: r.routeThrough(j.From.Index),
				text: ip(r) + "route del " + r.routeText(j.From.Name), done: removed, moves: r})
		}
	}
	if errors.Is(there, ErrNoLink) {
		return adds, nil
	}
	return adds, append(routes, removes...)
}

// ip begins the command for an address or a route.
func ip(m message) string {
	if m[0] == unix.AF_INET6 { // the family is the first octet of both headers
		return "ip -6 "
	}
	return "ip "
}

// execute does all steps of a move and announces the addresses.
func (m *Mover) execute(j *journal) (moved Moved, err error) {
	moved.Left = j.What.Left
	moveStep("")
	adds, removes := m.steps(j)
	var refused []message
	var errs []error
	for _, s := range adds {
		if failed := m.do(s); failed != nil {
			errs, refused = append(errs, failed), append(refused, s.moves)
			continue
		}
		if s.kind == unix.RTM_NEWADDR {
			moved.Addresses = append(moved.Addresses, s.moves.local())
		} else {
			moved.Routes++
		}
		moveStep(s.text)
	}
	m.awaitUsable(j.To.Index, moved.Addresses)
	for _, s := range removes {
		if slices.ContainsFunc(refused, func(r message) bool { return &r[0] == &s.moves[0] }) {
			continue // it has no other place
		}
		if failed := m.do(s); failed != nil {
			errs = append(errs, failed)
		}
		moveStep(s.text)
	}
	if failed := m.announceAll(j.To, moved.Addresses); failed != nil {
		errs = append(errs, failed)
	}
	return moved, oneLine(errs)
}

// oneLine returns the first of the errors, and says how many others there are.
func oneLine(errs []error) error {
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w; and %d more steps failed", errs[0], len(errs)-1)
}

// awaitUsable waits until the interface receives packets for its new IPv6 addresses. The
// kernel adds their local routes from a work queue. awaitUsable gives up after half a
// second: an interface without a carrier may get no such routes.
func (m *Mover) awaitUsable(index int, addrs []netip.Addr) {
	for range 100 {
		routes, err := m.net.dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, unix.SizeofRtMsg)
		if err != nil || !slices.ContainsFunc(addrs, func(a netip.Addr) bool {
			return a.Is6() && !slices.ContainsFunc(routes, func(r message) bool { return r.delivers(a, index) })
		}) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// moveStep is called before the first step of a move and after each step. A test
// replaces it to kill the process there.
var moveStep = func(string) {}

// do does one step. It returns no error if the step was done before.
func (m *Mover) do(s step) error {
	req := m.net.request(s.kind, s.flags|unix.NLM_F_ACK)
	req.AddRawData(s.body)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err == nil || slices.ContainsFunc(s.done, func(done error) bool { return errors.Is(err, done) }) {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		return fail(ErrPermission, err, "move an address: needs CAP_NET_ADMIN")
	}
	return fmt.Errorf("%s: %w", s.text, err)
}

// announceLater makes the announcements after the first. An address that has moved on by
// then is not announced.
func (m *Mover) announceLater(to Link, addrs []netip.Addr) {
	start := time.Now()
	m.running.Go(func() {
		for _, after := range announceAfter[1:] {
			select {
			case <-m.life.Done():
				return
			case <-time.After(time.Until(start.Add(after))):
			}
			m.mu.Lock()
			_ = m.announceAll(to, addrs) // the first announcement has reported the errors
			m.mu.Unlock()
		}
	})
}
