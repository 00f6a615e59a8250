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

// document is the path of the list of metrics.
const document = "../../../../docs/metrics.md"

const head = `# Metrics

<!-- Generated from the code: go test ./cmd/stag/internal/metrics -update -->

` + "`stag metrics`" + ` exports the counters of the engines of a host to Prometheus, by default at
` + "`http://127.0.0.1:17174/metrics`" + `. (Prometheus' list of exporters has assigned every port from
9100 to 9999. This port is outside that range.)

    scrape_configs:
      - job_name: stag
        static_configs:
          - targets: ['192.0.2.1:17174']

By default the command listens at the loopback only, because anyone who reaches the port can
read the metrics. Use ` + "`--listen 192.0.2.1:17174`" + ` to listen at another address. If node_exporter
already runs, you can use its textfile collector instead:

    stag metrics --once > stag.prom.new && mv stag.prom.new /var/lib/node_exporter/stag.prom

[stag-metrics.service](systemd/stag-metrics.service) runs the command, and [the
dashboard](grafana/stag.json) shows the metrics in Grafana.

Names, units and labels are those of node_exporter's ` + "`node_infiniband_`" + ` metrics if there is such
a metric. A dashboard for those metrics needs only another prefix. The exception is
` + "`node_infiniband_info`" + `, which is ` + "`stag_device_info`" + ` here. An interface is a device with one port,
1.

The labels ` + "`program`, `pid`, `uid` and `adapter`" + ` name the engine of a series. Several engines may
have devices of the same name, in different network namespaces. The kernel reports ` + "`pid` and `uid`" + `,
so an engine cannot forge them. Root's ` + "`stag metrics`" + ` asks root's engines; with ` + "`--all-users`" + ` it also
asks engines of other users. Such an engine can report any value in its own series, but it cannot
add to any other series. The series of an engine end with the engine, and those of its
successor begin at 0. Therefore this sum continues without a jump:

    sum by (program, device) (rate(stag_port_data_received_bytes_total[5m]))

The counters of an XDP program belong to the interface (labels ` + "`device` and `netns`" + `). They
continue when another engine adopts a program that was loaded to stay. An engine has about 35
series, 91 for each interface, and 33 for each queue. An adapter of several interfaces has 24 more
for each. iSCSI adds 60 for each interface and role, and
` + "`--per-qp`" + ` adds 28 for each QP.

An engine that does not answer within 2 s has ` + "`stag_engine_up`" + ` 0 and no other series. The command
waits for at most four fifths of Prometheus' scrape timeout, so that a silent engine does not
hide the others.

    - alert: StagEngineSilent
      expr: stag_engine_up == 0
      for: 1m
    - alert: StagDrops
      expr: sum by (device, layer, reason) (rate(stag_drops_total{layer!="tcp"}[5m])) > 10
    - alert: StagRetransmissions
      expr: rate(stag_tcp_retransmitted_segments_total[5m]) > 0.01 * rate(stag_tcp_segments_transmitted_total[5m])
`

// section is a part of the document: the families whose names begin with the same prefix.
type section struct {
	title, intro string
	begins       []string
}

var sections = []section{
	{"The exporter", "", []string{"build_info", "scrape_"}},
	{"Engines", "An engine here is one adapter of one process.", []string{"engine_up", "engine_info", "engine_start", "heap_", "qps", "cqs", "mrs", "tpt_", "capture", "events_"}},
	{"Moves", "Only an adapter with several ports has these series, except the first.", []string{"port_drain", "flows_moved", "flow_move"}},
	{"Ports", "These are like the `node_infiniband_` metrics of node_exporter.", []string{"device_info", "state_id", "physical_", "rate_", "port_"}},
	{"Steering", "The XDP program of an interface counts these, independent of the engine that uses it.", []string{"steer_", "flows", "pinned_"}},
	{"Drops", "", []string{"drops_", "stray_"}},
	{"Operations", "The sums over all queue pairs of a device since its engine started, including closed ones. The\nkernel port is a device called `kernel`.", []string{"rdma_"}},
	{"iSCSI", "The sums over all iSCSI sessions of a role since the engine started, including ended ones. An engine\nthat never had such a session has none of these series.", []string{"iscsi_"}},
	{"TCP", "The sums over all connections of a device since its engine started, including ended ones.", []string{"tcp_"}},
	{"Queues", "", []string{"queue_", "engine_"}},
	{"AF_XDP sockets", "The kernel counts the last six (`XDP_STATISTICS`).", []string{"xsk_"}},
	{"Queue pairs", "With `--per-qp` only.", []string{"qp_"}},
	{"Others", "", []string{"other_"}},
}

func (s section) has(f *Family) bool {
	return slices.ContainsFunc(s.begins, func(b string) bool { return strings.HasPrefix(f.Name, namespace+b) })
}

// TestDocument: metrics.md agrees with the code.
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
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, kindName(f), strings.Join(f.Labels, ", "), what(f))
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

func kindName(f *Family) string {
	switch {
	case f.Histogram:
		return "histogram"
	case f.Kind == prometheus.CounterValue:
		return "counter"
	}
	return "gauge"
}

// what returns the help text of a family, and the counters of docs/counters.md that the family sums.
func what(f *Family) string {
	if len(f.From) == 0 {
		return f.Help
	}
	return fmt.Sprintf("%s (`%s`)", f.Help, strings.Join(f.From, "` + `"))
}
