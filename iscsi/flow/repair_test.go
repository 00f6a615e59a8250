package flow

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// levelOne are the parameters of a connection at error recovery level 1.
func levelOne() login.Params {
	p := usual()
	p.ErrorRecoveryLevel = 1
	return p
}

// damaged returns a PDU with one octet of the data segment changed.
func damaged(octets []byte) []byte {
	b := bytes.Clone(octets)
	b[pdu.HeaderLen+pdu.DigestLen] ^= 1
	return b
}

// snacks fails unless exactly these SNACKs leave.
func (e *end) snacks(want ...snack) {
	e.t.Helper()
	var got []snack
	for _, c := range e.sent() {
		if c.h.Opcode() != pdu.OpSNACK {
			e.t.Fatalf("a %v leaves", c.h.Opcode())
		}
		got = append(got, snack{c.h.SNACKType(), c.h.LUN(), c.h.InitiatorTaskTag(), c.h.TargetTransferTag(), c.h.BegRun(), c.h.RunLength()})
	}
	if len(got) != len(want) {
		e.t.Fatalf("SNACKs %+v, want %+v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			e.t.Fatalf("SNACK %+v, want %+v", got[i], want[i])
		}
	}
}

// expStatSN returns the ExpStatSN that the Initiator sends now.
func (e *end) expStatSN() seq.Num {
	e.t.Helper()
	e.hears(e.pdu(pdu.OpNOPIn, pdu.NoTag, func(h *pdu.Header) { h.SetTargetTransferTag(5); h.SetStatSN(e.statSN) }, nil))
	got := e.sent()
	if len(got) != 1 || got[0].h.Opcode() != pdu.OpNOPOut {
		e.t.Fatalf("answers to a ping: %v", got)
	}
	return got[0].h.ExpStatSN()
}

// TestDataAgain: damaged Data-In are asked for again, in the middle and at the end with the
// status. Others go on. The status is not acknowledged before the data is whole.
func TestDataAgain(t *testing.T) {
	e := begin(t, levelOne(), 4)
	data, buf := pattern(300, 1), guardedBuf(300)
	tag := e.post(Command{ID: 1, LUN: 7 << 48, CDB: read10, In: [][]byte{buf.buf}})[0].h.InitiatorTaskTag()
	first := e.dataIn(tag, 0, 0, 0, data[:100])
	second := e.dataIn(tag, 1, 100, pdu.Final, data[100:200])
	before := e.statSN
	third := e.dataIn(tag, 2, 200, pdu.Final|pdu.StatusPresent, data[200:])
	ask := func(sn, n uint32) snack { return snack{pdu.SNACKDataR2T, 7 << 48, tag, pdu.NoTag, sn, n} }
	e.hears(damaged(first), second)
	e.snacks(ask(0, 1))
	e.hears(damaged(third))
	e.snacks(ask(2, 0))
	e.none()
	if sn := e.expStatSN(); sn != before {
		t.Errorf("ExpStatSN %v acknowledges a status whose data is not there (%v)", sn, before)
	}
	// Another command goes on, and its status is not acknowledged either.
	other := e.post(Command{ID: 2, CDB: read10[:10]})[0].h.InitiatorTaskTag()
	e.hears(e.response(other, 0, nil))
	if c := e.done(); c.ID != 2 || c.Why != OK {
		t.Errorf("the other command: %+v", c)
	}
	e.hears(damaged(first)) // once more in vain
	e.snacks(ask(0, 1))
	e.hears(third)
	e.none()
	e.hears(first)
	if c := e.done(); c.ID != 1 || c.Why != OK || c.Length != 300 || !bytes.Equal(buf.buf, data) || !buf.whole() {
		t.Errorf("%+v", c)
	}
	if sn := e.expStatSN(); sn != e.statSN {
		t.Errorf("ExpStatSN %v, want %v", sn, e.statSN)
	}
	if s := e.f.Stats(); s.DigestErrors != 3 || s.Repaired != 2 || s.SNACKs != 3 {
		t.Errorf("%+v", s)
	}
}

// TestAskedInTurn: the youngest Data-In of a command is asked for when the next one or the
// status has arrived, so that the target sends exactly what is missing, and has sent all of it
// when the status is acknowledged.
func TestAskedInTurn(t *testing.T) {
	e := begin(t, levelOne(), 4)
	data, buf := pattern(400, 1), guardedBuf(400)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{buf.buf}})[0].h.InitiatorTaskTag()
	in := func(sn uint32) []byte { return e.dataIn(tag, sn, sn*100, 0, data[sn*100:][:100]) }
	ask := func(sn, n uint32) snack { return snack{pdu.SNACKDataR2T, 0, tag, pdu.NoTag, sn, n} }
	e.hears(damaged(in(0)))
	e.snacks()
	e.hears(damaged(in(1)))
	e.snacks(ask(0, 1))
	e.hears(in(2))
	e.snacks(ask(1, 1))
	e.hears(damaged(in(0))) // again, and in vain
	e.snacks(ask(0, 1))
	e.hears(damaged(in(3)))
	e.snacks()
	before := e.statSN
	e.hears(e.response(tag, 0, nil)) // the status has a PDU of its own
	e.snacks(ask(3, 0))
	e.none()
	e.hears(in(1), in(0))
	e.none()
	if sn := e.expStatSN(); sn != before {
		t.Errorf("ExpStatSN %v acknowledges a status whose data is not there (%v)", sn, before)
	}
	e.hears(in(3))
	if c := e.done(); c.Why != OK || !bytes.Equal(buf.buf, data) || !buf.whole() {
		t.Errorf("%+v", c)
	}
	if s := e.f.Stats(); s.Refused != 0 || s.Repaired != 3 || s.SNACKs != 4 {
		t.Errorf("%+v", s)
	}
}

// TestStatusAgain: a response with damaged sense data comes again.
func TestStatusAgain(t *testing.T) {
	e := begin(t, levelOne(), 4)
	tag := e.post(Command{ID: 1, CDB: read10})[0].h.InitiatorTaskTag()
	sn := e.statSN
	r := e.response(tag, 2, append([]byte{0, 18}, pattern(18, 3)...))
	e.hears(damaged(r))
	e.snacks(snack{pdu.SNACKStatus, 0, pdu.NoTag, pdu.NoTag, uint32(sn), 1})
	e.none()
	if got := e.expStatSN(); got != sn {
		t.Errorf("ExpStatSN %v, want %v", got, sn)
	}
	e.hears(r)
	if c := e.done(); c.Why != OK || c.Status() != 2 || !bytes.Equal(c.Sense, pattern(18, 3)) {
		t.Errorf("%+v", c)
	}
	e.hears(r)
	if v, ok := e.event(); !ok || v.Why != Repeated {
		t.Errorf("a third time: %+v", v)
	}
	if got := e.expStatSN(); got != sn+1 {
		t.Errorf("ExpStatSN %v, want %v", got, sn+1)
	}
}

// TestHopelessLine: a PDU that is damaged each time fails its command, and a status ends the
// connection.
func TestHopelessLine(t *testing.T) {
	e := begin(t, levelOne(), 4)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 100)}})[0].h.InitiatorTaskTag()
	d := e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, pattern(100, 1))
	for range mostTries + 1 {
		e.hears(damaged(d))
		e.sent()
	}
	if c := e.done(); c.Why != DataDigest {
		t.Errorf("%+v", c)
	}
	tag = e.post(Command{ID: 2, CDB: read10})[0].h.InitiatorTaskTag()
	r := e.response(tag, 2, append([]byte{0, 18}, pattern(18, 3)...))
	for range mostTries + 1 {
		e.hears(damaged(r))
		e.sent()
	}
	if e.f.broken != ControlDigest {
		t.Errorf("the connection: %v", e.f.broken)
	}
}

// TestSNACKRejected: the target cannot send data again. The command fails when its status
// is there.
func TestSNACKRejected(t *testing.T) {
	for _, early := range []bool{false, true} {
		e := begin(t, levelOne(), 4)
		tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 300)}})[0].h.InitiatorTaskTag()
		e.hears(damaged(e.dataIn(tag, 0, 0, 0, pattern(100, 1))), e.dataIn(tag, 1, 100, 0, pattern(100, 3)))
		asked := e.sent()
		if len(asked) != 1 {
			t.Fatalf("%d PDUs", len(asked))
		}
		end := e.dataIn(tag, 2, 200, pdu.Final|pdu.StatusPresent, pattern(100, 2))
		reject := func() []byte {
			return e.pdu(pdu.OpReject, pdu.NoTag, func(h *pdu.Header) { h.SetRejectReason(pdu.RejectSNACK) }, asked[0].h[:])
		}
		if early {
			e.hears(end, reject())
		} else {
			e.statSN--
			r := reject()
			end = e.dataIn(tag, 2, 200, pdu.Final|pdu.StatusPresent, pattern(100, 2))
			e.hears(r, end)
		}
		if c := e.done(); c.Why != DataDigest {
			t.Errorf("early %v: %+v", early, c)
		}
	}
}

// TestDataACK: the target asks for acknowledgments of data. One waits for data that comes
// again.
func TestDataACK(t *testing.T) {
	e := begin(t, levelOne(), 4)
	data := pattern(400, 1)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 400)}})[0].h.InitiatorTaskTag()
	in := func(sn uint32, flags pdu.Flags) []byte {
		return e.pdu(pdu.OpDataIn, tag, func(h *pdu.Header) {
			h.SetFlags(flags)
			h.SetDataSN(sn)
			h.SetBufferOffset(sn * 100)
			h.SetLUN(9)
			h.SetTargetTransferTag(pdu.Tag(40 + sn))
		}, data[sn*100:][:100])
	}
	e.hears(in(0, pdu.Acknowledge))
	e.snacks(snack{pdu.SNACKDataACK, 9, pdu.NoTag, 40, 1, 0})
	e.hears(damaged(in(1, pdu.Acknowledge)))
	e.snacks()
	e.hears(in(2, 0))
	e.snacks(snack{pdu.SNACKDataR2T, 0, tag, pdu.NoTag, 1, 1})
	e.hears(in(1, pdu.Acknowledge))
	e.snacks(snack{pdu.SNACKDataACK, 9, pdu.NoTag, 41, 3, 0})
	e.hears(in(3, pdu.Final|pdu.Acknowledge|pdu.StatusPresent))
	e.snacks() // the status acknowledges the data
	if c := e.done(); c.Why != OK {
		t.Errorf("%+v", c)
	}
}

// TestManyLosses: every command in flight may miss data, and wait with its status.
func TestManyLosses(t *testing.T) {
	const n = 32
	p := levelOne()
	p.MaxCmdSN = p.CmdSN + n
	e := begin(t, p, n)
	var data [][]byte
	for id := range uint64(n) {
		tag := e.post(Command{ID: id, CDB: read10, In: [][]byte{make([]byte, 100)}})[0].h.InitiatorTaskTag()
		data = append(data, e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, pattern(100, 1)))
	}
	for _, d := range data {
		e.hears(damaged(d))
	}
	if got := e.sent(); len(got) != n {
		t.Errorf("%d SNACKs", len(got))
	}
	e.none()
	e.hears(data...)
	for range n {
		var c [1]Completion
		if e.q.Poll(c[:]) != 1 || c[0].Why != OK {
			t.Fatalf("%+v", c)
		}
	}
}

// TestCanceledBeforeSNACK: nothing is asked for a command that ended before the SNACK left.
func TestCanceledBeforeSNACK(t *testing.T) {
	e := begin(t, levelOne(), 4)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 100)}})[0].h.InitiatorTaskTag()
	e.hears(damaged(e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, pattern(100, 1))))
	e.q.Cancel(1)
	e.snacks()
	if c := e.done(); c.Why != Canceled {
		t.Errorf("%+v", c)
	}
}

// TestNotAgain: a target that does not send a PDU again loses the connection. A session then
// logs in again.
func TestNotAgain(t *testing.T) {
	for name, damage := range map[string]func(e *end, tag pdu.Tag) []byte{
		"data":   func(e *end, tag pdu.Tag) []byte { return e.dataIn(tag, 0, 0, 0, pattern(100, 1)) },
		"status": func(e *end, tag pdu.Tag) []byte { return e.response(tag, 2, append([]byte{0, 18}, pattern(18, 3)...)) },
	} {
		t.Run(name, func(t *testing.T) {
			e := begin(t, levelOne(), 4)
			tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 200)}})[0].h.InitiatorTaskTag()
			if d := e.f.Deadline(); d != clock.Never {
				t.Errorf("deadline %v before a loss", d)
			}
			d := damage(e, tag)
			e.hears(damaged(d))
			e.sent()
			due := e.f.Deadline()
			if due != clock.Instant(1).Add(repairTime) {
				t.Errorf("deadline %v", due)
			}
			if e.f.Transmit(due-1, e.w); e.w.aborted {
				t.Error("it does not wait")
			}
			if e.f.Transmit(due, e.w); !e.w.aborted || e.f.broken != ControlDigest {
				t.Errorf("it waits for ever: %v", e.f.broken)
			}
		})
	}
}

// TestCommandAgain: the target has dropped a command because of its immediate data. The
// command goes again with its number and tag.
func TestCommandAgain(t *testing.T) {
	e := begin(t, levelOne(), 4)
	out := pattern(512, 4)
	first := e.post(Command{ID: 1, CDB: write10, Out: [][]byte{out}})[0]
	e.post(Command{ID: 2, CDB: read10})
	e.hears(e.pdu(pdu.OpReject, pdu.NoTag, func(h *pdu.Header) { h.SetRejectReason(pdu.RejectDataDigest) }, first.h[:]))
	got := e.sent()
	if len(got) != 1 || !bytes.Equal(got[0].data, out) || got[0].h.CmdSN() != first.h.CmdSN() || got[0].h.InitiatorTaskTag() != first.h.InitiatorTaskTag() {
		t.Fatalf("%+v", got)
	}
	e.hears(e.response(first.h.InitiatorTaskTag(), 0, nil))
	if c := e.done(); c.ID != 1 || c.Why != OK {
		t.Errorf("%+v", c)
	}
}

// TestCanceledWithLosses: a command that is canceled asks for nothing any more, and its
// status is acknowledged.
func TestCanceledWithLosses(t *testing.T) {
	e := begin(t, levelOne(), 4)
	buf := guardedBuf(100)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{buf.buf}})[0].h.InitiatorTaskTag()
	d := e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, pattern(100, 1))
	e.hears(damaged(d))
	e.sent()
	e.q.Cancel(1)
	e.sent()
	if c := e.done(); c.Why != Canceled {
		t.Errorf("%+v", c)
	}
	clear(buf.buf)
	e.hears(d)
	if !bytes.Equal(buf.buf, make([]byte, 100)) {
		t.Error("octets after the cancellation")
	}
	if sn := e.expStatSN(); sn != e.statSN {
		t.Errorf("ExpStatSN %v, want %v", sn, e.statSN)
	}
}

// TestLevelZero: without level 1 a damaged Data-In fails the command, and nothing is asked.
func TestLevelZero(t *testing.T) {
	e := begin(t, usual(), 4)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 100)}})[0].h.InitiatorTaskTag()
	e.hears(damaged(e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, pattern(100, 1))))
	e.snacks()
	if c := e.done(); c.Why != DataDigest {
		t.Errorf("%+v", c)
	}
}
