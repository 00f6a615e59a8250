package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

func TestParseQuota(t *testing.T) {
	q, err := ParseQuota("qps=64,rings=16M,mapped=2G,regions=1K")
	rig.Must(t, err)
	if want := (Quota{QPs: 64, Rings: 16 << 20, Mapped: 2 << 30, Regions: 1024}); q != want {
		t.Errorf("%+v, want %+v", q, want)
	}
	if q, err := ParseQuota(""); err != nil || q != (Quota{}) {
		t.Errorf("%+v, %v", q, err)
	}
	for text, word := range map[string]string{"cars=1": "choose one of", "qps": "qps=NUMBER", "qps=x": "qps=NUMBER", "qps=0": "qps=NUMBER", "qps=-1": "qps=NUMBER", "qps=1T": "qps=NUMBER"} {
		if _, err := ParseQuota(text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", text, err)
		}
	}
	full := Quota{}.fill()
	for i, field := range full.fields() {
		if field(0) != limits[i].preset {
			t.Errorf("%s is %d by default", limits[i].name, field(0))
		}
	}
}

// lines is a log that several goroutines write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A client that wants more than its quota is told so, and the operator learns which limit.
// Another client is not affected, and the first one can go on after it has given something
// back.
func TestQuotas(t *testing.T) {
	var log lines
	s := newScene(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Quota = Quota{
			PDs: 1, Channels: 1, CQs: 2, QPs: 1, SRQs: 1, Regions: 1, Windows: 1, IDs: 1, Streams: 2,
			CQSlots: 64, Rings: 1 << 16, Mapped: 8192, InFlight: 1,
		}
	})
	c, other := s.client(t), s.client(t)
	e := c.everything()
	memory := pinned(t, 8192)
	at := addressOfMemory(memory)
	for name, want := range map[string]struct {
		errno unix.Errno
		op    proto.Op
		fill  func(*proto.Message)
	}{
		"pds":      {unix.EDQUOT, proto.OpPD, nil},
		"channels": {unix.EDQUOT, proto.OpChannel, nil},
		"qps": {unix.EDQUOT, proto.OpQP, func(m *proto.Message) {
			*m.QP() = proto.QP{PD: e.pd, SendCQ: e.cq.handle, RecvCQ: e.cq.handle, Type: typeRC}
		}},
		"srqs":    {unix.EDQUOT, proto.OpSRQ, func(m *proto.Message) { *m.SRQ() = proto.SRQ{PD: e.pd, Depth: 1} }},
		"regions": {unix.EDQUOT, proto.OpMR, func(m *proto.Message) { *m.MR() = proto.MR{PD: e.pd, Addr: at, IOVA: at, Length: 1, Access: 1} }},
		"windows": {unix.EDQUOT, proto.OpMW, func(m *proto.Message) { *m.MW() = proto.MW{PD: e.pd, Type: 1} }},
		"ids":     {unix.EDQUOT, proto.OpID, func(m *proto.Message) { *m.ID() = proto.ID{Channel: e.events.handle, PortSpace: portSpaceTCP} }},
		"cqslots": {unix.ENOMEM, proto.OpCQ, func(m *proto.Message) { m.CQ().Depth = 60 }},
	} {
		c.refuse(want.errno, want.op, 0, want.fill)
		if !strings.Contains(log.String(), name+"=NUMBER") {
			t.Errorf("the log says nothing of %s", name)
		}
	}
	c.destroy(proto.KindMW, e.mw)
	c.destroy(proto.KindMR, e.mr)
	c.refuse(unix.ENOMEM, proto.OpMR, 0, func(m *proto.Message) { *m.MR() = proto.MR{PD: e.pd, Addr: at, IOVA: at, Length: 8193, Access: 1} })
	c.region(e.pd, memory, rdma.LocalWrite)
	c.destroy(proto.KindID, e.id)
	c.destroy(proto.KindQP, e.qp.handle)
	c.refuse(unix.ENOMEM, proto.OpQP, 0, func(m *proto.Message) {
		*m.QP() = proto.QP{PD: e.pd, SendCQ: e.cq.handle, RecvCQ: e.cq.handle, Type: typeRC, SendDepth: 4096}
	})
	second := c.attach(proto.OpEventChannel)
	third := connectTo(t, s.path)
	m := &proto.Message{Op: proto.OpAsync}
	m.Attach().Token = c.token
	if _, _, errno := third.exchange(m); errno != unix.EDQUOT {
		t.Errorf("a third connection for events: %v", errno)
	}
	second.conn.Close()
	s.Eventually("a place for another one", func() bool {
		x := connectTo(t, s.path)
		_, _, errno := x.exchange(m)
		return errno == 0
	})
	other.everything()
}

// A report has the clients, what each has, and which quota it has met.
func TestReportOfClients(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Quota = Quota{PDs: 1} })
	c := s.client(t, func(m *proto.Message) { m.Hello().Personality = proto.PersonalityRoCE })
	s.client(t)
	c.everything()
	c.refuse(unix.EDQUOT, proto.OpPD, 0, nil)
	r, err := s.adapter.Report(rig.Context(t))
	s.Must(err)
	if len(r.Clients) != 2 || r.Clients[0].Number != 1 || r.Clients[1].Number != 2 {
		t.Fatalf("clients: %+v", r.Clients)
	}
	got := r.Clients[0]
	if got.PID != os.Getpid() || int(got.UID) != os.Getuid() || got.Program == "" || got.Personality != "roce" || r.Clients[1].Personality != "iwarp" {
		t.Errorf("client: %+v", got)
	}
	if got.PDs != 1 || got.QPs != 1 || got.CQs != 1 || got.SRQs != 1 || got.MRs != 1 || got.MWs != 1 || got.IDs != 1 || got.Mapped != 4096 || got.Rings == 0 {
		t.Errorf("objects: %+v", got)
	}
	if got.Refused != 1 || got.LastWord != "pds" || r.Clients[1].Refused != 0 {
		t.Errorf("refused: %+v", got)
	}
}

// A client cannot fill the log.
func TestComplaintsAreLimited(t *testing.T) {
	var log lines
	l := slog.New(slog.NewTextHandler(&log, nil))
	var c complaints
	for range 10 * mostComplaints {
		c.warn(l, "no")
	}
	if n := strings.Count(log.String(), "\n"); n != mostComplaints {
		t.Errorf("%d lines, want %d", n, mostComplaints)
	}
	c.from = c.from.Add(-2 * time.Minute)
	c.warn(l, "no")
	if want := "omitted=180"; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %s", want)
	}
}
