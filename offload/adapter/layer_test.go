package adapter

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/report"
	common "github.com/stag-rdma/stag/test/rig"
)

// testLayer is a layer of connections that carry octets.
type testLayer struct {
	mu     sync.Mutex
	conns  []Connection
	looks  int // at connections, by reports
	closed int
	events []Event
}

func (l *testLayer) CloseConnections() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
}

func (l *testLayer) Connections() []Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.conns)
}

func (l *testLayer) notify(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// set replaces what the layer says of its one connection.
func (l *testLayer) set(c Connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Look = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looks++
	}
	l.conns = []Connection{c}
}

func (l *testLayer) Snapshot() Snapshot { return testSnapshot{l} }

// testSnapshot is the layer's part of a report: a counter by device, and one of none.
type testSnapshot struct{ *testLayer }

func (s testSnapshot) Describe(r *report.Engine, parts report.Parts) {
	for _, d := range r.Devices {
		r.Counters = append(r.Counters, report.Counter{Device: d.Name, Layer: "test", Name: "looks", Value: uint64(s.looks)})
	}
	if r.Counts != nil {
		r.Counts.QPs["test"] = len(s.conns)
	}
}

func (s testSnapshot) Counters() []report.Counter {
	return []report.Counter{{Layer: "test", Name: "reports", Value: 1}}
}

// exchange begins an echo of size octets, as the layer's connection 7. finish ends it.
func (r *rig) exchange(size uint64) (finish func()) {
	r.Helper()
	source := octets.NewTransfer(octets.Plan{Send: size, Seed: 7, Expect: size, PeerSeed: 7, Hold: true})
	echo := octets.NewEcho()
	x, y := r.sockets()
	c := Connection{Stream: report.Stream{QP: 7, Initiator: true}}
	c.Local, c.Remote = x.Ends()
	r.layer.set(c)
	far, err := y.TakeOver(r.Ctx(), echo, TakeOver{Kind: bpf.KindBytes, Accepted: true})
	r.Must(err)
	far.Wake()
	c.Conn, err = x.TakeOver(r.Ctx(), source, TakeOver{Kind: bpf.KindBytes})
	r.Must(err)
	r.layer.set(c)
	c.Conn.Wake()
	r.Eventually("all octets are back", func() bool { return source.Received() == size })
	return func() {
		source.Release()
		c.Conn.Wake()
		common.Wait(r, source.Done(), "the end of the source")
		common.Wait(r, echo.Done(), "the end of the echo")
		r.Check(source.Err())
		r.Check(echo.Err())
	}
}

// TestLayerReported: a report has the layer's connection as a flow of the port, and
// what the layer adds to it, at the place for that.
func TestLayerReported(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		finish := r.exchange(10000)
		got, err := r.a.Report(r.Ctx(), report.AllParts)
		r.Must(err)
		device := report.KernelDevice
		if ports := r.a.Ports(); len(ports) != 0 {
			device = ports[0].Name()
			if len(got.Flows) != 1 || got.Flows[0].QP != 7 || got.Flows[0].TCP.Counters == nil {
				t.Errorf("flows %+v", got.Flows)
			}
		}
		if d := got.Devices; len(d) != 1 || d[0].Name != device || d[0].Flows != 1 {
			t.Errorf("devices %+v", d)
		}
		if got.Counts.QPs["test"] != 1 || r.layer.looks != 1 {
			t.Errorf("counts %+v, %d looks", got.Counts, r.layer.looks)
		}
		var order []string
		for _, c := range got.Counters {
			if name := c.Layer + " " + c.Device; !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
		want := []string{"test " + device, "tpt ", "test ", "capture "}
		if device != report.KernelDevice {
			want = slices.Insert(want, 1, "steer "+device, "placeholder "+device)
		}
		if !slices.Equal(order, want) {
			t.Errorf("the counters are in the order %q, want %q", order, want)
		}
		few, err := r.a.Report(r.Ctx(), report.PartDevices)
		if err != nil || few.Counters != nil || few.Flows != nil || few.MRs != nil || len(few.Devices) != 1 {
			t.Errorf("%+v, %v", few, err)
		}
		finish()
		r.Must(r.a.Close())
		_, err = r.a.Report(r.Ctx(), report.AllParts)
		r.Says(err, ErrClosed, "report: the adapter is closed")
		if r.layer.closed != 1 {
			t.Errorf("the layer was closed %d times", r.layer.closed)
		}
	})
}

// TestLayerCaptured: packets of a layer's connection have its number, also those of the
// take-over itself, and come with what the ends have agreed on. Filters choose them.
func TestLayerCaptured(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		nothing := func(report.Batch) error { return nil }
		if len(r.a.Ports()) == 0 {
			r.Says(r.a.Capture(r.Ctx(), report.Filter{}, nothing), nil, "kernel port")
			return
		}
		ctx, stop := context.WithCancel(r.Ctx())
		defer stop()
		begun, ended := make(chan struct{}), make(chan error, 1)
		var batches []report.Batch
		go func() {
			ended <- r.a.Capture(ctx, report.Filter{}, func(b report.Batch) error {
				if batches = append(batches, b); len(batches) == 1 {
					close(begun)
				}
				return nil
			})
		}()
		common.Wait(t, begun, "the capture")
		finish := r.exchange(100000)
		device := r.a.Ports()[0].Name()
		for says, f := range map[string]report.Filter{
			"no device": {Device: "nowhere"}, "no QP 8": {QP: 8}, "no flow 0xffff": {Flow: 0xffff}, "has flow": {QP: 7, Flow: 0xffff},
		} {
			r.Says(r.a.Capture(ctx, f, nothing), nil, says)
		}
		finish()
		r.a.Depart(r.layer.Connections()[0])
		r.Must(r.a.Close())
		r.Must(common.Wait(t, ended, "the capture's end"))
		var streams []report.Stream
		packets, sent := 0, 0
		for _, b := range batches {
			streams = append(streams, b.Streams...)
			for _, p := range b.Packets {
				if p.QP == 7 {
					packets++
				}
				if p.QP == 7 && p.Out {
					sent += p.Length
				}
			}
		}
		if len(streams) != 1 || streams[0].QP != 7 || streams[0].Device != device || !streams[0].Initiator || streams[0].Flow == 0 {
			t.Errorf("streams %+v", streams)
		}
		if packets == 0 || sent < 100000 {
			t.Errorf("%d packets, %d octets out", packets, sent)
		}
		if n, lost := r.a.Captured(); n < uint64(packets) || lost != 0 {
			t.Errorf("the adapter counts %d packets and %d lost", n, lost)
		}
		r.Says(r.a.Capture(r.Ctx(), report.Filter{}, nothing), ErrClosed)
	})
}

// TestStatsOfTheDevice: what TCP, engines and sockets have counted.
func TestStatsOfTheDevice(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		r.exchange(10000)()
		conn := r.layer.Connections()[0].Conn
		s, err := conn.Stats(r.Ctx())
		r.Must(err)
		c, err := r.a.Counters(r.Ctx())
		r.Must(err)
		ports, err := r.a.Describe()
		r.Must(err)
		_, err = r.a.SocketStats(r.Ctx(), "nowhere")
		r.Says(err, ErrNoPort, "nowhere")
		if len(r.a.Ports()) == 0 {
			if s.OctetsOut != 0 || c.RxPackets != 0 || ports[0].Path != "kernel port" || conn.Device() != report.KernelDevice || conn.Flow() != 0 {
				t.Errorf("%+v, %+v, %+v, %s, %d", s, c, ports, conn.Device(), conn.Flow())
			}
			return
		}
		name := r.a.Ports()[0].Name()
		sockets, err := r.a.SocketStats(r.Ctx(), name)
		r.Must(err)
		if s.OctetsOut < 10000 || s.OctetsIn < 10000 || c.RxPackets == 0 || sockets[0].Rx == 0 || conn.Flow() == 0 || conn.Device() != name {
			t.Errorf("%+v, %+v, %+v", s, c, sockets)
		}
		if p := ports[0]; p.Name != name || p.MTU != 1500 || len(p.Addresses) < 2 {
			t.Errorf("%+v", p)
		}
	})
}

// TestLaterLayer: a layer that comes after Open is in reports and among the connections, and each key has one layer.
func TestLaterLayer(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, NoControl: true})
	l, made := &testLayer{}, 0
	type key struct{}
	for range 2 {
		if a.Extend(key{}, func() Reporter { made++; return l }) != Reporter(l) {
			t.Error("another layer")
		}
	}
	if made != 1 {
		t.Errorf("%d layers were made", made)
	}
	l.set(Connection{Stream: report.Stream{QP: 9}})
	has := func() bool {
		return slices.ContainsFunc(a.connections(), func(c Connection) bool { return c.Stream.QP == 9 })
	}
	e, err := a.Report(r.Ctx(), report.AllParts)
	r.Must(err)
	if !has() || !slices.ContainsFunc(e.Counters, func(c report.Counter) bool { return c.Layer == "test" && c.Name == "reports" }) {
		t.Errorf("the layer is not reported: %+v", e.Counters)
	}
}
