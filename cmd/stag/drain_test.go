package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/drain"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// twoPorts is a run of stag perf between two adapters of two ports each.
type twoPorts struct {
	*testing.T
	pair           *pair.Pair
	ports          [2][2]string // names by side and cable
	server, client *running
}

const perfQPs = 3

// newTwoPorts starts stag perf write_bw on side A, towards side B. All traffic takes the
// first cable.
func newTwoPorts(t *testing.T) *twoPorts {
	t.Helper()
	need.Root(t)
	x := &twoPorts{T: t, pair: netns.XDPPair(t, pair.Config{})}
	second := netns.SecondCable(t, x.pair)
	for side := range x.ports {
		x.ports[side] = [2]string{x.pair.Ends[side].Name, second.Names[side]}
	}
	perf := func(side pair.Side, more ...string) *running {
		var r *running
		args := append([]string{"perf", "write_bw", "--device", strings.Join(x.ports[side][:], ","), "--run_infinitely", "-D", "0.2", "-q", fmt.Sprint(perfQPs)}, more...)
		rig.Must(t, x.pair.Do(side, func() error { r = launch(t, command(t, args...)); return nil }))
		return r
	}
	x.server = perf(pair.B)
	x.server.until("Waiting for client")
	x.client = perf(pair.A, x.pair.Ends[pair.B].V4.Addr().String())
	x.client.until(" 65536 ")
	for _, r := range []*running{x.server, x.client} {
		go func() { // reads on, so that the command does not block
			for range r.lines {
			}
		}()
	}
	return x
}

func (x *twoPorts) pid(r *running) string { return strconv.Itoa(r.cmd.Process.Pid) }

func (x *twoPorts) stag(args ...string) result {
	x.Helper()
	return run(x.T, command(x.T, args...))
}

// shown returns the ports of a process by name.
func (x *twoPorts) shown(r *running) map[string]report.Port {
	x.Helper()
	got := x.stag("show", "ports", "--json", "-p", x.pid(r))
	got.ends(x.T, 0)
	schema(x.T, "show-ports", got.stdout)
	var rows []report.Port
	rig.Must(x.T, json.Unmarshal([]byte(got.stdout), &rows))
	all := map[string]report.Port{}
	for _, p := range rows {
		all[p.Device] = p
	}
	if len(all) != 2 {
		x.Fatalf("%d ports: %s", len(all), got.stdout)
	}
	return all
}

// TestDrain: another process drains a port under a running stag perf. Its connections go
// on at the other port, and come back after --undo. Ports, flows, metrics and a capture
// show it.
func TestDrain(t *testing.T) {
	need.Tool(t, "tshark")
	x := newTwoPorts(t)
	first, second := x.ports[pair.A][0], x.ports[pair.A][1]
	is := func(p report.Port, state string, flows int, in, out uint64) {
		t.Helper()
		if p.State != state || p.Flows != flows || p.MovesIn != in || p.MovesOut != out || p.MovesFailed != 0 || p.Addresses == 0 {
			t.Errorf("%+v, want %s, %d flows, %d came and %d left", p, state, flows, in, out)
		}
	}
	before := x.shown(x.client)
	flows := before[first].Flows // the QPs and the connection that controls the run
	if flows < perfQPs {
		t.Fatalf("%d connections: %v", flows, before)
	}
	n := uint64(flows)
	is(before[first], "up", flows, 0, 0)
	is(before[second], "up", 0, 0, 0)

	file := filepath.Join(t.TempDir(), "moves.pcapng")
	d := dumping(t, 2, "-p", x.pid(x.client), "-w", file, "-s", "128")
	contains(t, x.drained("drain", first), first+" of pid "+x.pid(x.client)+" (stag), adapter 1: drained: "+fmt.Sprint(flows)+" connections moved\n")
	after := x.shown(x.client)
	is(after[first], "drained", 0, 0, n)
	is(after[second], "up", flows, n, 0)
	if p := after[second]; p.Last != "in" || p.LastPort != first || p.LastCause != "drain" || p.LastAge == nil {
		t.Errorf("%+v", p)
	}
	contains(t, x.stag("show", "ports", first).stdout, "port "+first+" state drained ", " last to "+second+" by drain ")

	// The peer does not follow: its connections stay at its first port, and their segments arrive at its second one.
	far := x.ports[pair.B]
	rig.Eventually(t, "the peer sees where segments arrive", func() bool {
		return strings.Contains(x.stag("show", "flows", "-p", x.pid(x.server)).stdout, " arrives "+far[1]+" ")
	})
	is(x.shown(x.server)[far[0]], "up", flows, 0, 0)
	rig.Eventually(t, "almost all segments of the peer are foreign", func() bool { return x.shown(x.server)[far[0]].Foreign > 90 })

	all := parseSeries(t, x.stag("metrics", "--once").stdout)
	pid := x.pid(x.client)
	all.is(t, float64(flows), "flows_moved_total", "pid", pid, "device", first, "cause", "drain")
	all.is(t, 0, "flows_moved_total", "pid", pid, "device", first, "cause", "route")
	all.is(t, float64(flows), "flows_moved_in_total", "pid", pid, "device", second)
	all.is(t, 1, "port_drained", "pid", pid, "device", first)
	all.is(t, 1, "port_drains_total", "pid", pid, "device", first)
	for _, m := range all["stag_flow_move_frozen_seconds"].GetMetric() {
		if h := m.GetHistogram(); h.GetSampleCount() != 0 && (h.GetSampleCount() != n || h.GetSampleSum() <= 0) {
			t.Errorf("%v", h)
		}
	}

	d.interrupt()
	marks := map[string]int{}
	for _, row := range fields(t, file, "frame.interface_name", "frame.comment") {
		if strings.Contains(row[1], "moved from "+first+" to "+second+" by drain, frozen for ") {
			marks[row[0]]++
		}
	}
	if marks[second] != flows {
		t.Errorf("marks by device: %v, want %d at %s", marks, flows, second)
	}

	r := x.stag("drain", "--undo", first, "-p", pid, "--json")
	r.ends(t, 0)
	schema(t, "drain", r.stdout)
	rig.Eventually(t, "the connections come back", func() bool { p := x.shown(x.client); return p[first].Flows == flows && p[first].State == "up" })
	is(x.shown(x.client)[second], "up", 0, n, n)
	r = x.stag("drain", first, "--json")
	r.ends(t, 0)
	schema(t, "drain", r.stdout)
	if got := decode[drain.Result](t, r, 0); got.Moved != flows || got.Stayed+got.Ended != 0 || got.Device != first || !got.Done {
		t.Errorf("%+v", got)
	}
	x.end()
}

// end interrupts both ends, which must still run.
func (x *twoPorts) end() {
	x.Helper()
	for _, r := range []*running{x.client, x.server} {
		rig.Must(x.T, r.cmd.Process.Signal(os.Interrupt))
	}
	for _, r := range []*running{x.client, x.server} {
		r.cmd.Wait() // the end that is interrupted later may see the other one go
	}
}

// drained runs a command that must succeed, and returns its output.
func (x *twoPorts) drained(args ...string) string {
	x.Helper()
	r := x.stag(args...)
	r.ends(x.T, 0)
	return r.stdout
}

// TestDrainCannot: the last port that works cannot be drained empty. The command says
// which connections stay and why, and exits with 1. Other users may not drain.
func TestDrainCannot(t *testing.T) {
	x := newTwoPorts(t)
	first, second := x.ports[pair.A][0], x.ports[pair.A][1]
	x.stag("drain", second, "--adapter", "1").ends(t, 0)
	r := x.stag("drain", first)
	r.ends(t, exitFailed)
	contains(t, r.stdout, "drained: 0 connections moved, ", " cannot move\n  flow 0x", " stays: no other port is up\n")
	r = x.stag("drain", first, "--json")
	r.ends(t, exitFailed)
	schema(t, "drain", r.stdout)
	for words, r := range map[string]result{
		"no adapter has the port wlan9: there is ":   x.stag("drain", "wlan9"),
		"no process has an adapter 7: stag show":     x.stag("drain", first, "--adapter", "7"),
		"drain: no such engine":                      x.stag("drain", first, "-p", "1"),
		"not allowed to look into the engine of pid": run(t, as(command(t, "drain", first, "--all-users"))),
	} {
		if r.code != exitFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, words) {
			t.Errorf("exit code %d, printed %q; want %q", r.code, r.stderr, words)
		}
	}
	for _, args := range []string{"drain", "drain a b", "drain a -p 0", "drain a --adapter 0"} {
		x.stag(strings.Fields(args)...).ends(t, exitUsage)
	}
	x.end()
}
