package rdma

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
	common "github.com/stag-rdma/stag/test/rig"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// asked returns the report of a's control socket, checked against the schema.
func (r *rig) asked(a *Adapter) report.Engine {
	r.Helper()
	all, err := control.Engines(os.Getpid())
	r.Must(err)
	for _, e := range all {
		if e.Adapter != a.device.Number() {
			continue
		}
		got, err := e.Report(r.Ctx())
		r.Must(err)
		text, err := json.Marshal(got)
		r.Must(err)
		r.schema(string(text))
		r.unique(got)
		return got
	}
	r.Fatalf("no socket of adapter %d among %v", a.device.Number(), all)
	panic("unreachable")
}

func (r *rig) schema(text string) {
	r.Helper()
	s, err := jsonschema.NewCompiler().Compile("../offload/report/schema.json")
	r.Must(err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	r.Must(err)
	if err := s.Validate(v); err != nil {
		r.Errorf("%v\n%s", err, text)
	}
}

// unique demands that no list has two counters with the same name.
func (r *rig) unique(e report.Engine) {
	r.Helper()
	lists := [][]report.Counter{e.Counters}
	for _, q := range e.Queues {
		lists = append(lists, q.Counters)
	}
	for _, q := range e.QPs {
		lists = append(lists, q.Counters)
	}
	for _, f := range e.Flows {
		if f.TCP != nil {
			lists = append(lists, f.TCP.Counters)
		}
	}
	for _, list := range lists {
		seen := map[report.Counter]bool{}
		for _, c := range list {
			c.Value = 0
			if seen[c] {
				r.Errorf("two counters are called %+v", c)
			}
			seen[c] = true
		}
	}
}

// count returns the value of a counter, which must exist.
func (r *rig) count(list []report.Counter, layer, name string) uint64 {
	r.Helper()
	for _, c := range list {
		if c.Layer == layer && c.Name == name {
			return c.Value
		}
	}
	r.Fatalf("no counter %s.%s among %v", layer, name, list)
	panic("unreachable")
}

// counts demands values of a QP's counters.
func (r *rig) counts(q report.QP, want map[string]uint64) {
	r.Helper()
	for name, n := range want {
		got := r.count(q.Counters, "rdmap", name)
		if strings.HasPrefix(name, "writes_") && got > n && n > 0 {
			got = max(n, got-4) // an initiator whose peer answers slowly sends up to four more Writes of length 0
		}
		if got != n {
			r.Errorf("QP %d: %s is %d, want %d", q.Number, name, got, n)
		}
	}
}

// exercise moves a known number of messages of each kind. Both ends see the same numbers,
// in opposite directions: 3 Writes of 5000 octets, 2 Reads of 3000, 4 Sends of 100. The last
// Send invalidates the region that exercise returns.
func exercise(x, y *end) *MR {
	r := x.r
	r.Helper()
	window, err := y.pd.AllocMR(4096, RemoteWrite|LocalWrite, MROptions{QP: y.qp})
	r.Must(err)
	for i := range 4 {
		y.receive(RecvWR{SGL: []SGE{y.mr.SGE(40000+100*i, 100)}})
	}
	for range 3 {
		x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 5000)}, RKey: y.mr.RKey()})
	}
	for range 2 {
		x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(10000, 3000)}, RKey: y.mr.RKey()})
	}
	r.ok(x.sent(2))
	for range 3 {
		x.post(SendWR{Op: WRSend, SGL: []SGE{x.mr.SGE(0, 100)}})
	}
	x.post(SendWR{Op: WRSendInvalidate, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 100)}, Invalidate: window.RKey()})
	r.ok(y.got(4))
	r.ok(x.sent(1))
	return window
}

// exercised has the counters of the two ends after exercise. The first message is the
// initiator's ready-to-receive message, a Write of length 0.
var exercised = [2]map[string]uint64{
	{"writes_out": 4, "write_octets_out": 15000, "read_requests_out": 2, "read_responses_in": 2, "read_octets_in": 6000,
		"sends_out": 4, "send_octets_out": 400, "invalidates_out": 1,
		"writes_in": 0, "read_requests_in": 0, "read_octets_out": 0, "sends_in": 0, "invalidates_in": 0, "most_reads_in": 0},
	{"writes_in": 4, "write_octets_in": 15000, "read_requests_in": 2, "read_responses_out": 2, "read_octets_out": 6000,
		"sends_in": 4, "send_octets_in": 400, "invalidates_in": 1,
		"writes_out": 0, "read_requests_out": 0, "read_octets_in": 0, "sends_out": 0, "invalidates_out": 0, "most_reads_out": 0},
}

// TestReport: the verb and the socket report every object of an adapter correctly.
func TestReport(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		exercise(x, y)
		idle, err := y.pd.CreateQP(QPConfig{SendCQ: y.send, RecvCQ: y.recv, SendDepth: 5, MaxInline: NoInline})
		r.Must(err)

		for i, e := range []*end{x, y} {
			got := r.asked(e.a)
			if got.PID != os.Getpid() || got.Adapter != e.a.device.Number() || got.Netns == 0 || got.Started.IsZero() || got.Program != "rdma.test" {
				t.Errorf("%+v", got)
			}
			q := got.QPs[0]
			c := e.qp.Conn()
			if q.Number != e.qp.Number() || q.State != "RTS" || *q.Local != c.Local || *q.Remote != c.Remote || q.Initiator != (i == 0) ||
				q.IRD != c.IRD || q.ORD != c.ORD || q.SendCQ != e.send.Number() || q.RecvCQ != e.recv.Number() || q.Error != "" {
				t.Errorf("%+v, and the connection is %+v", q, c)
			}
			r.counts(q, exercised[i])
			if r.count(q.Counters, "rdmap", "fpdus_out") < 1 || r.count(q.Counters, "rdmap", "most_reads_out")+r.count(q.Counters, "rdmap", "most_reads_in") == 0 {
				t.Errorf("%+v", q.Counters)
			}
			r.memory(e, got, 1+i)
			if r.pair == nil {
				kernelPortReported(r, got)
			} else {
				portReported(r, e, got)
			}
		}
		y.receive(RecvWR{SGL: []SGE{y.mr.SGE(0, 100)}})
		x.post(SendWR{Op: WRSend, SGL: []SGE{x.mr.SGE(0, 1)}, Flags: Signaled})
		r.Eventually("a completion waits", func() bool { return y.recv.queue.Ready() })
		got := r.asked(y.a)
		if q := got.QPs[1]; len(got.QPs) != 2 || q.Number != idle.Number() || q.State != "Idle" || q.Device != "" || q.Local != nil || q.SendDepth != 5 || q.MaxInline != 0 {
			t.Errorf("not connected: %+v", q)
		}
		cq := got.CQs[1]
		if len(got.CQs) != 2 || cq.Number != y.recv.Number() || cq.Ready != 1 || cq.QPs != 2 || cq.Depth != 512 || cq.Overrun {
			t.Errorf("CQ %+v of %d", cq, len(got.CQs))
		}
		r.Must(idle.Close())
		spare, err := y.a.CreateCQ(1)
		r.Must(err)
		r.Must(spare.Close())
		if got := r.asked(y.a); len(got.QPs) != 1 || len(got.CQs) != 2 {
			t.Errorf("%d QPs, %d CQs after Close", len(got.QPs), len(got.CQs))
		}
	})
}

// memory checks the report on n regions. All except e.mr must be invalid.
func (r *rig) memory(e *end, got report.Engine, n int) {
	r.Helper()
	d := got.Devices[0]
	if d.HeapSize != adapter.DefaultHeap || d.HeapFree != e.a.device.Heap().Left() || d.MaxMRs != adapter.DefaultRegions {
		r.Errorf("%+v", d)
	}
	seen := false
	for _, m := range got.MRs {
		mine := m.STag == report.STag(uint32(e.mr.LKey()))
		seen = seen || mine
		if m.Kind != "region" || m.Valid != mine || m.PD != uint32(e.pd.domain) || !m.Heap {
			r.Errorf("%+v", m)
		}
		if mine && (m.Start != e.mr.Addr() || m.Length != uint64(e.mr.Len()) || !slices.Equal(m.Rights, report.Rights("local read, local write, remote read, remote write"))) {
			r.Errorf("%+v", m)
		}
	}
	if !seen || len(got.MRs) != n {
		r.Errorf("%+v", got.MRs)
	}
}

func kernelPortReported(r *rig, got report.Engine) {
	d := got.Devices[0]
	if len(got.Devices) != 1 || d.Name != report.KernelDevice || d.State != "PORT_ACTIVE" || d.Flows != 1 || got.QPs[0].Device != report.KernelDevice {
		r.Errorf("%+v", d)
	}
	if len(got.Flows) != 0 || len(got.Queues) != 0 {
		r.Errorf("%d flows, %d queues", len(got.Flows), len(got.Queues))
	}
}

func portReported(r *rig, e *end, got report.Engine) {
	p := e.a.device.Ports()[0]
	d := got.Devices[0]
	if len(got.Devices) != 1 || d.Name != p.Name() || d.State != "PORT_ACTIVE" || d.Ifindex != p.NIC().Link().Index || d.MTU != 1500 || len(d.Addresses) < 2 ||
		d.Driver != "veth" || d.XDP != "native" || d.Queues != 1 || d.Flows != 1 || d.MaxFlows != 4096 || d.FlowTable < 4096 || d.Program != p.NIC().Steering().ProgID() {
		r.Errorf("%+v", d)
	}
	if len(got.Flows) != 1 || len(got.Queues) != 1 {
		r.Fatalf("%d flows, %d queues", len(got.Flows), len(got.Queues))
	}
	f, q := got.Flows[0], got.QPs[0]
	c := e.qp.Conn()
	if f.Device != p.Name() || f.Queue != 0 || f.ID != q.Flow || f.QP != q.Number || q.Device != p.Name() || f.Kind != "rdma" || f.State != "live" ||
		f.Local != c.Local || f.Remote != c.Remote {
		r.Errorf("%+v", f)
	}
	if f.TCP == nil || f.TCP.State != "ESTABLISHED" || f.TCP.MSS == 0 || f.TCP.PMTU != 1500 || f.TCP.RTO == 0 {
		r.Errorf("%+v", f.TCP)
	}
	queue := got.Queues[0]
	if queue.Device != p.Name() || queue.Mode != "copy" || queue.Flows != 1 || queue.FrameSize != 4096 || queue.RxFrames != 4096 {
		r.Errorf("%+v", queue)
	}
	for _, layer := range []struct{ layer, name string }{{"engine", "rx_packets"}, {"tcp", "segs_in"}, {"xsk", "rx"}} {
		if r.count(queue.Counters, layer.layer, layer.name) == 0 {
			r.Errorf("%v is 0", layer)
		}
	}
	if r.count(got.Counters, "steer", "steered") == 0 || r.count(queue.Counters, "wire", "bad_tcp_checksum") != 0 ||
		r.count(queue.Counters, "xsk_kernel", "rx_dropped") != 0 || r.count(got.Counters, "tpt", "bad_stag") != 0 || r.count(got.Counters, "capture", "lost") != 0 {
		r.Errorf("%+v %+v", got.Counters, queue.Counters)
	}
}

// TestReportOfTheEnd: a connection that has ended is reported with the reason and with
// its counters. Refused messages are counted.
func TestReportOfTheEnd(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		exercise(x, y)
		x.post(SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: y.mr.RKey(), RemoteAddr: 1 << 30})
		x.done()
		y.done()
		for i, e := range []*end{x, y} {
			got := r.asked(e.a)
			q := got.QPs[0]
			if q.State != "Error" || !strings.Contains(q.Error, "terminated by") || q.Remote == nil {
				t.Errorf("%+v", q)
			}
			want := exercised[i]
			want = map[string]uint64{"writes_in": want["writes_in"], "sends_in": want["sends_in"], "sends_out": want["sends_out"],
				"read_octets_in": want["read_octets_in"], "read_octets_out": want["read_octets_out"], "write_octets_in": want["write_octets_in"]}
			r.counts(q, want)
			if n := r.count(got.Counters, "tpt", "out_of_bounds"); n != uint64(i) {
				t.Errorf("%d refusals", n)
			}
			for _, f := range got.Flows { // flows in TIME-WAIT
				if f.TCP != nil || f.QP != q.Number && f.QP != 0 {
					t.Errorf("%+v", f)
				}
			}
		}
	})
}

var volatile = []struct {
	what *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`"(pid|adapter|netns|ifindex|program_id|heap_free|age_seconds|cwnd_bytes|snd_wnd|rcv_wnd|srtt_us|rttvar_us|rto_us|in_flight|unacked|unread|backoff|reorder_queue_frames|receive_frames_held|retransmission_queue_segments)": \d+`), `"$1": N`},
	{regexp.MustCompile(`"(id|flow)": "0x[0-9a-f]+"`), `"$1": "HEX"`},
	{regexp.MustCompile(`\s*"ssthresh_bytes": \d+,`), ``}, // present only after a loss
	{regexp.MustCompile(`"(asleep|recovering)": (true|false)`), `"$1": B`},
	{regexp.MustCompile(`"(congestion\w*)": "[a-z]+"`), `"$1": "NAME"`}, // the host's default
	{regexp.MustCompile(`"started": "[^"]*"`), `"started": "TIME"`},
	{regexp.MustCompile(`"(mac|next_hop_mac)": "[^"]*"`), `"$1": "MAC"`},
	{regexp.MustCompile(`\bs([ab])[0-9a-f]{7,}\b`), `veth-$1`},
	{regexp.MustCompile(`,\s*"fe80:[^"]*"`), ``},
	{regexp.MustCompile(`("(?:\d+\.){3}\d+):\d+"`), `$1:PORT"`},
	{regexp.MustCompile(`"stag": "0x[0-9a-f]{8}"`), `"stag": "STAG"`},
	{regexp.MustCompile(`(?s)\{\s*("device": "[^"]*",)?\s*"layer": "(\w+)",\s*"name": "(\w+)",\s*"value": (\d+)\s*\}`), `{$1"$2.$3": $4}`},
	{regexp.MustCompile(`"((?:steer|engine|tcp|xsk|xsk_kernel)\.\w+)": \d+`), `"$1": N`},
	{regexp.MustCompile(`"rdmap.(fpdus_\w+|most_reads_\w+|writes_in)": \d+`), `"rdmap.$1": N`},
}

// TestReportGolden: the JSON of a report is the golden one, byte for byte, except for values
// that change from run to run.
func TestReportGolden(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		r.Must(exercise(x, y).Close())
		name := "kernel-port"
		if r.pair != nil {
			name = "offloaded"
		}
		text, err := json.MarshalIndent(r.asked(y.a), "", "  ")
		r.Must(err)
		got := string(text) + "\n"
		for _, v := range volatile {
			got = v.what.ReplaceAllString(got, v.mask)
		}
		file := filepath.Join("testdata", "report-"+name+".golden")
		if *update {
			r.Must(os.MkdirAll("testdata", 0o755))
			r.Must(os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		if err != nil || got != string(want) {
			t.Errorf("not as in %s (%v; go test ./rdma -run TestReportGolden -update):\n%s", file, err, got)
		}
	})
}

// TestReportOfLargeTable: a report of counts has the number of regions and does not list
// them. A report of the regions lists each of them once.
func TestReportOfLargeTable(t *testing.T) {
	const regions = 1<<18 - 1
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, MaxRegions: regions, RegionHeap: 1 << 20})
	pd, err := a.AllocPD()
	r.Must(err)
	mem := make([]byte, 64)
	for range regions {
		_, err := pd.RegMR(mem, LocalWrite|RemoteRead)
		r.Must(err)
	}
	list, err := control.Engines(os.Getpid())
	r.Must(err)
	e := list[slices.IndexFunc(list, func(e control.Endpoint) bool { return e.Adapter == a.device.Number() })]
	counts, err := e.Ask(r.Ctx(), control.Question{Parts: report.PartCounts | report.PartDevices})
	r.Must(err)
	if n := counts.Counts; n.MRs["region"] != regions || n.Registered != 64*regions || counts.MRs != nil || counts.Devices[0].MaxMRs != regions {
		t.Errorf("%+v, %d told one by one", n, len(counts.MRs))
	}
	all, err := e.Ask(r.Ctx(), control.Question{Parts: report.PartMRs})
	r.Must(err)
	seen := map[string]bool{}
	for _, mr := range all.MRs {
		seen[mr.STag] = true
	}
	if len(seen) != regions || len(all.MRs) != regions {
		t.Errorf("%d regions were told, %d of them different", len(all.MRs), len(seen))
	}
}

// TestReportRefused: Report fails if its context has ended, and if the adapter is closed.
// The control socket of a closed adapter is gone.
func TestReportRefused(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, _ := r.connect(wants{})
		ctx, cancel := context.WithCancelCause(context.Background())
		enough := errors.New("enough")
		cancel(enough)
		_, err := x.a.Report(ctx)
		r.Says(err, enough, "report:")
		list, err := control.Engines(os.Getpid())
		r.Must(err)
		r.Must(x.a.Close())
		_, err = x.a.Report(r.Ctx())
		r.Says(err, ErrClosed, "report: the adapter is closed")
		gone := 0
		for _, e := range list {
			if _, err := e.Report(r.Ctx()); errors.Is(err, control.ErrGone) {
				gone++
			}
		}
		if gone != 1 {
			t.Errorf("%d of %d engines are gone", gone, len(list))
		}
	})
}

// TestNoControl: an adapter with NoControl makes no socket, and Report works all the same.
func TestNoControl(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, NoControl: true})
	list, err := control.Engines(0)
	r.Must(err)
	for _, e := range list {
		if e.PID == os.Getpid() && e.Adapter == a.device.Number() {
			t.Errorf("there is %v", e)
		}
	}
	if got, err := a.Report(r.Ctx()); err != nil || got.Adapter != a.device.Number() {
		t.Errorf("%+v, %v", got, err)
	}
}
