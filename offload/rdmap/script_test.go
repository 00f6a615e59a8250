package rdmap

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// pipe is a stream.Stream in memory: a test puts arriving octets into in, and finds
// each Emit of the machine in out.
type pipe struct {
	in     [][]byte // views; Consume takes from the front
	fin    bool     // the peer has closed behind in
	out    [][]byte
	emss   int
	left   int // room in the current segment
	room   int // Emits that are taken; negative: no limit
	afloat int // octets that the peer has not acknowledged
	shut   bool
	killed bool
	faulty string // the rule of stream.Stream that the machine broke
	before func() // runs before an Emit; may be nil

	at     uint32       // number of the first octet in in
	behind []stream.Run // runs behind a hole that Ahead has not returned
	bounds bool         // KeepBoundaries was called
}

func (p *pipe) Position() uint32 { return p.at }
func (p *pipe) KeepBoundaries()  { p.bounds = true }

func (p *pipe) Ahead() (r stream.Run, ok bool) {
	if len(p.behind) == 0 {
		return r, false
	}
	r, p.behind = p.behind[0], p.behind[1:]
	return r, true
}

func (p *pipe) Views(dst [][]byte) int { return copy(dst, p.in) }

func (p *pipe) Consume(n int) {
	p.at += uint32(n)
	for n > 0 && len(p.in) > 0 {
		k := min(n, len(p.in[0]))
		n -= k
		if p.in[0] = p.in[0][k:]; len(p.in[0]) == 0 {
			p.in = p.in[1:]
		}
	}
	if n > 0 {
		p.faulty = "consumed more than there is"
	}
}

func (p *pipe) EOF() bool { return p.fin && len(p.in) == 0 }

func (p *pipe) Emit(n int) []byte {
	if p.before != nil {
		p.before()
	}
	if n <= 0 || n > p.emss {
		p.faulty = fmt.Sprintf("emitted %d octets, of at most %d", n, p.emss)
	}
	if p.shut || p.killed || p.room == 0 {
		return nil
	}
	p.room--
	if p.left -= n; p.left < 0 {
		p.left = 0 // and another segment begins, full
	}
	b := bytes.Repeat([]byte{0xee}, n) // none of these octets may stay
	p.out = append(p.out, b)
	return b
}

func (p *pipe) MaxEmit() int { return p.emss }
func (p *pipe) Room() int    { return p.left }
func (p *pipe) Unacked() int { return p.afloat }
func (p *pipe) CloseWrite()  { p.shut = true }
func (p *pipe) Abort()       { p.killed, p.in = true, nil }

// script drives one QP on virtual time. FPDUs from and to the peer are in RFC 5040's
// terms (see fpdu_test.go).
//
// The QP has one region, named all, of 64 KiB with every right, offsets from
// 0x1000; octet i of it is byte(i*7). Send and receive completions come to one
// CQ unless a test says otherwise.
type script struct {
	testing.TB
	q     *QP
	st    *pipe
	now   clock.Instant
	table *tpt.Table
	board *signal.Board
	cq    *work.CQ
	pd    tpt.PD
	other tpt.PD // a PD other than the QP's
	all   tpt.STag
	mem   []byte
	ended bool // Fault has been called
	agree mpa.Agreed
	stays bool // the QP is not moved: see moving

	inHeap bool // the region all is the region heap
}

const (
	regionLen   = 64 << 10
	regionStart = 0x1000
	scriptStart = clock.Instant(1e9)
	qpNumber    = 7
)

// setup is the configuration that a script opens with; changes edit it before.
type setup struct {
	Config
	agree mpa.Agreed
	emss  int
	depth int  // of the CQ
	heap  bool // the region all is the region heap
	piece int  // the longest piece of memory in octets; 0: no limit

	cqMemory []byte  // that the CQ lies in
	beside   *script // whose table it shares
}

type change func(*setup)

func asResponder(s *setup) { s.agree.Initiator = false }
func noCRC(s *setup)       { s.agree.CRC = false }
func withRTR(r mpa.RTR) change {
	return func(s *setup) { s.agree.RTR = r }
}
func withDepths(ord, ird uint16) change {
	return func(s *setup) { s.agree.ORD, s.agree.IRD = ord, ird }
}
func inHeap(s *setup)          { s.heap = true }
func inPieces(n int) change    { return func(s *setup) { s.piece = n } }
func withEMSS(n int) change    { return func(s *setup) { s.emss = n } }
func withCQ(depth int) change  { return func(s *setup) { s.depth = depth } }
func withInline(n int) change  { return func(s *setup) { s.MaxInline = n } }
func withQueues(n int) change  { return func(s *setup) { s.SendDepth, s.RecvDepth = n, n } }
func octet(i int) byte         { return byte(i * 7) }
func fresh(n int) (mem []byte) { return pattern(0, n) }
func pattern(from, n int) (b []byte) {
	for i := range n {
		b = append(b, octet(from+i))
	}
	return b
}

// open makes a connected QP: the initiator, CRC on, no Markers, no RTR, EMSS
// 1460, read depths 4.
func open(t testing.TB, changes ...change) *script {
	t.Helper()
	s := &script{TB: t, st: &pipe{emss: 1460, room: -1}, now: scriptStart, board: new(signal.Board), mem: fresh(regionLen)}
	set := setup{
		Config: Config{Number: qpNumber, SendDepth: 16, RecvDepth: 16, MaxSGE: 4, MaxInline: 64},
		agree:  mpa.Agreed{Initiator: true, Revision: 2, CRC: true, IRD: 4, ORD: 4}, emss: 1460, depth: 64,
	}
	for _, f := range changes {
		f(&set)
	}
	var err error
	table := tpt.Config{Entries: 64, Seed: [32]byte{1}, MaxPiece: uint32(set.piece)}
	if set.heap {
		table.Heap, s.inHeap = s.mem, true
	}
	if set.beside != nil {
		s.table = set.beside.table
	} else if s.table, err = tpt.New(table); err != nil {
		t.Fatal(err)
	}
	s.pd, s.other = s.newPD(), s.newPD()
	s.all = s.register(tpt.Region{PD: s.pd, Memory: s.mem, Start: regionStart, Rights: every})
	if s.cq = work.NewCQ(set.depth, s.board); set.cqMemory != nil {
		if s.cq, err = work.NewCQIn(set.cqMemory, set.depth, s.board); err != nil {
			t.Fatal(err)
		}
	}
	s.cq.News.Fire = func() {}
	set.PD, set.Table, set.Board, set.SendCQ, set.RecvCQ = s.pd, s.table, s.board, s.cq, s.cq
	s.st.emss, s.agree = set.emss, set.agree
	s.q = New(set.Config)
	s.q.News.Fire = func() {}
	s.q.Start(set.agree)
	return s
}

const every = tpt.LocalRead | tpt.LocalWrite | tpt.RemoteRead | tpt.RemoteWrite | tpt.RemoteInvalidate

func (s *script) newPD() tpt.PD {
	s.Helper()
	pd, err := s.table.NewPD()
	if err != nil {
		s.Fatal(err)
	}
	return pd
}

func (s *script) register(r tpt.Region) tpt.STag {
	s.Helper()
	if *remote && r.Memory != nil && !s.inHeap {
		r.Memory = s.foreign(r.Memory)
	}
	stag, err := s.table.Register(r)
	if err != nil {
		s.Fatal(err)
	}
	return stag
}

// region registers n fresh octets, offsets from 0.
func (s *script) region(n int, pd tpt.PD, rights tpt.Rights) (tpt.STag, []byte) {
	s.Helper()
	mem := fresh(n)
	return s.register(tpt.Region{PD: pd, Memory: mem, Rights: rights}), mem
}

// step does once what an engine does with a flow that has work.
func (s *script) step() {
	s.Helper()
	s.q.Receive(s.now, s.st)
	s.turn()
}

// turn is step without a Receive.
func (s *script) turn() {
	s.Helper()
	if s.ended {
		return
	}
	if *moving && !s.stays && s.q.State() != Errored { // in the step of an Abort nobody can detach it
		s.move(0)
	}
	s.q.Transmit(s.now, s.st)
	switch {
	case s.st.faulty != "":
		s.Fatal(s.st.faulty)
	case s.st.killed:
		s.fault(stream.ErrAborted)
	case s.st.shut && s.st.EOF():
		s.fault(nil)
	}
}

func (s *script) fault(err error) {
	s.ended = true
	s.q.Fault(s.now, err)
	s.board.Deliver()
}

// gets delivers the peer's FPDUs, each in one view.
func (s *script) gets(fpdus ...[]byte) {
	s.Helper()
	for _, f := range fpdus {
		s.st.in = append(s.st.in, slices.Clone(f))
	}
	s.step()
}

// finishes is gets with a FIN behind the FPDUs.
func (s *script) finishes(fpdus ...[]byte) {
	s.Helper()
	s.st.fin = true
	s.gets(fpdus...)
}

// pass advances the time by d, and runs the machine's deadline when it is due.
func (s *script) pass(d time.Duration) {
	s.Helper()
	s.now = s.now.Add(d)
	if !s.ended && s.q.Deadline().Due(s.now) {
		s.turn()
	}
}

// posts posts work requests and rings the doorbell.
func (s *script) posts(wrs ...work.SendWR) {
	s.Helper()
	for i := range wrs {
		if s.q.PostSend(wrs[i]) == 0 {
			s.Fatalf("the send queue is full at work request %d", wrs[i].ID)
		}
	}
	s.afterPost()
}

func (s *script) receives(wrs ...work.RecvWR) {
	s.Helper()
	for i := range wrs {
		if s.q.PostRecv(wrs[i]) == 0 {
			s.Fatalf("the receive queue is full at work request %d", wrs[i].ID)
		}
	}
	s.afterPost()
}

func (s *script) afterPost() {
	s.Helper()
	if s.q.Dead() {
		s.q.FlushDead()
	}
	s.turn()
}

// sends checks that exactly these FPDUs have left since the last call.
func (s *script) sends(want ...[]byte) {
	s.Helper()
	got := s.st.out
	s.st.out = nil
	for i := range max(len(got), len(want)) {
		var g, w []byte
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if !bytes.Equal(g, w) {
			s.Errorf("FPDU %d:\n got %s\nwant %s", i+1, describe(g), describe(w))
		}
	}
	if s.Failed() {
		s.FailNow()
	}
}

// completes checks for exactly these completions, in this order. It fills in QP.
func (s *script) completes(want ...work.Completion) {
	s.Helper()
	for i := range want {
		want[i].QP = qpNumber
	}
	got := make([]work.Completion, 128)
	got = got[:s.cq.Poll(got)]
	if !slices.Equal(got, want) {
		s.Fatalf("completions:\n got %v\nwant %v", got, want)
	}
}

// is checks the state.
func (s *script) is(want State) {
	s.Helper()
	if got := s.q.State(); got != want {
		s.Fatalf("state is %v, want %v (cause: %+v)", got, want, s.q.Cause())
	}
}

// untouched checks that memory has changed only at the places in changes: an offset in
// mem, then the octets.
func (s *script) untouched(mem []byte, changes ...any) {
	s.Helper()
	want := fresh(len(mem))
	for i := 0; i < len(changes); i += 2 {
		copy(want[changes[i].(int):], changes[i+1].([]byte))
	}
	for i := range mem {
		if mem[i] != want[i] {
			s.Fatalf("octet %d of the memory is %#x, want %#x", i, mem[i], want[i])
		}
	}
}

// silent checks that nothing has left, nothing has completed, and the QP is in good
// order.
func (s *script) silent() {
	s.Helper()
	s.sends()
	s.completes()
	s.is(RTS)
}

// at returns an element of the region named all, off octets into it.
func (s *script) at(off, n int) work.SGE {
	return work.SGE{Addr: regionStart + uint64(off), Length: uint32(n), LKey: s.all}
}

func ok(id uint64, op work.WCOp) work.Completion { return work.Completion{ID: id, Op: op} }
func flushed(id uint64, op work.WCOp) work.Completion {
	return work.Completion{ID: id, Op: op, Status: work.Flushed}
}
func received(id uint64, n uint32) work.Completion {
	return work.Completion{ID: id, Op: work.WCRecv, Length: n}
}
func read(id uint64, n uint32) work.Completion {
	return work.Completion{ID: id, Op: work.WCRead, Length: n}
}
func failed(id uint64, o work.WCOp, s work.Status) work.Completion {
	return work.Completion{ID: id, Op: o, Status: s}
}

// hasTerminated checks that the QP has sent exactly this Terminate and a FIN, has the
// cause, and closes without sending more.
func (s *script) hasTerminated(code Code, quote ...[]byte) {
	s.Helper()
	s.sends(terminateFPDU(code, quote...))
	s.is(Terminate)
	if !s.st.shut {
		s.Fatal("no FIN behind the Terminate")
	}
	if c := s.q.Cause(); c.Code != code || c.Remote {
		s.Fatalf("cause is %+v, want our %v", c, code)
	}
	s.deafAfter(code)
}

// deafAfter checks that later octets of the peer have no effect, and that the peer's
// FIN ends the connection.
func (s *script) deafAfter(code Code) {
	s.Helper()
	before := slices.Clone(s.mem)
	s.gets(tagged(wire.OpWrite, true, uint32(s.all), regionStart, []byte("too late")))
	s.gets([]byte("no FPDU at all, but who would look"))
	if !bytes.Equal(before, s.mem) {
		s.Fatal("memory was written after a Terminate")
	}
	s.sends()
	s.is(Terminate)
	s.finishes()
	s.is(Errored)
	if !s.ended || s.st.killed || s.q.Cause().Code != code {
		s.Fatalf("ended %v, reset %v, cause %+v", s.ended, s.st.killed, s.q.Cause())
	}
}
