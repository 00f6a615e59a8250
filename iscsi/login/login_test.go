package login

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

const (
	initiatorName = "iqn.2026-01.test.stag:host"
	targetName    = "iqn.2026-01.test.stag:t1"
	alice         = "alicesecret12"
	bob           = "bobsecret12345"
)

// registry is a target's knowledge that a test writes down.
type registry struct {
	policy   Policy
	existing Existing
	status   pdu.LoginStatus // of Enter
	action   Action          // that Enter saw
	entered  int
}

func (r *registry) Policy(q *Request) Policy {
	if r.policy.Status == 0 && !q.Discovery && q.TargetName != targetName {
		return Policy{Status: pdu.TargetNotFound}
	}
	return r.policy
}
func (r *registry) Existing(*Request) Existing { return r.existing }
func (r *registry) Enter(q *Request, a Action, _ *Params) (uint16, pdu.LoginStatus) {
	r.action = a
	r.entered++
	if q.TSIH != 0 {
		return q.TSIH, r.status
	}
	return 7, r.status
}

// secrets has the secret of one user.
func secrets(user, secret string) func(string) (Secret, bool) {
	return func(u string) (Secret, bool) { return Secret(secret), u == user }
}

func initiatorConfig() InitiatorConfig {
	return InitiatorConfig{Name: initiatorName, Target: targetName, ISID: pdu.ISID{0x80, 1, 2, 3}, Tag: 0x42, CmdSN: 100}
}

func newInitiator(t testing.TB, c InitiatorConfig) *Initiator {
	t.Helper()
	i, err := NewInitiator(c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func newTarget(t testing.TB, r Registry, w Wishes) *Target {
	t.Helper()
	m, err := NewTarget(TargetConfig{Registry: r, Wishes: w, StatSN: 0xfffffffe, Window: 64})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// whole reads the only PDU in b through an inbox, cut octet by octet.
func whole(t testing.TB, b []byte) (*pdu.Header, []byte) {
	t.Helper()
	var in Inbox
	for k := range b {
		in.Want()[0] = b[k]
		done, err := in.Got(1)
		if err != nil || done != (k == len(b)-1) {
			t.Fatalf("octet %d of %d: whole %v, %v", k, len(b), done, err)
		}
	}
	return in.Header(), in.Data()
}

// converse runs both machines until the login ends. It returns the number of requests.
func converse(t testing.TB, i *Initiator, m *Target) (exchanges int, initiatorErr, targetErr error) {
	t.Helper()
	out := i.Start(nil)
	for exchanges = 1; exchanges < 200; exchanges++ {
		h, data := whole(t, out)
		answer, targetDone, err := m.Step(h, data, nil)
		targetErr = err
		if len(answer) == 0 {
			return exchanges, nil, targetErr
		}
		h, data = whole(t, answer)
		var done bool
		out, done, err = i.Step(h, data, nil)
		if err != nil || done {
			if err == nil && done != targetDone {
				t.Fatalf("initiator done %v, target done %v", done, targetDone)
			}
			return exchanges, err, targetErr
		}
	}
	t.Fatal("no end")
	return
}

// same checks that both ends have the same parameters.
func same(t testing.TB, i *Initiator, m *Target) {
	t.Helper()
	a, b := i.Params(), m.Params()
	if a.MaxSendLength != b.MaxRecvLength || a.MaxRecvLength != b.MaxSendLength {
		t.Errorf("data segments: initiator %d, %d; target %d, %d", a.MaxSendLength, a.MaxRecvLength, b.MaxSendLength, b.MaxRecvLength)
	}
	b.MaxSendLength, b.MaxRecvLength = a.MaxSendLength, a.MaxRecvLength
	if a.FirstBurstLength != b.FirstBurstLength && b.InitialR2T && !b.ImmediateData {
		b.FirstBurstLength = a.FirstBurstLength // without meaning
	}
	if a != b {
		t.Errorf("initiator and target differ:\n%+v\n%+v", a, b)
	}
}

func TestLogin(t *testing.T) {
	nonce := Nonce{9, 1, 2, 3}
	theirs := Nonce{200, 7, 7, 7}
	verifier := func() *Verifier {
		return &Verifier{Secret: secrets("alice", alice), User: "bob", OwnSecret: Secret(bob), Nonce: nonce}
	}
	both := Wishes{HeaderDigest: []Digest{CRC32C}, DataDigest: []Digest{CRC32C, NoDigest}}
	for _, c := range []struct {
		name      string
		initiator func(*InitiatorConfig)
		policy    Policy
		wishes    Wishes
		exchanges int
		check     func(p Params) bool
	}{
		{"plain", nil, Policy{PortalGroupTag: 3, Alias: "a disk"}, Wishes{}, 1, func(p Params) bool {
			return p.PortalGroupTag == 3 && p.TargetAlias == "a disk" && !p.InitialR2T && p.ImmediateData && p.TSIH == 7 &&
				p.MaxSendLength == 262144 && p.FirstBurstLength == 65536 && p.CmdSN == 100 && p.MaxCmdSN == 163 && p.StatSN == 0xffffffff
		}},
		{"discovery", func(c *InitiatorConfig) { c.Target = "" }, Policy{}, Wishes{}, 1, func(p Params) bool { return p.Discovery }},
		{"digests wanted by the target alone", nil, Policy{}, both, 0, nil},
		{"digests", func(c *InitiatorConfig) { c.Wishes.HeaderDigest = []Digest{NoDigest, CRC32C} }, Policy{},
			Wishes{HeaderDigest: []Digest{CRC32C}}, 1, func(p Params) bool { return p.Digests == pdu.Digests{Header: true} }},
		{"R2T and bursts", func(c *InitiatorConfig) {
			c.Wishes = Wishes{MaxBurstLength: 1 << 20, FirstBurstLength: 4096, MaxOutstandingR2T: 8, Time2Wait: 3, Time2Retain: 60}
		}, Policy{}, Wishes{RequireR2T: true, NoImmediateData: true, MaxBurstLength: 1 << 16, MaxOutstandingR2T: 4, Time2Wait: 5, Time2Retain: 50}, 1,
			func(p Params) bool {
				return p.InitialR2T && !p.ImmediateData && p.MaxBurstLength == 1<<16 && p.MaxOutstandingR2T == 4 && p.Time2Wait == 5 && p.Time2Retain == 50
			}},
		{"RFC 7144", func(c *InitiatorConfig) {
			c.Wishes = Wishes{ProtocolLevel: 2, TaskReporting: []TaskReporting{FastAbort, RFC3720}}
		},
			Policy{}, Wishes{ProtocolLevel: 2, TaskReporting: []TaskReporting{RFC3720, FastAbort}}, 1,
			func(p Params) bool { return p.ProtocolLevel == 2 && p.TaskReporting == FastAbort }},
		{"iSER", func(c *InitiatorConfig) {
			c.Wishes = Wishes{RDMA: true, InitiatorRecvLength: 262144, TargetRecvLength: 16384}
		},
			Policy{}, Wishes{RDMA: true, InitiatorRecvLength: 128 << 10, TargetRecvLength: 1 << 20}, 1,
			func(p Params) bool { return p.RDMA && p.MaxSendLength == 16384 && p.MaxRecvLength == 128<<10 }},
		{"iSER refused", func(c *InitiatorConfig) { c.Wishes = Wishes{RDMA: true} }, Policy{}, Wishes{}, 0, nil},
		{"level 1 has one R2T at a time", func(c *InitiatorConfig) { c.Wishes = Wishes{ErrorRecoveryLevel: 2, MaxOutstandingR2T: 8} },
			Policy{}, Wishes{ErrorRecoveryLevel: 1, MaxOutstandingR2T: 8}, 1,
			func(p Params) bool { return p.ErrorRecoveryLevel == 1 && p.MaxOutstandingR2T == 1 }},
		{"no CHAP wanted", func(c *InitiatorConfig) { c.CHAP = &Credentials{User: "alice", Secret: Secret(alice)} }, Policy{}, Wishes{}, 3,
			func(p Params) bool { return p.User == "" }},
		{"CHAP", func(c *InitiatorConfig) { c.CHAP = &Credentials{User: "alice", Secret: Secret(alice)} },
			Policy{CHAP: verifier()}, Wishes{}, 4, func(p Params) bool { return p.User == "alice" && p.PeerUser == "" }},
		{"CHAP, mutual", func(c *InitiatorConfig) {
			c.CHAP = &Credentials{User: "alice", Secret: Secret(alice), PeerUser: "bob", PeerSecret: Secret(bob), Nonce: theirs}
		}, Policy{CHAP: verifier()}, Wishes{}, 4, func(p Params) bool { return p.User == "alice" && p.PeerUser == "bob" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := initiatorConfig()
			if c.initiator != nil {
				c.initiator(&config)
			}
			i, r := newInitiator(t, config), &registry{policy: c.policy}
			m := newTarget(t, r, c.wishes)
			n, err, targetErr := converse(t, i, m)
			if c.exchanges == 0 {
				if err == nil {
					t.Fatal("both ends agreed")
				}
				return
			}
			if err != nil || targetErr != nil || n != c.exchanges {
				t.Fatalf("%d requests, %v, %v; want %d", n, err, targetErr, c.exchanges)
			}
			same(t, i, m)
			if !c.check(i.Params()) || r.entered != 1 {
				t.Errorf("parameters %+v, entered %d times", i.Params(), r.entered)
			}
		})
	}
}

// TestSixExchanges: a target takes a text in small parts, and keys in many requests (RFC
// 7143 §6.3 demands at least six).
func TestSixExchanges(t *testing.T) {
	s := newScript(t, &registry{}, Wishes{})
	s.ok(first(operational, 0, names...))
	for _, kv := range []string{"MaxBurstLength=65536", "FirstBurstLength=4096", "InitialR2T=No", "ImmediateData=No", "MaxConnections=2", "MaxOutstandingR2T=2", "X-a=1"} {
		s.ok(request{stage: operational, keys: []string{kv}})
	}
	s.ok(request{stage: operational, flags: pdu.Transit, next: full})
	if p := s.m.Params(); p.MaxBurstLength != 65536 || p.FirstBurstLength != 4096 || p.InitialR2T || p.ImmediateData {
		t.Errorf("%+v", p)
	}
}

// TestLongTexts: texts that are longer than a PDU, in both directions.
func TestLongTexts(t *testing.T) {
	s := newScript(t, &registry{}, Wishes{})
	s.ok(first(operational, pdu.Continue, "InitiatorName="+initiatorName))
	var many []byte
	for k := range 600 {
		many = pdu.AppendText(many, fmt.Sprintf("X-%d", k), "1")
	}
	// A pair may be cut anywhere.
	s.ok(request{stage: operational, flags: pdu.Continue, raw: []byte("TargetNa")})
	s.ok(request{stage: operational, flags: pdu.Continue, raw: []byte("me=" + targetName + "\x00")})
	h, data := s.ok(request{stage: operational, flags: pdu.Transit, next: full, raw: many})
	var all []byte
	for h.Has(pdu.Continue) {
		if h.Has(pdu.Transit) || len(data) > MaxText {
			t.Fatalf("flags %x, %d octets", h.Flags(), len(data))
		}
		all = append(all, data...)
		if len(all) == MaxText {
			talks := *s.m
			var refused *Refused
			if _, _, _, err := (&script{t, &talks}).send(request{stage: operational, keys: []string{"X-b=1"}}); !errors.As(err, &refused) || refused.Status != pdu.InitiatorError {
				t.Errorf("a text before the end of the target's: %v", err)
			}
		}
		h, data = s.ok(request{stage: operational})
	}
	all = append(all, data...)
	if n := bytes.Count(all, []byte("=NotUnderstood\x00")); n != 600 || len(all) <= MaxText {
		t.Errorf("%d answers in %d octets", n, len(all))
	}
	if h, _ = s.ok(request{stage: operational, flags: pdu.Transit, next: full}); !h.Has(pdu.Transit) {
		t.Error("no end of the login")
	}
}

// TestInitiatorSendsLongText: the initiator cuts a long text and waits for empty answers.
func TestInitiatorSendsLongText(t *testing.T) {
	i, m := newInitiator(t, initiatorConfig()), newTarget(t, &registry{}, Wishes{})
	for k := range 900 {
		i.talk.out = pdu.AppendText(i.talk.out, fmt.Sprintf("X-test.stag.%d", k), "1")
	}
	_, err, targetErr := converse(t, i, m)
	// The text is longer than the 8192 octets that a target has to take.
	var refused *Refused
	if !errors.As(err, &refused) || refused.Status != pdu.OutOfResources || targetErr == nil {
		t.Fatalf("%v, %v", err, targetErr)
	}
}

// TestTargetAsks: a target offers the keys that the initiator leaves out and whose defaults
// it cannot accept, before the stage ends.
func TestTargetAsks(t *testing.T) {
	s := newScript(t, &registry{}, Wishes{NoImmediateData: true, HeaderDigest: []Digest{CRC32C}, MaxBurstLength: 1 << 20, Time2Wait: 4})
	h, data := s.ok(leave(operational, full, "MaxBurstLength=4096"))
	want := "HeaderDigest=CRC32C\x00ImmediateData=No\x00FirstBurstLength=4096\x00DefaultTime2Wait=4\x00"
	if h.Has(pdu.Transit) || !bytes.HasSuffix(data, []byte(want)) {
		t.Fatalf("flags %x, %q", h.Flags(), data)
	}
	// A boolean that fixes the result needs no answer.
	h, data = s.ok(request{stage: operational, next: full, flags: pdu.Transit, keys: []string{"HeaderDigest=CRC32C", "FirstBurstLength=1024", "DefaultTime2Wait=9"}})
	if p := s.m.Params(); !h.Has(pdu.Transit) || len(data) != 0 || !p.Digests.Header || p.ImmediateData || p.FirstBurstLength != 1024 || p.Time2Wait != 9 {
		t.Errorf("%+v", p)
	}
	for _, answers := range [][]string{
		{"HeaderDigest=CRC32C", "DefaultTime2Wait=9"},
		{"HeaderDigest=None", "FirstBurstLength=1024", "DefaultTime2Wait=9"},
		{"HeaderDigest=Reject", "FirstBurstLength=1024", "DefaultTime2Wait=9"},
		{"HeaderDigest=CRC32C", "FirstBurstLength=8192", "DefaultTime2Wait=9"},
		{"HeaderDigest=CRC32C", "FirstBurstLength=1024", "DefaultTime2Wait=3"},
	} {
		s := newScript(t, &registry{}, Wishes{NoImmediateData: true, HeaderDigest: []Digest{CRC32C}, MaxBurstLength: 1 << 20, Time2Wait: 4})
		s.ok(leave(operational, full, "MaxBurstLength=4096"))
		h, _, done, err := s.send(request{stage: operational, next: full, flags: pdu.Transit, keys: answers})
		if err == nil || done || h.LoginStatus() != pdu.InitiatorError {
			t.Errorf("%v: %v", answers, err)
		}
	}
}

// TestInitiatorWaits: a target that answers a part of a text, or ends the stage behind it,
// breaks the protocol.
func TestInitiatorWaits(t *testing.T) {
	for _, r := range []response{{stage: operational, keys: []string{"X-a=1"}}, {stage: operational}} {
		i := newInitiator(t, initiatorConfig())
		for k := range 600 {
			i.talk.out = pdu.AppendText(i.talk.out, fmt.Sprintf("X-test.stag.%d", k), "1")
		}
		requests, _, err := play(t, i, []response{r})
		if refused := len(r.keys) != 0; refused != (err != nil) || refused == (len(requests) == 2) {
			t.Errorf("%v: %d requests, %v", r.keys, len(requests), err)
		}
	}
}

func TestRedirection(t *testing.T) {
	for _, status := range []pdu.LoginStatus{pdu.TargetMovedTemporarily, pdu.TargetMovedPermanently} {
		i, m := newInitiator(t, initiatorConfig()), newTarget(t, &registry{policy: Policy{Status: status, Address: "[2001:db8::2]:3261"}}, Wishes{})
		_, err, _ := converse(t, i, m)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Status != status || refused.Address != "[2001:db8::2]:3261" || !refused.ByPeer {
			t.Errorf("%v", err)
		}
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		existing Existing
		tsih     uint16
		action   Action
		status   pdu.LoginStatus
	}{
		{Existing{}, 0, NewSession, 0},
		{Existing{}, 9, 0, pdu.SessionDoesNotExist},
		{Existing{Session: true, TSIH: 9, Connections: 1, MaxConnections: 1}, 0, ReinstateSession, 0},
		{Existing{Session: true, TSIH: 9, Connections: 1, MaxConnections: 2}, 9, AddConnection, 0},
		{Existing{Session: true, TSIH: 9, Connections: 2, MaxConnections: 2}, 9, 0, pdu.TooManyConnections},
		{Existing{Session: true, TSIH: 9, Connections: 2, MaxConnections: 2, Connection: true}, 9, ReinstateConnection, 0},
		{Existing{Session: true, TSIH: 9}, 8, 0, pdu.SessionDoesNotExist},
	} {
		config := initiatorConfig()
		config.TSIH = c.tsih
		r := &registry{existing: c.existing}
		_, err, _ := converse(t, newInitiator(t, config), newTarget(t, r, Wishes{}))
		var refused *Refused
		errors.As(err, &refused)
		switch {
		case c.status != 0:
			if refused == nil || refused.Status != c.status || r.entered != 0 {
				t.Errorf("%+v, TSIH %d: %v", c.existing, c.tsih, err)
			}
		case err != nil || r.action != c.action:
			t.Errorf("%+v: action %d, %v", c.existing, r.action, err)
		}
	}
}

// A target declares its limits once, and that of unexpected PDUs only to an initiator that
// has declared its own.
func TestTargetDeclaresLimits(t *testing.T) {
	for own, want := range map[uint32]int{0: 0, 16: 1} {
		c := initiatorConfig()
		c.Wishes.RDMA, c.Wishes.UnexpectedPDUs = true, own
		i := newInitiator(t, c)
		m := newTarget(t, &registry{}, Wishes{RDMA: true, UnexpectedPDUs: 32})
		var text string
		for out, done := i.Start(nil), false; !done; {
			h, data := whole(t, out)
			answer, _, err := m.Step(h, data, nil)
			if err != nil {
				t.Fatal(err)
			}
			h, data = whole(t, answer)
			text += string(data)
			if out, done, err = i.Step(h, data, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(text, "MaxOutstandingUnexpectedPDUs=32\x00"); n != want || strings.Count(text, "MaxRecvDataSegmentLength") != 1 {
			t.Errorf("the initiator takes %d: the target says %q", own, text)
		}
	}
}
