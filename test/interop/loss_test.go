//go:build interop

package interop

import (
	"fmt"
	"strings"
	"testing"
)

// bad is the netem setting for a direction of the guest's cable. Of 100 packets it
// loses 3, and lets 2 overtake the others, which it delays by a millisecond.
const bad = "loss 3% delay 1ms reorder 2%"

// These are the guest's programs. Its shell has other programs with these names, or
// none.
const (
	tc      = "/sbin/tc"
	ip      = "/sbin/ip"
	ethtool = "/sbin/ethtool"
)

// spoil makes both directions bad until the row ends.
func (r *rig) spoil() {
	r.Helper()
	r.arriving(bad)
	r.Cleanup(func() {
		if r.guest.alive() {
			r.inGuest(tc + " qdisc del dev eth0 root")
		}
	})
	r.inGuest(tc + " qdisc add dev eth0 root netem " + bad)
}

// arriving sets netem for what arrives at the guest, until the row ends. Arriving packets
// take a detour through a device of their own, packet by packet.
func (r *rig) arriving(netem string) {
	r.Helper()
	r.Cleanup(func() {
		if r.guest.alive() {
			r.inGuest(tc + " qdisc del dev eth0 ingress; " + tc + " qdisc del dev ifb0 root")
		}
	})
	r.inGuest(ethtool + " -K eth0 gro off")
	r.inGuest(ip + " link set ifb0 up && " + tc + " qdisc add dev ifb0 root netem " + netem)
	r.inGuest(tc + " qdisc add dev eth0 ingress && " + tc + " filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0")
}

// spoiled checks that packets were lost.
func (r *rig) spoiled() {
	r.Helper()
	all := 0
	for _, device := range []string{"eth0", "ifb0"} {
		said := r.inGuest(tc + " -s qdisc show dev " + device + " root")
		var octets, packets, lost int
		_, sent, _ := strings.Cut(said, "Sent ")
		if n, err := fmt.Sscanf(sent, "%d bytes %d pkt (dropped %d,", &octets, &packets, &lost); n != 3 {
			r.Errorf("%v: tc says\n%s", err, said)
		}
		r.Logf("%s: netem has lost %d packets and let %d pass", device, lost, packets)
		all += lost
	}
	if all == 0 {
		r.Error("nothing was lost: that proves nothing")
	}
}

// TestLoss runs rping's exchange of Sends, Reads and Writes on a bad cable. The client
// compares every octet.
func TestLoss(t *testing.T) {
	for _, p := range []pings{{ipv4, 30, rpingMost}, {ipv6, 20, rpingMost}, {ipv4, 100, 64}} {
		row(t, p.String()+", our client", p.about("rping -s"), func(r *rig) {
			server := r.serveInGuest(rpingPort, fmt.Sprintf("rping -s -a %v -S %d", p.guest, rpingMost))
			r.spoil()
			r.pings(p)
			r.rpingServed(server)
			r.spoiled()
		})
		row(t, p.String()+", our server", p.about("rping -c"), func(r *rig) {
			server := r.serves(r.stag("ping", "-s", "-i", r.port(), "-V", "--json"), "listening on")
			r.spoil()
			r.ended(r.startInGuest(fmt.Sprintf("rping -c -a %v -C %d -S %d -V", p.our, p.rounds, p.size)))
			var got pinged
			r.succeeds(server, &got)
			r.whole(p, got)
			r.spoiled()
		})
	}
}

// lossy are measurements that are short enough for a bad cable. perftest does not
// compare octets, so stag asks for the CRC, which checks every octet.
var lossy = []measurement{
	{"write_bw", "-n 50 -s 20000", 50}, {"read_bw", "-n 50 -s 20000", 50}, {"send_bw", "-n 50 -s 20000", 50},
}

// TestPerftestLoss has many messages in flight at the same time on a bad cable.
func TestPerftestLoss(t *testing.T) {
	for _, m := range lossy {
		for _, side := range []struct {
			role string
			run  func(*rig)
		}{{" client", m.serve}, {" server", m.measure}} {
			row(t, m.String(), m.about(side.role), func(r *rig) {
				r.spoil()
				side.run(r)
				r.spoiled()
			})
		}
	}
}
