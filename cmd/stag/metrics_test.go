package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// series are the metrics of a scrape by name.
type series map[string]*dto.MetricFamily

// parseSeries parses text as Prometheus does.
func parseSeries(t *testing.T, text string) series {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return all
}

// of returns the values of a metric's series that have these labels. labels alternates names and values.
func (s series) of(name string, labels ...string) (values []float64) {
	for _, m := range s["stag_"+name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		all := true
		for i := 0; i < len(labels); i += 2 {
			all = all && have[labels[i]] == labels[i+1]
		}
		if all {
			values = append(values, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return values
}

// is demands exactly one series with these labels, and this value.
func (s series) is(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	if got := s.of(name, labels...); len(got) != 1 || got[0] != want {
		t.Errorf("stag_%s%q is %v, want %v", name, labels, got, want)
	}
}

// exporter is a running `stag metrics` server.
type exporter struct {
	*running
	url string
}

func (h host) export(args ...string) exporter {
	h.Helper()
	return h.exporting(command(h.T, append([]string{"metrics", "--listen", "127.0.0.1:0"}, args...)...))
}

func (h host) exporting(cmd *exec.Cmd) exporter {
	h.Helper()
	x := launch(h.T, h.at(cmd))
	x.until("Metrics at ")
	last := x.said[len(x.said)-1]
	go func() { // reads the output of -v
		for range x.lines {
		}
	}()
	return exporter{x, regexp.MustCompile(`http://\S+`).FindString(last)}
}

// get returns the body and the status of a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Get(url)
	rig.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	rig.Must(t, err)
	return resp.StatusCode, string(text)
}

func (x exporter) scrape() series {
	x.Helper()
	code, text := get(x.T, x.url)
	if code != http.StatusOK {
		x.Fatalf("status %d: %s", code, text)
	}
	return parseSeries(x.T, text)
}

// interrupted sends an interrupt and demands exit code 0.
func (x exporter) interrupted() {
	x.Helper()
	rig.Must(x.T, x.cmd.Process.Signal(os.Interrupt))
	x.cmd.Wait()
	if code := x.cmd.ProcessState.ExitCode(); code != 0 {
		x.Errorf("exit code %d after Ctrl-C", code)
	}
}

// TestMetricsOverPair: the values of a scrape over HTTP lie between reports of the engines taken before and after it.
func TestMetricsOverPair(t *testing.T) {
	before := tracesOf(t)
	p := netns.XDPPair(t, pair.Config{})
	h := newHost(t)
	ends, x := h.ping(p), h.export("--per-qp")
	pid := ends.server.cmd.Process.Pid
	first := reportOf(t, pid)
	s := x.scrape()
	last := reportOf(t, pid)
	id, device := []string{"pid", ends.pid(), "adapter", "1", "program", "stag"}, p.Ends[pair.B].Name
	s.is(t, 1, "engine_up", id...)
	s.is(t, 1, "engine_up", "pid", fmt.Sprint(ends.client.cmd.Process.Pid))
	s.is(t, 4, "state_id", append(id, "device", device, "port", "1")...)
	s.is(t, 1500, "port_mtu_bytes", append(id, "device", device)...)
	s.is(t, 1, "flows", "device", device, "netns", fmt.Sprint(first.Netns), "state", "live")
	s.is(t, 1, "qps", append(id, "state", "RTS")...)
	for name, counter := range map[string]string{
		"port_data_received_bytes_total":      "engine.rx_octets",
		"port_data_transmitted_bytes_total":   "engine.tx_octets",
		"port_packets_received_total":         "engine.rx_packets",
		"port_packets_transmitted_total":      "engine.tx_packets",
		"tcp_segments_received_total":         "tcp.segs_in",
		"tcp_received_bytes_total":            "tcp.octets_in",
		"xsk_received_frames_total":           "xsk.rx",
		"steer_packets_total":                 "steer.steered",
		"rdma_read_transmitted_bytes_total":   "rdmap.read_octets_out",
		"qp_send_received_bytes_total":        "rdmap.send_octets_in",
		"qp_read_transmitted_bytes_total":     "rdmap.read_octets_out",
		"tcp_retransmitted_segments_total":    "tcp.retransmits",
		"xsk_rx_dropped_total":                "xsk_kernel.rx_dropped",
		"qp_tcp_retransmitted_segments_total": "tcp.retransmits",
	} {
		labels := append(id, "device", device)
		if strings.HasPrefix(name, "steer_") {
			labels = []string{"device", device, "reason", "steered"}
		} else if strings.HasPrefix(name, "qp_") {
			labels = id
		}
		got := s.of(name, labels...)
		if low, high := total(first, counter), total(last, counter); len(got) != 1 || got[0] < low || got[0] > high {
			t.Errorf("stag_%s is %v, and the engine counted %v before and %v after", name, got, low, high)
		}
	}
	if total(first, "engine.rx_packets") == 0 || total(last, "engine.rx_packets") == total(first, "engine.rx_packets") {
		t.Error("nothing goes on")
	}
	ends.end()
	if now := x.scrape(); len(now.of("engine_up")) != 0 || len(now.of("port_packets_received_total")) != 0 {
		t.Error("the series of engines that are gone have not ended")
	}
	x.interrupted()
	before.gone(t)
}

// reportOf asks the engine directly for its report.
func reportOf(t *testing.T, pid int) report.Engine {
	t.Helper()
	list, err := control.Engines(pid)
	rig.Must(t, err)
	r, err := list[0].Report(context.Background())
	rig.Must(t, err)
	return r
}

// total returns a counter, summed over the queues of the engine's only device.
func total(e report.Engine, name string) (n float64) {
	all := e.Counters
	for _, q := range e.Queues {
		all = append(all, q.Counters...)
	}
	for _, c := range all {
		if c.Layer+"."+c.Name == name {
			n += float64(c.Value)
		}
	}
	return n
}

// metricsMasks are the volatile parts of the text of --once.
var metricsMasks = []struct {
	volatile *regexp.Regexp
	mask     string
}{
	{regexp.MustCompile(`\bpid="\d+"`), `pid="PID"`},
	{regexp.MustCompile(`\buid="\d+"`), `uid="UID"`},
	{regexp.MustCompile(`(?m)^stag_build_info{.*`), "stag_build_info{...} 1"},
	{regexp.MustCompile(`(?m)^stag_scrape_duration_seconds .*`), "stag_scrape_duration_seconds N"},
}

// TestMetricsOnce: --once prints the text for the textfile collector.
func TestMetricsOnce(t *testing.T) {
	h := newHost(t)
	h.act("well")
	r := run(t, h.at(command(t, "metrics", "--once")))
	r.ends(t, 0)
	parseSeries(t, r.stdout).is(t, 1, "engine_up", "program", "actor")
	text := r.stdout
	for _, m := range metricsMasks {
		text = m.volatile.ReplaceAllString(text, m.mask)
	}
	golden(t, "metrics", text)
}

// TestMetricsNobody: metrics succeeds without an engine.
func TestMetricsNobody(t *testing.T) {
	h := newHost(t)
	x := h.export()
	s := x.scrape()
	if len(s.of("build_info")) != 1 || len(s.of("engine_up")) != 0 {
		t.Errorf("%v", s)
	}
	for _, n := range s.of("scrape_errors_total") {
		if n != 0 {
			t.Errorf("%v errors", n)
		}
	}
	root := strings.TrimSuffix(x.url, "/metrics")
	if code, page := get(t, root+"/"); code != http.StatusOK || !strings.Contains(page, `<a href="/metrics">`) {
		t.Errorf("status %d: %s", code, page)
	}
	if code, _ := get(t, root+"/metric"); code != http.StatusNotFound {
		t.Errorf("status %d", code)
	}
	x.interrupted()
}

// TestMetricsFaults: an engine that does not answer, for any reason, does not hide the others.
func TestMetricsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		how, reason string
		up          []float64
	}{
		"hangs":   {"hang", "timeout", []float64{0}},
		"stopped": {"well", "timeout", []float64{0}},
		"killed":  {"hang", "gone", nil},
		"newer":   {"schema", "schema", []float64{0}},
		"broken":  {"refuse", "other", []float64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			good, bad := h.act("well"), h.act(c.how)
			if name == "stopped" {
				rig.Must(t, bad.cmd.Process.Signal(syscall.SIGSTOP))
				awaitStopped(t, bad.cmd.Process.Pid)
			}
			x := h.export("-v")
			if name == "killed" {
				go func() {
					bad.out.ReadString('\n') // metrics waits for the answer of this engine
					bad.cmd.Process.Kill()
				}()
			}
			s := x.scrape()
			s.is(t, 1, "engine_up", "pid", good.pid())
			s.is(t, 1, "device_info", "pid", good.pid(), "device", "act0")
			s.is(t, 1, "scrape_errors_total", "reason", c.reason)
			if up := s.of("engine_up", "pid", bad.pid()); fmt.Sprint(up) != fmt.Sprint(c.up) {
				t.Errorf("up is %v, want %v", up, c.up)
			}
			x.interrupted()
		})
	}
}

// TestMetricsImpatient: Prometheus gets an answer before its timeout.
func TestMetricsImpatient(t *testing.T) {
	h := newHost(t)
	good := h.act("well")
	h.act("hang")
	x := h.export()
	req, err := http.NewRequest(http.MethodGet, x.url, nil)
	rig.Must(t, err)
	req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "0.5")
	resp, err := http.DefaultClient.Do(req)
	rig.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	rig.Must(t, err)
	s := parseSeries(t, string(text))
	s.is(t, 1, "engine_up", "pid", good.pid())
	if took := s.of("scrape_duration_seconds"); len(took) != 1 || took[0] >= 2 {
		t.Errorf("it waited %v s", took)
	}
	x.interrupted()
}

// TestMetricsInterrupted: an interrupted exporter first answers a scrape that is in progress.
func TestMetricsInterrupted(t *testing.T) {
	h := newHost(t)
	slow := h.act("hang")
	x := h.export()
	go func() {
		slow.out.ReadString('\n')
		x.cmd.Process.Signal(os.Interrupt)
	}()
	s := x.scrape()
	s.is(t, 0, "engine_up", "pid", slow.pid())
	x.cmd.Wait()
	if code := x.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestMetricsOfAnother: with --all-users an ordinary user sees that root has engines. The user gets no metrics of these
// engines, and a line that says so.
func TestMetricsOfAnother(t *testing.T) {
	need.Root(t)
	h := newHost(t)
	a := h.act("well")
	cmd := h.at(as(command(t, "metrics", "--all-users", "--listen", "127.0.0.1:0")))
	x := launch(t, cmd)
	x.until("only this user's engines are exported: run as root")
	x.until("Metrics at ")
	e := exporter{x, regexp.MustCompile(`http://\S+`).FindString(x.said[len(x.said)-1])}
	s := e.scrape()
	s.is(t, 0, "engine_up", "pid", a.pid())
	s.is(t, 1, "scrape_errors_total", "reason", "permission")
	s.is(t, 0, "scrape_errors_total", "reason", "pins")
	e.interrupted()
}

// TestMetricsNowhere: metrics prints one line for an address at which it cannot listen.
func TestMetricsNowhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for name, c := range map[string]struct {
		args string
		code int
		says string
	}{
		"port":         {"--listen 17174", exitUsage, "give ADDRESS:PORT"},
		"address":      {"--listen 127.0.0.1", exitUsage, "give ADDRESS:PORT"},
		"no port":      {"--listen 127.0.0.1:", exitUsage, "give ADDRESS:PORT"},
		"no number":    {"--listen 127.0.0.1:x", exitUsage, "give ADDRESS:PORT"},
		"large number": {"--listen 127.0.0.1:65536", exitUsage, "give ADDRESS:PORT"},
		"no brackets":  {"--listen ::1:17174", exitUsage, "[::1]:17174"},
		"both":         {"--once --listen 127.0.0.1:17174", exitUsage, "choose one"},
		"argument":     {"eth0", exitUsage, "unexpected argument"},
		"taken":        {"--listen " + taken, exitFailed, taken + " is in use by another process: choose another --listen"},
		"not here":     {"--listen 192.0.2.77:17174", exitFailed, "192.0.2.77:17174 is no address of this host"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, command(t, append([]string{"metrics"}, strings.Fields(c.args)...)...))
			r.ends(t, c.code)
			if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: metrics: ") || !strings.Contains(r.stderr, c.says) {
				t.Errorf("printed %q and %q, want one line that says %q", r.stdout, r.stderr, c.says)
			}
		})
	}
}

// TestMetricsUnread: metrics fails with one line when the reader of its output has gone.
func TestMetricsUnread(t *testing.T) {
	r, w, err := os.Pipe()
	rig.Must(t, err)
	r.Close()
	cmd := newHost(t).at(command(t, "metrics", "--once"))
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = w, &errs
	rig.Must(t, cmd.Start())
	w.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), "broken pipe") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// TestMetricsPinned: a program that was loaded to stay has metrics without an engine, and keeps counting when an
// engine adopts it and leaves it again. The entries of a killed engine are counted as orphans.
func TestMetricsPinned(t *testing.T) {
	need.Root(t)
	rig.Must(t, os.MkdirAll(loader.Root, 0o755)) // this directory is not removed
	before := tracesOf(t)
	p := netns.XDPPair(t, pair.Config{})
	h, device := newHost(t), p.Ends[pair.A].Name
	inside(t, p, command(t, "load", device, "--instance", "metrics", "--orphan-wait", "1h")).ends(t, 0)
	once := func() series {
		r := inside(t, p, h.at(command(t, "metrics", "--once")))
		r.ends(t, 0)
		return parseSeries(t, r.stdout)
	}
	s := once()
	s.is(t, 1, "pinned_info", "device", device, "loaded_as", "metrics", "state", "unused")
	s.is(t, 0, "flows", "device", device, "state", "live")
	s.is(t, 0, "steer_packets_total", "device", device, "reason", "steered")
	if room := s.of("flows_max", "device", device); len(room) != 1 || room[0] == 0 || len(s.of("engine_up")) != 0 {
		t.Errorf("room for %v flows, %d engines", room, len(s.of("engine_up")))
	}
	ends := h.ping(p)
	s = once()
	s.is(t, 1, "pinned_info", "device", device, "state", "used")
	s.is(t, 1, "device_info", "device", device, "loaded_as", "metrics")
	s.is(t, 1, "flows", "device", device, "state", "live")
	used := s.of("steer_packets_total", "device", device, "reason", "steered")
	ends.end()
	s = once()
	s.is(t, 1, "pinned_info", "device", device, "state", "unused")
	if after := s.of("steer_packets_total", "device", device, "reason", "steered"); len(used) != 1 || len(after) != 1 || used[0] == 0 || after[0] < used[0] {
		t.Errorf("%v packets were steered while it was used, %v later", used, after)
	}
	killed := h.ping(p)
	pid := fmt.Sprint(killed.client.cmd.Process.Pid)
	rig.Must(t, killed.client.cmd.Process.Kill())
	killed.client.cmd.Wait()
	s = once()
	s.is(t, 1, "flows", "device", device, "state", "orphan")
	s.is(t, 0, "flows", "device", device, "state", "live")
	if up := s.of("engine_up", "pid", pid); len(up) != 0 {
		t.Errorf("an engine that was killed is up: %v", up)
	}
	rig.Must(t, killed.server.cmd.Process.Signal(os.Interrupt))
	killed.server.cmd.Wait()
	inside(t, p, command(t, "unload", device)).ends(t, 0)
	if s := once(); s["stag_pinned_info"] != nil || s["stag_steer_packets_total"] != nil {
		t.Error("what is unloaded counts still")
	}
	before.gone(t)
}

// TestMetricsCrowd: while many scrapes are in progress, metrics refuses further scrapes. It answers the scrapes that are
// in progress.
func TestMetricsCrowd(t *testing.T) {
	const atOnce = 8
	h := newHost(t)
	slow := h.act("hang")
	x := h.export()
	codes := make(chan int, atOnce)
	for range atOnce {
		go func() {
			code, _ := get(t, x.url)
			codes <- code
		}()
	}
	for range atOnce {
		slow.says(t, "asked")
	}
	if code, text := get(t, x.url); code != http.StatusServiceUnavailable || !strings.Contains(text, "8 scrapes are in progress already") {
		t.Errorf("status %d: %s", code, text)
	}
	for range atOnce {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
	x.interrupted()
}
