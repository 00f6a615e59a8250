package main

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/cmd/stag/internal/ping"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestDefaultVeth: ping and every perf test work on a veth with the default settings of `ip link add`, between an
// offloaded interface and the kernel's TCP.
func TestDefaultVeth(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{ChecksumOffload: true})
	over := func(side pair.Side, command string) []string {
		switch {
		case side == pair.B:
			return []string{"--kernel-port"}
		case command == "ping":
			return []string{"-i", p.Ends[side].Name}
		}
		return []string{"-d", p.Ends[side].Name}
	}
	serve := func(side pair.Side, ready string, args ...string) (s *running) {
		rig.Must(t, p.Do(side, func() error { s = launch(t, command(t, args...)); return nil }))
		s.until(ready)
		return s
	}
	for _, side := range []pair.Side{pair.A, pair.B} { // side of the server
		host := p.Ends[side].V4.Addr().String()
		s := serve(side, "listening on ", append([]string{"ping", "-s", "-V"}, over(side, "ping")...)...)
		r := at(t, p, 1-side, append([]string{"ping", "-c", "-C", "20", "-S", "60000", "-V", "--json", "-a", host}, over(1-side, "ping")...)...)
		if r := decode[ping.Result](t, r, 0); r.Pings != 20 {
			t.Errorf("%+v", r)
		}
		s.all(0)
		for _, test := range perf.Tests {
			args := []string{"perf", string(test), "-n", "100", "-s", "20000", "--verify"}
			s := serve(side, "Waiting for client", append(args, over(side, "perf")...)...)
			r := at(t, p, 1-side, append(append(args, over(1-side, "perf")...), "--json", host)...)
			measured(t, decode[perf.Result](t, r, 0), test.Latency(), 100, 20000)
			s.all(0)
		}
	}
}
