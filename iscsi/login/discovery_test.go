package login

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// discover runs both machines of a discovery session.
func discover(t testing.TB, p, q Params, find func(string) []Record) ([]Record, error) {
	t.Helper()
	d, s := NewDiscovery(p, 10), NewDiscovered(q, find)
	out := d.Start(nil)
	for range 10000 {
		h, data := wholeWith(t, out, p.Digests)
		answer, ended, err := s.Step(h, data, nil)
		if err != nil {
			return nil, err
		}
		h, data = wholeWith(t, answer, p.Digests)
		if len(data) > q.MaxSendLength {
			t.Fatalf("a response of %d octets", len(data))
		}
		var done bool
		out, done, err = d.Step(h, data, nil)
		if done != ended {
			t.Fatalf("initiator done %v, target %v", done, ended)
		}
		if err != nil || done {
			return d.Records(), err
		}
	}
	t.Fatal("no end")
	return nil, nil
}

// wholeWith reads a PDU with digests through an inbox.
func wholeWith(t testing.TB, b []byte, d pdu.Digests) (*pdu.Header, []byte) {
	t.Helper()
	in := Inbox{Digests: d}
	for len(b) > 0 {
		n := copy(in.Want(), b)
		b = b[n:]
		if done, err := in.Got(n); err != nil || done != (len(b) == 0) {
			t.Fatalf("whole %v, %d left, %v", done, len(b), err)
		}
	}
	return in.Header(), in.Data()
}

func discoveryParams(d pdu.Digests, length int) Params {
	return Params{Discovery: true, Digests: d, MaxSendLength: length, MaxRecvLength: length, CmdSN: 0xffffffff, MaxCmdSN: 0xffffffff, StatSN: 3}
}

func TestDiscovery(t *testing.T) {
	var many []Record
	for k := range 500 {
		many = append(many, Record{fmt.Sprintf("iqn.2026-01.test:%d", k), []Portal{{"192.0.2.1:3260", 1}, {"[2001:db8::1]:3261", uint16(k)}}})
	}
	for _, records := range [][]Record{nil, many[:1], many} {
		for _, d := range []pdu.Digests{{}, {Header: true}, {Header: true, Data: true}} {
			p := discoveryParams(d, 512)
			got, err := discover(t, p, p, func(name string) []Record {
				if name != "" {
					t.Errorf("asked for %q", name)
				}
				return records
			})
			if err != nil || !reflect.DeepEqual(got, records) {
				t.Errorf("%d records with %+v: got %d, %v", len(records), d, len(got), err)
			}
		}
	}
}

// TestDiscoveryReplay gives tgtd's answer to the machine.
func TestDiscoveryReplay(t *testing.T) {
	text := []byte("TargetName=iqn.2026-01.test.stag:t1\x00TargetAddress=192.0.2.1:3260,1\x00")
	got, err := ParseRecords(text)
	want := []Record{{"iqn.2026-01.test.stag:t1", []Portal{{"192.0.2.1:3260", 1}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if again := AppendRecords(nil, got); string(again) != string(text) {
		t.Errorf("%q", again)
	}
}

func TestParsePortal(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Portal
		ok   bool
	}{
		{"192.0.2.1", Portal{"192.0.2.1:3260", 0}, true},
		{"192.0.2.1,7", Portal{"192.0.2.1:3260", 7}, true},
		{"192.0.2.1:860,65535", Portal{"192.0.2.1:860", 65535}, true},
		{"[2001:db8::1]", Portal{"[2001:db8::1]:3260", 0}, true},
		{"[2001:db8::1]:3261,2", Portal{"[2001:db8::1]:3261", 2}, true},
		{"storage.example:3260,1", Portal{"storage.example:3260", 1}, true},
		{"192.0.2.1,65536", Portal{}, false},
		{"192.0.2.1:0,1", Portal{}, false},
		{"192.0.2.1:x,1", Portal{}, false},
		{":3260,1", Portal{}, false},
		{"", Portal{}, false},
	} {
		got, err := parsePortal(c.in)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("%q: %+v, %v", c.in, got, err)
		}
	}
	if _, err := ParseRecords([]byte("TargetAddress=192.0.2.1,1\x00")); err == nil {
		t.Error("an address without a target is taken")
	}
	if _, err := ParseRecords([]byte("TargetName")); err == nil {
		t.Error("half a pair is taken")
	}
}

// TestAnswer: Text Requests in both kinds of session.
func TestAnswer(t *testing.T) {
	find := func(name string) []Record {
		all := []Record{{"iqn.a", []Portal{{"192.0.2.1:3260", 1}}}, {"iqn.b", nil}}
		return slices.DeleteFunc(all, func(r Record) bool { return name != "" && r.Name != name })
	}
	for _, c := range []struct {
		discovery bool
		in, want  string
		ok        bool
	}{
		{true, "SendTargets=All\x00", "TargetName=iqn.a\x00TargetAddress=192.0.2.1:3260,1\x00TargetName=iqn.b\x00", true},
		{true, "SendTargets=IQN.B\x00", "TargetName=iqn.b\x00", true},
		{true, "SendTargets=iqn.c\x00", "", true},
		{true, "SendTargets=\x00", "", false},
		{false, "SendTargets=All\x00", "TargetName=iqn.b\x00", true},
		{false, "SendTargets=\x00", "TargetName=iqn.b\x00", true},
		{false, "SendTargets=iqn.b\x00", "TargetName=iqn.b\x00", true},
		{false, "SendTargets=iqn.a\x00", "", false},
		{false, "SendTargets=Alle\x00", "", false},
		{false, "SendTargets=A\x00", "", false},
		{false, "sENDtARGETS=aLL\x00", "", false},
		{true, "SendTargetsPlease=All\x00", "", false},
		{false, "X#a=1\x00X-a=1\x00MaxBurstLength=512\x00", "X#a=NotUnderstood\x00X-a=NotUnderstood\x00MaxBurstLength=Reject\x00", true},
		{false, "MaxRecvDataSegmentLength=65536\x00", "", true},
		{false, "MaxRecvDataSegmentLength=1\x00", "MaxRecvDataSegmentLength=Reject\x00", true},
		{false, "what", "", false},
	} {
		p := Params{Discovery: c.discovery, TargetName: "iqn.b", MaxSendLength: 8192}
		out, ok := Answer([]byte(c.in), &p, find)
		if string(out) != c.want && ok || ok != c.ok {
			t.Errorf("%q: %q, %v", c.in, out, ok)
		}
		if want := strings.HasPrefix(c.in, "MaxRecvDataSegmentLength=65536"); want != (p.MaxSendLength == 65536) {
			t.Errorf("%q: MaxSendLength %d", c.in, p.MaxSendLength)
		}
	}
}

// TestDiscovered: the other requests that a discovery session may and may not have.
func TestDiscovered(t *testing.T) {
	p := discoveryParams(pdu.Digests{}, 8192)
	step := func(set func(h *pdu.Header), data string) (*pdu.Header, []byte, bool, error) {
		var h pdu.Header
		h.SetCmdSN(p.CmdSN)
		h.SetInitiatorTaskTag(8)
		h.SetTargetTransferTag(pdu.NoTag)
		set(&h)
		out, done, err := NewDiscovered(p, func(string) []Record { return nil }).Step(&h, []byte(data), nil)
		if len(out) == 0 {
			return nil, nil, done, err
		}
		r, text := whole(t, out)
		return r, text, done, err
	}
	if h, data, done, err := step(func(h *pdu.Header) { h.SetFlags(pdu.Final) }, "ping"); err != nil || done || h.Opcode() != pdu.OpNOPIn || string(data) != "ping" || h.ExpCmdSN() != 0 {
		t.Errorf("ping: %v %q", h, data)
	}
	if h, _, _, err := step(func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag) }, ""); err != nil || h != nil {
		t.Errorf("NOP-Out without a tag: %v", h)
	}
	if h, _, done, _ := step(func(h *pdu.Header) { h[0] |= byte(pdu.OpLogout) }, ""); !done || h.Opcode() != pdu.OpLogoutResponse || h.Response() != pdu.LogoutClosed {
		t.Errorf("logout: %v", h)
	}
	for _, op := range []pdu.Opcode{pdu.OpCommand, pdu.OpTask, pdu.OpDataOut, pdu.OpSNACK} {
		h, data, done, err := step(func(h *pdu.Header) { h[0] |= byte(op) }, "")
		if err != nil || done || h.Opcode() != pdu.OpReject || h.RejectReason() != pdu.RejectProtocolError || len(data) != pdu.HeaderLen {
			t.Errorf("%v: %v %v", op, h, err)
		}
	}
	if _, _, _, err := step(func(h *pdu.Header) { h[0] |= byte(pdu.OpLogin) }, ""); err == nil {
		t.Error("a login in the full feature phase is taken")
	}
	if h, _, _, _ := step(func(h *pdu.Header) { h[0] |= byte(pdu.OpText); h.SetTargetTransferTag(4) }, ""); h.Opcode() != pdu.OpReject {
		t.Errorf("a tag of nobody: %v", h)
	}
	if h, _, _, _ := step(func(h *pdu.Header) { h[0] |= byte(pdu.OpText); h.SetCmdSN(5) }, ""); h != nil {
		t.Errorf("a CmdSN outside of the window: %v", h)
	}
}

// TestDiscoveryFaults: a target that breaks the protocol.
func TestDiscoveryFaults(t *testing.T) {
	p := discoveryParams(pdu.Digests{}, 8192)
	for name, set := range map[string]func(h *pdu.Header) string{
		"another tag":  func(h *pdu.Header) string { h.Reset(pdu.OpTextResponse); h.SetInitiatorTaskTag(99); return "" },
		"Reject":       func(h *pdu.Header) string { h.Reset(pdu.OpReject); return "" },
		"another PDU":  func(h *pdu.Header) string { h.Reset(pdu.OpDataIn); return "" },
		"early logout": func(h *pdu.Header) string { h.Reset(pdu.OpLogoutResponse); return "" },
		"a bad list": func(h *pdu.Header) string {
			h.Reset(pdu.OpTextResponse)
			h.SetFlags(pdu.Final)
			h.SetInitiatorTaskTag(10)
			return "TargetAddress=x\x00"
		},
	} {
		d := NewDiscovery(p, 10)
		d.Start(nil)
		var h pdu.Header
		data := set(&h)
		if _, done, err := d.Step(&h, []byte(data), nil); err == nil || done {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
	}
	// A ping is answered with the tag and the LUN of the target.
	d := NewDiscovery(p, 10)
	d.Start(nil)
	var h pdu.Header
	h.Reset(pdu.OpNOPIn)
	h.SetInitiatorTaskTag(pdu.NoTag)
	h.SetTargetTransferTag(77)
	h.SetLUN(0x0005000000000000)
	out, _, err := d.Step(&h, nil, nil)
	if err != nil || len(out) != pdu.HeaderLen {
		t.Fatal(err)
	}
	if r, _ := whole(t, out); r.Opcode() != pdu.OpNOPOut || !r.Immediate() || r.TargetTransferTag() != 77 || r.LUN() != h.LUN() || r.InitiatorTaskTag() != pdu.NoTag {
		t.Errorf("answer %x", r[:])
	}
}

// TestInbox: lengths and digests that are refused.
func TestInbox(t *testing.T) {
	var h pdu.Header
	h.Reset(pdu.OpTextResponse)
	for _, c := range []struct {
		digests pdu.Digests
		limit   int
		data    int
		ahs     int
		spoil   int // octet to change; -1 none
		ok      bool
	}{
		{pdu.Digests{}, 0, MaxText, 0, -1, true},
		{pdu.Digests{}, 0, MaxText + 1, 0, -1, false},
		{pdu.Digests{}, 100000, 100000, 0, -1, true},
		{pdu.Digests{}, 0, 0, 4, -1, false},
		{pdu.Digests{Header: true, Data: true}, 0, 5, 0, -1, true},
		{pdu.Digests{Header: true, Data: true}, 0, 5, 0, 20, false},
		{pdu.Digests{Header: true, Data: true}, 0, 5, 0, 53, false},
		{pdu.Digests{Header: true, Data: true}, 0, 5, 0, 58, false}, // the pad
		{pdu.Digests{Header: true, Data: true}, 0, 0, 0, -1, true},
	} {
		octets := appendPDU(nil, &h, make([]byte, c.data), c.digests)
		octets[4] = byte(c.ahs / 4)
		if c.spoil >= 0 {
			octets[c.spoil]++
		}
		in := Inbox{Digests: c.digests, Limit: c.limit}
		var err error
		for done := false; !done && err == nil && len(octets) > 0; {
			n := copy(in.Want(), octets)
			octets = octets[n:]
			done, err = in.Got(n)
		}
		if (err == nil) != c.ok || c.ok && len(in.Data()) != c.data {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
