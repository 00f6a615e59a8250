package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/cmd/stag/internal/ping"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestCarrierMistakes: contradictions between the flags of the carrier are mistakes of the
// command line, and the message names the flags.
func TestCarrierMistakes(t *testing.T) {
	for args, says := range map[string]string{
		"ping -s -i eth1 --carrier xdp":                  "choose auto, afxdp, kernel",
		"ping -s -i eth1 --for speed":                    "choose latency or throughput",
		"ping -s --kernel-port --carrier auto":           "--kernel-port and --carrier auto",
		"ping -s --kernel-port --for latency":            "--for says what --carrier auto weighs",
		"ping -s -i eth1 --carrier afxdp --for latency":  "--for says what --carrier auto weighs",
		"ping -s --carrier afxdp":                        "needs an interface: -i",
		"ping -s --daemon --carrier auto":                "--daemon, and -i, --carrier",
		"perf write_bw --carrier afxdp":                  "needs an interface: -d",
		"perf write_bw --daemon=/x --for throughput":     "--daemon, and -d, --carrier",
		"perf write_bw --carrier kernel --generic":       "--generic and --kernel-port",
		"daemon --carrier afxdp":                         "needs an interface: -i",
		"run --carrier kernel --for throughput -- true":  "--for says what",
		"demo --carrier kernel --mtu 1500":               "--mtu",
		"iscsi ls iscsi://192.0.2.1 --carrier afxdp":     "needs an interface: -i",
		"iscsi ls iscsi://192.0.2.1 --kernel-port -i a":  "choose one",
		"iscsi ls iscsi://192.0.2.1 --for x":             "choose latency or throughput",
		"demo iscsi --kernel-port --carrier afxdp":       "choose one",
		"perf send_lat --carrier kernel --for latency h": "--for says what",
	} {
		r := run(t, command(t, strings.Fields(args)...))
		if r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: exit code %d, %q", args, r.code, r.stderr)
		}
	}
}

// TestCarrierAuto: without a wish on the command line perf chooses by its test. Over veth a
// test of throughput then runs over the kernel's TCP, also if an interface is named, and
// a test of latency over AF_XDP. Each end prints what it has chosen. The two ends need not
// have the same carrier.
func TestCarrierAuto(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	for _, c := range []struct {
		server, client, carrier string
		says                    string
	}{
		{"write_bw -n 20 --carrier auto", "write_bw -n 20 --carrier afxdp", "kernel", "carrier kernel: driver veth has no zero copy"},
		{"read_lat -n 20 --carrier auto", "read_lat -n 20 --carrier kernel", "afxdp", "carrier afxdp: it has the lower latency"},
		{"send_bw -n 20 --for latency", "send_bw -n 20 --for throughput", "afxdp", "carrier afxdp: it has the lower latency"},
	} {
		at := func(side pair.Side, args string, more ...string) *exec.Cmd {
			return command(t, append(append([]string{"perf"}, append(strings.Fields(args), "-d", p.Ends[side].Name)...), more...)...)
		}
		var server *running
		rig.Must(t, p.Do(pair.B, func() error { server = launch(t, at(pair.B, c.server, "--json")); return nil }))
		server.until("carrier ")
		if said := server.said[len(server.said)-1]; !strings.Contains(said, c.says) {
			t.Errorf("%s: the server says %q", c.server, said)
		}
		var other perf.Result
		rig.Eventually(t, "the server listens", func() bool {
			r := inside(t, p, at(pair.A, c.client, "--json", p.Ends[pair.B].V4.Addr().String()))
			if r.code != 0 && strings.Contains(r.stderr, "refused") {
				return false
			}
			schema(t, "perf", r.stdout)
			other = decode[perf.Result](t, r, 0)
			return true
		})
		if other.Info.Carrier == c.carrier || other.Info.Carrier == "" || other.Info.Why == "" {
			t.Errorf("%s: the client has %q, %q", c.client, other.Info.Carrier, other.Info.Why)
		}
		server.all(0)
	}
}

// TestCarrierWithoutRights: with --carrier auto a user without rights gets the kernel's TCP
// and the reason. With --carrier afxdp the same is an error that names what is missing.
func TestCarrierWithoutRights(t *testing.T) {
	anyone := func(args ...string) *exec.Cmd {
		cmd := command(t, args...)
		if os.Geteuid() == 0 {
			as(cmd)
		}
		return cmd
	}
	port := freePort(t)
	s := listening(t, anyone("ping", "-s", "-i", "lo", "-a", "127.0.0.1", "-p", port, "--carrier", "auto"))
	if said := strings.Join(s.said, "\n"); !strings.Contains(said, "carrier kernel: AF_XDP needs") || !strings.Contains(said, "CAP_BPF") {
		t.Errorf("the server says %q", said)
	}
	r := run(t, anyone("ping", "-c", "-a", "127.0.0.1", "-p", port, "-C", "3", "--for", "latency", "--json"))
	schema(t, "ping", r.stdout)
	if got := decode[ping.Result](t, r, 0); got.Carrier != "kernel" || got.Why != "no interface is named" || got.Path != "kernel port" {
		t.Errorf("%+v", got)
	}
	s.all(0)
	x := launch(t, anyone("ping", "-s", "-i", "lo", "-p", port, "--carrier", "afxdp"))
	x.all(exitFailed)
	complaint(t, x.said, "ping: ", "AF_XDP is asked for by name", "CAP_BPF", "--carrier kernel")
	if r := run(t, anyone("demo", "--carrier", "afxdp", "--size", "1")); r.code != exitFailed || !strings.Contains(r.stderr, "AF_XDP is asked for by name") {
		t.Errorf("demo: %d, %q", r.code, r.stderr)
	}
}
