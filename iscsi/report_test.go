package iscsi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// reported is a server and an initiator, each with an adapter of its own whose report is read.
type reported struct {
	rig.Stage
	adapters [2]*rdma.Adapter // of the initiator, of the target
	server   *iscsi.Server
}

func newReported(t *testing.T, b unit.Backend) *reported {
	x := &reported{Stage: rig.On(t)}
	for i := range x.adapters {
		a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true})
		x.Must(err)
		t.Cleanup(func() { x.Must(a.Close()) })
		x.adapters[i] = a
	}
	x.server = serveOn(t, b, func(c *iscsi.ServerConfig) {
		c.Adapter, c.Wishes.DataDigest = x.adapters[1], []login.Digest{login.CRC32C, login.NoDigest}
	})
	return x
}

func (x *reported) report(side int) report.Engine {
	x.Helper()
	r, err := x.adapters[side].Report(x.Ctx())
	x.Must(err)
	return r
}

// value returns a counter of a list.
func (x *reported) value(list []report.Counter, layer, name string) uint64 {
	x.Helper()
	for _, c := range list {
		if c.Layer == layer && c.Name == name {
			return c.Value
		}
	}
	x.Fatalf("no counter %s.%s", layer, name)
	return 0
}

// latencies returns the number of latencies of a list.
func latencies(list []report.Counter) (n uint64) {
	for _, c := range list {
		if strings.HasSuffix(c.Layer, "_latency") {
			n += c.Value
		}
	}
	return n
}

// gate is a backend that holds reads back while it is closed.
type gate struct {
	unit.Backend
	open chan struct{}
}

func (g *gate) ReadAt(p []byte, off int64) (int, error) {
	<-g.open
	return g.Backend.ReadAt(p, off)
}

func (g *gate) String() string { return "gate" }

// TestReport: the reports of both ends have the session, its commands in progress, what was moved and refused, and the
// unit with its reservation. The sums stay when the session has ended.
func TestReport(t *testing.T) {
	g := &gate{Backend: ram(t, 1<<20), open: make(chan struct{})}
	x := newReported(t, g)
	if r := x.report(0); len(r.ISCSI) != 0 || r.Counts.ISCSI != nil {
		t.Errorf("%+v before the first session", r.ISCSI)
	}
	d, err := iscsi.Dial(x.Ctx(), url(x.server, "", "?data_digest=crc32c"), iscsi.Config{Adapter: x.adapters[0], InitiatorName: "iqn.2026-01.test.stag:i1"})
	x.Must(err)
	data := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	_, err = d.WriteAt(data, 0)
	x.Must(err)
	reserve := [6]byte{0x16}
	_, err = d.Session().Do(x.Ctx(), iscsi.Command{LUN: 1, CDB: reserve[:]})
	x.Must(err)

	read := make(chan error, 1)
	go func() {
		_, err := d.ReadAt(make([]byte, 4096), 0)
		read <- err
	}()
	for side, role := range []string{report.Initiator, report.Target} {
		x.Eventually("the read is in progress", func() bool { return len(x.report(side).ISCSI) == 1 && x.report(side).ISCSI[0].InProgress == 1 })
		time.Sleep(2 * time.Millisecond) // longer than the first class of ages
		r := x.report(side)
		s := r.ISCSI[0]
		ages := 0
		for _, n := range s.CommandAges[1:] {
			ages += n
		}
		if s.Role != role || s.State != "up" || s.Initiator != "iqn.2026-01.test.stag:i1" || s.Target != ownTarget || len(s.ISID) != 12 || s.TSIH == 0 ||
			s.Device != report.KernelDevice || s.Carrier != "tcp" || !s.DataDigest || s.HeaderDigest || s.Error != "" || len(s.LUNs) != 1 || s.LUNs[0] != 1 {
			t.Errorf("%+v", s)
		}
		if s.InProgress != 1 || ages != 1 || s.Oldest < 2000 || r.Counts.ISCSI[role]["up"] != 1 || r.Counts.Commands[role] != 1 {
			t.Errorf("in progress: %d, by age %v, oldest %d us; %+v", s.InProgress, s.CommandAges, s.Oldest, r.Counts)
		}
		moved := map[string]string{report.Initiator: "sent_octets", report.Target: "placed_octets"}[role]
		if n := x.value(s.Counters, "iscsi_"+role, moved); n < uint64(len(data)) {
			t.Errorf("%s: %s is %d", role, moved, n)
		}
		if len(r.LUNs) != 1 || r.LUNs[0].Octets != 1<<20 || r.LUNs[0].LUN != 1 || r.LUNs[0].Role != role || r.LUNs[0].Sessions != 1 {
			t.Errorf("%+v", r.LUNs)
		}
	}
	if l := x.report(1).LUNs[0]; l.Backend != "gate" || !strings.HasPrefix(l.Reservation, "RESERVE(6) of iqn.2026-01.test.stag:i1,i,0x80") {
		t.Errorf("%+v", l)
	}
	close(g.open)
	x.Must(<-read)
	before := [2]report.Engine{x.report(0), x.report(1)}
	x.Must(d.Close())
	x.Eventually("the target has seen the logout", func() bool { return x.server.Sessions() == 0 })
	for side, role := range []string{report.Initiator, report.Target} {
		r := x.report(side)
		if len(r.ISCSI) != 0 || r.Counts.ISCSI[role]["up"] != 0 || len(r.Counts.ISCSI) != 1 {
			t.Errorf("after the end: %+v %+v", r.ISCSI, r.Counts)
		}
		for _, name := range []string{"commands", "placed_octets", "sent_octets", "pdus_in"} {
			if now, then := x.value(r.Counters, "iscsi_"+role, name), x.value(before[side].Counters, "iscsi_"+role, name); now < then || then == 0 {
				t.Errorf("%s of the %s: %d after %d", name, role, now, then)
			}
		}
		if now, then := latencies(r.Counters), latencies(before[side].Counters); now < then || then < 3 {
			t.Errorf("latencies of the %s: %d after %d", role, now, then)
		}
	}
	if l := x.report(1).LUNs; len(l) != 1 || l[0].Reservation != "" || l[0].Sessions != 0 {
		t.Errorf("after the end: %+v", l)
	}
}

// TestReportOverOutages: while sessions lose connections and log in again, reports see them all the time, and no sum
// ever decreases.
func TestReportOverOutages(t *testing.T) {
	x := newReported(t, ram(t, 1<<20))
	relay := newRelay(t, x.server.Addr().String())
	d, err := iscsi.Dial(x.Ctx(), "iscsi://"+relay.l.Addr().String()+"/"+ownTarget+"/1", iscsi.Config{Adapter: x.adapters[0]})
	x.Must(err)
	ctx, cancel := context.WithCancel(x.Ctx())
	defer cancel()
	var done atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p := make([]byte, 8192)
		for ctx.Err() == nil {
			if _, err := d.ReadAt(p, 0); err != nil {
				t.Error(err)
				return
			}
			done.Add(1)
		}
	}()
	last := [2]map[string]uint64{{}, {}}
	look := func() {
		for side := range last {
			for _, c := range x.report(side).Counters {
				if name := c.Layer + "." + c.Name; strings.HasPrefix(name, "iscsi_") {
					if c.Value < last[side][name] {
						t.Errorf("%s is %d after %d", name, c.Value, last[side][name])
					}
					last[side][name] = c.Value
				}
			}
		}
	}
	for range 5 {
		before := done.Load()
		x.Eventually("the reads go on", func() bool { look(); return done.Load() > before+20 })
		relay.cut()
	}
	before := done.Load()
	x.Eventually("the reads go on", func() bool { look(); return done.Load() > before+20 })
	cancel()
	<-ended
	look()
	s := x.report(0).ISCSI[0]
	if s.Recoveries < 5 || x.value(s.Counters, "iscsi_initiator", "recoveries") != s.Recoveries || s.Error == "" || last[0]["iscsi_initiator.recoveries"] != s.Recoveries {
		t.Errorf("%+v; the sum is %d", s, last[0]["iscsi_initiator.recoveries"])
	}
	if n := x.value(s.Counters, "iscsi_initiator", "placed_octets"); n < 8192*uint64(done.Load()) || last[0]["iscsi_initiator.placed_octets"] > n {
		t.Errorf("%d octets of %d reads, in the sum %d", n, done.Load(), last[0]["iscsi_initiator.placed_octets"])
	}
	x.Must(d.Close())
}

// slowLog is a log that holds its first line about a session back.
type slowLog struct {
	slog.Handler
	open chan struct{}
}

func (l slowLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "session" {
		<-l.open
	}
	return l.Handler.Handle(ctx, r)
}

// TestReportOfShortSession: what a target has refused counts, also if the session has ended
// before the goroutine that took the connection over goes on.
func TestReportOfShortSession(t *testing.T) {
	r := rig.On(t)
	a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true})
	r.Must(err)
	defer func() { r.Check(a.Close()) }()
	log := slowLog{slog.NewTextHandler(io.Discard, nil), make(chan struct{})}
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.Adapter, c.Log = a, slog.New(log) })
	b := logIn(t, s, pdu.ISID{0x80, 1})
	var h pdu.Header
	h.Reset(pdu.OpLogin) // within the full feature phase
	b.write(h[:])
	b.socket.Close()
	time.Sleep(100 * time.Millisecond) // a server that does not wait has forgotten the session by then
	close(log.open)
	r.Eventually("the refusal counts", func() bool {
		e, err := a.Report(r.Ctx())
		r.Must(err)
		for _, c := range e.Counters {
			if c.Layer == "iscsi_target" && c.Name == "refused" && c.Value == 1 {
				return true
			}
		}
		return false
	})
}
