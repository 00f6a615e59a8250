//go:build interop

package interop

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const rpingPort = 7174

// These are the limits of rping's option -S, in octets. The smallest size has room for
// the text and the counter. rping's message about the largest size is too high by one.
const rpingLeast, rpingMost = 23, 65535

// pinged holds the fields of `stag ping --json` that the rows use.
type pinged struct {
	Path      string
	Pings     uint64
	Octets    uint64
	Validated bool
	Clients   uint64
	Failed    uint64
}

// pings are rounds of one size over one address family.
type pings struct {
	family
	rounds, size int
}

func (p pings) String() string { return fmt.Sprintf("size %d, %s", p.size, p.name) }

func (p pings) about(peer string) about {
	return about{peer, fmt.Sprintf("%d x %d", p.rounds, p.size)}
}

// The rows have many rounds of the default size, and rounds of special sizes. These are
// rping's limits, full segments with and without further octets, 4 KiB and 16 KiB.
var pingRows = []pings{
	{ipv4, 1000, 64}, {ipv6, 1000, 64},
	{ipv4, 200, rpingLeast}, {ipv4, 200, 1430}, {ipv4, 200, 1431}, {ipv6, 200, 1432}, {ipv4, 200, 4096},
	{ipv4, 200, 16384}, {ipv6, 200, 16385}, {ipv4, 100, rpingMost}, {ipv6, 100, rpingMost},
}

// TestRpingServer tests stag's client with rping as the server. A server of the largest
// size also accepts all smaller sizes, even those that rping's client cannot use.
func TestRpingServer(t *testing.T) {
	small := []pings{{ipv4, 200, 1}, {ipv6, 200, 2}, {ipv4, 200, 3}, {ipv4, 200, 5}}
	for _, p := range append(small, pingRows...) {
		row(t, p.String(), p.about("rping -s"), func(r *rig) {
			server := r.serveInGuest(rpingPort, fmt.Sprintf("rping -s -a %v -S %d", p.guest, rpingMost))
			r.pings(p)
			r.rpingServed(server)
		})
	}
}

// pings runs stag's client, which compares every octet that comes back.
func (r *rig) pings(p pings) {
	r.Helper()
	var got pinged
	r.succeeds(r.stag("ping", "-c", "-a", p.guest.String(), "-i", r.port(), "-C", strconv.Itoa(p.rounds), "-S", strconv.Itoa(p.size), "-V", "--json"), &got)
	r.whole(p, got)
}

// whole checks that all rounds were done, over AF_XDP in native mode.
func (r *rig) whole(p pings, got pinged) {
	r.Helper()
	if got.Pings != uint64(p.rounds) || got.Octets != uint64(p.rounds*p.size) || !got.Validated || !strings.Contains(got.Path, "native") {
		r.Errorf("%+v, want %d pings of %d octets, validated, in native mode", got, p.rounds, p.size)
	}
}

// rpingServed waits for the end of rping's server. The server ends with its client. Its
// only message is then that it was waiting for another ping.
func (r *rig) rpingServed(server *job) {
	r.Helper()
	out, code, err := server.end(patience)
	r.Must(err)
	if !strings.Contains(out, "server DISCONNECT EVENT") {
		r.Errorf("%s: exit code %d\n%s", server.command, code, out)
	}
}

// TestRpingClient tests rping as the client with stag's server. Both compare the octets
// that they receive.
func TestRpingClient(t *testing.T) {
	for _, p := range pingRows {
		row(t, p.String(), p.about("rping -c"), func(r *rig) {
			server := r.serves(r.stag("ping", "-s", "-i", r.port(), "-V", "--json"), "listening on")
			r.ended(r.startInGuest(fmt.Sprintf("rping -c -a %v -C %d -S %d -V", p.our, p.rounds, p.size)))
			var got pinged
			r.succeeds(server, &got)
			r.whole(p, got)
		})
	}
}
