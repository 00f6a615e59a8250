package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/show"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// showMasks are the volatile parts of the text of a live engine that mask does not cover. Numbers that ss prints only
// if they are not 0 are removed.
var showMasks = []struct {
	volatile *regexp.Regexp
	mask     string
}{
	{regexp.MustCompile(`pid=\d+`), "pid=PID"},
	{regexp.MustCompile(`fe80:\S+`), "LINKLOCAL"},
	{regexp.MustCompile(`(?:[0-9a-f]{2}:){5}[0-9a-f]{2}`), "MAC"},
	{regexp.MustCompile(`\bvia:(\S+)`), "via $1"}, // keeps the address: a later expression would take it for a number with a name
	{regexp.MustCompile(`\b0x[0-9a-f]+`), "HEX"},
	{regexp.MustCompile(`ESTAB +\d+ +\d+`), "ESTAB N N"},
	{regexp.MustCompile(`(ifindex|netns_cookie|program_id|heap_free):\s+\d+`), "$1: N"},
	{regexp.MustCompile(`\b([a-z_][a-z_0-9.]*): ?\d+(\.\d+)?(/\d+(\.\d+)?)?s?\b`), "$1:N"},
	{regexp.MustCompile(` (backoff|unacked|retrans|dsack_dups|rcv_ooopack|timeouts|recoveries|ssthresh_bytes):N`), ""},
	{regexp.MustCompile(` netns[ :](pid:N|cookie:N)`), " netns SPACE"},
	{regexp.MustCompile(` recovering`), ""},
	{regexp.MustCompile(`\b(cubic|reno)( instead_of:\w+)? rto:`), "CONTROL rto:"}, // the congestion control is the host's default
	{regexp.MustCompile(`\tspeed_bits_per_second:.*\n`), ""},                      // some kernels report no speed for a veth
	{regexp.MustCompile(`ready \d+`), "ready N"},
	{regexp.MustCompile(`state (busy|asleep)`), "state STATE"},
}

// counted matches a line of stats. docs/counters.md lists the names of each layer.
var counted = regexp.MustCompile(`^  ([a-z_]+)\.[a-z_0-9]+:N$`)

func maskShow(text string) string {
	text = mask(text)
	for _, m := range showMasks {
		text = m.volatile.ReplaceAllString(text, m.mask)
	}
	lines := strings.Split(unaligned(text), "\n")
	for i, line := range lines {
		lines[i] = counted.ReplaceAllString(line, "  $1.NAME:N")
	}
	return strings.Join(slices.Compact(lines), "\n")
}

// pinging is a server, and a client that pings until it is interrupted.
type pinging struct {
	host
	server, client *running
}

// ping starts a server and a client over a pair, each with its own interface.
func (h host) ping(p *pair.Pair) pinging {
	h.Helper()
	x := pinging{host: h}
	at := p.Ends[pair.B].V4.Addr().String()
	rig.Must(h.T, p.Do(pair.B, func() error {
		x.server = listening(h.T, h.at(command(h.T, "ping", "-s", "-P", "-a", at, "-i", p.Ends[pair.B].Name)))
		return nil
	}))
	rig.Must(h.T, p.Do(pair.A, func() error {
		x.client = launch(h.T, h.at(command(h.T, "ping", "-c", "-v", "-S", "16", "-a", at, "-i", p.Ends[pair.A].Name)))
		return nil
	}))
	x.client.until("rdma-ping-5: ")
	go func() {
		for range x.client.lines { // reads on, so that the client does not block
		}
	}()
	return x
}

// end interrupts the server and the client, and waits for them.
func (x pinging) end() {
	x.Helper()
	rig.Must(x.T, x.client.cmd.Process.Signal(os.Interrupt))
	x.client.cmd.Wait() // the test does not need the output
	rig.Must(x.T, x.server.cmd.Process.Signal(os.Interrupt))
	x.server.all(0)
}

func (x pinging) pid() string { return strconv.Itoa(x.server.cmd.Process.Pid) }

// swept removes what killed processes of earlier tests have left, as opening an adapter does, and returns the traces
// that remain.
func swept(t *testing.T) traces {
	t.Helper()
	need.Root(t)
	clearClaims(t)
	os.Remove(loader.Root) // removes the directory only if it is empty
	return tracesOf(t)
}

// TestShowOverPair: every subject of two live engines, as text and as JSON.
func TestShowOverPair(t *testing.T) {
	before := swept(t)
	p := netns.XDPPair(t, pair.Config{})
	x := newHost(t).ping(p)
	for _, subject := range show.Subjects {
		if subject == "srqs" || subject == "iscsi" || subject == "luns" || subject == "clients" {
			continue // the server has none
		}
		t.Run(subject, func(t *testing.T) {
			h := host{t, x.dir}
			both, one := h.show(subject, "--json"), h.show(subject, "--json", "-p", x.pid())
			both.ends(t, 0)
			one.ends(t, 0)
			schema(t, "show-"+subject, both.stdout)
			schema(t, "show-"+subject, one.stdout)
			if n, m := len(showRows(t, both)), len(showRows(t, one)); m == 0 || n <= m {
				t.Errorf("%d rows of the server, %d of both", m, n)
			}
			text := ""
			for _, args := range [][]string{nil, {"-v", "-a"}} {
				if len(args) == 0 && (subject == "queues" || subject == "stats") {
					continue // the set of counters that are not 0 differs between runs
				}
				r := h.show(append([]string{subject, "-p", x.pid()}, args...)...)
				r.ends(t, 0)
				if r.stderr != "" {
					t.Errorf("printed %q", r.stderr)
				}
				if len(args) > 0 && (subject == "flows" || subject == "mrs" || subject == "cqs") {
					continue // these subjects print nothing more with these arguments
				}
				text += strings.TrimSpace("$ stag show "+subject+" "+strings.Join(args, " ")) + "\n" + r.stdout
			}
			text = maskShow(text)
			if subject == "mrs" { // STags are random, so the order of rows is random
				lines := strings.SplitAfter(text, "\n")
				slices.Sort(lines)
				text = strings.Join(slices.Compact(lines), "")
			}
			golden(t, "show_"+subject, text)
		})
	}
	t.Run("series", func(t *testing.T) { x.series(host{t, x.dir}) })
	t.Run("which", func(t *testing.T) { x.which(host{t, x.dir}, p) })
	t.Run("watch", func(t *testing.T) { x.watch(host{t, x.dir}) })
	x.end()
	rig.Must(t, p.Close())
	before.gone(t)
}

// series demands that no two counters of an engine have the same name.
func (x pinging) series(h host) {
	type name struct {
		Device      string
		Queue       int
		Layer, Name string
	}
	var list []name
	rig.Must(h.T, json.Unmarshal([]byte(h.show("stats", "--json", "-p", x.pid()).stdout), &list))
	seen := map[name]bool{}
	for _, n := range list {
		if seen[n] {
			h.Errorf("twice: %+v", n)
		}
		seen[n] = true
	}
}

// which demands that a selector that fits both ends of a connection selects both, and that a selector that fits one end
// selects only that end.
func (x pinging) which(h host, p *pair.Pair) {
	for _, c := range []struct {
		args string
		rows int
	}{
		{"flows", 2},
		{"flows " + p.Ends[pair.A].V4.Addr().String(), 2},
		{"flows :7174", 2},
		{"flows :1", 0},
		{"flows -i " + p.Ends[pair.A].Name, 1},
		{"devices " + p.Ends[pair.B].Name, 1},
		{"qps 2 -p " + x.pid(), 1},
		{"cqs -i " + p.Ends[pair.A].Name, 1},
	} {
		if rows := showRows(h.T, h.show(append(strings.Fields(c.args), "--json")...)); len(rows) != c.rows {
			h.Errorf("show %s: %d rows, want %d", c.args, len(rows), c.rows)
		}
	}
	var flows []struct {
		State, Local, Remote string
		QP                   uint32
		TCP                  string `json:"tcp_state"`
		Segments             uint64 `json:"tcp_segs_in"`
	}
	rig.Must(h.T, json.Unmarshal([]byte(h.show("flows", "--json").stdout), &flows))
	for _, f := range flows {
		if f.TCP != "ESTABLISHED" || f.QP == 0 || f.State != "live" || f.Segments == 0 {
			h.Errorf("%+v", f)
		}
	}
	if len(flows) != 2 || flows[0].Local != flows[1].Remote || flows[0].Remote != flows[1].Local {
		h.Errorf("not the ends of one connection: %+v", flows)
	}
}

// watch demands lines of JSON, and text with rates, until Ctrl-C, which is no failure.
func (x pinging) watch(h host) {
	w := launch(h.T, h.at(command(h.T, "show", "stats", "--json", "-w", "0.1", "-p", x.pid())))
	grown := false
	for range 4 {
		line := <-w.lines
		schema(h.T, "show-watch", line)
		var v struct {
			Time time.Time
			Rows []struct {
				Layer, Name string
				PerSecond   *float64 `json:"per_second"`
			}
		}
		rig.Must(h.T, json.Unmarshal([]byte(line), &v))
		for _, r := range v.Rows {
			grown = grown || r.Layer == "engine" && r.Name == "rx_packets" && r.PerSecond != nil && *r.PerSecond > 0
		}
	}
	rig.Must(h.T, w.cmd.Process.Signal(os.Interrupt))
	w.all(0)
	if !grown {
		h.Error("the packets have no rate")
	}
	w = launch(h.T, h.at(command(h.T, "show", "stats", "-w", "0.1", "-p", x.pid())))
	for range 3 {
		w.until("--- 20")
		w.until("engine.rx_packets: ")
	}
	if last := w.said[len(w.said)-1]; !strings.HasSuffix(last, "/s") {
		h.Errorf("no rate: %q", last)
	}
	rig.Must(h.T, w.cmd.Process.Signal(os.Interrupt))
	w.all(0)
}

// TestShowPinned: show prints a loaded interface without an engine, with one, with a stopped one, with the entries of
// a killed one, and after unload.
func TestShowPinned(t *testing.T) {
	before := swept(t)
	p := netns.XDPPair(t, pair.Config{})
	h := newHost(t)
	name := p.Ends[pair.B].Name
	rig.Must(t, p.Do(pair.B, func() error { run(t, h.at(command(t, "load", name, "--orphan-wait", "1h"))).ends(t, 0); return nil }))
	text := ""
	show := func(args ...string) (r result) { // runs in the namespace of the interface
		rig.Must(t, p.Do(pair.B, func() error { r = h.show(args...); return nil }))
		r.ends(t, 0)
		return r
	}
	shown := func(subject string, args ...string) {
		r := show(append([]string{subject}, args...)...)
		text += strings.TrimSpace("$ stag show "+subject+" "+strings.Join(args, " ")) + "\n" + r.stdout + r.stderr
		schema(t, "show-"+subject, show(subject, "--json").stdout)
	}
	shown("devices")
	shown("devices", "-v")
	shown("stats", "-a")

	x := h.ping(p)
	r := show("devices", name)
	if strings.Count(r.stdout, "\n") != 2 || !strings.Contains(r.stdout, "pid "+x.pid()+" adapter 1 comm stag\n\t carrier afxdp: the interface is named") {
		t.Errorf("with an engine: %q, %q", r.stdout, r.stderr)
	}
	rig.Must(t, x.server.cmd.Process.Signal(syscall.SIGSTOP))
	awaitStopped(t, x.server.cmd.Process.Pid)
	text += "stopped\n"
	shown("flows", "-i", name)
	rig.Must(t, x.server.cmd.Process.Kill())
	x.server.rest()
	text += "killed\n"
	shown("devices", name)
	shown("flows", "-i", name)
	r = show("mrs", "-i", name) // STags are random, so the order of rows is random
	if strings.Count(r.stdout, "type region state valid") != 2 || strings.Count(r.stdout, " no engine\n") != 2 {
		t.Errorf("the table: %q", r.stdout)
	}
	schema(t, "show-mrs", show("mrs", "--json").stdout)
	rows := showRows(t, show("flows", "--json", "-i", name))
	if len(rows) != 1 || rows[0].PID != nil || rows[0].Program != nil || rows[0].State != "orphan" || rows[0].Instance == "" {
		t.Errorf("what was left: %+v", rows)
	}
	rig.Must(t, x.client.cmd.Process.Kill())
	x.client.cmd.Wait() // the error only names the signal
	rig.Must(t, p.Do(pair.B, func() error { run(t, h.at(command(t, "unload", name))).ends(t, 0); return nil }))
	text += "unloaded\n"
	shown("devices")
	golden(t, "show_pinned", maskShow(pinsOf.ReplaceAllString(mask(text), "INSTANCE")))
	clearClaims(t)
	if _, err := os.Stat(loader.Root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", loader.Root, err)
	}
	rig.Must(t, p.Close())
	before.gone(t)
}

var pinsOf = regexp.MustCompile(`/sys/fs/bpf/stag/[^\s)]*|veth-b-\d+`)

// awaitStopped waits until every thread of a process has stopped. A thread that has not stopped could still answer.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		rig.Must(t, err)
		running := slices.DeleteFunc(threads, func(name string) bool {
			text, err := os.ReadFile(name)
			_, state, found := strings.Cut(string(text), ") ") // the state follows the program's name
			return err != nil || found && strings.HasPrefix(state, "T")
		})
		if len(running) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop: %v", pid, running)
		}
	}
}
