package daemon

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// everything is one object of each kind of a client.
type everything struct {
	pd, channel, mr, mw, srq, id uint64
	cq                           *rawCQ
	qp                           *rawQP
	events                       *events
}

func (c *raw) everything() (e everything) {
	c.Helper()
	e.pd = c.pd()
	e.channel, _ = c.channel()
	e.cq = c.cq(16, e.channel, 5)
	e.mr = c.region(e.pd, pinned(c, 4096), rdma.LocalWrite|rdma.MWBind).handle
	e.mw = c.do(proto.OpMW, 0, func(m *proto.Message) { *m.MW() = proto.MW{PD: e.pd, Type: 1} }).Handle
	e.srq = c.do(proto.OpSRQ, 0, func(m *proto.Message) { *m.SRQ() = proto.SRQ{PD: e.pd, Depth: 8, SGE: 1} }).Handle
	e.qp = c.qp(proto.QP{PD: e.pd, SendCQ: e.cq.handle, RecvCQ: e.cq.handle, SRQ: e.srq, SendDepth: 4, SendSGE: 1})
	e.events = c.attach(proto.OpEventChannel)
	e.id = c.id(e.events, 1)
	return e
}

func (e everything) handles() map[proto.Kind]uint64 {
	return map[proto.Kind]uint64{
		proto.KindPD: e.pd, proto.KindChannel: e.channel, proto.KindCQ: e.cq.handle, proto.KindQP: e.qp.handle, proto.KindMR: e.mr,
		proto.KindMW: e.mw, proto.KindSRQ: e.srq, proto.KindEvents: e.events.handle, proto.KindID: e.id,
	}
}

// takes has, for each request, the handles that it takes: the kind, and a request that has the
// handle and is right otherwise.
var takes = []struct {
	kind proto.Kind
	op   proto.Op
	fill func(m *proto.Message, e everything, handle uint64)
}{
	{proto.KindChannel, proto.OpCQ, func(m *proto.Message, _ everything, h uint64) { *m.CQ() = proto.CQ{Depth: 1, Channel: h} }},
	{proto.KindCQ, proto.OpResizeCQ, func(m *proto.Message, _ everything, h uint64) { m.Handle = h; m.CQ().Depth = 2 }},
	{proto.KindPD, proto.OpQP, func(m *proto.Message, e everything, h uint64) {
		*m.QP() = proto.QP{PD: h, SendCQ: e.cq.handle, RecvCQ: e.cq.handle, Type: typeRC}
	}},
	{proto.KindCQ, proto.OpQP, func(m *proto.Message, e everything, h uint64) {
		*m.QP() = proto.QP{PD: e.pd, SendCQ: h, RecvCQ: e.cq.handle, Type: typeRC}
	}},
	{proto.KindCQ, proto.OpQP, func(m *proto.Message, e everything, h uint64) {
		*m.QP() = proto.QP{PD: e.pd, SendCQ: e.cq.handle, RecvCQ: h, Type: typeRC}
	}},
	{proto.KindSRQ, proto.OpQP, func(m *proto.Message, e everything, h uint64) {
		*m.QP() = proto.QP{PD: e.pd, SendCQ: e.cq.handle, RecvCQ: e.cq.handle, SRQ: h, Type: typeRC}
	}},
	{proto.KindQP, proto.OpModifyQP, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindQP, proto.OpQueryQP, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindPD, proto.OpMR, func(m *proto.Message, _ everything, h uint64) { *m.MR() = proto.MR{PD: h, Addr: 4096, Length: 1} }},
	{proto.KindPD, proto.OpMW, func(m *proto.Message, _ everything, h uint64) { *m.MW() = proto.MW{PD: h, Type: 1} }},
	{proto.KindPD, proto.OpSRQ, func(m *proto.Message, _ everything, h uint64) { *m.SRQ() = proto.SRQ{PD: h, Depth: 1} }},
	{proto.KindSRQ, proto.OpModifySRQ, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindSRQ, proto.OpQuerySRQ, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindEvents, proto.OpID, func(m *proto.Message, _ everything, h uint64) {
		*m.ID() = proto.ID{Channel: h, PortSpace: portSpaceTCP}
	}},
	{proto.KindID, proto.OpBind, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpResolve, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpRoute, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpListen, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpConnect, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpAccept, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpReject, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpDisconnect, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpEstablish, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
	{proto.KindID, proto.OpMigrate, func(m *proto.Message, e everything, h uint64) { m.Handle = h; m.Migrate().Channel = e.events.handle }},
	{proto.KindEvents, proto.OpMigrate, func(m *proto.Message, e everything, h uint64) { m.Handle = e.id; m.Migrate().Channel = h }},
	{proto.KindID, proto.OpSetOption, func(m *proto.Message, _ everything, h uint64) { m.Handle = h; m.Option().Length = 1 }},
	{proto.KindID, proto.OpGetOption, func(m *proto.Message, _ everything, h uint64) { m.Handle = h }},
}

// No request takes a handle of another kind, of another client, or one that does not exist.
func TestHandlesAreChecked(t *testing.T) {
	s := newScene(t)
	a, b := s.client(t), s.client(t)
	mine, others := a.everything(), b.everything()
	for _, row := range takes {
		wrong := []uint64{1<<64 - 1, s.daemon.handle(), others.handles()[row.kind]}
		for kind, h := range mine.handles() {
			if kind != row.kind {
				wrong = append(wrong, h)
			}
		}
		for _, h := range wrong {
			a.refuse(unix.EINVAL, row.op, 0, func(m *proto.Message) { row.fill(m, mine, h) })
		}
	}
	for kind, h := range mine.handles() {
		for other := range others.handles() {
			if kind != other {
				a.refuse(unix.EINVAL, proto.OpDestroy, h, func(m *proto.Message) { m.Destroy().Kind = other })
			}
		}
	}
	for kind, h := range others.handles() {
		a.refuse(unix.EINVAL, proto.OpDestroy, h, func(m *proto.Message) { m.Destroy().Kind = kind })
	}
	ops := map[proto.Op]bool{}
	for _, row := range takes {
		ops[row.op] = true
	}
	for op := range handlers {
		switch op {
		case proto.OpDevice, proto.OpPort, proto.OpGID, proto.OpPD, proto.OpChannel, proto.OpDestroy:
		default:
			if !ops[op] {
				t.Errorf("op %d has no row in takes", op)
			}
		}
	}
}

// A QP number of another client cannot be connected.
func TestQPOfAnotherClient(t *testing.T) {
	s := newScene(t)
	a, b := s.client(t), s.client(t)
	other := b.end()
	e := a.attach(proto.OpEventChannel)
	_, at := a.listening(e, "127.0.0.1:0")
	i := a.routed(e, at)
	a.refuse(unix.EINVAL, proto.OpConnect, i, conn(other.qp, ""))
	mine := a.end()
	a.do(proto.OpConnect, i, conn(mine.qp, ""))
	request := e.want(cmConnectRequest)
	a.refuse(unix.EINVAL, proto.OpAccept, request.Handle, conn(other.qp, ""))
}

// An object that another one uses stays. In the right order all go.
func TestDestroyInOrder(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.everything()
	busy := func(kind proto.Kind, h uint64) {
		t.Helper()
		c.refuse(unix.EBUSY, proto.OpDestroy, h, func(m *proto.Message) { m.Destroy().Kind = kind })
	}
	busy(proto.KindPD, e.pd)
	busy(proto.KindChannel, e.channel)
	busy(proto.KindCQ, e.cq.handle)
	busy(proto.KindSRQ, e.srq)
	for _, step := range []struct {
		kind proto.Kind
		h    uint64
	}{
		{proto.KindID, e.id}, {proto.KindQP, e.qp.handle}, {proto.KindSRQ, e.srq}, {proto.KindCQ, e.cq.handle}, {proto.KindChannel, e.channel},
		{proto.KindMW, e.mw}, {proto.KindMR, e.mr}, {proto.KindPD, e.pd},
	} {
		c.destroy(step.kind, step.h)
		c.refuse(unix.EINVAL, proto.OpDestroy, step.h, nil)
	}
	var client *client
	for _, x := range s.daemon.all() {
		client = x
	}
	used := client.account.count()
	for r, n := range used {
		if n != 0 && resource(r) != ofStreams {
			t.Errorf("%d of %s are still counted", n, limits[r].name)
		}
	}
}

func TestSizesOfObjects(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	pd, q := c.pd(), c.cq(8, 0, 0)
	limits := c.do(proto.OpDevice, 0, nil).Device()
	base := proto.QP{PD: pd, SendCQ: q.handle, RecvCQ: q.handle, Type: typeRC, SendDepth: 4, RecvDepth: 4, SendSGE: 1, RecvSGE: 1}
	for name, change := range map[string]func(*proto.QP){
		"send depth": func(p *proto.QP) { p.SendDepth = limits.MaxQPWR + 1 }, "receive depth": func(p *proto.QP) { p.RecvDepth = 1<<32 - 1 },
		"send SGE": func(p *proto.QP) { p.SendSGE = limits.MaxSGE + 1 }, "receive SGE": func(p *proto.QP) { p.RecvSGE = 1<<32 - 1 },
		"inline": func(p *proto.QP) { p.InlineLen = limits.MaxInline + 1 },
	} {
		c.refuse(unix.EINVAL, proto.OpQP, 0, func(m *proto.Message) { *m.QP() = base; change(m.QP()) })
		_ = name
	}
	for _, kind := range []uint32{0, 3, 4, 9} {
		c.refuse(unix.EOPNOTSUPP, proto.OpQP, 0, func(m *proto.Message) { *m.QP() = base; m.QP().Type = kind })
	}
	for _, depth := range []uint32{0, 1<<32 - 1} {
		c.refuse(unix.EINVAL, proto.OpCQ, 0, func(m *proto.Message) { m.CQ().Depth = depth })
	}
	c.refuse(unix.EINVAL, proto.OpSRQ, 0, func(m *proto.Message) { *m.SRQ() = proto.SRQ{PD: pd, Depth: 1 << 30} })
	c.refuse(unix.EINVAL, proto.OpSRQ, 0, func(m *proto.Message) { *m.SRQ() = proto.SRQ{PD: pd, Depth: 4, Limit: 5} })
	c.refuse(unix.EINVAL, proto.OpMW, 0, func(m *proto.Message) { *m.MW() = proto.MW{PD: pd, Type: 3} })

	most := base
	most.SendDepth, most.RecvDepth, most.SendSGE, most.InlineLen = 100, 1, limits.MaxSGE, limits.MaxInline
	if b := c.qp(most).body; b.SendDepth != 100 || b.RecvDepth != 1 || b.SendSGE != limits.MaxSGE || b.InlineLen != limits.MaxInline || b.Length < b.SendLen+b.RecvLen {
		t.Errorf("the largest QP: %+v", b)
	}
	if b := c.qp(proto.QP{PD: pd, SendCQ: q.handle, RecvCQ: q.handle}).body; b.SendDepth != 1 || b.RecvDepth != 1 || b.SendSGE != 1 || b.InlineLen == 0 {
		t.Errorf("a QP of no sizes: %+v", b)
	}
}

func TestRegions(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	pd := c.pd()
	memory := pinned(t, 8192)
	at := addressOfMemory(memory)
	mr := proto.MR{PD: pd, Addr: at, Length: 8192, IOVA: at, Access: uint32(rdma.LocalWrite)}
	for name, change := range map[string]func(*proto.MR){
		"unknown access": func(p *proto.MR) { p.Access = 1 << 12 }, "remote write alone": func(p *proto.MR) { p.Access = uint32(rdma.RemoteWrite) },
		"nothing there": func(p *proto.MR) { p.Addr = 4096 }, "around the end": func(p *proto.MR) { p.Length = 1<<64 - 1 },
	} {
		m := mr
		change(&m)
		if _, errno := c.try(proto.OpMR, 0, func(x *proto.Message) { *x.MR() = m }); errno == 0 {
			t.Errorf("%s: registered", name)
		}
	}
	flags := mr
	flags.Access |= ignoredAccess
	one := c.do(proto.OpMR, 0, func(x *proto.Message) { *x.MR() = flags }).MR()
	if one.LKey == 0 || one.RKey != one.LKey || one.Reach != proto.ReachCopied {
		t.Errorf("region: %+v", one)
	}
}

// The states of a QP that a client may ask for.
func TestStatesOfQP(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	e := c.end()
	to := func(q *rawQP, state uint32) func(*proto.Message) {
		return func(m *proto.Message) { m.Handle = q.handle; *m.QPAttr() = proto.QPAttr{Mask: maskState, State: state} }
	}
	is := func(q *rawQP, want uint32) {
		t.Helper()
		if a := c.do(proto.OpQueryQP, q.handle, nil).QPAttr(); a.State != want || a.QPN != q.qpn || a.SendDepth != 16 || a.SendSGE != 2 {
			t.Errorf("%+v, want state %d", a, want)
		}
	}
	is(e.qp, stateReset)
	for _, bad := range []uint32{stateRTR, stateRTS, stateSQD, 5, 7, 1 << 31} {
		c.refuse(unix.EINVAL, proto.OpModifyQP, e.qp.handle, to(e.qp, bad))
	}
	c.do(proto.OpModifyQP, e.qp.handle, func(m *proto.Message) {
		*m.QPAttr() = proto.QPAttr{Mask: maskState | maskAccess | maskPort | maskRNRRetry, State: stateInit, Access: 7, PortNum: 1, RNRRetry: 7}
	})
	is(e.qp, stateInit)
	if a := c.do(proto.OpQueryQP, e.qp.handle, nil).QPAttr(); a.Access != 7 || a.PortNum != 1 || a.RNRRetry != 7 || a.Timeout != 0 {
		t.Errorf("attributes: %+v", a)
	}
	c.do(proto.OpModifyQP, e.qp.handle, to(e.qp, stateRTR))
	c.refuse(unix.EINVAL, proto.OpModifyQP, e.qp.handle, to(e.qp, stateInit))
	c.do(proto.OpModifyQP, e.qp.handle, to(e.qp, stateRTS))
	is(e.qp, stateRTS)
	e.qp.receive(rdma.RecvWR{ID: 3})
	c.do(proto.OpModifyQP, e.qp.handle, to(e.qp, stateErr))
	is(e.qp, stateErr)
	if w := e.recvs.wait(); w.ID != 3 || w.Status != rdma.Flushed {
		t.Errorf("receive of a QP in error: %+v", w)
	}
	e.qp.post(rdma.SendWR{ID: 4, Op: rdma.WRSend})
	if w := e.sends.wait(); w.ID != 4 || w.Status != rdma.Flushed {
		t.Errorf("send of a QP in error: %+v", w)
	}
	c.refuse(unix.EINVAL, proto.OpModifyQP, e.qp.handle, to(e.qp, stateInit))
}

// A program that takes the QP of a connection of the connection manager through the states
// itself changes nothing (rping -q).
func TestStatesOfManagedQP(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	for _, state := range []uint32{stateInit, stateRTR, stateRTS} {
		a.c.do(proto.OpModifyQP, a.qp.handle, func(m *proto.Message) { *m.QPAttr() = proto.QPAttr{Mask: maskState, State: state} })
	}
	b.qp.receive(rdma.RecvWR{ID: 1})
	a.qp.post(rdma.SendWR{ID: 2, Op: rdma.WRSend, Flags: rdma.Signaled})
	b.recvs.succeed(1)
}

// A connected QP that a client puts into the error state resets its connection.
func TestErrorStateOfConnectedQP(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	a.c.do(proto.OpModifyQP, a.qp.handle, func(m *proto.Message) { *m.QPAttr() = proto.QPAttr{Mask: maskState, State: stateErr} })
	a.events.want(cmDisconnected)
	b.events.want(cmDisconnected)
}

// A CQ changes its ring, and no completion is lost.
func TestResizeCQ(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	send := func(id uint64) {
		b.qp.receive(rdma.RecvWR{ID: id})
		a.qp.post(rdma.SendWR{ID: id, Op: rdma.WRSend, Flags: rdma.Signaled})
		a.sends.succeed(id)
		a.qp.send.Polled++
	}
	take := func(id uint64) {
		b.recvs.succeed(id)
		b.qp.recv.Polled++
	}
	send(1)
	s.Eventually("the first completion", func() bool { return b.recvs.Ring[192] == 1 })
	m := &proto.Message{Op: proto.OpResizeCQ, Handle: b.recvs.handle}
	m.CQ().Depth = 200
	answer, fds, errno := b.c.exchange(m)
	if errno != 0 || len(fds) != 1 || answer.CQ().Depth != 256 {
		t.Fatalf("resize: %v, %d descriptors, depth %d", errno, len(fds), answer.CQ().Depth)
	}
	ring, from := b.c.mapped(fds[0], int(answer.CQ().Length)), answer.CQ().Cookie
	send(2)
	for b.recvs.Head < from {
		take(b.recvs.Head + 1)
	}
	b.recvs.Move(ring)
	if b.recvs.Head == 1 {
		take(2)
	}
	for id := uint64(3); id < 500; id++ {
		send(id)
		take(id)
	}
}

// A window gives a part of a region to the peer.
func TestMemoryWindow(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	from, to := pinned(t, 4096), pinned(t, 4096)
	copy(from, "through the window")
	mine, theirs := a.region(from, rdma.LocalWrite), b.region(to, rdma.LocalWrite|rdma.MWBind)
	w := b.c.do(proto.OpMW, 0, func(m *proto.Message) { *m.MW() = proto.MW{PD: b.pd, Type: 2} })
	next := rdma.STag(w.MW().RKey&^0xff | (w.MW().RKey+1)&0xff) // ibv_inc_rkey
	b.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRBindMW, Flags: rdma.Signaled, RKey: next, SGL: []rdma.SGE{theirs.at(1024, 512)}, Access: rdma.RemoteWrite})
	b.sends.succeed(1)
	b.qp.receive(rdma.RecvWR{ID: 7})
	a.qp.post(rdma.SendWR{ID: 2, Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(0, 18)}, RemoteAddr: theirs.addr + 1024, RKey: next},
		rdma.SendWR{ID: 3, Op: rdma.WRSend, Flags: rdma.Signaled})
	b.recvs.succeed(7)
	if string(to[1024:][:18]) != "through the window" {
		t.Errorf("%q", to[1024:][:18])
	}
	b.c.destroy(proto.KindMW, w.Handle)
	b.c.destroy(proto.KindMR, theirs.handle)
}

// Receives of an SRQ serve a QP, and the limit makes an event.
func TestSharedReceives(t *testing.T) {
	s := newScene(t)
	b := s.client(t)
	async := b.attach(proto.OpAsync)
	a := s.client(t)
	pd, q := b.pd(), b.cq(32, 0, 0)
	m := &proto.Message{Op: proto.OpSRQ}
	*m.SRQ() = proto.SRQ{PD: pd, Depth: 8, SGE: 1, Cookie: 44}
	answer, fds, errno := b.exchange(m)
	if errno != 0 || len(fds) != 1 {
		t.Fatal(errno)
	}
	srq := rawQP{c: b, bit: int(answer.SRQ().Bit)}
	srq.recv.Ring, srq.recv.Shared = b.mapped(fds[0], int(answer.SRQ().Length)), true
	qp := b.qp(proto.QP{PD: pd, SendCQ: q.handle, RecvCQ: q.handle, SRQ: answer.Handle, SendDepth: 4, SendSGE: 1})
	from := a.end()
	from.events = a.attach(proto.OpEventChannel)
	events := b.attach(proto.OpEventChannel)
	_, at := b.listening(events, "127.0.0.1:0")
	i := a.routed(from.events, at)
	a.do(proto.OpConnect, i, conn(from.qp, ""))
	b.do(proto.OpAccept, events.want(cmConnectRequest).Handle, conn(qp, ""))
	from.events.want(cmEstablished)
	events.want(cmEstablished)

	from.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRSend, Flags: rdma.Signaled}) // finds no receive, and waits
	srq.receive(rdma.RecvWR{ID: 10}, rdma.RecvWR{ID: 11}, rdma.RecvWR{ID: 12})
	q.succeed(10)
	from.sends.succeed(1)
	b.do(proto.OpModifySRQ, answer.Handle, func(m *proto.Message) { m.SRQ().Mask, m.SRQ().Limit = proto.SRQLimit, 2 })
	if got := b.do(proto.OpQuerySRQ, answer.Handle, nil).SRQ(); got.Limit != 2 || got.Depth != 8 || got.SGE != 1 {
		t.Errorf("query: %+v", got)
	}
	b.refuse(unix.EOPNOTSUPP, proto.OpModifySRQ, answer.Handle, func(m *proto.Message) { m.SRQ().Mask, m.SRQ().Depth = proto.SRQDepth, 16 })
	b.refuse(unix.EINVAL, proto.OpModifySRQ, answer.Handle, func(m *proto.Message) { m.SRQ().Mask = 4 })
	b.refuse(unix.EINVAL, proto.OpModifySRQ, answer.Handle, func(m *proto.Message) { m.SRQ().Mask, m.SRQ().Limit = proto.SRQLimit, 9 })
	from.qp.post(rdma.SendWR{ID: 2, Op: rdma.WRSend, Flags: rdma.Signaled})
	q.succeed(11)
	for {
		if e := async.next(); e.Async().Event == eventSRQLimit {
			if e.Handle != answer.Handle || e.Async().Cookie != 44 || e.Async().Kind != proto.KindSRQ {
				t.Errorf("SRQ limit: %+v", e.Async())
			}
			break
		}
	}
}

// Atomic operations and Immediate Data work between two clients.
func TestAtomicsAndImmediate(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	from, to := pinned(t, 4096), pinned(t, 4096)
	to[0] = 40
	mine, theirs := a.region(from, rdma.LocalWrite), b.region(to, rdma.LocalWrite|rdma.RemoteAtomic|rdma.RemoteWrite)
	a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRFetchAdd, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(8, 8)}, RemoteAddr: theirs.addr, RKey: theirs.key, CompareAdd: 2})
	a.sends.succeed(1)
	if from[8] != 40 || to[0] != 42 {
		t.Errorf("fetched %d, left %d", from[8], to[0])
	}
	b.qp.receive(rdma.RecvWR{ID: 2})
	a.qp.post(rdma.SendWR{ID: 3, Op: rdma.WRWriteImm, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(8, 8)}, RemoteAddr: theirs.addr + 64, RKey: theirs.key, Imm: 0x01020304})
	a.sends.succeed(3)
	if w := b.recvs.wait(); w.ID != 2 || w.Status != rdma.Success || w.Op != rdma.WCRecvImm {
		t.Errorf("receive: %+v", w)
	}
	if to[64] != 40 {
		t.Errorf("the Write has left %d", to[64])
	}
}
