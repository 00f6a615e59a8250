//go:build interop

package interop

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const rpingPort = 7174

// What -S of rping takes, octets. The least has room for its text and counter; of
// the most it says that it is one more.
const rpingLeast, rpingMost = 23, 65535

// pinged is what `stag ping --json` prints, as far as rows look at it.
type pinged struct {
	Path      string
	Pings     uint64
	Octets    uint64
	Validated bool
	Clients   uint64
	Failed    uint64
}

// pings are rounds of a size, by an address family.
type pings struct {
	family
	rounds, size int
}

func (p pings) String() string { return fmt.Sprintf("size %d, %s", p.size, p.name) }

func (p pings) about(peer string) about {
	return about{peer, fmt.Sprintf("%d x %d", p.rounds, p.size)}
}

// The usual size many times, and sizes around what is special: rping's limits, a
// segment with and without octets to fill it up, 4 and 16 KiB.
var pingRows = []pings{
	{ipv4, 1000, 64}, {ipv6, 1000, 64},
	{ipv4, 200, rpingLeast}, {ipv4, 200, 1430}, {ipv4, 200, 1431}, {ipv6, 200, 1432}, {ipv4, 200, 4096},
	{ipv4, 200, 16384}, {ipv6, 200, 16385}, {ipv4, 100, rpingMost}, {ipv6, 100, rpingMost},
}

// TestRpingServer: our client, and rping as the server. A server of the largest
// size takes all smaller ones, also those that rping's client could not do.
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

// pings runs our client, which compares every octet that comes back.
func (r *rig) pings(p pings) {
	r.Helper()
	var got pinged
	r.succeeds(r.stag("ping", "-c", "-a", p.guest.String(), "-i", r.port(), "-C", strconv.Itoa(p.rounds), "-S", strconv.Itoa(p.size), "-V", "--json"), &got)
	r.whole(p, got)
}

// whole demands that all rounds were done, over AF_XDP in native mode.
func (r *rig) whole(p pings, got pinged) {
	r.Helper()
	if got.Pings != uint64(p.rounds) || got.Octets != uint64(p.rounds*p.size) || !got.Validated || !strings.Contains(got.Path, "native") {
		r.Errorf("%+v, want %d pings of %d octets, validated, in native mode", got, p.rounds, p.size)
	}
}

// rpingServed waits for the end of rping's server. It ends with its client, and
// has no other way to say so than the event that it waited for another ping.
func (r *rig) rpingServed(server *job) {
	r.Helper()
	out, code, err := server.end(patience)
	r.Must(err)
	if !strings.Contains(out, "server DISCONNECT EVENT") {
		r.Errorf("%s: exit code %d\n%s", server.command, code, out)
	}
}

// TestRpingClient: rping as the client, which compares every octet that comes
// back, and our server, which compares what it reads.
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
