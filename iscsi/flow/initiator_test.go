package flow

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/stream"
)

// TestRead reads into three buffers, with the stream cut at every octet.
func TestRead(t *testing.T) {
	want := pattern(300, 1)
	for cut := 0; ; cut++ {
		e := begin(t, usual(), 4)
		g := guardedBuf(300)
		sent := e.post(Command{ID: 7, LUN: 1 << 48, CDB: read10, In: [][]byte{g.buf[:10], g.buf[10:10], g.buf[10:200], g.buf[200:]}})
		if len(sent) != 1 {
			t.Fatalf("sent %d PDUs", len(sent))
		}
		h := sent[0].h
		if h.Opcode() != pdu.OpCommand || h.Flags() != pdu.Final|pdu.Read || h.LUN() != 1<<48 || h.EDTL() != 300 || h.CmdSN() != 0xfffffffe || h.ExpStatSN() != 0xffffffff ||
			!bytes.Equal(h.CDB()[:10], read10) || h.InitiatorTaskTag() == pdu.NoTag {
			t.Fatalf("command %x", h)
		}
		tag := h.InitiatorTaskTag()
		octets := slices.Concat(e.dataIn(tag, 0, 0, 0, want[:130]), e.dataIn(tag, 1, 130, pdu.Final|pdu.StatusPresent, want[130:]))
		if cut > len(octets) {
			break
		}
		for _, part := range [][]byte{octets[:cut], octets[cut:]} {
			if len(part) != 0 {
				e.hears(part)
			}
		}
		c := e.done()
		if c.ID != 7 || c.Why != OK || c.Status() != 0 || c.Length != 300 || !c.Sent || !bytes.Equal(g.buf, want) || !g.whole() {
			t.Fatalf("cut %d: %+v, data %v", cut, c, bytes.Equal(g.buf, want))
		}
		next := e.post(Command{CDB: []byte{0, 0, 0, 0, 0, 0}})
		if h := next[0].h; h.CmdSN() != 0xffffffff || h.ExpStatSN() != 0 || h.Flags() != pdu.Final {
			t.Fatalf("next command %x", h)
		}
	}
}

func TestStatus(t *testing.T) {
	sense := append([]byte{0, 18, 0x70, 0, 5}, make([]byte, 15)...)
	for _, c := range []struct {
		name   string
		octets func(e *end, tag pdu.Tag) []byte
		why    Reason
		status uint8
		length uint32
		sense  []byte
	}{
		{"check condition", func(e *end, tag pdu.Tag) []byte { return e.response(tag, 2, sense) }, OK, 2, 0, sense[2:]},
		{"busy", func(e *end, tag pdu.Tag) []byte { return e.response(tag, 8, nil) }, OK, 8, 0, nil},
		{"sense longer than it says", func(e *end, tag pdu.Tag) []byte { return e.response(tag, 2, sense[:10]) }, OK, 2, 0, sense[2:10]},
		{"sense beyond its room", func(e *end, tag pdu.Tag) []byte {
			return e.response(tag, 2, append([]byte{1, 44}, make([]byte, 400)...))
		}, OK, 2, 0, make([]byte, 252)},
		{"target failure", func(e *end, tag pdu.Tag) []byte {
			return e.pdu(pdu.OpResponse, tag, func(h *pdu.Header) { h.SetResponse(1) }, nil)
		}, OK, 0, 0, nil},
		{"good without data", func(e *end, tag pdu.Tag) []byte { return e.response(tag, 0, nil) }, DataMissing, 0, 0, nil},
		{"half of the data", func(e *end, tag pdu.Tag) []byte {
			return slices.Concat(e.dataIn(tag, 0, 0, pdu.Final, make([]byte, 50)), e.response(tag, 0, nil))
		}, DataMissing, 0, 0, nil},
		{"underflow", func(e *end, tag pdu.Tag) []byte {
			return e.pdu(pdu.OpDataIn, tag, func(h *pdu.Header) {
				h.SetFlags(pdu.Final | pdu.StatusPresent | pdu.Underflow)
				h.SetResidual(40)
			}, make([]byte, 60))
		}, OK, 0, 60, nil},
		{"underflow of all", func(e *end, tag pdu.Tag) []byte {
			return e.pdu(pdu.OpResponse, tag, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.Underflow); h.SetResidual(100) }, nil)
		}, OK, 0, 0, nil},
		{"underflow of more", func(e *end, tag pdu.Tag) []byte {
			return e.pdu(pdu.OpResponse, tag, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.Underflow); h.SetResidual(101) }, nil)
		}, DataMissing, 0, 0, nil},
		{"overflow", func(e *end, tag pdu.Tag) []byte {
			return e.pdu(pdu.OpDataIn, tag, func(h *pdu.Header) {
				h.SetFlags(pdu.Final | pdu.StatusPresent | pdu.Overflow)
				h.SetResidual(155)
			}, make([]byte, 100))
		}, OK, 0, 100, nil},
	} {
		e := begin(t, usual(), 1)
		tag := e.post(Command{ID: 3, CDB: read10, In: [][]byte{make([]byte, 100)}})[0].h.InitiatorTaskTag()
		e.hears(c.octets(e, tag))
		got := e.done()
		if got.Why != c.why || got.Why == OK && (got.Status() != c.status || got.Length != c.length) || !bytes.Equal(got.Sense, c.sense) {
			t.Errorf("%s: %v, status %#x, %d octets, sense %x", c.name, got.Why, got.Status(), got.Length, got.Sense)
		}
		if e.w.aborted {
			t.Errorf("%s: the connection has ended", c.name)
		}
	}
}

// TestLyingTarget: the peer names what is not the command's. Nothing outside of the
// command's buffer is touched, the command does not succeed, and the next one does.
func TestLyingTarget(t *testing.T) {
	const size = 300
	data := bytes.Repeat([]byte{0x55}, 301)
	for _, c := range []struct {
		name  string
		lie   func(e *end, read, write, other pdu.Tag) []byte
		event Reason
	}{
		{"wrong key", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r^1, 0, 0, 0, data[:8]) }, NoTask},
		{"wrong index", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r^0xff00, 0, 0, 0, data[:8]) }, NoTask},
		{"no tag", func(e *end, _, _, _ pdu.Tag) []byte { return e.dataIn(pdu.NoTag, 0, 0, 0, data[:8]) }, NoTask},
		{"tag 0", func(e *end, _, _, _ pdu.Tag) []byte { return e.dataIn(0, 0, 0, 0, data[:8]) }, NoTask},
		{"other connection", func(e *end, _, _, o pdu.Tag) []byte { return e.dataIn(o, 0, 0, 0, data[:8]) }, OtherSession},
		{"response of the other connection", func(e *end, _, _, o pdu.Tag) []byte { return e.response(o, 0, nil) }, OtherSession},
		{"beyond the end", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r, 0, 296, 0, data[:8]) }, OutOfBounds},
		{"around 2^32", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r, 0, 0xfffffffc, 0, data[:8]) }, OutOfBounds},
		{"more than EDTL", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r, 0, 0, 0, data) }, OutOfBounds},
		{"data of a write", func(e *end, _, w, _ pdu.Tag) []byte { return e.dataIn(w, 0, 0, 0, data[:8]) }, WrongDirection},
		{"DataSN 1 first", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r, 1, 0, 0, data[:8]) }, DataSNGap},
		{"a hole", func(e *end, r, _, _ pdu.Tag) []byte { return e.dataIn(r, 0, 8, 0, data[:8]) }, OutOfOrder},
		{"twice the same octets", func(e *end, r, _, _ pdu.Tag) []byte {
			return slices.Concat(e.dataIn(r, 0, 0, 0, data[:8]), e.dataIn(r, 1, 4, 0, data[:8]))
		}, OutOfOrder},
		{"R2T of a read", func(e *end, r, _, _ pdu.Tag) []byte { return e.r2t(r, 0, 0, 8) }, WrongDirection},
		{"R2T beyond the end", func(e *end, _, w, _ pdu.Tag) []byte { return e.r2t(w, 0, size-7, 8) }, OutOfBounds},
		{"R2T around 2^32", func(e *end, _, w, _ pdu.Tag) []byte { return e.r2t(w, 0, 0xffffffff, 8) }, OutOfBounds},
		{"R2T of nothing", func(e *end, _, w, _ pdu.Tag) []byte { return e.r2t(w, 0, 0, 0) }, BurstLength},
		{"R2T of the other connection", func(e *end, _, _, o pdu.Tag) []byte { return e.r2t(o, 0, 0, 8) }, OtherSession},
		{"R2TSN 1 first", func(e *end, _, w, _ pdu.Tag) []byte { return e.r2t(w, 1, 0, 8) }, DataSNGap},
		{"two R2Ts", func(e *end, _, w, _ pdu.Tag) []byte {
			return slices.Concat(e.r2t(w, 0, 0, 8), e.r2t(w, 1, 8, 8))
		}, TooManyR2T},
		{"NOP-In for a read", func(e *end, r, _, _ pdu.Tag) []byte { return e.pdu(pdu.OpNOPIn, r, nil, nil) }, NotExpected},
		{"task response for a read", func(e *end, r, _, _ pdu.Tag) []byte { return e.pdu(pdu.OpTaskResponse, r, nil, nil) }, NotExpected},
		{"text of nobody", func(e *end, r, _, _ pdu.Tag) []byte { return e.pdu(pdu.OpTextResponse, r^2, nil, data[:4]) }, NoTask},
		{"a response again", func(e *end, r, w, _ pdu.Tag) []byte {
			again := e.response(w, 0, nil)
			e.statSN--
			return slices.Concat(e.response(w, 0, nil), again)
		}, Repeated},
		{"a response twice", func(e *end, _, w, _ pdu.Tag) []byte {
			return slices.Concat(e.response(w, 0, nil), e.response(w, 0, nil))
		}, NoTask},
	} {
		table := newTable(t)
		p := usual()
		p.ImmediateData = false
		e, other := beginIn(t, table, p, 3), beginIn(t, table, p, 3)
		in, out, foreign, last := guardedBuf(size), guardedBuf(size), guardedBuf(size), guardedBuf(size)
		o := other.post(Command{CDB: read10, In: [][]byte{foreign.buf}})
		sent := e.post(Command{ID: 1, CDB: read10, In: [][]byte{in.buf}}, Command{ID: 2, CDB: write10, Out: [][]byte{out.buf}})
		r, w := sent[0].h.InitiatorTaskTag(), sent[1].h.InitiatorTaskTag()
		e.hears(c.lie(e, r, w, o[0].h.InitiatorTaskTag()))
		v, ok := e.event()
		if !ok || v.Why != c.event || e.w.aborted {
			t.Errorf("%s: event %v %v (aborted %v), want %v", c.name, ok, v.Why, e.w.aborted, c.event)
		}
		if !in.whole() || !out.whole() || !bytes.Equal(out.buf, bytes.Repeat([]byte{0xee}, size)) || !foreign.whole() || !bytes.Equal(foreign.buf, bytes.Repeat([]byte{0xee}, size)) {
			t.Errorf("%s: memory outside of the buffer is touched", c.name)
		}
		e.sent()
		want := pattern(size, 9)
		tag := e.post(Command{ID: 3, CDB: read10, In: [][]byte{last.buf}})[0].h.InitiatorTaskTag()
		e.hears(e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, want))
		var got [3]Completion
		n := e.q.Poll(got[:])
		if n == 0 || got[n-1].ID != 3 || got[n-1].Why != OK || !bytes.Equal(last.buf, want) {
			t.Errorf("%s: the next command: %d completions, %+v", c.name, n, got[:n])
		}
		if strings.Contains(c.name, "twice the") || c.event == OutOfBounds || c.event == DataSNGap || c.event == OutOfOrder {
			e.hears(e.response(r, 0, nil), e.response(w, 0, nil))
			failed := 0
			for _, d := range got[:e.q.Poll(got[:])] {
				if d.Why == BadData || d.Why == DataMissing {
					failed++
				}
			}
			if failed == 0 {
				t.Errorf("%s: the commands succeed", c.name)
			}
		}
	}
}

// TestTargetThatEndsTheConnection: what level 0 cannot recover.
func TestTargetThatEndsTheConnection(t *testing.T) {
	flip := func(b []byte, i int) []byte { b[i] ^= 1; return b }
	for _, c := range []struct {
		name string
		lie  func(e *end, tag pdu.Tag) []byte
		why  Reason
	}{
		{"header digest", func(e *end, tag pdu.Tag) []byte { return flip(e.dataIn(tag, 0, 0, 0, make([]byte, 8)), 41) }, HeaderDigest},
		{"digest of sense data", func(e *end, tag pdu.Tag) []byte { return flip(e.response(tag, 2, make([]byte, 20)), 60) }, ControlDigest},
		{"a status is missing", func(e *end, tag pdu.Tag) []byte { e.statSN++; return e.response(tag, 0, nil) }, StatSNGap},
		{"an opcode of initiators", func(e *end, tag pdu.Tag) []byte { return e.pdu(pdu.OpNOPOut, tag, nil, nil) }, BadOpcode},
		{"a Login Response", func(e *end, tag pdu.Tag) []byte { return e.pdu(pdu.OpLoginResponse, tag, nil, nil) }, BadOpcode},
		{"too much data", func(e *end, tag pdu.Tag) []byte { return e.dataIn(tag, 0, 0, 0, make([]byte, 1<<18+1)) }, DataTooLong},
	} {
		e := begin(t, usual(), 2)
		g := guardedBuf(100)
		tag := e.post(Command{ID: 5, CDB: read10, In: [][]byte{g.buf}})[0].h.InitiatorTaskTag()
		e.hears(c.lie(e, tag))
		if e.f.broken != c.why || !e.w.aborted || !g.whole() {
			t.Errorf("%s: %v, aborted %v", c.name, e.f.broken, e.w.aborted)
		}
		e.none()
		e.f.Fault(1, stream.ErrAborted)
		if d := e.done(); d.Why != Lost || d.ID != 5 || !d.Sent {
			t.Errorf("%s: %+v", c.name, d)
		}
		if over, why, cause := e.f.Over(); !over || cause != stream.ErrAborted || why != c.why {
			t.Errorf("%s: %v %v %v", c.name, over, cause, why)
		}
		if _, err := e.q.Post(Command{CDB: read10}); !errors.Is(err, ErrEnded) {
			t.Errorf("%s: post after the end: %v", c.name, err)
		}
	}
}

// TestDataDigest: a wrong data digest fails its command, and no other.
func TestDataDigest(t *testing.T) {
	for _, withStatus := range []bool{false, true} {
		e := begin(t, usual(), 2)
		a, b := guardedBuf(100), guardedBuf(100)
		sent := e.post(Command{ID: 1, CDB: read10, In: [][]byte{a.buf}}, Command{ID: 2, CDB: read10, In: [][]byte{b.buf}})
		ta, tb := sent[0].h.InitiatorTaskTag(), sent[1].h.InitiatorTaskTag()
		flags := pdu.Final
		if withStatus {
			flags |= pdu.StatusPresent
		}
		bad := e.dataIn(ta, 0, 0, flags, pattern(100, 3))
		bad[70] ^= 4
		e.hears(bad)
		if !withStatus {
			e.none()
			e.hears(e.response(ta, 0, nil))
		}
		if d := e.done(); d.ID != 1 || d.Why != DataDigest {
			t.Errorf("%+v", d)
		}
		e.hears(e.dataIn(tb, 0, 0, pdu.Final|pdu.StatusPresent, pattern(100, 4)))
		if d := e.done(); d.ID != 2 || d.Why != OK || !bytes.Equal(b.buf, pattern(100, 4)) || !a.whole() {
			t.Errorf("%+v", d)
		}
		if e.f.stats.DigestErrors != 1 {
			t.Errorf("%d digest errors", e.f.stats.DigestErrors)
		}
	}
}

// TestRequests: requests that are no commands get their own answers.
func TestRequests(t *testing.T) {
	e := begin(t, usual(), 4)
	request := func(op pdu.Opcode, immediate bool) *pdu.Header {
		var h pdu.Header
		h.Reset(op)
		h.SetImmediate(immediate)
		h.SetFlags(pdu.Final)
		h.SetTargetTransferTag(pdu.NoTag)
		return &h
	}
	answer := make([]byte, 100)
	sent := e.post(Command{ID: 1, Request: request(pdu.OpNOPOut, true), Out: [][]byte{[]byte("ping"), []byte("!")}, In: [][]byte{answer[:3], answer[3:10]}},
		Command{ID: 2, Request: request(pdu.OpText, false), Out: [][]byte{[]byte("SendTargets=\x00")}, In: [][]byte{answer[10:]}},
		Command{ID: 3, Request: request(pdu.OpTask, true)})
	if string(sent[0].data) != "ping!" || !sent[0].h.Immediate() || sent[0].h.CmdSN() != 0xfffffffe || sent[1].h.CmdSN() != 0xfffffffe || sent[2].h.CmdSN() != 0xffffffff {
		t.Fatalf("%q, CmdSN %x %x %x", sent[0].data, sent[0].h.CmdSN(), sent[1].h.CmdSN(), sent[2].h.CmdSN())
	}
	e.hears(e.pdu(pdu.OpTaskResponse, sent[2].h.InitiatorTaskTag(), func(h *pdu.Header) { h.SetResponse(1) }, nil))
	if c := e.done(); c.ID != 3 || c.Why != OK || c.Header.Response() != 1 {
		t.Errorf("%+v", c)
	}
	e.hears(e.pdu(pdu.OpNOPIn, sent[0].h.InitiatorTaskTag(), nil, []byte("ping!")), e.pdu(pdu.OpTextResponse, sent[1].h.InitiatorTaskTag(), nil, []byte("TargetName=x\x00")))
	var got [4]Completion
	if n := e.q.Poll(got[:]); n != 2 || got[0].ID != 1 || got[0].Length != 5 || got[1].ID != 2 || got[1].Length != 13 || string(answer[:5]) != "ping!" || string(answer[10:23]) != "TargetName=x\x00" {
		t.Errorf("%d: %+v, %q", n, got[:n], answer)
	}
	tag := e.post(Command{ID: 4, Request: request(pdu.OpLogout, true)})[0].h.InitiatorTaskTag()
	e.hears(e.pdu(pdu.OpNOPIn, tag, nil, nil))
	if v, ok := e.event(); !ok || v.Why != NotExpected {
		t.Errorf("an answer of another kind: %v %v", ok, v.Why)
	}
	e.hears(e.pdu(pdu.OpLogoutResponse, tag, nil, nil))
	if c := e.done(); c.ID != 4 {
		t.Errorf("%+v", c)
	}
}

// TestDataForARequest: Data-In is for commands only, though a ping has a buffer too.
func TestDataForARequest(t *testing.T) {
	e := begin(t, usual(), 1)
	var h pdu.Header
	g := guardedBuf(100)
	tag := e.post(Command{ID: 1, Request: &h, In: [][]byte{g.buf}})[0].h.InitiatorTaskTag()
	e.hears(e.dataIn(tag, 0, 0, pdu.Final, make([]byte, 50)))
	if v, ok := e.event(); !ok || v.Why != WrongDirection || g.buf[0] != 0xee {
		t.Errorf("%v %v, placed %v", ok, v.Why, g.buf[0] != 0xee)
	}
}

// TestUnasked: what a target sends on its own.
func TestUnasked(t *testing.T) {
	e := begin(t, usual(), 2)
	e.hears(e.pdu(pdu.OpNOPIn, pdu.NoTag, func(h *pdu.Header) { h.SetTargetTransferTag(0x1234); h.SetLUN(5) }, nil))
	sent := e.sent()
	if len(sent) != 1 {
		t.Fatalf("sent %d PDUs for a ping", len(sent))
	}
	if h := sent[0].h; h.Opcode() != pdu.OpNOPOut || !h.Immediate() || h.TargetTransferTag() != 0x1234 || h.LUN() != 5 || h.InitiatorTaskTag() != pdu.NoTag || h.CmdSN() != e.p.CmdSN {
		t.Errorf("answer to a ping: %x", h)
	}
	e.hears(e.pdu(pdu.OpNOPIn, pdu.NoTag, nil, nil))
	if got := e.sent(); len(got) != 0 {
		t.Errorf("answered a NOP-In that is no ping")
	}
	e.hears(e.pdu(pdu.OpAsync, pdu.NoTag, func(h *pdu.Header) { h.SetEvent(pdu.EventLogout) }, []byte("sense")))
	if v, ok := e.event(); !ok || v.Why != OK || v.Header.Event() != pdu.EventLogout || string(v.Data) != "sense" {
		t.Errorf("asynchronous message: %v %+v", ok, v)
	}
	sent = e.post(Command{ID: 9, CDB: read10, In: [][]byte{make([]byte, 10)}})
	bad := sent[0].h
	e.hears(e.pdu(pdu.OpReject, pdu.NoTag, func(h *pdu.Header) { h.SetRejectReason(pdu.RejectInvalidField) }, bad[:]))
	if v, ok := e.event(); !ok || v.Header.Opcode() != pdu.OpReject || !bytes.Equal(v.Data, bad[:]) {
		t.Errorf("reject: %v %+v", ok, v)
	}
	if c := e.done(); c.ID != 9 || c.Why != Rejected {
		t.Errorf("%+v", c)
	}
}

// TestEventsHoldTheStream: no refused PDU is lost when the consumer is slow.
func TestEventsHoldTheStream(t *testing.T) {
	e := begin(t, usual(), 2)
	const n = 3 * events
	for range n {
		e.hears(e.dataIn(0x100, 0, 0, 0, make([]byte, 8)))
	}
	seen := 0
	for range n {
		for {
			if v, ok := e.event(); !ok {
				break
			} else if v.Why != NoTask {
				t.Fatal(v.Why)
			}
			seen++
		}
		e.f.Transmit(1, e.w)
	}
	if seen != n {
		t.Errorf("%d events, want %d", seen, n)
	}
}

// TestMessagesHoldTheStream: no message is lost or has the data of another one when the
// consumer is slow.
func TestMessagesHoldTheStream(t *testing.T) {
	e := begin(t, usual(), 2)
	const n = 3*eventTexts + 1
	for i := range n {
		e.hears(e.pdu(pdu.OpAsync, pdu.NoTag, nil, []byte{byte(i), byte(i)}[:1+i%2]))
		e.hears(e.dataIn(0x100, 0, 0, 0, make([]byte, 8)))
	}
	for i := range n {
		if v, ok := e.event(); !ok || v.Why != OK || !bytes.Equal(v.Data, []byte{byte(i), byte(i)}[:1+i%2]) {
			t.Errorf("message %d: %v %+v", i, ok, v)
		}
		e.f.Transmit(1, e.w)
		if v, ok := e.event(); !ok || v.Why != NoTask || len(v.Data) != 0 {
			t.Errorf("refusal %d: %v %+v", i, ok, v)
		}
		e.f.Transmit(1, e.w)
	}
}

// TestWindow: commands wait for MaxCmdSN, and immediate ones do not.
func TestWindow(t *testing.T) {
	p := usual()
	p.MaxCmdSN = p.CmdSN + 1
	e := begin(t, p, 8)
	var h pdu.Header
	h.Reset(pdu.OpNOPOut)
	h.SetImmediate(true)
	c := Command{CDB: []byte{0, 0, 0, 0, 0, 0}}
	sent := e.post(c, c, Command{Request: &h}, c)
	if len(sent) != 3 {
		t.Fatalf("%d commands in a window of 2", len(sent))
	}
	e.p.MaxCmdSN -= 5
	e.hears(e.response(sent[0].h.InitiatorTaskTag(), 0, nil))
	if got := e.sent(); len(got) != 0 {
		t.Errorf("an old MaxCmdSN lets commands leave")
	}
	e.p.MaxCmdSN += 6
	e.hears(e.response(sent[1].h.InitiatorTaskTag(), 0, nil))
	if got := e.sent(); len(got) != 1 || got[0].h.CmdSN() != p.CmdSN+2 || got[0].h.ExpStatSN() != p.StatSN+2 {
		t.Errorf("sent %v", got)
	}
}

func TestPostErrors(t *testing.T) {
	e := begin(t, usual(), 2)
	b := make([]byte, 10)
	var nop, login pdu.Header
	login.Reset(pdu.OpLogin)
	for _, c := range []struct {
		c    Command
		want error
	}{
		{Command{CDB: read10, In: [][]byte{b}, Out: [][]byte{b}}, ErrDirections},
		{Command{CDB: read10, In: make([][]byte, 17)}, ErrPieces},
		{Command{CDB: read10[:5]}, ErrCDB},
		{Command{CDB: make([]byte, 33)}, ErrCDB},
		{Command{}, ErrCDB},
		{Command{Request: &login}, ErrRequest},
		{Command{Request: &nop, Out: [][]byte{make([]byte, 8193)}}, ErrSegment},
	} {
		n, err := e.q.Post(Command{CDB: read10}, c.c)
		if n != 1 || !errors.Is(err, c.want) {
			t.Errorf("posted %d: %v, want %v", n, err, c.want)
		}
		tag := e.sent()[0].h.InitiatorTaskTag()
		e.hears(e.response(tag, 0, nil))
		e.done()
	}
	if n, err := e.q.Post(make([]Command, 0)...); n != 0 || err != nil {
		t.Error(n, err)
	}
	c := Command{CDB: read10}
	if n, err := e.q.Post(c, c, c); n != 2 || err != nil || e.q.Room() != 0 {
		t.Errorf("posted %d of 3 to 2 slots: %v", n, err)
	}
}

// TestLongCDB: the rest of the CDB is in an additional header segment.
func TestLongCDB(t *testing.T) {
	e := begin(t, usual(), 1)
	cdb := pattern(32, 5)
	p := e.post(Command{CDB: cdb})[0]
	if !bytes.Equal(p.h.CDB(), cdb[:16]) || !bytes.Equal(p.ahs, append([]byte{0, 17, 1, 0}, cdb[16:]...)) {
		t.Errorf("CDB %x, AHS %x", p.h.CDB(), p.ahs)
	}
}
