package flow

import (
	"bytes"
	"slices"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/tpt"
)

// tester is a testing.T or a rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// usual are the parameters of most tests.
func usual() login.Params {
	return login.Params{
		Digests: both, MaxSendLength: 8192, MaxRecvLength: 1 << 18, InitialR2T: true, ImmediateData: true,
		FirstBurstLength: 65536, MaxBurstLength: 262144, MaxOutstandingR2T: 1,
		DataPDUInOrder: true, DataSequenceInOrder: true, CmdSN: 0xfffffffe, MaxCmdSN: 20, StatSN: 0xffffffff,
	}
}

// end is an Initiator between an application and a target that the test plays.
type end struct {
	t      tester
	table  *tpt.Table
	pd     tpt.PD
	f      *Initiator
	q      *Queue
	w      *wire
	p      login.Params
	statSN seq.Num // of the target's next status
	heard  *catcher
}

func newTable(t tester) *tpt.Table {
	t.Helper()
	table, err := tpt.New(tpt.Config{Entries: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func begin(t tester, p login.Params, slots int) *end {
	t.Helper()
	return beginIn(t, newTable(t), p, slots)
}

func beginIn(t tester, table *tpt.Table, p login.Params, slots int) *end {
	t.Helper()
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	tags, err := table.ReserveTags(pd, slots)
	if err != nil {
		t.Fatal(err)
	}
	e := &end{t: t, table: table, pd: pd, p: p, w: newWire(), statSN: p.StatSN}
	e.f = NewInitiator(Config{Params: p, Tags: tags, Board: new(signal.Board)})
	e.f.News.Fire = func() {}
	e.q = e.f.NewQueue(0, slots)
	e.q.News().Fire = func() {}
	e.heard = newCatcher(p.Digests)
	return e
}

// post posts commands and lets them leave.
func (e *end) post(c ...Command) []caught {
	e.t.Helper()
	if n, err := e.q.Post(c...); n != len(c) || err != nil {
		e.t.Fatalf("posted %d of %d: %v", n, len(c), err)
	}
	return e.sent()
}

// sent returns the PDUs that leave now.
func (e *end) sent() []caught {
	e.t.Helper()
	e.f.Transmit(1, e.w)
	return e.heard.hear(e.t, e.w)
}

// hears gives the Initiator octets of the target, in one view.
func (e *end) hears(octets ...[]byte) {
	e.w.in = append(e.w.in, slices.Concat(octets...))
	e.f.Receive(1, e.w)
}

// pdu returns a PDU of the target with the present numbers.
func (e *end) pdu(op pdu.Opcode, tag pdu.Tag, set func(h *pdu.Header), data []byte) []byte {
	var h pdu.Header
	h.Reset(op)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(tag)
	h.SetTargetTransferTag(pdu.NoTag)
	h.SetExpCmdSN(e.p.MaxCmdSN - 10)
	h.SetMaxCmdSN(e.p.MaxCmdSN)
	if set != nil {
		set(&h)
	}
	if op == pdu.OpR2T || h.AdvancesStatSN() {
		h.SetStatSN(e.statSN)
	}
	if h.AdvancesStatSN() {
		e.statSN++
	}
	return encode(e.p.Digests, h, nil, data)
}

// dataIn returns a Data-In. flags may have StatusPresent, for status GOOD.
func (e *end) dataIn(tag pdu.Tag, sn, off uint32, flags pdu.Flags, data []byte) []byte {
	return e.pdu(pdu.OpDataIn, tag, func(h *pdu.Header) {
		h.SetFlags(flags)
		h.SetDataSN(sn)
		h.SetBufferOffset(off)
	}, data)
}

// response returns a SCSI Response with a status.
func (e *end) response(tag pdu.Tag, status uint8, sense []byte) []byte {
	return e.pdu(pdu.OpResponse, tag, func(h *pdu.Header) { h.SetStatus(status) }, sense)
}

func (e *end) r2t(tag pdu.Tag, sn, off, n uint32) []byte {
	return e.pdu(pdu.OpR2T, tag, func(h *pdu.Header) {
		h.SetTargetTransferTag(pdu.Tag(0x77000000 + off))
		h.SetDataSN(sn)
		h.SetBufferOffset(off)
		h.SetDesiredLength(n)
	}, nil)
}

// done polls exactly one completion.
func (e *end) done() Completion {
	e.t.Helper()
	var got [2]Completion
	if n := e.q.Poll(got[:]); n != 1 {
		e.t.Fatalf("%d completions, want 1 (the connection: %v, aborted %v)", n, e.f.broken, e.w.aborted)
	}
	return got[0]
}

// none fails if there is a completion.
func (e *end) none() {
	e.t.Helper()
	var got [1]Completion
	if e.q.Poll(got[:]) != 0 {
		e.t.Fatalf("completed: %+v", got[0])
	}
}

// event takes an event, or returns false.
func (e *end) event() (v Event, ok bool) { ok = e.f.TakeEvent(&v); return v, ok }

// caught is a PDU that was received whole.
type caught struct {
	h    pdu.Header
	ahs  []byte
	data []byte
	why  Reason
}

// catcher receives every PDU.
type catcher struct {
	r   receiver
	buf []byte
	ahs []byte
	got []caught
}

func newCatcher(d pdu.Digests) *catcher {
	c := new(catcher)
	c.r = receiver{role: c, digests: d, limit: 1 << 24}
	return c
}

func (c *catcher) arrived(h *pdu.Header, ahs []byte) (Reason, bool) {
	c.ahs, c.buf = bytes.Clone(ahs), make([]byte, h.DataLength())
	c.r.collect(c.buf)
	return OK, false
}

func (c *catcher) complete(h *pdu.Header, why Reason) (Reason, bool) {
	c.got = append(c.got, caught{*h, c.ahs, c.buf, why})
	return OK, false
}

// hear takes what the wire has sent.
func (c *catcher) hear(t tester, w *wire) []caught {
	t.Helper()
	if len(w.out) == 0 {
		return nil
	}
	if end := c.r.run(&wire{in: [][]byte{bytes.Clone(w.out)}}); end != OK {
		t.Fatalf("sent what ends the connection: %v", end)
	}
	w.out = w.out[:0]
	got := c.got
	c.got = nil
	for _, p := range got {
		if p.why != OK {
			t.Fatalf("sent what is refused: %v", p.why)
		}
	}
	return got
}

// read10 and write10 are CDBs.
var (
	read10  = []byte{0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0}
	write10 = []byte{0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0}
)

// pattern fills a new buffer.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8) ^ seed
	}
	return b
}

// guarded is memory with a guard on both sides of the buffer that the command has.
type guarded struct{ all, buf []byte }

func guardedBuf(n int) guarded {
	all := bytes.Repeat([]byte{0xee}, n+128)
	return guarded{all, all[64 : 64+n : 64+n]}
}

// whole reports whether the guards are untouched.
func (g guarded) whole() bool {
	n := len(g.buf)
	return !slices.ContainsFunc(g.all[:64], func(b byte) bool { return b != 0xee }) && !slices.ContainsFunc(g.all[64+n:], func(b byte) bool { return b != 0xee })
}
