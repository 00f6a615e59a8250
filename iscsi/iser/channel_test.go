package iser_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// ends are two Channels with a connection between them: the initiator's and the target's.
type ends struct {
	rig.Stage
	a, b *iser.Channel
}

// adapter opens an adapter over the kernel's TCP.
func adapter(s rig.Stage) *rdma.Adapter {
	s.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true, RegionHeap: 8 << 20})
	s.Must(err)
	s.Cleanup(func() { s.Check(a.Close()) })
	return a
}

// connect makes two ends with this configuration.
func connect(t *testing.T, c iser.Config) *ends {
	e := &ends{Stage: rig.On(t)}
	rig.NoLeaks(e)
	for _, ch := range []**iser.Channel{&e.a, &e.b} {
		c.Adapter = adapter(e.Stage)
		var err error
		*ch, err = iser.New(c)
		e.Must(err)
		e.Cleanup(func() { e.Check((*ch).Close()) })
		if ch == &e.b {
			e.join(c.Adapter)
		}
	}
	return e
}

func (e *ends) join(a *rdma.Adapter) {
	e.Helper()
	l, err := a.Listen(e.Ctx(), "127.0.0.1:0", rdma.ListenConfig{})
	e.Must(err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(e.Ctx())
		if err == nil {
			err = e.b.Accept(e.Ctx(), r, rdma.ConnParams{})
		}
		accepted <- err
	}()
	e.Must(e.a.Dial(e.Ctx(), l.Addr().String()))
	e.Must(<-accepted)
}

// logIn runs a login, and returns what both ends got.
func (e *ends) logIn() (of, at login.Params) {
	e.Helper()
	i, err := login.NewInitiator(login.InitiatorConfig{
		Name: "iqn.2026-01.test:i", Target: "iqn.2026-01.test:t", Tag: 1, CmdSN: 7,
		Wishes: login.Wishes{RDMA: true, InitiatorRecvLength: 1024, RequireR2T: true},
	})
	e.Must(err)
	t, err := login.NewTarget(login.TargetConfig{
		Registry: oneTarget{}, Wishes: login.Wishes{RDMA: true, NoImmediateData: true, RequireR2T: true}, StatSN: 3, Window: 8,
	})
	e.Must(err)
	served := make(chan error, 1)
	go func() {
		served <- e.b.Converse(e.Ctx(), nil, t, func() error { return e.b.Start(8192, 1024) })
	}()
	e.Must(e.a.Converse(e.Ctx(), i.Start(nil), i, nil))
	e.Must(<-served)
	e.Must(e.a.Start(1024, 8192))
	return i.Params(), t.Params()
}

// oneTarget is the registry of a target that takes everybody.
type oneTarget struct{}

func (oneTarget) Policy(*login.Request) login.Policy     { return login.Policy{PortalGroupTag: 1} }
func (oneTarget) Existing(*login.Request) login.Existing { return login.Existing{} }
func (oneTarget) Enter(*login.Request, login.Action, *login.Params) (uint16, pdu.LoginStatus) {
	return 9, pdu.LoginSuccess
}

// The login runs inside Sends, and the two lengths of RFC 7145 are in force after it.
func TestLoginInsideSends(t *testing.T) {
	e := connect(t, iser.Config{Receives: 8, Sends: 2, Work: 16})
	i, at := e.logIn()
	if !i.RDMA || !at.RDMA || i.MaxRecvLength != 1024 || at.MaxSendLength != 1024 || i.MaxSendLength != 8192 || i.TSIH != 9 {
		t.Errorf("initiator %+v, target %+v", i, at)
	}
	if !e.a.Invalidates() || !e.b.Invalidates() {
		t.Error("the ends do not take Sends with Invalidate of each other")
	}
}

// put returns a function that fills a data segment.
func put(data []byte) func([]byte) bool {
	return func(b []byte) bool { return copy(b, data) == len(data) }
}

// Control PDUs of every length arrive as they were sent, with the fields of the iSER header,
// and more of them than there are receives one after the other.
func TestControlPDUs(t *testing.T) {
	e := connect(t, iser.Config{Receives: 8, Sends: 2, Work: 16})
	e.logIn()
	fields := pdu.ISERFields{HasRead: true, ReadSTag: 0x1234, ReadBase: 5, HasWrite: true, WriteSTag: 0x99, WriteBase: 1 << 40}
	for n := range 40 {
		data := bytes.Repeat([]byte{byte(n)}, n*26)
		var ahs []byte
		if n%3 == 0 {
			ahs = []byte{0, 5, 1, 0, 1, 2, 3, 4}
		}
		var h pdu.Header
		h.Reset(pdu.OpCommand)
		h.SetCmdSN(7)
		e.Eventually("there is room", func() bool {
			var none iser.Event
			if ok, err := e.a.Poll(&none); ok || err != nil {
				t.Errorf("the sender gets %+v, %v", none, err)
			}
			return e.a.Room(len(ahs), len(data))
		})
		e.Must(e.a.Send(&fields, &h, ahs, len(data), put(data), 0))
		m, err := e.b.Next(e.Ctx())
		e.Must(err)
		stag, base, ok := m.ISER.Read()
		if !bytes.Equal(m.Data, data) || !bytes.Equal(m.AHS, ahs) || m.PDU.CmdSN() != 7 || stag != 0x1234 || base != 5 || !ok {
			t.Fatalf("message %d arrives as %x %x %x", n, m.PDU, m.AHS, m.Data)
		}
		e.Must(e.b.Release(&m))
	}
	if e.a.Room(0, 1<<20) {
		t.Error("there is room for a data segment that no memory has")
	}
}

// A message that is no control PDU is refused with a clear error.
func TestBadMessages(t *testing.T) {
	good := append(pdu.ISERFields{}.Append(nil), make([]byte, pdu.HeaderLen)...)
	(*pdu.Header)(good[pdu.ISERHeaderLen:]).Reset(pdu.OpNOPOut)
	with := func(change func(b []byte, h *pdu.Header) []byte) []byte {
		b := bytes.Clone(good)
		return change(b, (*pdu.Header)(b[pdu.ISERHeaderLen:]))
	}
	for name, c := range map[string]struct {
		octets []byte
		want   error
	}{
		"nothing":         {nil, iser.ErrShort},
		"half a header":   {good[:pdu.ISERHeaderLen+20], iser.ErrShort},
		"a Hello":         {append(pdu.AppendHello(nil, 4), make([]byte, 48)...), iser.ErrHeader},
		"an unknown type": {with(func(b []byte, _ *pdu.Header) []byte { b[0] = 0x50; return b }), iser.ErrHeader},
		"too few octets":  {with(func(b []byte, h *pdu.Header) []byte { h.SetDataLength(9); return append(b, 1, 2) }), iser.ErrLength},
		"too many octets": {with(func(b []byte, h *pdu.Header) []byte { return append(b, 1, 2, 3, 4) }), iser.ErrLength},
		"an AHS too long": {with(func(b []byte, h *pdu.Header) []byte { h.SetAHSLength(1020); return b }), iser.ErrLength},
		"a Data-In":       {with(func(b []byte, h *pdu.Header) []byte { h.Reset(pdu.OpDataIn); return b }), iser.ErrOpcode},
		"an R2T":          {with(func(b []byte, h *pdu.Header) []byte { h.Reset(pdu.OpR2T); return b }), iser.ErrOpcode},
		"no opcode":       {with(func(b []byte, h *pdu.Header) []byte { h.Reset(0x1f); return b }), iser.ErrOpcode},
	} {
		t.Run(name, func(t *testing.T) {
			e := connect(t, iser.Config{Receives: 1, Work: 4})
			mr, err := e.a.PD().AllocMR(4096, 0)
			e.Must(err)
			defer mr.Close()
			copy(mr.Bytes(), c.octets)
			if _, err := e.a.QP().PostSend(rdma.SendWR{Op: rdma.WRSend, SGL: []rdma.SGE{mr.SGE(0, len(c.octets))}}); err != nil {
				t.Fatal(err)
			}
			if m, err := e.b.Next(e.Ctx()); !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", m, err, c.want)
			}
		})
	}
}

// A pad behind the data segment does no harm.
func TestPad(t *testing.T) {
	e := connect(t, iser.Config{Receives: 1, Work: 4})
	var h pdu.Header
	h.Reset(pdu.OpNOPOut)
	b := pdu.Append(pdu.ISERFields{}.Append(nil), pdu.Digests{}, &h, nil, []byte("hello"))
	_, err := e.a.QP().PostSend(rdma.SendWR{Op: rdma.WRSend, Inline: b})
	e.Must(err)
	m, err := e.b.Next(e.Ctx())
	e.Must(err)
	if string(m.Data) != "hello" {
		t.Errorf("%q", m.Data)
	}
}

// News tells of messages and of the owner's work requests, and a call of Next ends with the
// connection, or with its context.
func TestNewsAndEnds(t *testing.T) {
	e := connect(t, iser.Config{Receives: 1, Work: 4})
	ctx, cancel := context.WithTimeout(e.Ctx(), 10*time.Millisecond)
	defer cancel()
	if _, err := e.b.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next without a message: %v", err)
	}
	news := make(chan struct{}, 100)
	e.a.News(func() { news <- struct{}{} })
	var got iser.Event
	if ok, err := e.a.Poll(&got); ok || err != nil { // arms
		t.Fatal(got, err)
	}
	_, err := e.a.QP().PostSend(rdma.SendWR{ID: 5, Op: rdma.WRWrite, Flags: rdma.Signaled})
	e.Must(err)
	for {
		rig.Wait(t, news, "news of a work request")
		if ok, err := e.a.Poll(&got); err != nil {
			t.Fatal(err)
		} else if ok {
			break
		}
	}
	if got.Message.PDU != nil || got.Done.ID != 5 || got.Done.Status != rdma.Success {
		t.Errorf("%+v", got)
	}
	e.Must(e.a.Close())
	if _, err := e.b.Next(e.Ctx()); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("Next at the end: %v", err)
	}
	rig.Wait(t, e.b.Done(), "the end")
}

// The memory of a session with the default number of commands is small.
func TestHeap(t *testing.T) {
	for end, c := range map[string]struct{ takes, most int }{
		"target":                             {iser.TargetHeap(128), 156 << 10},
		"initiator":                          {iser.InitiatorHeap(148, 512, 0), 156 << 10},
		"initiator, whose data is immediate": {iser.InitiatorHeap(148, 512, 8192), 208 << 10},
	} {
		if c.takes > c.most {
			t.Errorf("%s: %d octets, want at most %d", end, c.takes, c.most)
		}
	}
}
