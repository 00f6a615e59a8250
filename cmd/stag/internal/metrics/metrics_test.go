package metrics

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/rig"
)

// counters returns all counters that a queue can have, each with a different value.
func counters(begin uint64) (list []report.Counter) {
	list = append(list, report.Fields("engine", engine.Counters{})...)
	new(engine.Counters).Each(func(layer, name string, _ uint64) {
		list = append(list, report.Counter{Layer: layer, Name: name})
	})
	list = append(list, report.Fields("tcp", tcp.Stats{})...)
	list = append(list, report.Fields("xsk", afxdp.Stats{})...)
	list = append(list, report.Fields("xsk_kernel", afxdp.KernelStats{})...)
	for i := range list {
		list[i].Value = begin + uint64(i)
	}
	return list
}

// of returns the value of one counter.
func of(t *testing.T, list []report.Counter, name string) float64 {
	t.Helper()
	for _, c := range list {
		if c.Layer+"."+c.Name == name {
			return float64(c.Value)
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

// sessionNames are the counters of an iSCSI session that have a family of their own.
var sessionNames = []string{"commands", "failed", "pdus_in", "pdus_out", "placed_octets", "sent_octets", "refused", "digest_errors", "repaired", "recoveries"}

// sessions returns these counters of a target, each with a different value.
func sessions(device string) (list []report.Counter) {
	for i, name := range sessionNames {
		list = append(list, report.Counter{Device: device, Layer: "iscsi_target", Name: name, Value: uint64(100 + i)})
	}
	return list
}

// full returns the report of an engine with two queues, a connection and one of every other object.
func full() report.Engine {
	ops := report.Fields("rdmap", rdmap.Stats{WritesIn: 60, SendOctetsOut: 70, MostReadsIn: 3})
	for i := range ops {
		ops[i].Device = report.KernelDevice
	}
	local, remote := netip.MustParseAddrPort("192.0.2.1:7174"), netip.MustParseAddrPort("[2001:db8::2]:40000")
	return report.Engine{
		Schema: report.Schema, PID: 99, Program: "kv", Adapter: 9, Started: time.Unix(1700000000, 5e8), Netns: 77,
		Devices: []report.Device{
			{Name: "eth1", State: "PORT_ACTIVE", Ifindex: 3, MAC: "02:00:00:00:00:01", MTU: 1500, Driver: "ice", XDP: "native", ZeroCopy: true, Instance: "/sys/fs/bpf/stag/store",
				Program: 42, Flows: 2, MaxFlows: 4096, FlowTable: 65536, HeapSize: 1 << 20, HeapFree: 1 << 19, MaxMRs: 63, Speed: 25e9, Drained: true},
			{Name: report.KernelDevice, State: "PORT_DOWN", Flows: 5, HeapSize: 1 << 20, HeapFree: 1 << 19, MaxMRs: 63},
		},
		Flows: []report.Flow{
			{Device: "eth1", ID: 7, State: "live", QP: 5, Diverted: "the route leads through eth2", TCP: &report.TCP{SRTT: 1500, RTO: 200000, Cwnd: 14480, Unacked: 11, Counters: report.Fields("tcp", tcp.Stats{Retransmits: 3})}},
			{Device: "eth1", ID: 8, State: "park"},
		},
		QPs: []report.QP{
			{Number: 5, State: "RTS", Device: "eth1", Flow: 7, Local: &local, Remote: &remote, Counters: report.Fields("rdmap", rdmap.Stats{WritesIn: 6, MostReadsOut: 4})},
			{Number: 6, State: "Idle", Counters: report.Fields("rdmap", rdmap.Stats{})},
		},
		Counts: &report.Counts{
			Flows: map[string]map[string]int{"eth1": {"live": 1, "park": 1}}, Diverted: map[string]int{"eth1": 1}, QPs: map[string]int{"RTS": 1, "Idle": 1}, CQs: 2, Overrun: 1,
			MRs: map[string]int{"region": 2, "window": 1}, Registered: 4097,
			ISCSI: map[string]map[string]int{"target": {"up": 3, "login": 1}}, Commands: map[string]int{"target": 17},
		},
		Queues: []report.Queue{{Device: "eth1", Queue: 0, Flows: 1, Asleep: true, Counters: counters(1000)}, {Device: "eth1", Queue: 1, Counters: counters(5000)}},
		Counters: append(append(ops, sessions("eth1")...), []report.Counter{
			{Device: "eth1", Layer: "steer", Name: "steered", Value: 12}, {Device: "eth1", Layer: "steer", Name: "no_socket", Value: 1},
			{Device: "eth1", Layer: "placeholder", Name: "strays", Value: 9},
			{Device: "eth1", Layer: "move", Name: "in", Value: 21}, {Device: "eth1", Layer: "move", Name: "failed", Value: 22}, {Device: "eth1", Layer: "move", Name: "drains", Value: 23},
			{Device: "eth1", Layer: "move", Name: "microseconds", Value: 4_500_000}, {Device: "eth1", Layer: "move_cause", Name: "drain", Value: 24},
			{Device: "eth1", Layer: "move_frozen", Name: "below_64us", Value: 4}, {Device: "eth1", Layer: "move_frozen", Name: "longer", Value: 1},
			{Layer: "tpt", Name: "bad_stag", Value: 2}, {Layer: "capture", Name: "packets", Value: 8}, {Layer: "capture", Name: "lost", Value: 4},
			{Device: "eth1", Layer: "iscsi_target_reason", Name: "no_task", Value: 6},
			{Device: "eth1", Layer: "iscsi_target_latency", Name: "below_32us", Value: 5}, {Device: "eth1", Layer: "iscsi_target_latency", Name: "below_64us", Value: 7},
			{Device: "eth1", Layer: "iscsi_target_latency", Name: "longer", Value: 1}, {Device: "eth1", Layer: "iscsi_target", Name: "microseconds", Value: 2_500_000},
			{Layer: "verbs", Name: "events_lost", Value: 3}, {Layer: "warp", Name: "cores", Value: 5},
		}...),
	}
}

// pins returns three pinned programs: one that the engine uses, an unused one and a stale one.
func pins() []loader.Instance {
	var stats loader.Stats
	stats[bpf.Steered], stats[bpf.NoFlow] = 3, 4
	return []loader.Instance{{Name: "store", Ports: []loader.PinnedPort{
		{Netns: 77, Index: 3, Found: true, Name: "eth1", ProgID: 42, InUse: true, MaxFlows: 1, Stats: stats},
		{Netns: 78, Index: 3, Found: true, Name: "eth1", ProgID: 43, MaxFlows: 16, Stats: stats, Flows: []loader.PinnedFlow{
			{Flow: bpf.Flow{State: bpf.Live}, Alive: true}, {Flow: bpf.Flow{State: bpf.Live}},
		}},
		{Netns: 79, Index: 4, Stale: "its interface is gone"},
	}}}
}

// scraped returns the families that a registry makes of what was found.
func scraped(t *testing.T, x *Exporter, f found, err error) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(filled{x, f, err})
	list, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(list).Lint(); err != nil || len(problems) != 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, m := range list {
		all[m.GetName()] = m
	}
	return all
}

// filled is a collector of what was found before.
type filled struct {
	x   *Exporter
	f   found
	err error
}

func (c filled) Describe(to chan<- *prometheus.Desc) { collector{}.Describe(to) }

func (c filled) Collect(to chan<- prometheus.Metric) {
	s := sheet{}
	c.x.fill(s, c.f, c.err)
	s.set(scrapeTime, 1, nil)
	s.collect(to)
}

func newExporter(t *testing.T, perQP bool) *Exporter {
	t.Helper()
	x, err := New(Options{PerQP: perQP, Log: rig.Silent()})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// value returns the value of the series that has all these labels, as name=value.
func value(t *testing.T, all map[string]*dto.MetricFamily, name string, with ...string) float64 {
	t.Helper()
	var values []float64
	for _, m := range all[namespace+name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if !slices.ContainsFunc(with, func(w string) bool { return !slices.Contains(have, w) }) {
			values = append(values, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	if len(values) != 1 {
		t.Errorf("%s%v has %d series, want 1", name, with, len(values))
		return -1
	}
	return values[0]
}

const me = "pid=12"

var at = control.Endpoint{Path: "engine-12-1.sock", PID: 12, Adapter: 1}

// TestEngine: each value that an engine reports is in its series, under the labels of the engine's socket.
func TestEngine(t *testing.T) {
	e := full()
	all := scraped(t, newExporter(t, true), found{answers: []answer{{at: at, engine: e}}, pins: pins()}, nil)
	sum := func(names ...string) (n float64) {
		for _, q := range e.Queues {
			for _, name := range names {
				n += of(t, q.Counters, name)
			}
		}
		return n
	}
	eth1 := []string{me, "adapter=1", "program=kv", "device=eth1"}
	port := append(eth1, "port=1")
	for _, c := range []struct {
		name string
		with []string
		want float64
	}{
		{"engine_up", []string{me, "program=kv", "adapter=1"}, 1},
		{"engine_info", []string{me, "netns=77"}, 1},
		{"engine_start_time_seconds", []string{me}, 1700000000.5},
		{"device_info", append(eth1, "loaded_as=store", "driver=ice", "xdp=native", "zero_copy=true", "mac=02:00:00:00:00:01"), 1},
		{"state_id", port, 4}, {"physical_state_id", port, 5},
		{"state_id", []string{"device=kernel"}, 1}, {"physical_state_id", []string{"device=kernel"}, 3},
		{"rate_bytes_per_second", nil, 25e9 / 8},
		{"port_mtu_bytes", nil, 1500},
		{"port_data_received_bytes_total", port, sum("engine.rx_octets")},
		{"port_packets_transmitted_total", port, sum("engine.tx_packets")},
		{"port_errors_received_total", port, sum(damaged...)},
		{"port_discards_transmitted_total", port, sum("xsk.lost")},
		{"port_discards_received_total", port, sum("xsk_kernel.rx_dropped", "xsk_kernel.rx_ring_full", "engine.park_full", "engine.pass_full", "tcp.no_frames", "tcp.reorder_share")},
		{"drops_total", append(eth1, "layer=engine", "reason=park_full"), sum("engine.park_full")},
		{"drops_total", append(eth1, "layer=tcp", "reason=duplicate"), sum("tcp.duplicate")},
		{"drops_total", append(eth1, "layer=wire", "reason=bad_tcp_checksum"), sum("wire.bad_tcp_checksum")},
		{"rdma_writes_received_total", []string{me, "device=kernel"}, 60}, {"rdma_send_transmitted_bytes_total", []string{me, "device=kernel"}, 70},
		{"rdma_outstanding_reads_received_peak", []string{"device=kernel"}, 3},
		{"tcp_retransmitted_segments_total", eth1, sum("tcp.retransmits")},
		{"xsk_received_frames_total", append(eth1, "queue=1"), of(t, e.Queues[1].Counters, "xsk.rx")},
		{"xsk_rx_ring_full_total", append(eth1, "queue=0"), of(t, e.Queues[0].Counters, "xsk_kernel.rx_ring_full")},
		{"queue_flows", append(eth1, "queue=0"), 1}, {"queue_asleep", append(eth1, "queue=0"), 1}, {"queue_asleep", append(eth1, "queue=1"), 0},
		{"steer_packets_total", []string{"device=eth1", "netns=77", "reason=no_socket"}, 1},
		{"flows", []string{"device=eth1", "netns=77", "state=live"}, 1}, {"flows_diverted", []string{"device=eth1", "netns=77"}, 1}, {"flows", []string{"netns=77", "state=orphan"}, 0},
		{"flows_max", []string{"netns=77"}, 65536}, {"port_flows_max", port, 4096}, {"port_flows", port, 2}, {"port_flows", []string{"device=kernel"}, 5},
		{"qps", []string{me, "state=RTS"}, 1}, {"qps", []string{"state=Error"}, 0},
		{"cqs", []string{me}, 2}, {"cqs_overrun", []string{me}, 1},
		{"mrs", []string{me, "kind=region"}, 2}, {"mrs", []string{"kind=window"}, 1}, {"mrs_registered_bytes", []string{me}, 4097}, {"mrs_max", nil, 63},
		{"heap_size_bytes", []string{me}, 1 << 20}, {"heap_free_bytes", []string{me}, 1 << 19},
		{"tpt_refusals_total", []string{me, "fault=bad_stag"}, 2}, {"stray_segments_total", []string{me, "device=eth1"}, 9},
		{"captured_packets_total", []string{me}, 8}, {"capture_lost_packets_total", []string{me}, 4}, {"events_lost_total", nil, 3},
		{"iscsi_sessions", []string{me, "role=target", "state=up"}, 3}, {"iscsi_sessions", []string{"state=login"}, 1}, {"iscsi_commands_in_progress", []string{me, "role=target"}, 17},
		{"iscsi_commands_total", append(eth1, "role=target"), 100}, {"iscsi_placed_bytes_total", append(eth1, "role=target"), 104}, {"iscsi_repaired_total", eth1, 108}, {"iscsi_recoveries_total", eth1, 109},
		{"iscsi_reasons_total", append(eth1, "role=target", "reason=no_task"), 6},
		{"port_drained", eth1, 1}, {"flows_moved_total", append(eth1, "cause=drain"), 24}, {"flows_moved_in_total", eth1, 21}, {"flow_moves_failed_total", eth1, 22}, {"port_drains_total", eth1, 23},
		{"engine_foreign_segments_total", append(eth1, "queue=1"), of(t, e.Queues[1].Counters, "engine.foreign_rx")}, {"engine_foreign_copied_segments_total", append(eth1, "queue=1"), of(t, e.Queues[1].Counters, "engine.foreign_copied")},
		{"other_total", []string{me, "layer=warp", "name=cores"}, 5},
		{"qp_info", []string{me, "qp=5", "device=eth1", "local=192.0.2.1:7174", "remote=[2001:db8::2]:40000"}, 1},
		{"qp_info", []string{"qp=6", "local="}, 1},
		{"qp_writes_received_total", []string{me, "qp=5"}, 6}, {"qp_outstanding_reads_transmitted_peak", []string{"qp=5"}, 4},
		{"qp_tcp_rtt_seconds", []string{"qp=5"}, 0.0015}, {"qp_tcp_rto_seconds", []string{"qp=5"}, 0.2},
		{"qp_tcp_congestion_window_bytes", nil, 14480}, {"qp_tcp_unacknowledged_bytes", nil, 11}, {"qp_tcp_retransmitted_segments_total", nil, 3},
	} {
		if got := value(t, all, c.name, c.with...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.with, got, c.want)
		}
	}
	for _, f := range Families() {
		if all[f.Name] == nil && !f.QP && f != other {
			t.Errorf("%s has no series", f.Name)
		}
	}
}

// TestLatencies: the classes of latencies are the buckets of a histogram.
func TestLatencies(t *testing.T) {
	all := scraped(t, newExporter(t, false), found{answers: []answer{{at: at, engine: full()}}}, nil)
	list := all["stag_iscsi_command_duration_seconds"].GetMetric()
	if len(list) != 1 {
		t.Fatalf("%d series", len(list))
	}
	h := list[0].GetHistogram()
	if h.GetSampleCount() != 13 || h.GetSampleSum() != 2.5 || len(h.GetBucket()) != 2 ||
		h.GetBucket()[0].GetUpperBound() != 32e-6 || h.GetBucket()[0].GetCumulativeCount() != 5 || h.GetBucket()[1].GetUpperBound() != 64e-6 || h.GetBucket()[1].GetCumulativeCount() != 12 {
		t.Errorf("%v", h)
	}
	if labels := labelsOf(list[0]); !strings.Contains(labels, " device=eth1 ") || !strings.Contains(labels, " role=target ") {
		t.Errorf("labels %s", labels)
	}
}

// TestFrozen: the classes of times frozen are the buckets of a histogram.
func TestFrozen(t *testing.T) {
	all := scraped(t, newExporter(t, false), found{answers: []answer{{at: at, engine: full()}}}, nil)
	list := all["stag_flow_move_frozen_seconds"].GetMetric()
	if len(list) != 1 {
		t.Fatalf("%d series", len(list))
	}
	h := list[0].GetHistogram()
	if h.GetSampleCount() != 5 || h.GetSampleSum() != 4.5 || len(h.GetBucket()) != 1 || h.GetBucket()[0].GetUpperBound() != 64e-6 || h.GetBucket()[0].GetCumulativeCount() != 4 {
		t.Errorf("%v", h)
	}
}

// TestPinned: programs without an engine have series of their own. A program that an engine has reported is not
// counted twice.
func TestPinned(t *testing.T) {
	all := scraped(t, newExporter(t, false), found{answers: []answer{{at: at, engine: full()}}, pins: pins()}, nil)
	for _, c := range []struct {
		name string
		with []string
		want float64
	}{
		{"steer_packets_total", []string{"netns=77", "reason=steered"}, 12},
		{"steer_packets_total", []string{"device=eth1", "netns=78", "reason=no_flow"}, 4},
		{"flows", []string{"netns=78", "state=live"}, 1}, {"flows", []string{"netns=78", "state=orphan"}, 1},
		{"flows_max", []string{"netns=78"}, 16},
		{"pinned_info", []string{"device=eth1", "netns=77", "loaded_as=store", "program_id=42", "state=used"}, 1},
		{"pinned_info", []string{"netns=78", "state=unused"}, 1},
		{"pinned_info", []string{"device=if4", "netns=79", "state=stale"}, 1},
	} {
		if got := value(t, all, c.name, c.with...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.with, got, c.want)
		}
	}
	if n := len(all["stag_flows_max"].GetMetric()); n != 2 {
		t.Errorf("%d series of stag_flows_max, want none of the stale one", n)
	}
	if all["stag_qp_info"] != nil {
		t.Error("series of queue pairs, and nobody has asked for them")
	}
}

// TestOtherUser: the report of another user's engine adds only to that user's series, whatever device, namespace and
// program it claims: neither to those of root's engine nor to those of pins.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() == 1000 {
		t.Skip("SKIPPED: user 1000 is no other user here")
	}
	lies := full()
	lies.Counts.Flows["eth1"]["live"] = 1000
	for i := range lies.Counters {
		lies.Counters[i].Value = 1e15
	}
	lies.Devices = append(lies.Devices, report.Device{Name: "eth9", Ifindex: 9, Program: 43, FlowTable: 1})
	other := control.Endpoint{PID: at.PID, Adapter: at.Adapter, UID: 1000} // with a pid that the user's own process had before
	x := newExporter(t, true)
	honest := scraped(t, x, found{answers: []answer{{at: at, engine: full()}}, pins: pins()}, nil)
	both := scraped(t, x, found{answers: []answer{{at: at, engine: full()}, {at: other, engine: lies}}, pins: pins()}, nil)
	for name, f := range both {
		was := map[string]float64{}
		for _, m := range honest[name].GetMetric() {
			was[labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		for _, m := range f.GetMetric() {
			labels, v := labelsOf(m), m.GetCounter().GetValue()+m.GetGauge().GetValue()
			before, known := was[labels]
			if its := strings.Contains(labels, " uid=1000 "); its == known || known && before != v {
				t.Errorf("%s%s is %v, and %v (%v) without the other user's engine", name, labels, v, before, known)
			}
			delete(was, labels)
		}
		if len(was) != 0 {
			t.Errorf("%s has lost %v", name, was)
		}
	}
	if value(t, both, "flows_max", "netns=78") != 16 {
		t.Error("a program that another user claims to have is hidden")
	}
}

// labelsOf returns the labels of a series, each between blanks.
func labelsOf(m *dto.Metric) string {
	text := " "
	for _, l := range m.GetLabel() {
		text += l.GetName() + "=" + l.GetValue() + " "
	}
	return text
}

// TestSilent: an engine that does not answer is reported as down under its previous name. An engine that is gone has
// no series. Both are counted as errors, and the other engines keep their series.
func TestSilent(t *testing.T) {
	x := newExporter(t, false)
	second := control.Endpoint{PID: 13, Adapter: 1}
	scraped(t, x, found{answers: []answer{{at: at, engine: full()}, {at: second, engine: full()}}}, nil)
	late := fmt.Errorf("ask: %w", engines.ErrSilent)
	all := scraped(t, x, found{answers: []answer{{at: at, err: late}, {at: second, engine: full()}}}, nil)
	if value(t, all, "engine_up", me, "program=kv") != 0 || value(t, all, "engine_up", "pid=13") != 1 || value(t, all, "cqs", "pid=13") != 2 {
		t.Error("the wrong one is down")
	}
	all = scraped(t, x, found{answers: []answer{{at: at, err: fmt.Errorf("x: %w", control.ErrGone)}, {at: second, err: control.ErrPermission}}, err: loader.ErrLayout}, errors.New("no directory"))
	if n := len(all["stag_engine_up"].GetMetric()); n != 1 {
		t.Errorf("%d engines are up or down, want the one that is another's", n)
	}
	for why, want := range map[string]float64{"timeout": 1, "gone": 1, "permission": 1, "pins": 1, "other": 1, "schema": 0} {
		if got := value(t, all, "scrape_errors_total", "reason="+why); got != want {
			t.Errorf("%v errors because of %s, want %v", got, why, want)
		}
	}
	if len(x.programs) != 1 {
		t.Errorf("engines that are gone are remembered: %v", x.programs)
	}
}

// TestTwice: an engine that reports something twice, or text that is no valid label, does not spoil the scrape.
func TestTwice(t *testing.T) {
	e := full()
	e.Program = "k\"v\n\\ \u202e"
	e.Devices, e.Queues, e.QPs = append(e.Devices, e.Devices...), append(e.Queues, e.Queues...), append(e.QPs, e.QPs...)
	all := scraped(t, newExporter(t, true), found{answers: []answer{{at: at, engine: e}, {at: at, engine: full()}}}, nil)
	if value(t, all, "engine_up", "program="+e.Program) != 1 {
		t.Error("its name is not its label")
	}
}

// TestEveryCounter: every counter of a report has a family, so that no counter is exported as unknown.
func TestEveryCounter(t *testing.T) {
	known := func(c report.Counter) bool {
		return len(counted[c.Layer+"."+c.Name]) > 0 || c.Layer == "wire" || c.Layer == "tcp" && tcpDrops[c.Name]
	}
	for _, c := range counters(0) {
		if !known(c) {
			t.Errorf("%s.%s is no metric", c.Layer, c.Name)
		}
	}
	for _, c := range report.Fields("rdmap", rdmap.Stats{}) {
		if ofQPs[c.Layer+"."+c.Name] == nil || len(counted[c.Layer+"."+c.Name]) == 0 {
			t.Errorf("%s.%s is no metric of a queue pair, or none of a device", c.Layer, c.Name)
		}
	}
	// Every counter that a family sums exists.
	there := map[string]bool{"verbs.events_lost": true, "capture.packets": true, "capture.lost": true, "placeholder.strays": true, "move.in": true, "move.failed": true, "move.drains": true}
	for _, name := range sessionNames {
		there["iscsi_initiator."+name], there["iscsi_target."+name] = true, true
	}
	for _, c := range append(counters(0), report.Fields("rdmap", rdmap.Stats{})...) {
		there[c.Layer+"."+c.Name] = true
	}
	for _, f := range Families() {
		for _, from := range f.From {
			if !there[from] {
				t.Errorf("%s is made of %s, which there is not", f.Name, from)
			}
		}
		if strings.Contains(f.Help, "\n") || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: the help %q is no line with a full stop", f.Name, f.Help)
		}
	}
}

// TestLabels: no label has the name of one that Prometheus adds.
func TestLabels(t *testing.T) {
	for _, f := range Families() {
		for _, l := range f.Labels {
			if l == "instance" || l == "job" || strings.HasPrefix(l, "__") {
				t.Errorf("%s has the label %s, which Prometheus would rename", f.Name, l)
			}
		}
	}
}
