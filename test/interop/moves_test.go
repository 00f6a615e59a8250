//go:build interop

package interop

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/rdma"
)

// movedSeconds is the duration of perftest while cards go and come back.
const movedSeconds = 20

// TestMoves has accidents happen to the card under perftest's Writes, and under rping as
// the client and as the server. The guest's programs must not notice.
func TestMoves(t *testing.T) {
	for n, x := range accidents {
		row(t, x.name+", write_bw", about{"ib_write_bw client", fmt.Sprintf("-D %d", movedSeconds)}, func(r *rig) {
			c := r.cards(x.watched)
			c.bandwidth("write_bw", movedSeconds, x.do)
			c.count(x.moves * 2) // the control connection moves, too
		})
		if !brief || n%2 == 0 {
			row(t, x.name+", our server", about{"rping -c", fmt.Sprintf("%d x %d", movedRounds, movedSize)}, func(r *rig) {
				c := r.cards(x.watched)
				c.pinged(movedRounds, x.do)
				c.count(x.moves)
			})
		}
		if !brief || n%2 != 0 {
			row(t, x.name+", our client", about{"rping -s", fmt.Sprintf("%d x %d", movedRounds, movedSize)}, func(r *rig) {
				c := r.cards(x.watched)
				c.pinging(movedRounds, x.do)
				c.count(x.moves)
			})
		}
	}
}

// count checks how many moves of connections the adapter has reported.
func (c *cards) count(want int64) {
	c.Helper()
	if got := c.moved.Load(); got < want {
		c.Errorf("%d moves, want %d", got, want)
	}
}

// TestAsymmetric has every segment of the guest arrive at card0, and every segment of
// stag leave through card1.
func TestAsymmetric(t *testing.T) {
	seconds := 10
	if os.Getenv("STAG_LONG") == "1" {
		seconds = 60
	}
	rounds := seconds * int(time.Second/slowRound)
	row(t, "read_bw", about{"ib_read_bw client", fmt.Sprintf("-D %d", seconds)}, func(r *rig) {
		c := r.cards(false)
		c.split()
		c.bandwidth("read_bw", seconds, c.nothing)
		c.isSplit()
	})
	row(t, "our server", about{"rping -c", fmt.Sprintf("%d x %d", rounds, movedSize)}, func(r *rig) {
		c := r.cards(false)
		c.split()
		c.pinged(rounds, c.slowly)
		c.isSplit()
	})
}

// split makes the route to the guest lead through card1. The guest goes on to send to
// card0.
func (c *cards) split() {
	c.Helper()
	var near, far loader.Link
	c.Must(c.pair.Do(pair.A, func() (err error) {
		if near, err = loader.LookupLink(cardNames[0]); err != nil {
			return err
		}
		if far, err = loader.LookupLink(cardNames[1]); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: far.Index, Scope: netlink.SCOPE_LINK,
			Dst: netlink.NewIPNet(ipv4.guest.AsSlice()), Src: ipv4.our.AsSlice()})
	}))
	c.behind(0, near)
	c.behind(1, far)
	c.inGuest(fmt.Sprintf("%s neigh replace %s lladdr %v dev eth0 nud permanent", ip, ourV4, near.MAC))
	c.Cleanup(func() {
		if c.guest.alive() {
			c.inGuest(fmt.Sprintf("%s neigh del %s dev eth0", ip, ourV4))
		}
	})
}

// behind tells the bridge where a card is. A bridge sends packets for an address that it has
// not learned to all its ports, and card0 sends nothing from which the bridge could learn.
func (c *cards) behind(n int, card loader.Link) {
	c.Helper()
	c.Must(c.pair.Do(pair.B, func() error {
		far, err := netlink.LinkByName(farNames[n])
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: far.Attrs().Index, Family: unix.AF_BRIDGE,
			State: netlink.NUD_NOARP | netlink.NUD_REACHABLE, Flags: netlink.NTF_MASTER, HardwareAddr: card.MAC})
	}))
}

// isSplit checks by the counters of the bridge's ports that segments have passed one card
// in one direction only.
func (c *cards) isSplit() {
	c.Helper()
	var to, from [2]uint64 // packets to a card, and from it
	c.Must(c.pair.Do(pair.B, func() error {
		for n, name := range farNames {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			to[n], from[n] = link.Attrs().Statistics.TxPackets, link.Attrs().Statistics.RxPackets
		}
		return nil
	}))
	c.Logf("packets to %v: %v, from them: %v", cardNames, to, from)
	const few = 200 // ARP and router solicitations; the bridge repeats what has many receivers
	if to[0] < 1000 || from[1] < 1000 || from[0] > few || to[1] > few {
		c.Errorf("packets to %v: %v, from them: %v", cardNames, to, from)
	}
	if n := c.moved.Load(); n != 0 {
		c.Errorf("%d moves", n)
	}
}

// nothing and slowly are no accidents. With slowly, all rounds of rping are slow.
func (c *cards) nothing(*cards) {}
func (c *cards) slowly(*cards)  { c.until("the last round", func() bool { return c.sofar() >= c.last }) }

// Rounds of rping. While accidents happen a round takes slowRound at least, so that the
// rounds outlast the accidents.
const (
	movedRounds, movedSize = 600, 4096
	slowRound              = 20 * time.Millisecond
)

// rounds runs rounds of rping's exchange by calling one.
func (c *cards) rounds(e *end, rounds int, accidents func(*cards), one func(n int)) {
	c.Helper()
	var done atomic.Uint64
	c.sofar, c.piece, c.last = done.Load, 20, uint64(rounds)
	c.quiet = func() error {
		if done.Load() == uint64(rounds) {
			return fmt.Errorf("all %d rounds were done", rounds)
		}
		return e.qp.Err()
	}
	c.during(accidents)
	for n := range rounds {
		began := time.Now()
		one(n)
		done.Add(1)
		select {
		case <-c.over:
		case <-time.After(slowRound - time.Since(began)):
		}
	}
	<-c.over
}

// pinged runs rping as the client, which compares every octet.
func (c *cards) pinged(rounds int, accidents func(*cards)) {
	c.Helper()
	e := c.newEnd(c.a, movedSize)
	request, client := e.asked(fmt.Sprintf("rping -c -a %s -C %d -S %d -V", ourV4, rounds, movedSize))
	c.Must(request.Accept(e.ctx, e.qp, rdma.ConnParams{}))
	c.rounds(e, rounds, accidents, func(int) { e.serveOnce() })
	e.deserted()
	c.ended(client)
}

// pinging runs rping as the server. stag compares every octet.
func (c *cards) pinging(rounds int, accidents func(*cards)) {
	c.Helper()
	server := c.serveInGuest(rpingPort, fmt.Sprintf("rping -s -a %s -S %d", guestV4, movedSize))
	e := c.newEnd(c.a, movedSize)
	c.Must(e.qp.Dial(e.ctx, netip.AddrPortFrom(ipv4.guest, rpingPort).String(), rdma.ConnParams{}))
	c.rounds(e, rounds, accidents, e.askOnce)
	c.Must(e.qp.Disconnect(e.ctx))
	c.rpingServed(server)
}

// perftestRow matches the row of perftest's results: octets of a message, messages.
var perftestRow = regexp.MustCompile(`(?m)^ *65536 +(\d+) `)

// bandwidth runs perftest's client for some seconds. Its messages have 64 KiB.
func (c *cards) bandwidth(test string, seconds int, accidents func(*cards)) {
	c.Helper()
	p := c.partner()
	c.sofar, c.piece, c.quiet = c.octets, 256<<10, p.broken
	before := c.octets()
	client := c.startInGuest(fmt.Sprintf("ib_%s -R -F -d siw0 -D %d %s", test, seconds, ourV4))
	c.until("perftest connected its QPs", func() bool { return p.connected.Load() == 2 })
	c.during(accidents)
	out := c.ended(client)
	<-c.over
	for range 2 {
		select {
		case err := <-p.ended:
			if err != nil {
				c.Errorf("a connection of perftest has ended by %v", err)
			}
		case <-c.ctx.Done():
			c.Fatal("perftest's connections do not end")
		}
	}
	found := perftestRow.FindStringSubmatch(out)
	if found == nil {
		c.Fatalf("no row of messages of 64 KiB:\n%s", out)
	}
	n, err := strconv.Atoi(found[1])
	c.Must(err)
	total := c.octets() - before
	c.Logf("perftest counts %.1f MiB/s, and %.1f MiB have passed the guest's interface", float64(n)/16/float64(seconds), float64(total)/(1<<20))
	if counted := uint64(n) * 65536; counted > total || counted < total/8 {
		c.Errorf("perftest counts %d octets, and %d have passed its interface:\n%s", counted, total, out)
	}
}

// octets returns how many octets have passed the guest's interface.
func (c *cards) octets() uint64 { return c.passed(tapName) }

// passed returns how many octets have passed TAPs.
func (r *rig) passed(taps ...string) (n uint64) {
	err := r.pair.Do(pair.B, func() error {
		for _, name := range taps {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			n += link.Attrs().Statistics.RxBytes + link.Attrs().Statistics.TxBytes
		}
		return nil
	})
	if err != nil {
		r.Errorf("read the counters of %v: %v", taps, err)
	}
	return n
}
