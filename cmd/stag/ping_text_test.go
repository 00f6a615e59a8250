package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// pingVolatile are the parts that differ between pings: addresses and keys of memory, durations, and what the adapter
// logs with -v.
var pingVolatile = []struct {
	volatile *regexp.Regexp
	mask     string
}{
	{regexp.MustCompile(`at 0x[0-9a-f]+, key 0x[0-9a-f]+`), "at ADDRESS, key STAG"},
	{regexp.MustCompile(`\b\d+\.\d/\d+\.\d/\d+\.\d us \(min`), "MIN/AVG/MAX us (min"},
	{regexp.MustCompile(`\b\d+\.\d/\d+\.\d/\d+\.\d us \(50%`), "P50/P99/P99.9 us (50%"},
	{regexp.MustCompile(`octets, \d+\.\d us`), "octets, TIME us"},
	{regexp.MustCompile(`"(seconds|min|avg|max|p50|p99|p99_9)": [\d.e+-]+`), `"$1": N`},
	{regexp.MustCompile(`(?m)^time=.* level=.*\n`), ""},
}

func maskedPing(text string) string {
	for _, m := range pingVolatile {
		text = m.volatile.ReplaceAllString(text, m.mask)
	}
	return mask(text)
}

// pingEnds are a listening server and a client of it.
type pingEnds struct {
	server *running
	client func(args ...string) result
}

func pingOnLoopback(t *testing.T, args ...string) pingEnds {
	port := freePort(t)
	return pingEnds{
		listening(t, onLoopback(t, port, append(args, "-s")...)),
		func(args ...string) result { return run(t, onLoopback(t, port, append(args, "-c")...)) },
	}
}

func pingAcrossPair(t *testing.T, args ...string) (e pingEnds) {
	need.XDP(t)
	p := netns.XDPPair(t, pair.Config{})
	at := func(side pair.Side, args []string) *exec.Cmd {
		return command(t, append([]string{"ping", "-i", p.Ends[side].Name, "-a", p.Ends[pair.B].V4.Addr().String()}, args...)...)
	}
	rig.Must(t, p.Do(pair.B, func() error { e.server = listening(t, at(pair.B, append(args, "-s"))); return nil }))
	e.client = func(args ...string) result { return inside(t, p, at(pair.A, append(args, "-c"))) }
	return e
}

// TestPingText: the full text of both ends, over the kernel's TCP and offloaded, and the summary as JSON.
func TestPingText(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, ...string) pingEnds{"kernel": pingOnLoopback, "pair": pingAcrossPair} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, "-V", "-d", "-v")
			r := e.client("-C", "2", "-S", "24", "-V", "-d", "-v")
			r.ends(t, 0)
			// The server's lines come from two streams, which are joined here. The client's streams are kept apart.
			golden(t, "ping_server_"+name, maskedPing(e.server.all(0)+"\n"))
			golden(t, "ping_client_"+name, maskedPing(r.stdout))
			golden(t, "ping_client_steps_"+name, maskedPing(r.stderr))

			e = serve(t, "--json")
			r = e.client("-C", "2", "--json", "-V")
			r.ends(t, 0)
			schema(t, "ping", r.stdout)
			golden(t, "ping_json_"+name, maskedPing(r.stdout))
			e.server.all(0)
			schema(t, "ping", jsonOf(e.server.said))
		})
	}
}

// jsonOf returns the JSON that follows lines of text.
func jsonOf(said []string) string {
	for i, line := range said {
		if line == "{" {
			return strings.Join(said[i:], "\n")
		}
	}
	return ""
}
