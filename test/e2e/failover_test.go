package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/need"
)

// These tests run the recipes of docs/failover.md. Programs that know nothing of stag decide
// when a connection moves.

// site is a rig whose local side has the interfaces eth1 and eth2, as the recipes have it.
type site struct {
	*cards
	us, them node
}

// newSite makes a rig without interfaces.
func newSite(t *testing.T) *site {
	t.Helper()
	h := &site{cards: &cards{rig: newStage(t, setup{})}}
	h.us, h.them = bare(h.rig)
	return h
}

// service is a connection of a host. The peer sends without pause until the end, and the
// local end sends everything back. So a path that is dead in one direction only silences
// the peer's application.
type service struct {
	*site
	running
	echo *octets.Echo
}

// serve opens both interfaces, connects the given addresses and takes the connection over.
func (h *site) serve(w way, our, peer string) *service {
	h.Helper()
	h.open(0, "eth1", "eth2")
	for side, a := range []string{our, peer} {
		h.pair.Ends[side].V4 = netip.MustParsePrefix(a)
	}
	ourEnd, peerEnd := h.connect(w)
	s := &service{site: h, echo: octets.NewEcho()}
	s.running = running{rig: h.rig, peer: &talk{conn: peerEnd, out: seedTheirs, in: seedTheirs, send: 1 << 40, halfShut: true,
		pace: func(uint64) { time.Sleep(time.Millisecond) }}}
	s.peer.start()
	s.flow = h.take(ourEnd, s.echo)
	return s
}

// moves lets something happen, waits until the connection is at the card and goes on there,
// and logs for how long nothing reached the peer's application.
func (s *service) moves(what string, card int, happen func()) {
	s.site.Helper()
	s.peer.gap.Store(0)
	before := s.total()
	happen()
	s.at(s.running, card)
	s.goesOn()
	s.site.Logf("%s: the connection is at %s after %d moves, the peer heard nothing for %v", what, []string{"eth1", "eth2"}[card],
		s.total()-before, time.Duration(s.peer.gap.Load()).Round(time.Millisecond))
}

// end closes the connection in good order. Every octet has come back.
func (s *service) end() {
	s.site.Helper()
	s.peer.enough.Store(true)
	s.site.Must(<-s.peer.wrote)
	s.site.Wait(s.echo.Done(), "the end of the connection")
	s.site.Must(s.echo.Err())
	s.site.Must(<-s.peer.read)
	if sent, back := s.peer.sent.Load(), s.peer.received.Load(); back != sent {
		s.site.Errorf("the peer sent %d octets, and got %d back", sent, back)
	}
	if f := s.flow.Final(); f.ResetsIn+f.ResetsOut != 0 {
		s.site.Errorf("%d resets came, %d were sent", f.ResetsIn, f.ResetsOut)
	}
	s.site.Logf("%d octets both ways, %d moves", s.peer.sent.Load(), s.total())
}

// TestRecipeStatic pulls the first cable of a host with two static routes, and puts it back.
// The peer answers over the same cable, or over the second one from the handshake on.
func TestRecipeStatic(t *testing.T) {
	t.Parallel()
	for _, paths := range []string{"symmetric", "asymmetric"} {
		t.Run(paths, func(t *testing.T) {
			h := newSite(t)
			h.us.cableTo(h.them, "eth1", "p1")
			h.us.cableTo(h.them, "eth2", "p2")
			h.us.run(recipe(t, "sh static"))
			h.them.run(mirrored(t, recipe(t, "sh static")))
			back := "ip link set p1 up"
			if paths == "asymmetric" {
				h.them.run("ip route del 203.0.113.0/24 metric 10")
			} else {
				back += "; ip route add 203.0.113.0/24 via 192.0.2.2 dev p1 src 198.51.100.20 metric 10"
			}
			s := h.serve(way{}, "203.0.113.10/32", "198.51.100.20/24")
			for range 3 {
				s.moves("cable pulled", 1, func() { h.them.run("ip link set p1 down") })
				s.moves("cable back", 0, func() { h.them.run(back) })
			}
			s.end()
		})
	}
}

// mirrored returns the recipe of static routes for the peer, which is both routers, too.
func mirrored(t testing.TB, script string) string {
	t.Helper()
	return put(t, script, "eth1", "p1", "eth2", "p2", "203.0.113.10/32", "198.51.100.20/32", "203.0.113.10 ", "198.51.100.20 ", "198.51.100.0/24", "203.0.113.0/24",
		"192.0.2.2/", "192.0.2.1/", "192.0.2.130/", "192.0.2.129/", "192.0.2.1 ", "192.0.2.2 ", "192.0.2.129 ", "192.0.2.130 ")
}

// TestRecipeKeepalived lets keepalived move a virtual address between two interfaces on one
// network. Nothing else tells the peer or stag.
func TestRecipeKeepalived(t *testing.T) {
	t.Parallel()
	need.Tool(t, "keepalived")
	h := newSite(t)
	h.us.cableTo(h.them, "eth1", "p1")
	h.us.cableTo(h.them, "eth2", "p2")
	h.them.run("ip link add lan type bridge; ip link set p1 master lan; ip link set p2 master lan; ip addr add 192.0.2.20/24 dev lan; ip link set lan up")
	h.us.run(recipe(t, "sh keepalived"))
	h.us.keepalived(recipe(t, "conf keepalived"))
	h.us.has("eth1", "192.0.2.10")
	s := h.serve(way{accept: true}, "192.0.2.10/24", "192.0.2.20/24")
	for range 3 {
		s.moves("cable pulled", 1, func() { h.them.run("ip link set p1 down") })
		s.moves("cable back", 0, func() { h.them.run("ip link set p1 up") })
	}
	s.moves("interface down", 1, func() { h.us.run("ip link set eth1 down") })
	s.moves("interface up", 0, func() { h.us.run("ip link set eth1 up") })
	s.end()
}

// keepalived starts keepalived with a configuration.
func (n node) keepalived(conf string) {
	n.Helper()
	name := n.TempDir() + "/keepalived.conf"
	n.write(name, conf)
	n.start("keepalived", `exec keepalived --vrrp --dont-fork --log-console --log-detail --use-file "$1"`, name)
}

// has waits until an interface of the node has an address.
func (n node) has(link, address string) {
	n.Helper()
	n.Eventually(link+" has "+address, func() bool {
		out := n.output("ip", "-o", "addr", "show", "dev", link, "to", address)
		return out != ""
	})
}

// TestRecipeFRR lets BGP with BFD withdraw the path over one of two routers: the router
// loses its way to the peer, its daemons die, or the host's cable is pulled.
func TestRecipeFRR(t *testing.T) {
	t.Parallel()
	h := newSite(t)
	r := newRouterPair(h)
	s := h.serve(way{}, "203.0.113.10/32", "203.0.113.20/32")
	for range 2 {
		s.moves("the router's link to the peer down", 1, func() { r.node[0].run("ip link set p0 down") })
		s.moves("the router's link to the peer up", 0, func() { r.node[0].run("ip link set p0 up") })
	}
	s.moves("the router's daemons killed", 1, func() { r.daemons[0].kill() })
	s.moves("the router's daemons started", 0, func() { r.startRouter(0) })
	s.moves("cable pulled", 1, func() { r.node[0].run("ip link set h0 down") })
	s.moves("cable back", 0, func() { r.node[0].run("ip link set h0 up") })
	s.end()
}

// routerPair is two routers between the sides of a host. Each side runs FRR, too.
type routerPair struct {
	*site
	node    [2]node
	daemons [2]*daemons
	conf    [2]string
}

func newRouterPair(h *site) *routerPair {
	h.Helper()
	need.Tool(h.TB, "vtysh", frrDir+"zebra", frrDir+"bgpd", frrDir+"bfdd")
	r := &routerPair{site: h}
	r.node[0], r.node[1] = bare(newStage(h.TB, setup{}))
	for i, n := range r.node {
		h.us.cableTo(n, []string{"eth1", "eth2"}[i], "h0")
		h.them.cableTo(n, []string{"eth1", "eth2"}[i], "p0")
	}
	r.conf[0] = recipe(h, "conf router")
	r.conf[1] = put(h, r.conf[0], "192.0.2.1\n", "192.0.2.129\n", "192.0.2.2 ", "192.0.2.130 ", "198.51.100.2 ", "198.51.100.130 ")
	r.node[0].run("sysctl -w net.ipv4.ip_forward=1; ip addr add 192.0.2.1/30 dev h0; ip addr add 198.51.100.1/30 dev p0")
	r.node[1].run("sysctl -w net.ipv4.ip_forward=1; ip addr add 192.0.2.129/30 dev h0; ip addr add 198.51.100.129/30 dev p0")
	far := []string{"192.0.2.", "198.51.100.", "203.0.113.10", "203.0.113.20"}
	h.us.run(recipe(h, "sh frr"))
	h.them.run(put(h, recipe(h, "sh frr"), far...))
	h.us.frr(recipe(h, "conf frr"))
	h.them.frr(put(h, recipe(h, "conf frr"), append(far, "65001", "65002")...))
	for i := range r.node {
		r.startRouter(i)
	}
	h.us.routed("203.0.113.20", "eth1")
	h.them.routed("203.0.113.10", "eth1")
	return r
}

func (r *routerPair) startRouter(i int) { r.daemons[i] = r.node[i].frr(r.conf[i]) }

// frrDir is where Debian puts the daemons of FRR.
const frrDir = "/usr/lib/frr/"

// frr starts the daemons of FRR with a configuration, as their service does: zebra first,
// because the others try again only after 10 s if it does not answer. The argument is the
// file.
const frr = `
install -d -o frr -g frr /run/frr /var/tmp/frr
for name in zebra bfdd bgpd; do
	/usr/lib/frr/$name --log stdout --log-level notifications &
	until vtysh -d $name -c 'show version'; do sleep 0.1; done > /run/ready 2>&1
done
vtysh -f "$1"
echo configured
wait
`

func (n node) frr(conf string) *daemons {
	n.Helper()
	name := n.TempDir() + "/frr.conf"
	n.write(name, conf)
	d := n.start("FRR", frr, name)
	d.says("configured")
	return d
}

// routed waits until the node's route to an address has led through an interface for some
// time. While daemons start, BFD may take one for dead that is only slow.
func (n node) routed(to, link string) {
	n.Helper()
	since := time.Time{}
	n.Eventually("the route to "+to+" leads through "+link, func() bool {
		time.Sleep(20 * time.Millisecond)
		switch {
		case n.output("ip", "route", "show", "exact", to, "dev", link) == "":
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > 2*time.Second
	})
}
