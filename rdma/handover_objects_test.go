package rdma

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// sockets returns the two ends of a Unix socket.
func (r *rig) sockets() (ends [2]*net.UnixConn) {
	r.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	r.Must(err)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "upgrade")
		c, err := net.FileConn(f)
		r.Must(errors.Join(err, f.Close()))
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// upgradable is the configuration of an adapter on side A that can be handed over.
func (r *rig) upgradable() Config {
	return Config{
		Ports: []string{r.pair.Ends[pair.A].Name}, RegionHeap: 8 << 20, NoControl: true,
		Upgrade: func(context.Context, func(string)) (HandedOver, error) {
			return HandedOver{}, errors.New("not asked for")
		},
	}
}

// handOver hands r.a over to another adapter of this process, which becomes r.a.
func (r *rig) handOver(o HandOver, cfg Config, how Inherit) (old *Adapter, e *Estate, err error) {
	r.Helper()
	ends := r.sockets()
	type result struct {
		a   *Adapter
		e   *Estate
		err error
	}
	got := make(chan result, 1)
	go func() {
		var x result
		err := r.pair.Do(pair.A, func() error {
			x.a, x.e, x.err = Succeed(context.Background(), ends[1], cfg, how)
			return nil
		})
		x.err = errors.Join(x.err, err)
		got <- x
	}()
	h, err := r.a.HandOver(r.Context(), ends[0], o)
	x := <-got
	if err != nil || x.err != nil {
		if x.err == nil {
			r.Fatalf("the one end says %v", err)
		}
		return nil, nil, errors.Join(err, x.err)
	}
	if h.PID != os.Getpid() || len(h.Lost) != 0 || len(x.e.Lost) != 0 {
		r.Errorf("%+v, lost %v", h, x.e.Lost)
	}
	old, r.a = r.a, x.a
	r.Cleanup(func() {
		r.noFlows(x.a)
		r.Check(x.a.Close())
	})
	return old, x.e, nil
}

// newUpgradable returns a rig whose side A can be handed over, and whose side B has the
// kernel's TCP.
func newUpgradable(t *testing.T) *rig {
	r := newServed(t)
	r.Must(r.pair.Do(pair.A, func() (err error) { r.a, err = Open(r.upgradable()); return err }))
	first := r.a
	r.Cleanup(func() { r.Check(first.Close()) })
	return r
}

// TestInherited hands over objects of all kinds, in all their states, without traffic: each
// has its number, its STag, its contents and its state in the new adapter.
func TestInherited(t *testing.T) {
	r := newUpgradable(t)
	host := r.pair.Ends[pair.A].V4.Addr().String()
	pd, err := r.a.AllocPD()
	r.Must(err)
	cq, err := r.a.CreateCQ(64)
	r.Must(err)
	srq, err := pd.CreateSRQ(SRQConfig{Depth: 8, MaxSGE: 2})
	r.Must(err)
	mr, err := pd.AllocMR(10000, LocalWrite|RemoteWrite|RemoteRead|MWBind, MROptions{Start: 1 << 40})
	r.Must(err)
	copy(mr.Bytes(), "octets of the heap")
	inner, err := pd.RegMR(mr.Bytes()[100:200], LocalWrite)
	r.Must(err)
	revoked, err := pd.AllocMR(5, RemoteRead)
	r.Must(err)
	r.Must(revoked.Invalidate())
	mw, err := pd.AllocMW(MWType2B)
	r.Must(err)
	_, err = srq.PostRecv(RecvWR{ID: 1, SGL: []SGE{mr.SGE(0, 50)}}, RecvWR{ID: 2, SGL: []SGE{mr.SGE(50, 50)}}, RecvWR{ID: 3, SGL: []SGE{mr.SGE(1000, 50)}})
	r.Must(err)
	r.Must(srq.SetLimit(1))
	quiet, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq, SendDepth: 5, RecvDepth: 4, MaxSGE: 3, MaxInline: NoInline, Rate: 1e6, Reactive: true, RegMR: true})
	r.Must(err)
	r.Must(quiet.SetPeerAccess(RemoteRead))
	_, err = quiet.PostRecv(RecvWR{ID: 77})
	r.Must(err)
	dead, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq})
	r.Must(err)
	_, err = dead.PostRecv(RecvWR{ID: 9}, RecvWR{ID: 10})
	r.Must(err)
	dead.doom(errors.New("a reason"))
	<-dead.Done()
	bound, err := pd.RegMR(mr.Bytes()[300:400], LocalWrite, MROptions{QP: quiet})
	r.Must(err)
	l, err := r.a.Listen(r.Context(), ":0", ListenConfig{Backlog: 7})
	r.Must(err)

	// A connection with a window, with a message that waits in the CQ, and with a receive taken.
	server, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq, SRQ: srq})
	r.Must(err)
	peer := r.newEnd(r.b, wants{})
	accepted := make(chan error, 1)
	go func() {
		q, err := l.Accept(r.Context())
		if err == nil {
			err = q.Accept(r.Context(), server, ConnParams{PrivateData: []byte("hello"), Extensions: ExtRFC7306})
		}
		accepted <- err
	}()
	r.Must(peer.qp.Dial(r.Context(), net.JoinHostPort(host, portOf(l)), ConnParams{IRD: 4, ORD: 4, Extensions: ExtRFC7306}))
	r.Must(<-accepted)
	_, err = peer.qp.PostSend(SendWR{Op: WRSend, Inline: []byte("first")})
	r.Must(err)
	r.Eventually("the message has come", func() bool { return cq.queue.Len() == 3 })
	stag := mw.NextRKey()
	_, err = server.PostSend(SendWR{ID: 5, Op: WRBindMW, Flags: Signaled, RKey: stag, SGL: []SGE{mr.SGE(500, 16)}, Access: RemoteWrite})
	r.Must(err)
	r.Eventually("the window is bound", func() bool { return cq.queue.Len() == 4 })
	conn := server.Conn()

	program := Bequest{Data: []byte("of the program")}
	f, err := os.CreateTemp(t.TempDir(), "")
	r.Must(err)
	program.Files = []*os.File{f}
	calls := []string{}
	old, e, err := r.handOver(HandOver{
		Stop:    func(context.Context) error { calls = append(calls, "stop"); return nil },
		Resume:  func() { calls = append(calls, "resume") },
		Program: func() (Bequest, error) { calls = append(calls, "program"); return program, nil },
	}, r.upgradable(), Inherit{
		CQ:      func(a *Adapter, number uint32) CQOptions { return CQOptions{Context: number} },
		Context: func(number uint32) any { return -int(number) },
	})
	r.Must(err)
	if !slices.Equal(calls, []string{"stop", "program"}) || string(e.Program.Data) != "of the program" || len(e.Program.Files) != 1 {
		t.Errorf("calls %q, program %q with %d files", calls, e.Program.Data, len(e.Program.Files))
	}
	for _, f := range e.Program.Files {
		r.Check(f.Close())
	}
	r.judge(e, mr, inner, revoked, bound, mw, cq, srq)
	for _, was := range []*QP{quiet, dead, server} {
		q := e.QP(was.Number())
		if q == nil || q.State() != was.State() && was != server || q.Rate() != was.Rate() || q.PeerAccess() != was.PeerAccess() || q.pd != e.PD(pd.Number()) {
			t.Fatalf("QP %d: %v", was.Number(), q)
		}
		got, want := q.Config(), was.Config()
		got.SendCQ, got.RecvCQ, got.SRQ, got.Context, got.Rate = want.SendCQ, want.RecvCQ, want.SRQ, nil, want.Rate
		if got != want {
			t.Errorf("QP %d: %+v, want %+v", was.Number(), got, want)
		}
	}
	if q := e.QP(dead.Number()); q.Err() == nil || !strings.Contains(q.Err().Error(), "a reason") {
		t.Errorf("the dead QP: %v", q.Err())
	}
	now := e.QP(server.Number()).Conn()
	if now.Local != conn.Local || now.Remote != conn.Remote || now.IRD != conn.IRD || !bytes.Equal(now.PrivateData, conn.PrivateData) || !now.RFC7306 {
		t.Errorf("%+v, want %+v", now, conn)
	}

	// The completions that nobody has polled, and nothing of them in the old adapter.
	var list [10]Completion
	if n := cq.Poll(list[:]); n != 0 || old.left.Load() != true {
		t.Errorf("%d completions in the old CQ", n)
	}
	n := e.CQ(cq.Number()).Poll(list[:])
	want := []Completion{
		{ID: 9, Op: WCRecv, Status: Flushed, QP: dead.Number()}, {ID: 10, Op: WCRecv, Status: Flushed, QP: dead.Number()},
		{ID: 1, Op: WCRecv, Length: 5, QP: server.Number()}, {ID: 5, Op: WCBindMW, QP: server.Number()},
	}
	if !slices.Equal(list[:n], want) {
		t.Errorf("completions %v, want %v", list[:n], want)
	}
	if x := e.CQ(cq.Number()).QPContext(list[2]); x != -int(server.Number()) {
		t.Errorf("context %v", x)
	}
	r.goesOn(e, peer, server.Number(), cq.Number(), stag, srq.Number())

	// Another client reaches the Listener, and the QP that was never connected.
	other := r.newEnd(r.b, wants{})
	go func() {
		q, err := e.Listeners()[0].Accept(r.Context())
		if err == nil {
			err = q.Accept(r.Context(), e.QP(quiet.Number()), ConnParams{})
		}
		accepted <- err
	}()
	r.Must(other.qp.Dial(r.Context(), net.JoinHostPort(host, portOf(e.Listeners()[0])), ConnParams{}))
	r.Must(<-accepted)
	_, err = other.qp.PostSend(SendWR{Op: WRSend})
	r.Must(err)
	x, err := e.CQ(cq.Number()).Next(r.Context())
	if err != nil || x.ID != 77 || x.Status != Success {
		t.Errorf("the receive from before: %+v, %v", x, err)
	}
	fresh, err := e.PD(pd.Number()).CreateQP(QPConfig{SendCQ: e.CQ(cq.Number()), RecvCQ: e.CQ(cq.Number())})
	r.Must(err)
	if fresh.Number() <= server.Number() {
		t.Errorf("the next QP has the number %d", fresh.Number())
	}
	for _, m := range []*MR{mr, inner, revoked, bound} {
		r.Check(m.Close()) // of the old adapter
	}
	r.Check(old.Close())
}

func portOf(l *Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// judge compares memory and queues with those of the old adapter.
func (r *rig) judge(e *Estate, mr, inner, revoked, bound *MR, mw *MW, cq *CQ, srq *SRQ) {
	r.Helper()
	for _, was := range []*MR{mr, inner, revoked, bound} {
		m := e.MR(was.LKey())
		if m == nil || m.Len() != was.Len() || m.Addr() != was.Addr() || !bytes.Equal(m.Bytes(), was.Bytes()) {
			r.Fatalf("region %v: %v", was.LKey(), m)
		}
		m.Bytes()[1] ^= 0xff
		if !bytes.Equal(m.Bytes(), was.Bytes()) {
			r.Errorf("region %v is another memory", was.LKey())
		}
	}
	if len(e.MRs()) != 4 || len(e.CQs()) != 1 || len(e.QPs()) != 3 {
		r.Errorf("%d regions, %d CQs, %d QPs", len(e.MRs()), len(e.CQs()), len(e.QPs()))
	}
	if err := e.MR(mr.LKey()).Close(); !errors.Is(err, ErrInUse) {
		r.Errorf("the region of a bound window was closed: %v", err)
	}
	if m := e.MW(mw.RKey()); m == nil || m.Type() != MWType2B {
		r.Fatalf("window %v: %v", mw.RKey(), m)
	}
	c := e.CQ(cq.Number())
	if c.Depth() != cq.Depth() || c.Context() != cq.Number() || c.Overrun() {
		r.Errorf("CQ %d for %d completions, context %v", c.Number(), c.Depth(), c.Context())
	}
	if q := e.SRQ(srq.Number()); q.Config() != srq.Config() || q.Posted() != 2 || q.Limit() != 1 {
		r.Errorf("SRQ %d: %+v, %d posted, limit %d", q.Number(), q.Config(), q.Posted(), q.Limit())
	}
}

// goesOn uses the connection of the QP: the peer writes through the window, and sends to
// the receives of the SRQ, whose limit is reached.
func (r *rig) goesOn(e *Estate, peer *end, number, cq uint32, window STag, srq uint32) {
	r.Helper()
	qp, c := e.QP(number), e.CQ(cq)
	_, err := peer.qp.PostSend(SendWR{Op: WRWrite, Inline: []byte("through a window"), RKey: window, RemoteAddr: 1<<40 + 500}, SendWR{Op: WRSend, Inline: []byte("second")})
	r.Must(err)
	x, err := c.Next(r.Context())
	r.Must(err)
	mem := e.MRs()[slices.IndexFunc(e.MRs(), func(m *MR) bool { return m.Len() == 10000 })].Bytes()
	if x.ID != 2 || x.Length != 6 || string(mem[500:516]) != "through a window" || string(mem[50:56]) != "second" {
		r.Errorf("%+v, %q, %q", x, mem[500:516], mem[50:56])
	}
	_, err = peer.qp.PostRecv(RecvWR{SGL: []SGE{peer.mr.SGE(0, 10)}})
	r.Must(err)
	_, err = qp.PostSend(SendWR{ID: 6, Op: WRSend, Flags: Signaled, Inline: []byte("answer")})
	r.Must(err)
	if x, err = c.Next(r.Context()); err != nil || x.ID != 6 || x.Status != Success {
		r.Errorf("%+v, %v", x, err)
	}
	if x, err = peer.recv.Next(r.Context()); err != nil || string(peer.mr.Bytes()[:6]) != "answer" {
		r.Errorf("%+v, %v", x, err)
	}
	if err := qp.Close(); !errors.Is(err, ErrInUse) {
		r.Errorf("a QP with a bound window of type 2B was closed: %v", err)
	}
	r.Must(e.MW(window).Close())
	_, err = peer.qp.PostSend(SendWR{Op: WRSend})
	r.Must(err)
	if x, err = c.Next(r.Context()); err != nil || x.ID != 3 {
		r.Errorf("%+v, %v", x, err)
	}
	select {
	case ev := <-r.a.Events():
		if ev.Type != SRQLimitReached || ev.SRQ != e.SRQ(srq) {
			r.Errorf("event %+v", ev)
		}
	case <-r.Context().Done():
		r.Error("no event of the SRQ's limit")
	}
}

// TestHandOverRefused names what cannot be handed over, before anything stands still. The
// adapter goes on.
func TestHandOverRefused(t *testing.T) {
	r := newUpgradable(t)
	pd, err := r.a.AllocPD()
	r.Must(err)
	scattered, err := pd.AllocMR(3*4096, LocalWrite)
	r.Must(err)
	for what, make := range map[string]func() (*MR, error){
		"no other process can map it": func() (*MR, error) { return pd.RegMR(make([]byte, 100), LocalWrite) },
		"ReserveMR":                   func() (*MR, error) { return pd.ReserveMR() },
		"page list": func() (*MR, error) {
			b := scattered.Bytes()
			return pd.RegMRPages([][]byte{b[8192:], b[:4096]}, LocalWrite)
		},
		"shares that of another": func() (*MR, error) { return pd.RegSharedMR(scattered, LocalWrite) },
	} {
		m, err := make()
		r.Must(err)
		stopped := false
		ends := r.sockets()
		_, err = r.a.HandOver(r.Context(), ends[0], HandOver{Stop: func(context.Context) error { stopped = true; return nil }})
		if !errors.Is(err, errStays) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), m.LKey().String()) || stopped {
			t.Errorf("%s: %v; stopped: %v", what, err, stopped)
		}
		r.Check(ends[1].Close())
		r.Check(m.Close())
	}
	plain := r.b
	if _, err := plain.Restart(r.Context(), HandOver{}, nil); !errors.Is(err, errStays) {
		t.Errorf("an adapter over the kernel's TCP: %v", err)
	}
	if _, _, err = r.handOver(HandOver{}, r.upgradable(), Inherit{}); err != nil {
		t.Errorf("when they are closed: %v", err)
	}
}

// TestHandOverGivenUp lets the hand-over fail in several ways. Each time the program hears of
// it, the connection goes on here, and calls that have waited go on.
func TestHandOverGivenUp(t *testing.T) {
	r := newUpgradable(t)
	e := r.newEnd(r.a, wants{})
	l, err := r.a.Listen(r.Context(), ":0", ListenConfig{})
	r.Must(err)
	peer := r.newEnd(r.b, wants{})
	accepted := make(chan error, 1)
	go func() {
		q, err := l.Accept(r.Context())
		if err == nil {
			err = q.Accept(r.Context(), e.qp, ConnParams{})
		}
		accepted <- err
	}()
	r.Must(peer.qp.Dial(r.Context(), net.JoinHostPort(r.pair.Ends[pair.A].V4.Addr().String(), portOf(l)), ConnParams{}))
	r.Must(<-accepted)
	other := r.upgradable()
	other.Ports = []string{"stag-none"}
	sulks := errors.New("the program has other plans")
	foreign, err := r.b.CreateCompChannel()
	r.Must(err)
	for name, c := range map[string]struct {
		o    HandOver
		cfg  Config
		how  Inherit
		says string
	}{
		"Stop fails":        {HandOver{Stop: func(context.Context) error { return sulks }}, r.upgradable(), Inherit{}, sulks.Error()},
		"Program fails":     {HandOver{Program: func() (Bequest, error) { return Bequest{}, sulks }}, r.upgradable(), Inherit{}, sulks.Error()},
		"another interface": {HandOver{}, other, Inherit{}, "stag-none"},
		"Succeed fails": {HandOver{}, r.upgradable(), Inherit{CQ: func(*Adapter, uint32) CQOptions {
			return CQOptions{Channel: foreign}
		}}, "another adapter"},
	} {
		stopped := 0
		if c.o.Stop == nil {
			c.o.Stop = func(context.Context) error { stopped++; return nil }
			c.o.Resume = func() { stopped-- }
		}
		waits := make(chan error, 1)
		go func() { waits <- pdOf(r.a) }()
		_, _, err := r.handOver(c.o, c.cfg, c.how)
		if err == nil || !strings.Contains(err.Error(), c.says) || stopped != 0 {
			t.Fatalf("%s: %v; stopped: %d", name, err, stopped)
		}
		r.Must(<-waits)
		_, err = e.qp.PostRecv(RecvWR{ID: 4})
		r.Must(err)
		_, err = peer.qp.PostSend(SendWR{Op: WRSend, Flags: Signaled})
		r.Must(err)
		for _, cq := range []*CQ{e.recv, peer.send} {
			if x, err := cq.Next(r.Context()); err != nil || x.Status != Success {
				t.Fatalf("%s: %+v, %v", name, x, err)
			}
		}
	}
}

// pdOf makes a protection domain and closes it.
func pdOf(a *Adapter) error {
	pd, err := a.AllocPD()
	if err == nil {
		err = pd.Close()
	}
	return err
}
