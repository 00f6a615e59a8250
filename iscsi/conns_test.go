package iscsi_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// TestConnections: a session of several connections against our target, over both carriers,
// with calls and with a queue.
func TestConnections(t *testing.T) {
	for _, carrier := range carriers {
		for _, arguments := range []string{"?connections=4", "?connections=3&header_digest=crc32c&data_digest=crc32c"} {
			t.Run(carrier+arguments, func(t *testing.T) {
				s := newServing(t, carrier)
				d, err := iscsi.Dial(s.Ctx(), url(s.server, "", arguments), iscsi.Config{Adapter: s.adapters[ours]})
				s.Must(err)
				defer func() { s.Check(d.Close()) }()
				if n, want := d.Session().Connections(), int(arguments[len("?connections=")]-'0'); n != want || s.server.Sessions() != 1 {
					t.Fatalf("%d connections, want %d; %d sessions", n, want, s.server.Sessions())
				}
				patterns(t, d, s.disk)
				l := newLoad(t, d, 64, 16<<10)
				l.run(&s.Stage, func() bool { return l.done.Load() > 4000 })
				s.Must(l.q.Close())
			})
		}
	}
}

// TestConnectionsRestart ends the target in the middle of verified writes and reads: the
// session logs in again with all of its connections, each IO completes once, and no octet is
// wrong.
func TestConnectionsRestart(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			s := newServing(t, carrier)
			d, err := iscsi.Dial(s.Ctx(), url(s.server, "", ""), iscsi.Config{Adapter: s.adapters[ours], Connections: 4})
			s.Must(err)
			defer func() { s.Check(d.Close()) }()
			outages(&s.Stage, newLoad(t, d, 16, 64<<10), 2, func() {
				s.Must(s.server.Close())
				s.open()
			})
		})
	}
}

// TestConnectionLost ends one connection of four, again and again: the session logs in with
// four, each IO completes once, and no octet is wrong.
func TestConnectionLost(t *testing.T) {
	var ups atomic.Int32
	s := serveOn(t, ram(t, 8<<20), nil)
	relay := newRelay(t, s.Addr().String())
	r := rig.On(t)
	d, err := iscsi.Dial(r.Ctx(), "iscsi://"+relay.l.Addr().String()+"/"+ownTarget+"/1?connections=4", iscsi.Config{
		Events: func(e iscsi.Event) {
			if e.Kind == iscsi.EventUp {
				ups.Add(1)
			}
		},
	})
	r.Must(err)
	defer func() { r.Check(d.Close()) }()
	const times = 8
	which := 0
	outages(&r, newLoad(t, d, 32, 16<<10), times, func() {
		relay.cutOne(which % 4)
		which++
	})
	if ups.Load() != times || d.Session().Connections() != 4 {
		t.Errorf("logged in again %d times, with %d connections", ups.Load(), d.Session().Connections())
	}
	if s.Sessions() != 1 {
		t.Errorf("the target has %d sessions", s.Sessions())
	}
}

// cutOne ends one of the youngest four connections.
func (r *relay) cutOne(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.links[len(r.links)-4+i]
	x.near.Close()
	x.far.Close()
}

// TestConnectionsCancel cancels reads and writes at any time: each abort goes over the
// connection of its command. The session goes on.
func TestConnectionsCancel(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			s := newServing(t, carrier)
			d, err := iscsi.Dial(s.Ctx(), url(s.server, "", ""), iscsi.Config{Adapter: s.adapters[ours], Connections: 3})
			s.Must(err)
			defer func() { s.Check(d.Close()) }()
			cancelMany(s.Stage, d)
		})
	}
}

// TestConnectionsPaths: each path of a disk has several connections, and paths die.
func TestConnectionsPaths(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{Connections: 2}, nil)
	for i, r := range s.relays {
		r.mu.Lock()
		if len(r.links) != 2 {
			t.Errorf("path %d has %d connections, want 2", i, len(r.links))
		}
		r.mu.Unlock()
	}
	n := 0
	outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), 4, func() {
		s.relays[n%2].cut()
		n++
	})
}

// TestConnectionsReport: a report has a row for each connection, and one session.
func TestConnectionsReport(t *testing.T) {
	x := newReported(t, ram(t, 1<<20))
	d, err := iscsi.Dial(x.Ctx(), url(x.server, "", "?connections=3"), iscsi.Config{Adapter: x.adapters[0]})
	x.Must(err)
	defer func() { x.Check(d.Close()) }()
	for side, role := range []string{report.Initiator, report.Target} {
		x.Eventually("all connections are up", func() bool { return len(x.report(side).ISCSI) == 3 })
		r := x.report(side)
		cids := map[uint16]bool{}
		for _, row := range r.ISCSI {
			if cids[row.CID] = true; row.TSIH != r.ISCSI[0].TSIH || row.Local == nil || row.Role != role {
				t.Errorf("%+v", row)
			}
		}
		if len(cids) != 3 || r.Counts.ISCSI[role]["up"] != 1 {
			t.Errorf("%s: CIDs %v, counts %v", role, cids, r.Counts.ISCSI)
		}
	}
}

// TestConnectionsNegotiated: the session has no more connections than the target permits.
func TestConnectionsNegotiated(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.Wishes.MaxConnections = 2 })
	d, err := iscsi.Dial(context.Background(), url(s, "", "?connections=16"), iscsi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n := d.Session().Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// TestConnectionsOfTgtd: tgtd permits one connection.
func TestConnectionsOfTgtd(t *testing.T) {
	s := newStage(t, carriers[0], tgtd.Config{})
	d := s.dial("", iscsi.Config{Connections: 4})
	if n := d.Session().Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestConnectionsRefused: what excludes several connections is refused before a login.
func TestConnectionsRefused(t *testing.T) {
	many, level := iscsi.Config{Connections: 2}, iscsi.Config{Connections: 2, ErrorRecoveryLevel: 1}
	for _, c := range []struct {
		scheme, arguments string
		config            iscsi.Config
		want              string
	}{
		{"iscsi", "?connections=17", iscsi.Config{}, "choose 1 to 16"},
		{"iscsi", "?connections=0", iscsi.Config{}, "choose 1 to 16"},
		{"iscsi", "", iscsi.Config{Connections: -1}, "choose 1 to 16"},
		{"iser", "?connections=2", iscsi.Config{}, "a session of iSER has one connection"},
		{"iser", "", many, "a session of iSER has one connection"},
		{"iscsi", "", level, "set Connections to 1"},
	} {
		_, err := iscsi.Dial(context.Background(), c.scheme+"://192.0.2.1/"+ownTarget+"/1"+c.arguments, c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s, %d: %v, want %q", c.scheme, c.arguments, c.config.Connections, err, c.want)
		}
	}
	for _, w := range []iscsi.Wishes{{MaxConnections: 2, ErrorRecoveryLevel: 1}, {MaxConnections: 17}} {
		_, err := iscsi.Serve(context.Background(), iscsi.ServerConfig{Targets: []iscsi.TargetConfig{{Name: ownTarget}}, Wishes: w})
		if err == nil || !strings.Contains(err.Error(), "MaxConnections") {
			t.Errorf("%d connections, level %d: %v", w.MaxConnections, w.ErrorRecoveryLevel, err)
		}
	}
}
