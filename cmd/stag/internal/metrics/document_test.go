package metrics

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "rewrite the generated document")

// document is where the list of metrics is.
const document = "../../../../docs/metrics.md"

const head = `# Metrics

<!-- Generated from the code: go test ./cmd/stag/internal/metrics -update -->

` + "`stag metrics`" + ` exports what the engines of a host count to Prometheus, by default at
` + "`http://127.0.0.1:17174/metrics`" + `. (Prometheus' list of exporters has given out
every port from 9100 to 9999; this one is outside of it.)

    scrape_configs:
      - job_name: stag
        static_configs:
          - targets: ['192.0.2.1:17174']

It listens at the loopback unless told otherwise, as anybody who reaches the port
can read: ` + "`--listen 192.0.2.1:17174`" + `. Where node_exporter runs already, its textfile
collector does as well:

    stag metrics --once > stag.prom.new && mv stag.prom.new /var/lib/node_exporter/stag.prom

[stag-metrics.service](systemd/stag-metrics.service) runs it, and
[the dashboard](grafana/stag.json) shows it in Grafana.

Names, units and labels are those of node_exporter's ` + "`node_infiniband_`" + ` metrics where
there are such: a dashboard for those needs another prefix only; what is called
` + "`node_infiniband_info`" + ` there is ` + "`stag_device_info`" + ` here. An interface is a device with one
port, 1.

The labels ` + "`program`, `pid`, `uid` and `adapter`" + ` say whose a series is: several engines
may have devices of the same name, in namespaces of their own. ` + "`pid` and `uid`" + ` are the
kernel's word. Root's ` + "`stag metrics`" + ` asks root's engines; with ` + "`--all-users`" + ` it asks those
of others, too. The series of such an engine tell what its user likes; it cannot add
to any other series. The series of an engine end with it, and those of its successor begin at 0, so that

    sum by (program, device) (rate(stag_port_data_received_bytes_total[5m]))

goes on evenly. What the steering program of an interface counts is the
interface's, by ` + "`device` and `netns`" + `, and goes on when another engine adopts a program
that was loaded to stay. An engine has about 35 series, 90 for each interface, and 31
for each queue; ` + "`--per-qp`" + ` adds 28 for each queue pair.

An engine that does not answer within 2 s has ` + "`stag_engine_up`" + ` 0 and nothing else. Of
Prometheus' scrape timeout a fifth is kept back, so that the others are seen.

    - alert: StagEngineSilent
      expr: stag_engine_up == 0
      for: 1m
    - alert: StagDrops
      expr: sum by (device, layer, reason) (rate(stag_drops_total{layer!="tcp"}[5m])) > 10
    - alert: StagRetransmissions
      expr: rate(stag_tcp_retransmitted_segments_total[5m]) > 0.01 * rate(stag_tcp_segments_transmitted_total[5m])
`

// section is a part of the document: the families whose names begin so.
type section struct {
	title, intro string
	begins       []string
}

var sections = []section{
	{"The exporter", "", []string{"build_info", "scrape_"}},
	{"Engines", "One adapter of one process each.", []string{"engine_up", "engine_info", "engine_start", "heap_", "qps", "cqs", "mrs", "tpt_", "capture", "events_"}},
	{"Ports", "As node_exporter's `node_infiniband_` metrics.", []string{"device_info", "state_id", "physical_", "rate_", "port_"}},
	{"Steering", "What the XDP program of an interface does, whoever uses it.", []string{"steer_", "flows", "pinned_"}},
	{"Drops", "", []string{"drops_", "stray_"}},
	{"Operations", "Of all queue pairs of a device since its engine began; those that are closed count\non. The kernel port is a device, too, called `kernel`.", []string{"rdma_"}},
	{"TCP", "Of all connections of a device since its engine began; those that have ended count on.", []string{"tcp_"}},
	{"Queues", "", []string{"queue_", "engine_"}},
	{"AF_XDP sockets", "The last six are what the kernel counts (`XDP_STATISTICS`).", []string{"xsk_"}},
	{"Queue pairs", "With `--per-qp` only.", []string{"qp_"}},
	{"Others", "", []string{"other_"}},
}

func (s section) has(f *Family) bool {
	return slices.ContainsFunc(s.begins, func(b string) bool { return strings.HasPrefix(f.Name, namespace+b) })
}

// TestDocument: metrics.md is what the code has.
func TestDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	told := map[*Family]bool{}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if s.intro != "" {
			fmt.Fprintf(&b, "%s\n\n", s.intro)
		}
		fmt.Fprintf(&b, "| metric | type | labels | what |\n|---|---|---|---|\n")
		for _, f := range Families() {
			if told[f] || !s.has(f) {
				continue
			}
			told[f] = true
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, kindName(f.Kind), strings.Join(f.Labels, ", "), what(f))
		}
	}
	for _, f := range Families() {
		if !told[f] {
			t.Errorf("%s is in no section", f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(document, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not what the code has: go test ./cmd/stag/internal/metrics -update", document)
	}
}

func kindName(k prometheus.ValueType) string {
	if k == prometheus.CounterValue {
		return "counter"
	}
	return "gauge"
}

// what is the help, and which counters of docs/counters.md it is made of.
func what(f *Family) string {
	if len(f.From) == 0 {
		return f.Help
	}
	return fmt.Sprintf("%s (`%s`)", f.Help, strings.Join(f.From, "` + `"))
}
