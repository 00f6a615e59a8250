package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/nic"
)

// twinControl is the congestion control of every connection of twins, of both stacks. The
// kernel's own choice may be one that paces, and then it decides the gaps.
const twinControl = "cubic"

// twinMTU is the MTU of twins in octets.
const twinMTU = 1500

// twins are two hosts with two cables between them. Each host has stag's adapter with both
// ports, or only its kernel.
type twins struct {
	pair     *pair.Pair
	adapters [2]*adapter.Adapter // nil: the kernel runs the TCP of the side
	watches  [2]*linkWatch       // of the first cable
	heard    [2]ledger
}

// newTwins makes the hosts. edit, if set, changes the configuration of an adapter.
func newTwins(stacks [2]stack, edit func(*twins, *adapter.Config)) (t *twins, err error) {
	t = &twins{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.pair, err = pair.New(pair.Config{MTU: twinMTU, Twin: true}); err != nil {
		return nil, err
	}
	for side := range stacks {
		if t.watches[side], err = watchLink(t.pair, pair.Side(side)); err != nil {
			return nil, err
		}
		if stacks[side] == kernel {
			continue
		}
		c := adapter.Config{
			Ports: []string{t.pair.Ends[side].Name, t.pair.Seconds[side].Name}, RegionHeap: 1 << 20, MaxRegions: 1 << 10,
			Progress: adapter.ProgressEngine, Congestion: twinControl, NoControl: true, Notify: t.heard[side].add,
		}
		if edit != nil {
			edit(t, &c)
		}
		err := t.pair.Do(pair.Side(side), func() (err error) {
			t.adapters[side], err = adapter.Open(c)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *twins) close() error {
	var errs []error
	for _, a := range t.adapters {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	for _, w := range t.watches {
		if w != nil {
			w.close()
		}
	}
	if t.pair != nil {
		errs = append(errs, t.pair.Close())
	}
	return errors.Join(errs...)
}

// offloaded reports whether stag runs the TCP of a side.
func (t *twins) offloaded(side pair.Side) bool { return t.adapters[side] != nil }

// ends connects the sides n times, at most dialling connections at the same time. It returns
// both ends of each connection, which do not send yet.
func (t *twins) ends(ctx context.Context, n int) (all [][2]*end, err error) {
	l, err := t.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards all, and keeps dialling and accepting in the same order
	var wg sync.WaitGroup
	places := make(chan struct{}, dialling)
	for range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			both, err := t.meet(ctx, l, &mu)
			if err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			all = append(all, both)
			mu.Unlock()
		})
	}
	wg.Wait()
	return all, context.Cause(ctx)
}

// meet makes one connection.
func (t *twins) meet(ctx context.Context, l *net.TCPListener, mu *sync.Mutex) (both [2]*end, err error) {
	mu.Lock()
	dialled, err := t.dial(ctx, l.Addr().String())
	if err != nil {
		mu.Unlock()
		return both, err
	}
	accepted, err := l.AcceptTCP()
	mu.Unlock()
	if err != nil {
		dialled.Close()
		return both, err
	}
	for side, c := range []*net.TCPConn{dialled, accepted} {
		if both[side], err = t.end(ctx, pair.Side(side), c); err != nil {
			return both, fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
	}
	return both, nil
}

func (t *twins) listen(ctx context.Context) (l *net.TCPListener, err error) {
	at := netip.AddrPortFrom(t.pair.Services[to], 0)
	if t.offloaded(to) {
		return t.adapters[to].Listen(ctx, at.String(), 0)
	}
	err = t.pair.Do(to, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	})
	return l, err
}

func (t *twins) dial(ctx context.Context, address string) (c *net.TCPConn, err error) {
	if t.offloaded(from) {
		s, err := t.adapters[from].Dial(ctx, address, adapter.DialOptions{})
		if err != nil {
			return nil, err
		}
		return s.TCPConn, nil
	}
	err = t.pair.Do(from, func() error {
		dialled, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			c = dialled.(*net.TCPConn)
		}
		return err
	})
	return c, err
}

// end gives a connection of a side to the stack of that side.
func (t *twins) end(ctx context.Context, side pair.Side, c *net.TCPConn) (*end, error) {
	e := newEnd(side)
	if err := setControl(c, twinControl); err != nil {
		c.Close()
		return nil, err
	}
	if !t.offloaded(side) {
		e.run(c)
		return e, nil
	}
	s, err := t.adapters[side].Socket(ctx, c)
	if err != nil {
		c.Close()
		return nil, err
	}
	if e.conn, err = s.TakeOver(ctx, e, adapter.TakeOver{Kind: bpf.KindBytes, Accepted: side == to}); err != nil {
		return nil, err
	}
	e.flow = e.conn.Carrier().(*nic.Flow)
	return e, nil
}

// nics returns the interfaces of a side's adapter: that of the first cable, then that of the
// second one.
func (t *twins) nics(side pair.Side) (list []*nic.NIC) {
	for _, p := range t.adapters[side].Ports() {
		list = append(list, p.NIC())
	}
	return list
}

// ledger keeps the events of an adapter. It is safe for concurrent use.
type ledger struct {
	mu   sync.Mutex
	list []entry
}

// entry is an event with its time.
type entry struct {
	adapter.Event
	at time.Time
}

func (l *ledger) add(e adapter.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, entry{e, time.Now()})
}

// clear forgets all events.
func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = nil
}

// of returns the events of a type since clear.
func (l *ledger) of(kind adapter.EventType) (list []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if e.Type == kind {
			list = append(list, e)
		}
	}
	return list
}

// moves returns the moves since clear, or the error of one that has failed.
func (l *ledger) moves() (list []entry, err error) {
	for _, e := range l.of(adapter.PathMoved) {
		if e.Err != nil {
			return nil, e.Err
		}
		list = append(list, e)
	}
	return list, nil
}

// eventually waits until ok. It fails if that takes longer than lastChance.
func eventually(ctx context.Context, what string, ok func() bool) error {
	for late := time.Now().Add(lastChance); !ok(); {
		if time.Now().After(late) {
			return fmt.Errorf("%s: not within %v", what, lastChance)
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// linkWatch knows when the kernel has reported the loss of a link's carrier.
type linkWatch struct {
	done chan struct{}

	mu   sync.Mutex
	lost chan time.Time // holds the time of the first loss since arm; nil: not armed
}

// watchLink watches the first link of a side.
func watchLink(p *pair.Pair, side pair.Side) (*linkWatch, error) {
	w := &linkWatch{done: make(chan struct{})}
	updates := make(chan netlink.LinkUpdate, 64)
	err := p.Do(side, func() error { return netlink.LinkSubscribe(updates, w.done) })
	if err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	index := p.Ends[side].Index
	go func() {
		for u := range updates {
			if int(u.Index) == index && u.IfInfomsg.Flags&unix.IFF_RUNNING == 0 {
				w.tell()
			}
		}
	}()
	return w, nil
}

func (w *linkWatch) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil {
		w.lost <- time.Now()
		w.lost = nil
	}
}

// arm returns the channel that gets the time of the next loss.
func (w *linkWatch) arm() <-chan time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = make(chan time.Time, 1)
	return w.lost
}

func (w *linkWatch) close() { close(w.done) }

// noticed waits for the time of a loss.
func noticed(ctx context.Context, lost <-chan time.Time) (time.Time, error) {
	select {
	case at := <-lost:
		return at, nil
	case <-time.After(lastChance):
		return time.Time{}, fmt.Errorf("the kernel has not reported the loss of the carrier within %v", lastChance)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}
