package rdmap

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// course drives a QP with reactive error semantics (US 7,299,266, FIG. 11, option 1) and a
// plain model of its send queue, one action after the other. One region of the table is
// registered by work requests. After each action, the completions and the state of the QP
// must be those of the model.
type course struct {
	*script
	model queueModel
	slot  tpt.STag // present STag of the region
	mem   []byte   // memory of the region
	next  uint64   // ID of the next request

	engine    *tpt.Reader // another engine, which may be within a step
	answers   []byte      // offsets of the Reads that have left, divided by 8
	sends     uint32      // Sends of the peer
	readsOfIt uint32      // Reads of the peer
	responses int         // Read Responses that have left
}

const courseLen = 64 // octets of the region

func newCourse(t testing.TB) *course {
	c := &course{script: open(t, reactive, func(s *setup) { s.Registers = true }), mem: make([]byte, courseLen)}
	c.engine = c.table.Join()
	t.Cleanup(c.engine.Close)
	var err error
	if c.slot, err = c.table.Reserve(c.pd, 0); err != nil {
		t.Fatal(err)
	}
	c.model.slot = c.slot
	return c
}

// actions are the actions of a course, each with an argument from 0 to 31. Two octets of a
// course are the number of an action and its argument.
var actions = [...]func(c *course, arg byte){
	(*course).postSend, (*course).postRead, (*course).postRegister, (*course).postInvalidate, (*course).postBind,
	(*course).remap, (*course).resume, (*course).answerRead, (*course).peerSends, (*course).peerWrites, (*course).peerReads,
	(*course).steps, (*course).holdEngine, (*course).holdStream,
}

// Actions of courseSeeds.
const (
	doSend byte = iota
	doRead
	doRegister
	doInvalidate
	doBind
	doMap
	doResume
	doAnswer
	doPeerSend
	doPeerWrite
	doPeerRead
	doSteps
	doEngine
	doStream
)

// Bits of the argument of a post. valid is a request with the right STag and length.
const (
	told   byte = 1
	valid  byte = 6
	fenced byte = 8
	later  byte = 16 // the doorbell is rung later
)

// courseSeeds register, are refused, drain, resume and post again.
var courseSeeds = [][]byte{
	{doMap, 0, doRegister, valid | told, doPeerWrite, 5, doInvalidate, told, doMap, 0, doRegister, valid | told, doPeerWrite, 6},
	{doSend, told, doRegister, valid, doSend, told, doPeerSend, 1, doPeerRead, 0, doMap, 0, doResume, 0, doRegister, valid | told, doPeerWrite, 1},
	{doMap, 0, doRegister, told | later, doSend, told | later, doSend, later, doSteps, 1, doResume, later, doRegister, valid | told, doSend, told},
	{doRead, told, doRead, told, doBind, told, doSend, told | fenced, doAnswer, 0, doResume, 0, doSend, told | fenced, doAnswer, 0},
	{doMap, 0, doRegister, valid, doEngine, 0, doInvalidate, told | later, doInvalidate, valid | later, doSteps, 1, doSend, told, doResume, 0, doSend, told, doEngine, 0},
	{doStream, 0, doSend, told, doInvalidate, valid | told, doSend, told, doStream, 0, doResume, 0, doMap, 0, doMap, 0, doRegister, valid | told},
	{doRead, 0, doMap, 0, doRegister, valid | told | fenced, doMap, 0, doAnswer, 0, doResume, 0, doRegister, valid | told, doPeerWrite, 9},
}

// play performs the actions, and compares the QP with the model after each. Then it lets
// everything finish.
func (c *course) play(octets []byte) {
	c.Helper()
	for ; len(octets) > 1; octets = octets[2:] {
		actions[int(octets[0])%len(actions)](c, octets[1]&31)
		c.compare()
	}
	if c.model.engineBusy {
		c.holdEngine(0)
	}
	if c.model.noRoom {
		c.holdStream(0)
	}
	for c.turns(); len(c.answers) != 0; {
		c.answerRead(0)
	}
	if c.compare(); len(c.model.open) != 0 {
		c.Fatalf("%d requests have not completed: %+v", len(c.model.open), c.model.open[0])
	}
	if c.model.halted {
		c.resume(0)
	}
	c.postSend(1)
	c.compare()
	c.is(RTS)
	c.left()
	c.finishes()
}

// left checks that the Sends and Responses on the stream are those of the model: a flushed
// request has sent nothing.
func (c *course) left() {
	c.Helper()
	var n [16]int
	for _, f := range c.st.out {
		n[f[3]&15]++
	}
	if n[wire.OpSend] != c.model.sent || n[wire.OpReadResponse] != c.responses || n[wire.OpTerminate] != 0 {
		c.Fatalf("%d Sends and %d Responses have left, want %d and %d", n[wire.OpSend], n[wire.OpReadResponse], c.model.sent, c.responses)
	}
}

// compare checks the completions and the state.
func (c *course) compare() {
	c.Helper()
	want := c.model.completions()
	got := make([]work.Completion, 64)
	got = got[:c.cq.Poll(got)]
	got = slices.DeleteFunc(got, func(x work.Completion) bool { return x.Op == work.WCRecv && x.Status == work.Success })
	for i := range want {
		want[i].QP = qpNumber
	}
	if !slices.Equal(got, want) {
		c.Fatalf("completions:\n got %v\nwant %v", got, want)
	}
	state, why := RTS, error(nil)
	if c.model.halted {
		state, why = Drained, refusedBy[c.model.fault]
	}
	if c.q.State() != state || !errors.Is(c.q.DrainedBy(), why) {
		c.Fatalf("state %v because of %v, want %v because of %v", c.q.State(), c.q.DrainedBy(), state, why)
	}
}

// turns lets the QP and the model run.
func (c *course) turns() {
	c.Helper()
	c.turn()
	c.model.run()
}

// post posts a request to the QP and to the model.
func (c *course) post(wr work.SendWR, op work.WCOp, does action, arg byte) {
	c.Helper()
	if len(c.model.open) == 12 {
		return
	}
	c.next++
	wr.ID, wr.Flags = c.next, 0
	if arg&told != 0 {
		wr.Flags |= work.Signaled
	}
	if arg&fenced != 0 {
		wr.Flags |= work.Fence
	}
	if c.q.PostSend(wr) != 1 {
		c.Fatal("the send queue is full")
	}
	c.model.post(planned{id: wr.ID, flags: wr.Flags, op: op, does: does})
	if arg&later == 0 {
		c.turns()
	}
}

func (c *course) postSend(arg byte) {
	c.post(work.SendWR{Op: work.WRSend}, work.WCSend, func(m *queueModel, p *planned) tpt.Fault {
		id := p.id
		m.leaves = func() { m.sent++; m.done(id) }
		return tpt.OK
	}, arg)
}

func (c *course) postRead(arg byte) {
	at := byte(c.next % 64)
	c.post(c.script.reads(0, int(at)*8, 8), work.WCRead, func(m *queueModel, p *planned) tpt.Fault {
		p.length = 8
		m.reads++
		m.leaves = func() { c.answers = append(c.answers, at) }
		return tpt.OK
	}, arg)
}

// postRegister registers the region: as Map says, with another key, or longer than it is.
func (c *course) postRegister(arg byte) {
	s, n := c.slot, uint32(courseLen)
	switch arg >> 1 & 3 {
	case 0:
		s = tpt.NewSTag(s.Index(), s.Key()+1)
	case 1:
		n++
	}
	wr := work.SendWR{Op: work.WRRegMR, SGL: []work.SGE{{LKey: s, Length: n}}, Access: work.LocalWrite | work.RemoteWrite}
	c.post(wr, work.WCRegMR, func(m *queueModel, p *planned) tpt.Fault { return m.register(s, n, p) }, arg)
}

// postInvalidate invalidates the region, the STag of another key, or no entry at all.
func (c *course) postInvalidate(arg byte) {
	s := [...]tpt.STag{c.slot, c.slot, tpt.NewSTag(c.slot.Index(), c.slot.Key()+1), 1 << 30}[arg>>1&3]
	c.post(work.SendWR{Op: work.WRLocalInvalidate, Invalidate: s}, work.WCLocalInvalidate, func(m *queueModel, p *planned) tpt.Fault {
		return m.invalidate(s, p)
	}, arg)
}

// postBind binds what is no window.
func (c *course) postBind(arg byte) {
	c.post(work.SendWR{Op: work.WRBindMW, RKey: c.all, SGL: []work.SGE{c.at(0, 8)}}, work.WCBindMW, func(*queueModel, *planned) tpt.Fault {
		return tpt.BadSTag
	}, arg)
}

// remap gives the region memory and another STag, also while requests wait that name the
// old one.
func (c *course) remap(byte) {
	c.Helper()
	if c.model.engineBusy {
		return // Map waits for the engine
	}
	s, err := c.table.Map(c.slot, c.pd, c.mem)
	if c.model.valid != errors.Is(err, tpt.ErrBound) || !c.model.valid && err != nil {
		c.Fatalf("registered: %v, and Map returns %v", c.model.valid, err)
	}
	if err == nil {
		c.slot = s
		c.model.slot, c.model.mapped = s, true
	}
}

func (c *course) resume(arg byte) {
	c.Helper()
	if did := c.q.Resume(); did != c.model.resume() {
		c.Fatalf("Resume returns %v", did)
	}
	if arg&later == 0 {
		c.turns()
	}
}

// answerRead answers the oldest Read that has left.
func (c *course) answerRead(byte) {
	c.Helper()
	if len(c.answers) == 0 {
		return
	}
	at := int(c.answers[0]) * 8
	c.answers = c.answers[1:]
	c.model.answered()
	c.gets(c.answer(true, at, bytes.Repeat([]byte{byte(c.next)}, 8)))
	c.model.run()
	if c.script.mem[at] != byte(c.next) || c.script.mem[at+7] != byte(c.next) {
		c.Fatal("a Read's octets were not placed")
	}
}

// peerSends posts a receive and delivers a Send: both work while the send queue is drained.
func (c *course) peerSends(arg byte) {
	c.Helper()
	c.q.PostRecv(work.RecvWR{SGL: []work.SGE{c.at(1024, 8)}})
	c.sends++
	c.gets(send(uint32(c.sends), []byte{arg, 1}))
	c.model.run()
	if !bytes.Equal(c.script.mem[1024:1026], []byte{arg, 1}) {
		c.Fatal("the peer's Send was not placed")
	}
}

// peerWrites writes to the region if it is registered.
func (c *course) peerWrites(arg byte) {
	c.Helper()
	if !c.model.valid {
		return
	}
	c.gets(tagged(wire.OpWrite, true, uint32(c.slot), uint64(arg), []byte{arg + 1}))
	c.model.run()
	if c.mem[arg] != arg+1 {
		c.Fatal("the peer's Write was not placed")
	}
}

// peerReads reads while the stream has room for the Response.
func (c *course) peerReads(byte) {
	c.Helper()
	if c.model.noRoom {
		return
	}
	c.readsOfIt++
	c.responses++
	c.gets(readRequest(c.readsOfIt, 9, 0, 4, uint32(c.all), regionStart))
	c.model.run()
}

// steps gives the QP some steps.
func (c *course) steps(arg byte) {
	for range arg {
		c.turns()
	}
}

// holdEngine lets the other engine begin its step, or end it.
func (c *course) holdEngine(byte) {
	if c.model.engineBusy = !c.model.engineBusy; c.model.engineBusy {
		c.engine.Enter()
		return
	}
	c.engine.Leave()
	c.turns()
}

// holdStream takes the stream's room away, or gives it back.
func (c *course) holdStream(byte) {
	c.model.noRoom = !c.model.noRoom
	c.st.room = -1
	if c.model.noRoom {
		c.st.room = 0
	}
	c.turns()
}

// TestReactiveCourses plays random courses.
func TestReactiveCourses(t *testing.T) {
	for seed := range uint64(500) {
		luck := rand.New(rand.NewPCG(seed, 1))
		octets := make([]byte, 400)
		for i := range octets {
			octets[i] = byte(luck.Uint32())
		}
		newCourse(t).play(octets)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzReactive plays a course of any octets. The seeds register, are refused, drain,
// resume and post again.
func FuzzReactive(f *testing.F) {
	for _, seed := range courseSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		if len(octets) <= 2000 {
			newCourse(t).play(octets)
		}
	})
}
