//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
)

// cards is a running row whose adapter has two interfaces of its own, card0 and card1.
// Both lead to the guest's bridge. card0 has stag's addresses first.
//
// The connections carry traffic on the test's goroutine, while accidents happen on
// another one.
type cards struct {
	*rig
	ctx   context.Context // context that ends before the row does
	a     *rdma.Adapter
	lost  atomic.Int64  // ports that the adapter has lost
	moved atomic.Int64  // connections that have moved, by the adapter's events
	quiet func() error  // returns an error when the traffic has ended
	sofar func() uint64 // measure of the traffic so far
	piece uint64        // sofar grows by piece while traffic goes on
	last  uint64        // sofar at the end; 0 if it is not known
	over  chan struct{} // closed when the accidents are over
}

// Names of the cards, and of the bridge's ports at the other ends of their cables.
var (
	cardNames = [2]string{"card0", "card1"}
	farNames  = [2]string{"far0", "far1"}
)

// cards makes the cards and opens the adapter. If watched, the cards are a group, and
// stag moves the addresses of a card that has failed.
func (r *rig) cards(watched bool) *cards {
	r.Helper()
	c := &cards{rig: r, over: make(chan struct{})}
	for _, name := range []string{"all", "default"} {
		c.setting("ipv4/conf/"+name+"/arp_ignore", "1") // an interface speaks for its own addresses only
		c.setting("ipv4/conf/"+name+"/rp_filter", "0")
	}
	r.Cleanup(c.restore)
	for n := range cardNames {
		c.plug(n)
	}
	c.readdress(r.port(), cardNames[0])
	cfg := rdma.Config{Ports: cardNames[:]}
	if watched {
		cfg.Groups = []rdma.Group{{Ports: cfg.Ports, Mode: rdma.GroupBackup, Settle: time.Second, FailBack: true}}
	}
	r.Must(r.pair.Do(pair.A, func() (err error) {
		c.a, err = rdma.Open(cfg)
		return err
	}))
	ctx, cancel := context.WithCancel(r.context())
	c.ctx = ctx
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.listen()
	}()
	r.Cleanup(func() {
		cancel()
		<-ended
		if err := c.a.Close(); err != nil {
			r.Errorf("close the adapter: %v", err)
		}
	})
	return c
}

// listen reads the adapter's events until the row ends.
func (c *cards) listen() {
	for {
		select {
		case e := <-c.a.Events():
			switch {
			case e.Type == rdma.PathMoved && e.Err == nil:
				c.moved.Add(1)
				c.Logf("moved from %s to %s: %s, frozen %v", e.From, e.Port, e.Cause, e.Frozen)
			case e.Type == rdma.PortLost:
				c.lost.Add(1)
			default:
				c.Logf("%v %s: %v", e.Type, e.Port, e.Err)
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// setting writes a setting of stag's namespace until the row ends.
func (c *cards) setting(name, value string) {
	c.Helper()
	path := "/proc/sys/net/" + name
	var before []byte
	c.Must(c.pair.Do(pair.A, func() (err error) {
		if before, err = os.ReadFile(path); err != nil {
			return err
		}
		return netns.Sysctl(name, value)
	}))
	c.Cleanup(func() {
		if err := c.pair.Do(pair.A, func() error { return os.WriteFile(path, before, 0) }); err != nil {
			c.Errorf("restore %s: %v", name, err)
		}
	})
}

// plug makes a card and its cable to the bridge.
func (c *cards) plug(n int) {
	c.Helper()
	var there *os.File
	c.Must(c.pair.Do(pair.B, func() (err error) {
		there, err = os.Open("/proc/thread-self/ns/net")
		return err
	}))
	defer there.Close()
	c.Must(c.pair.Do(pair.A, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: cardNames[n], MTU: 1500, TxQLen: -1})
		veth.PeerName, veth.PeerNamespace = farNames[n], netlink.NsFd(there.Fd())
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make %s: %w", cardNames[n], err)
		}
		return nil
	}))
	c.Must(c.pair.Do(pair.B, func() error { return c.raise(farNames[n], "bridge0") }))
	c.Must(c.pair.Do(pair.A, func() error { return c.raise(cardNames[n], "") }))
}

// raise sets an end of a cable up, and puts it on a bridge.
func (c *cards) raise(name, bridge string) error {
	if err := loader.SetTxChecksum(name, false); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err == nil && bridge != "" {
		err = netlink.LinkSetMaster(link, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}})
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	return err
}

// unplug deletes a card and its cable.
func (c *cards) unplug(n int) {
	c.Helper()
	c.Must(c.pair.Do(pair.A, func() error { return unlink(cardNames[n]) }))
}

// unlink deletes an interface of the calling thread's namespace.
func unlink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

// pull takes a card's carrier away, or gives it back.
func (c *cards) pull(n int, back bool) {
	c.Helper()
	c.Must(c.pair.Do(pair.B, func() error {
		link, err := netlink.LinkByName(farNames[n])
		switch {
		case err != nil:
			return err
		case back:
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	}))
}

// readdress moves the addresses of stag's side, as an operator does.
func (c *cards) readdress(from, to string) {
	c.Helper()
	c.Must(c.pair.Do(pair.A, func() error {
		m, err := loader.NewMover()
		if err != nil {
			return err
		}
		defer m.Close()
		var links [2]loader.Link
		for i, name := range []string{from, to} {
			if links[i], err = loader.LookupLink(name); err != nil {
				return err
			}
		}
		_, err = m.MoveAddresses(c.context(), links[0], links[1], loader.MoveOptions{})
		return err
	}))
}

// restore deletes the cards, and gives the addresses back to the stage's interface.
func (c *cards) restore() {
	err := c.pair.Do(pair.A, func() error {
		var errs []error
		for _, name := range cardNames {
			if err := unlink(name); err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
				errs = append(errs, err)
			}
		}
		end := c.pair.Ends[pair.A]
		link, err := loader.LookupLink(end.Name)
		if err != nil {
			return err
		}
		for _, p := range []netip.Prefix{end.V4, end.V6} {
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
			if p.Addr().Is6() {
				addr.Flags = unix.IFA_F_NODAD
			}
			errs = append(errs, netlink.AddrReplace(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: end.Index}}, addr), loader.Announce(link, p.Addr()))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		c.Errorf("restore the stage: %v", err)
	}
}

// until waits until a condition is true. It ends the goroutine with an error if the
// traffic ends before.
func (c *cards) until(what string, condition func() bool) {
	c.Helper()
	for !condition() {
		if err := c.quiet(); err != nil {
			c.Fatalf("%v, before %s", err, what)
		}
		select {
		case <-c.ctx.Done():
			c.Fatalf("%v, before %s", context.Cause(c.ctx), what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// at waits until all connections are at a card.
func (c *cards) at(n int) {
	c.Helper()
	c.until("all connections were at "+cardNames[n], func() bool {
		here, elsewhere := 0, 0
		for _, p := range c.a.Device().(*adapter.Adapter).Ports() {
			if flows := len(p.NIC().Flows()); p.Name() == cardNames[n] {
				here += flows
			} else {
				elsewhere += flows
			}
		}
		return here > 0 && elsewhere == 0
	})
}

// goesOn waits until the connections have carried a piece of traffic.
func (c *cards) goesOn() {
	c.Helper()
	end := c.sofar() + c.piece
	c.until("the traffic went on", func() bool { return c.sofar() >= end })
}

// during starts accidents, which happen while the caller's goroutine carries traffic. The
// caller must wait for over.
func (c *cards) during(accidents func(c *cards)) {
	go func() {
		defer close(c.over)
		c.goesOn()
		accidents(c)
	}()
	c.Cleanup(func() { <-c.over })
}

// accident is what happens to the cards under a connection.
type accident struct {
	name    string
	watched bool // the cards are a group
	moves   int64
	do      func(c *cards)
}

// accidents are the ways in which a card goes and comes back. All connections must be at
// card0 before and after.
var accidents = []accident{
	{"pulled twice", true, 4, func(c *cards) {
		for range 2 {
			c.pull(0, false)
			c.at(1)
			c.goesOn()
			c.pull(0, true)
			c.at(0)
			c.goesOn()
		}
	}},
	{"drained 5 times", false, 10, func(c *cards) {
		for range 5 {
			c.Must(c.a.Drain(c.ctx, cardNames[0]))
			c.at(1)
			c.goesOn()
			c.Must(c.a.Undrain(cardNames[0]))
			c.at(0)
			c.goesOn()
		}
	}},
	{"replaced", false, 2, func(c *cards) {
		c.readdress(cardNames[0], cardNames[1])
		c.at(1)
		c.Must(c.a.RemovePort(c.ctx, cardNames[0]))
		c.unplug(0)
		c.goesOn()
		c.plug(0)
		c.Must(c.a.AddPort(c.ctx, cardNames[0]))
		c.readdress(cardNames[1], cardNames[0])
		c.at(0)
		c.goesOn()
	}},
	{"deleted and made again", true, 2, func(c *cards) {
		c.unplug(0)
		c.at(1)
		c.goesOn()
		c.until("the adapter knew that its port was lost", func() bool { return c.lost.Load() == 1 })
		c.plug(0)
		c.Must(c.a.AddPort(c.ctx, cardNames[0]))
		c.at(0)
		c.goesOn()
	}},
}
