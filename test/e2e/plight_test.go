package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/tcp"
	common "github.com/stag-rdma/stag/test/rig"
)

// plightWait limits how long a failed test asks an engine for the state of a connection. The
// engine may be what hangs.
const plightWait = 2 * time.Second

// explained makes a failed test print where its transfer is: both ends, the connection, and
// what the kernels know about the way. Goroutines do not tell why packets do not flow.
func (t running) explained() running {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("where the transfer is:\n%s%s", t.ends(), t.kernels())
		}
	})
	return t
}

// ends describes both ends of the transfer and the connection.
func (t running) ends() string {
	ctx, cancel := context.WithTimeout(context.Background(), plightWait)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "we have received %d octets, and the peer %d of %d; the peer has sent %d\n",
		t.ulp.Received(), t.peer.received.Load(), t.volume, t.peer.sent.Load())
	n := t.flow.NIC()
	fmt.Fprintf(&b, "%v at %s: lost %t, down %t, barred %t; way %+v\n", t.flow.Key(), n.Link().Name, n.Lost(), n.Down(), n.Barred(), t.flow.Way())
	// Info and Stats of a Flow wait for the end of a move, which may be what hangs.
	var info tcp.Info
	var stats tcp.Stats
	e := t.flow.Engine()
	err := e.Inspect(ctx, t.flow.ID(), func(c *tcp.Conn) { info, stats = c.Info(), c.Stats() })
	if err == nil {
		fmt.Fprintf(&b, "%+v\n%+v\n", info, stats)
	} else {
		fmt.Fprintf(&b, "connection not seen: %v\n", err)
	}
	counters, err := e.Counters(ctx)
	fmt.Fprintf(&b, "lane %d: %+v, %v\n", e.Lane(), counters, err)
	return b.String()
}

// kernels describes links, routes, neighbours and connections of both sides. If a test has
// several transfers, only the first call returns something.
func (r *rig) kernels() string {
	if r.shown {
		return ""
	}
	r.shown = true
	var b strings.Builder
	for _, side := range []pair.Side{ours, theirs} {
		for _, args := range []string{"ip -s link", "ip -br addr", "ip route", "ip neigh", "ss -tine"} {
			err := r.pair.Do(side, func() error {
				words := strings.Fields(args)
				out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
				fmt.Fprintf(&b, "side %v: %s\n%s", side, args, out)
				return err
			})
			if err != nil {
				fmt.Fprintf(&b, "%s: %v\n", args, err)
			}
		}
	}
	return b.String()
}

// logged returns a logger whose lines a failed test prints.
func (r *rig) logged() *slog.Logger {
	out := new(common.Output)
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("the log of stag:\n%s", out)
		}
	})
	return slog.New(slog.NewTextHandler(out, nil))
}
