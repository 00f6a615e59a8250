package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// program is a Go program whose adapter is in the daemon.
func (s *scene) program() *rdma.Adapter {
	s.Helper()
	a, err := rdma.Open(rdma.Config{Daemon: s.path, RegionHeap: 8 << 20})
	s.Must(err)
	s.Cleanup(func() {
		s.Check(a.Close())
		s.Check(a.Close())
	})
	return a
}

const allRights = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

// endpoints makes an endpoint of each program and connects them.
func (s *scene) endpoints(x, y *rdma.Adapter) (a, b *rdma.Endpoint) {
	s.Helper()
	cfg := rdma.EndpointConfig{Access: allRights, QP: rdma.QPConfig{SendDepth: 8, RecvDepth: 8}}
	a, err := x.CreateEndpoint(cfg)
	s.Must(err)
	b, err = y.CreateEndpoint(cfg)
	s.Must(err)
	l, err := y.Listen(s.Ctx(), "127.0.0.1:0", rdma.ListenConfig{})
	s.Must(err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(s.Ctx())
		if err == nil {
			if string(r.PrivateData()) != "hello" {
				s.Errorf("private data %q", r.PrivateData())
			}
			err = b.Accept(s.Ctx(), r, rdma.ConnParams{PrivateData: []byte("welcome"), IRD: 4, ORD: 4})
		}
		accepted <- err
	}()
	s.Must(a.Dial(s.Ctx(), l.Addr().String(), rdma.ConnParams{PrivateData: []byte("hello"), IRD: 8, ORD: 2}))
	s.Must(<-accepted)
	return a, b
}

func (s *scene) sent(e *rdma.Endpoint, want rdma.WCOp) rdma.Completion {
	s.Helper()
	c, err := e.Sent(s.Ctx())
	s.Must(err)
	if c.Op != want {
		s.Errorf("%+v instead of a %v", c, want)
	}
	return c
}

// A Go program uses an adapter in a daemon as it uses one of its own.
func TestThroughDaemon(t *testing.T) {
	s := newScene(t, func(c *Config) { c.FlushDelay = time.Hour }) // receives must be flushed before
	x, y := s.program(), s.program()
	at, err := x.Attributes()
	if err != nil || len(at.Ports) != 1 || at.Ports[0].Path != "daemon" || len(at.Ports[0].Addresses) == 0 {
		t.Errorf("%+v, %v", at.Ports, err)
	}
	a, b := s.endpoints(x, y)
	if c := a.QP.Conn(); !c.Initiator || string(c.PrivateData) != "welcome" || c.ORD != 2 || c.IRD != 8 || !c.Remote.IsValid() {
		t.Errorf("%+v", c)
	}
	if c := b.QP.Conn(); c.Initiator || string(c.PrivateData) != "hello" || c.ORD != 4 || c.IRD != 4 || c.Local != a.QP.Conn().Remote {
		t.Errorf("%+v", c)
	}
	for i := range a.MR.Bytes() {
		a.MR.Bytes()[i] = byte(i * 7 >> 3)
	}
	for i := range 100 { // much more than the queues hold
		_, err := b.QP.PostRecv(rdma.RecvWR{ID: uint64(i), SGL: []rdma.SGE{b.MR.SGE(0, 5000)}})
		s.Must(err)
		_, err = a.QP.PostSend(rdma.SendWR{ID: uint64(i), Op: rdma.WRSend, Flags: rdma.Signaled, SGL: []rdma.SGE{a.MR.SGE(i, 5000)}})
		s.Must(err)
		if c, err := b.Received(s.Ctx()); err != nil || c.ID != uint64(i) || c.Length != 5000 {
			t.Fatalf("%+v, %v", c, err)
		}
		s.sent(a, rdma.WCSend)
		if !bytes.Equal(b.MR.Bytes()[:5000], a.MR.Bytes()[i:i+5000]) {
			t.Fatalf("message %d has other octets", i)
		}
	}
	for range 50 { // without completions
		_, err := a.QP.PostSend(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{a.MR.SGE(0, 300)}, RemoteAddr: b.MR.Addr() + 40000, RKey: b.MR.RKey()},
			rdma.SendWR{Op: rdma.WRWrite, Inline: []byte("inline"), RemoteAddr: b.MR.Addr() + 50000, RKey: b.MR.RKey()},
			rdma.SendWR{Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{a.MR.SGE(60000, 100)}, RemoteAddr: b.MR.Addr() + 100, RKey: b.MR.RKey()})
		s.Must(err)
		s.sent(a, rdma.WCRead)
	}
	if !bytes.Equal(b.MR.Bytes()[40000:40300], a.MR.Bytes()[:300]) || string(b.MR.Bytes()[50000:50006]) != "inline" ||
		!bytes.Equal(a.MR.Bytes()[60000:60100], b.MR.Bytes()[100:200]) {
		t.Error("Writes and Reads have moved other octets")
	}
	b.MR.Uint64(8192).Store(40)
	_, err = a.QP.PostSend(rdma.SendWR{
		Op: rdma.WRFetchAdd, Flags: rdma.Signaled, SGL: []rdma.SGE{a.MR.SGE(0, 8)}, CompareAdd: 3, RemoteAddr: b.MR.Addr() + 8192, RKey: b.MR.RKey(),
	})
	s.Must(err)
	s.sent(a, rdma.WCFetchAdd)
	if is, was := b.MR.Uint64(8192).Load(), a.MR.Uint64(0).Load(); is != 43 || was != 40 {
		t.Errorf("the word was %d and is %d", was, is)
	}
	_, err = b.QP.PostRecv(rdma.RecvWR{ID: 1}) // to be flushed
	s.Must(err)
	s.Must(a.QP.Disconnect(s.Ctx()))
	if _, err := b.Received(s.Ctx()); err != io.EOF {
		t.Errorf("%v instead of io.EOF", err)
	}
	<-b.QP.Done()
	_, err = b.QP.PostRecv(rdma.RecvWR{ID: 2})
	s.Must(err)
	if c, err := b.RecvCQ.Next(s.Ctx()); err != nil || c.ID != 2 || c.Status != rdma.Flushed {
		t.Errorf("%+v, %v", c, err)
	}
	s.Must(a.Close())
	s.Must(b.Close())
}

// Memory of the program's own, not of the heap, works too.
func TestThroughDaemonOwnMemory(t *testing.T) {
	s := newScene(t)
	x, y := s.program(), s.program()
	a, b := s.endpoints(x, y)
	from, to := bytes.Repeat([]byte("stag"), 1000), make([]byte, 4000)
	here, err := a.PD.RegMR(from, 0)
	s.Must(err)
	there, err := b.PD.RegMR(to, allRights, rdma.MROptions{Start: 1 << 40})
	s.Must(err)
	_, err = a.QP.PostSend(rdma.SendWR{Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{here.SGE(0, 4000)}, RemoteAddr: there.Addr(), RKey: there.RKey()},
		rdma.SendWR{Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{a.MR.SGE(0, 8)}, RemoteAddr: there.Addr() + 3992, RKey: there.RKey()})
	s.Must(err)
	s.sent(a, rdma.WCWrite)
	s.sent(a, rdma.WCRead)
	if !bytes.Equal(from, to) || string(a.MR.Bytes()[:8]) != "stagstag" {
		t.Error("other octets have come")
	}
	s.Must(here.Close())
	s.Must(there.Close())
	_, err = a.QP.PostSend(rdma.SendWR{Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{here.SGE(0, 8)}, RemoteAddr: there.Addr(), RKey: there.RKey()})
	s.Must(err)
	if c, err := a.SendCQ.Next(s.Ctx()); err != nil || c.Status != rdma.LocalProtErr {
		t.Errorf("%+v, %v after the regions were closed", c, err)
	}
	<-a.QP.Done()
	if a.QP.Err() == nil || a.QP.State() != rdma.Errored {
		t.Errorf("%v, %v", a.QP.State(), a.QP.Err())
	}
	if e := <-x.Events(); e.Type != rdma.QPFatal || e.QP != a.QP {
		t.Errorf("%+v", e)
	}
}

// Each thing that a daemon cannot do returns an error that says so.
func TestNotThroughDaemon(t *testing.T) {
	s := newScene(t)
	x := s.program()
	e, err := x.CreateEndpoint(rdma.EndpointConfig{})
	s.Must(err)
	_, err = e.PD.CreateSRQ(rdma.SRQConfig{})
	s.Says(err, rdma.ErrThroughDaemon)
	_, err = e.PD.AllocMW(1)
	s.Says(err, rdma.ErrThroughDaemon)
	_, err = e.PD.RegMRPages([][]byte{make([]byte, 4096)}, 0)
	s.Says(err, rdma.ErrThroughDaemon)
	_, err = e.PD.ReserveMR()
	s.Says(err, rdma.ErrThroughDaemon)
	_, err = e.PD.AllocMR(10, 0, rdma.MROptions{QP: e.QP})
	s.Says(err, rdma.ErrThroughDaemon)
	_, err = e.PD.CreateQP(rdma.QPConfig{SendCQ: e.SendCQ, RecvCQ: e.RecvCQ, Rate: 1e6})
	s.Says(err, rdma.ErrThroughDaemon)
	s.Says(e.MR.Invalidate(), rdma.ErrThroughDaemon)
	s.Says(e.MR.Rereg(0), rdma.ErrThroughDaemon)
	s.Says(e.SendCQ.Resize(1000), rdma.ErrThroughDaemon)
	s.Says(e.QP.SetRate(1), rdma.ErrThroughDaemon)
	s.Says(e.Dial(s.Ctx(), "127.0.0.1:1", rdma.ConnParams{Markers: true}), rdma.ErrThroughDaemon)
	_, err = x.NewBell(make([]byte, rdma.BellLen), func(int) {})
	s.Says(err, rdma.ErrThroughDaemon)
	_, err = rdma.Open(rdma.Config{Daemon: s.path, KernelPort: true})
	s.Says(err, nil, "leave the others out")
	_, err = rdma.Open(rdma.Config{Daemon: s.path + "x"})
	s.Says(err, unix.ENOENT)
	s.Must(e.Close())
}

// Attempts to connect fail as without a daemon, and can be repeated.
func TestThroughDaemonRefused(t *testing.T) {
	s := newScene(t)
	x, y := s.program(), s.program()
	e, err := x.CreateEndpoint(rdma.EndpointConfig{})
	s.Must(err)
	l, err := y.Listen(s.Ctx(), "127.0.0.1:0", rdma.ListenConfig{})
	s.Must(err)
	go func() {
		r, err := l.Accept(s.Ctx())
		if err == nil {
			err = r.Reject([]byte("no"))
		}
		if err != nil {
			s.Error(err)
		}
	}()
	err = e.Dial(s.Ctx(), l.Addr().String(), rdma.ConnParams{})
	var rejected *rdma.RejectedError
	if !errors.As(err, &rejected) || string(rejected.PrivateData) != "no" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(s.Ctx())
	cancel()
	_, err = l.Accept(ctx)
	s.Says(err, context.Canceled)
	s.Must(l.Close())
	_, err = l.Accept(s.Ctx())
	s.Says(err, rdma.ErrClosed)
	s.Says(e.Dial(s.Ctx(), l.Addr().String(), rdma.ConnParams{}), unix.ECONNREFUSED)
	s.Must(e.QP.Close())
	s.Says(e.Dial(s.Ctx(), l.Addr().String(), rdma.ConnParams{}), rdma.ErrClosed)
}

// Fail and Abort end the connection at both ends, and everything is flushed.
func TestThroughDaemonFails(t *testing.T) {
	s := newScene(t)
	x, y := s.program(), s.program()
	a, b := s.endpoints(x, y)
	for _, e := range []*rdma.Endpoint{a, b} {
		_, err := e.QP.PostRecv(rdma.RecvWR{ID: 1})
		s.Must(err)
	}
	a.QP.Abort()
	for _, e := range []*rdma.Endpoint{a, b} {
		if c, err := e.RecvCQ.Next(s.Ctx()); err != nil || c.Status != rdma.Flushed {
			t.Errorf("%+v, %v", c, err)
		}
		<-e.QP.Done()
	}
	s.Says(b.QP.Err(), unix.ECONNRESET)
	if e := <-y.Events(); e.Type != rdma.QPFatal {
		t.Errorf("%+v", e)
	}
}

// When the daemon ends, every wait ends, and everything can be closed.
func TestDaemonGone(t *testing.T) {
	s := newScene(t)
	x, y := s.program(), s.program()
	a, b := s.endpoints(x, y)
	l, err := x.Listen(s.Ctx(), "127.0.0.1:0", rdma.ListenConfig{})
	s.Must(err)
	waits := make(chan error, 2)
	go func() { _, err := a.RecvCQ.Next(s.Ctx()); waits <- err }()
	go func() { _, err := l.Accept(s.Ctx()); waits <- err }()
	s.Must(s.daemon.Close(rig.Context(t)))
	for range 2 {
		s.Says(<-waits, rdma.ErrDaemonGone)
	}
	for _, e := range []*rdma.Endpoint{a, b} {
		<-e.QP.Done()
		s.Says(e.QP.Err(), rdma.ErrDaemonGone)
		_, err := e.PD.AllocMR(10, 0)
		s.Says(err, rdma.ErrDaemonGone)
		s.Must(e.Close())
	}
	s.Must(l.Close())
}
