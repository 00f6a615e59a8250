package login

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

const (
	security    = pdu.SecurityNegotiation
	operational = pdu.OperationalNegotiation
	full        = pdu.FullFeaturePhase
)

// request is a Login Request as a test writes it.
type request struct {
	stage, next pdu.Stage
	flags       pdu.Flags
	keys        []string
	raw         []byte // instead of keys
	change      func(h *pdu.Header)
}

var names = []string{"InitiatorName=" + initiatorName, "TargetName=" + targetName, "SessionType=Normal"}

// first is a first request that asks for nothing.
func first(stage pdu.Stage, flags pdu.Flags, keys ...string) request {
	return request{stage: stage, flags: flags, keys: keys}
}

// leave is a first request that asks for a stage.
func leave(stage, next pdu.Stage, keys ...string) request {
	return request{stage: stage, next: next, flags: pdu.Transit, keys: append(names[:len(names):len(names)], keys...)}
}

// script plays an initiator against a target's machine.
type script struct {
	testing.TB
	m *Target
}

func newScript(t testing.TB, r Registry, w Wishes) *script { return &script{t, newTarget(t, r, w)} }

// send steps the machine.
func (s *script) send(r request) (h pdu.Header, data []byte, done bool, err error) {
	s.Helper()
	var q pdu.Header
	q.Reset(pdu.OpLogin)
	q.SetImmediate(true)
	q.SetFlags(r.flags)
	q.SetStages(r.stage, r.next)
	q.SetISID(pdu.ISID{0x80, 9, 9, 9})
	q.SetInitiatorTaskTag(5)
	q.SetCmdSN(77)
	text := r.raw
	for _, kv := range r.keys {
		text = append(append(text, kv...), 0)
	}
	q.SetDataLength(len(text))
	if r.change != nil {
		r.change(&q)
	}
	out, done, err := s.m.Step(&q, text, nil)
	if len(out) > 0 {
		p, d := whole(s, out)
		h, data = *p, d
	}
	return h, data, done, err
}

// ok is send for a request that the target takes.
func (s *script) ok(r request) (*pdu.Header, []byte) {
	s.Helper()
	h, data, _, err := s.send(r)
	if err != nil || h.LoginStatus() != 0 {
		s.Fatalf("%v", err)
	}
	return &h, data
}

// TestIllegal: each row is a login that the target refuses at its last request, with the
// status that RFC 7143 §11.13.5 has for it.
func TestIllegal(t *testing.T) {
	change := func(r request, f func(h *pdu.Header)) request { r.change = f; return r }
	op := func(keys ...string) []request { return []request{leave(operational, full, keys...)} }
	sec := func(keys ...string) []request { return []request{leave(security, operational, keys...)} }
	begin := leave(operational, full)
	wait := first(operational, 0, names...)
	chap := first(security, 0, append(names[:3:3], "AuthMethod=CHAP")...)
	algorithm := first(security, 0, "CHAP_A=5")
	prove := func(keys ...string) []request {
		return []request{chap, algorithm, {stage: security, next: operational, flags: pdu.Transit, keys: keys}}
	}
	response := func(secret string) string {
		return "CHAP_R=" + formatBinary(MD5.response(9, Secret(secret), testNonce[1:17]))
	}
	withCHAP := Policy{CHAP: &Verifier{Secret: secrets("alice", alice), Nonce: testNonce}}
	mutual := Policy{CHAP: &Verifier{Secret: secrets("alice", alice), User: "bob", OwnSecret: Secret(bob), Nonce: testNonce}}
	same := Policy{CHAP: &Verifier{Secret: secrets("alice", alice), User: "bob", OwnSecret: Secret(alice), Nonce: testNonce}}

	for _, c := range []struct {
		name   string
		status pdu.LoginStatus
		policy Policy
		script []request
	}{
		// Names and session.
		{"no InitiatorName", pdu.MissingParameter, Policy{}, []request{{stage: operational, keys: names[1:]}}},
		{"empty InitiatorName", pdu.MissingParameter, Policy{}, []request{{stage: operational, keys: []string{"InitiatorName=", names[1]}}}},
		{"no TargetName", pdu.MissingParameter, Policy{}, []request{{stage: operational, keys: []string{names[0], names[2]}}}},
		{"InitiatorName too long", pdu.InitiatorError, Policy{}, []request{{stage: operational, keys: []string{"InitiatorName=iqn." + strings.Repeat("x", 220), names[1]}}}},
		{"unknown target", pdu.TargetNotFound, Policy{}, []request{{stage: operational, keys: []string{names[0], "TargetName=iqn.2026-01.test:none"}}}},
		{"unknown SessionType", pdu.SessionTypeNotSupported, Policy{}, []request{{stage: operational, keys: []string{names[0], names[1], "SessionType=Tape"}}}},
		{"removed target", pdu.TargetRemoved, Policy{Status: pdu.TargetRemoved}, op()},
		{"initiator not permitted", pdu.AuthorizationFailure, Policy{Status: pdu.AuthorizationFailure}, op()},
		{"service not available", pdu.ServiceUnavailable, Policy{Status: pdu.ServiceUnavailable}, op()},
		{"reserved ISID", pdu.InitiatorError, Policy{}, []request{change(begin, func(h *pdu.Header) { h.SetISID(pdu.ISID{0xc0}) })}},
		{"session of nobody", pdu.SessionDoesNotExist, Policy{}, []request{change(begin, func(h *pdu.Header) { h.SetTSIH(0x7777) })}},

		// Headers.
		{"version 1", pdu.UnsupportedVersion, Policy{}, []request{change(begin, func(h *pdu.Header) { h.SetVersionMin(1); h.SetVersionMax(1) })}},
		{"another PDU", pdu.InvalidDuringLogin, Policy{}, []request{wait, change(begin, func(h *pdu.Header) { h.Reset(pdu.OpCommand) })}},
		{"a PDU of a target", pdu.InvalidDuringLogin, Policy{}, []request{wait, change(begin, func(h *pdu.Header) { h.Reset(pdu.OpLoginResponse) })}},
		{"first stage 2", pdu.InitiatorError, Policy{}, []request{{stage: 2, keys: names}}},
		{"first stage 3", pdu.InitiatorError, Policy{}, []request{{stage: full, keys: names}}},
		{"next stage 2", pdu.InitiatorError, Policy{}, []request{leave(operational, 2)}},
		{"next stage is the same", pdu.InitiatorError, Policy{}, []request{leave(operational, operational)}},
		{"next stage is before", pdu.InitiatorError, Policy{}, []request{leave(operational, security)}},
		{"security stage to itself", pdu.InitiatorError, Policy{}, []request{leave(security, security)}},
		{"stage changes by itself", pdu.InitiatorError, Policy{}, []request{first(security, 0, names...), {stage: operational}}},
		{"stage goes back", pdu.InitiatorError, Policy{}, []request{wait, {stage: security}}},
		{"Transit with Continue", pdu.InitiatorError, Policy{}, []request{{stage: operational, next: full, flags: pdu.Transit | pdu.Continue, keys: names}}},
		{"another tag", pdu.InitiatorError, Policy{}, []request{wait, {stage: operational, change: func(h *pdu.Header) { h.SetInitiatorTaskTag(6) }}}},
		{"another ISID", pdu.InitiatorError, Policy{}, []request{wait, {stage: operational, change: func(h *pdu.Header) { h.SetISID(pdu.ISID{0x80}) }}}},
		{"another TSIH", pdu.InitiatorError, Policy{}, []request{wait, {stage: operational, change: func(h *pdu.Header) { h.SetTSIH(1) }}}},
		{"another CID", pdu.InitiatorError, Policy{}, []request{wait, {stage: operational, change: func(h *pdu.Header) { h.SetCID(1) }}}},
		{"another CmdSN", pdu.InitiatorError, Policy{}, []request{wait, {stage: operational, change: func(h *pdu.Header) { h.SetCmdSN(78) }}}},
		{"another Version-max", pdu.InitiatorError, Policy{}, []request{wait, {stage: operational, change: func(h *pdu.Header) { h.SetVersionMax(1) }}}},
		{"additional header segment", pdu.InitiatorError, Policy{}, []request{change(begin, func(h *pdu.Header) { h.SetAHSLength(4) })}},
		{"data segment too long", pdu.InitiatorError, Policy{}, []request{change(begin, func(h *pdu.Header) { h.SetDataLength(MaxText + 1) })}},
		{"text too long", pdu.OutOfResources, Policy{}, []request{
			{stage: operational, flags: pdu.Continue, raw: make([]byte, MaxText)}, {stage: operational, raw: make([]byte, 1)}}},
		{"too many requests", pdu.InitiatorError, Policy{}, append([]request{wait}, many(maxExchanges, request{stage: operational})...)},

		// Texts.
		{"no NUL at the end", pdu.InitiatorError, Policy{}, []request{{stage: operational, raw: []byte("InitiatorName=iqn.a\x00TargetName=iqn.b")}}},
		{"no =", pdu.InitiatorError, Policy{}, []request{{stage: operational, raw: []byte("InitiatorName\x00")}}},
		{"no key", pdu.InitiatorError, Policy{}, []request{{stage: operational, raw: []byte("=x\x00")}}},
		{"key too long", pdu.InitiatorError, Policy{}, op("X-" + strings.Repeat("k", 62) + "=1")},
		{"key with a blank", pdu.InitiatorError, Policy{}, op("X a=1")},
		{"value too long", pdu.InitiatorError, Policy{}, op("InitiatorAlias=" + strings.Repeat("v", 256))},

		// Keys at the wrong place, of the wrong end, or twice.
		{"key twice in a request", pdu.InitiatorError, Policy{}, op("MaxBurstLength=512", "MaxBurstLength=512")},
		{"key in two requests", pdu.InitiatorError, Policy{}, []request{first(operational, 0, append(names[:3:3], "ImmediateData=No")...), {stage: operational, keys: []string{"ImmediateData=No"}}}},
		{"name twice", pdu.InitiatorError, Policy{}, op(names[0])},
		{"declaration twice", pdu.InitiatorError, Policy{}, op("MaxRecvDataSegmentLength=512", "MaxRecvDataSegmentLength=512")},
		{"SessionType twice", pdu.InitiatorError, Policy{}, op("SessionType=Normal")},
		{"AuthMethod twice", pdu.InitiatorError, Policy{}, sec("AuthMethod=None", "AuthMethod=None")},
		{"TargetAlias", pdu.InitiatorError, Policy{}, op("TargetAlias=x")},
		{"TargetAddress", pdu.InitiatorError, Policy{}, op("TargetAddress=192.0.2.1")},
		{"TargetPortalGroupTag", pdu.InitiatorError, Policy{}, op("TargetPortalGroupTag=1")},
		{"SendTargets", pdu.InitiatorError, Policy{}, op("SendTargets=All")},
		{"operational key in the security stage", pdu.InitiatorError, Policy{}, sec("HeaderDigest=None")},
		{"AuthMethod in the operational stage", pdu.InitiatorError, Policy{}, op("AuthMethod=None")},
		{"CHAP_A in the operational stage", pdu.InitiatorError, Policy{}, op("CHAP_A=5")},
		{"leading key of a further connection", pdu.InitiatorError, Policy{}, []request{change(leave(operational, full, "MaxBurstLength=512"), func(h *pdu.Header) { h.SetTSIH(7) })}},
		{"answer without an offer", pdu.InitiatorError, Policy{}, op("X-a=NotUnderstood")},
		{"Reject without an offer", pdu.InitiatorError, Policy{}, op("MaxBurstLength=Reject")},
		{"SRP without AuthMethod", pdu.InitiatorError, Policy{}, sec("SRP_U=alice")},
		{"Kerberos without AuthMethod", pdu.InitiatorError, Policy{}, sec("KRB_AP_REQ=0x00")},

		// Values of each operational key.
		{"HeaderDigest unknown", pdu.InitiatorError, Policy{}, op("HeaderDigest=Foo")},
		{"HeaderDigest empty", pdu.InitiatorError, Policy{}, op("HeaderDigest=")},
		{"HeaderDigest not permitted", pdu.InitiatorError, Policy{}, op("HeaderDigest=CRC32C")},
		{"DataDigest unknown", pdu.InitiatorError, Policy{}, op("DataDigest=crc32c,none")},
		{"MaxRecvDataSegmentLength too small", pdu.InitiatorError, Policy{}, op("MaxRecvDataSegmentLength=511")},
		{"MaxRecvDataSegmentLength too great", pdu.InitiatorError, Policy{}, op("MaxRecvDataSegmentLength=16777216")},
		{"MaxRecvDataSegmentLength no number", pdu.InitiatorError, Policy{}, op("MaxRecvDataSegmentLength=Yes")},
		{"MaxConnections 0", pdu.InitiatorError, Policy{}, op("MaxConnections=0")},
		{"MaxConnections too great", pdu.InitiatorError, Policy{}, op("MaxConnections=65536")},
		{"InitialR2T no boolean", pdu.InitiatorError, Policy{}, op("InitialR2T=1")},
		{"InitialR2T in lower case", pdu.InitiatorError, Policy{}, op("InitialR2T=yes")},
		{"ImmediateData no boolean", pdu.InitiatorError, Policy{}, op("ImmediateData=")},
		{"DataPDUInOrder no boolean", pdu.InitiatorError, Policy{}, op("DataPDUInOrder=Maybe")},
		{"DataSequenceInOrder no boolean", pdu.InitiatorError, Policy{}, op("DataSequenceInOrder=0")},
		{"MaxBurstLength too small", pdu.InitiatorError, Policy{}, op("MaxBurstLength=100")},
		{"MaxBurstLength too great", pdu.InitiatorError, Policy{}, op("MaxBurstLength=0x1000000")},
		{"MaxBurstLength negative", pdu.InitiatorError, Policy{}, op("MaxBurstLength=-1")},
		{"MaxBurstLength with a leading zero", pdu.InitiatorError, Policy{}, op("MaxBurstLength=01024")},
		{"MaxBurstLength of 65 bits", pdu.InitiatorError, Policy{}, op("MaxBurstLength=0x10000000000000400")},
		{"FirstBurstLength too small", pdu.InitiatorError, Policy{}, op("FirstBurstLength=511")},
		{"FirstBurstLength over MaxBurstLength", pdu.InitiatorError, Policy{}, op("FirstBurstLength=8192", "MaxBurstLength=4096")},
		{"MaxOutstandingR2T 0", pdu.InitiatorError, Policy{}, op("MaxOutstandingR2T=0")},
		{"ErrorRecoveryLevel 3", pdu.InitiatorError, Policy{}, op("ErrorRecoveryLevel=3")},
		{"DefaultTime2Wait too great", pdu.InitiatorError, Policy{}, op("DefaultTime2Wait=3601")},
		{"DefaultTime2Retain too great", pdu.InitiatorError, Policy{}, op("DefaultTime2Retain=3601")},
		{"TaskReporting unknown", pdu.InitiatorError, Policy{}, op("TaskReporting=Never")},
		{"iSCSIProtocolLevel too great", pdu.InitiatorError, Policy{}, op("iSCSIProtocolLevel=32")},
		{"IFMarker no boolean", pdu.InitiatorError, Policy{}, op("IFMarker=2048")},
		{"RDMAExtensions no boolean", pdu.InitiatorError, Policy{}, op("RDMAExtensions=x")},

		// Authentication.
		{"security stage skipped", pdu.AuthenticationFailure, withCHAP, op()},
		{"no AuthMethod", pdu.AuthenticationFailure, withCHAP, sec()},
		{"AuthMethod=None only", pdu.AuthenticationFailure, withCHAP, sec("AuthMethod=None")},
		{"AuthMethod unknown", pdu.AuthenticationFailure, withCHAP, sec("AuthMethod=SRP,KRB5")},
		{"CHAP only, and the target has no users", pdu.AuthenticationFailure, Policy{}, sec("AuthMethod=CHAP")},
		{"CHAP keys without AuthMethod", pdu.InitiatorError, withCHAP, []request{first(security, 0, append(names[:3:3], "CHAP_A=5")...)}},
		{"CHAP keys without CHAP", pdu.InitiatorError, Policy{}, []request{first(security, 0, append(names[:3:3], "AuthMethod=None")...), first(security, 0, "CHAP_A=5")}},
		{"CHAP_R before CHAP_A", pdu.InitiatorError, withCHAP, []request{chap, first(security, 0, "CHAP_N=alice", response(alice))}},
		{"CHAP_A with unknown algorithms", pdu.AuthenticationFailure, withCHAP, []request{chap, first(security, 0, "CHAP_A=1,99,x")}},
		{"CHAP_A twice", pdu.InitiatorError, withCHAP, []request{chap, algorithm, algorithm}},
		{"wrong secret", pdu.AuthenticationFailure, withCHAP, prove("CHAP_N=alice", response("alicesecret13"))},
		{"unknown user", pdu.AuthenticationFailure, withCHAP, prove("CHAP_N=eve", response(alice))},
		{"unknown user who knows what the target hashes", pdu.AuthenticationFailure, withCHAP, prove("CHAP_N=eve", response(string(make([]byte, MinSecret))))},
		{"CHAP_R alone", pdu.MissingParameter, withCHAP, prove(response(alice))},
		{"CHAP_N alone", pdu.MissingParameter, withCHAP, prove("CHAP_N=alice")},
		{"CHAP_R too short", pdu.AuthenticationFailure, withCHAP, prove("CHAP_N=alice", "CHAP_R=0x00")},
		{"CHAP_R no number", pdu.InitiatorError, withCHAP, prove("CHAP_N=alice", "CHAP_R=secret")},
		{"CHAP_R with an odd number of digits", pdu.AuthenticationFailure, withCHAP, prove("CHAP_N=alice", "CHAP_R=0x123")},
		{"CHAP_R of 1025 octets", pdu.InitiatorError, withCHAP, prove("CHAP_N=alice", "CHAP_R=0x"+strings.Repeat("00", 1025))},
		{"CHAP_I without CHAP_C", pdu.MissingParameter, mutual, prove("CHAP_N=alice", response(alice), "CHAP_I=1")},
		{"CHAP_C without CHAP_I", pdu.MissingParameter, mutual, prove("CHAP_N=alice", response(alice), "CHAP_C=0x0102")},
		{"CHAP_I too great", pdu.InitiatorError, mutual, prove("CHAP_N=alice", response(alice), "CHAP_I=256", "CHAP_C=0x0102")},
		{"CHAP_C no binary value", pdu.InitiatorError, mutual, prove("CHAP_N=alice", response(alice), "CHAP_I=1", "CHAP_C=x")},
		{"CHAP_C empty", pdu.InitiatorError, mutual, prove("CHAP_N=alice", response(alice), "CHAP_I=1", "CHAP_C=0x")},
		{"target's own challenge reflected", pdu.AuthenticationFailure, mutual, prove("CHAP_N=alice", response(alice), "CHAP_I=9", "CHAP_C="+formatBinary(testNonce[1:17]))},
		{"mutual, and the target has no secret", pdu.AuthenticationFailure, withCHAP, prove("CHAP_N=alice", response(alice), "CHAP_I=1", "CHAP_C=0x0102")},
		{"both ends have the same secret", pdu.AuthenticationFailure, same, prove("CHAP_N=alice", response(alice))},
		{"CHAP without a nonce", pdu.TargetError, Policy{CHAP: &Verifier{Secret: secrets("alice", alice)}}, sec("AuthMethod=CHAP")},
		{"user with a short secret", pdu.AuthenticationFailure, Policy{CHAP: &Verifier{Secret: secrets("alice", "short"), Nonce: testNonce}}, prove("CHAP_N=alice", response("short"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &registry{policy: c.policy}
			s := newScript(t, r, Wishes{})
			for _, q := range c.script[:len(c.script)-1] {
				s.ok(q)
			}
			h, _, done, err := s.send(c.script[len(c.script)-1])
			var refused *Refused
			if !errors.As(err, &refused) || refused.Status != c.status || h.LoginStatus() != c.status || done || r.entered != 0 {
				t.Errorf("status %04x, %v, done %v; want %04x", uint16(h.LoginStatus()), err, done, uint16(c.status))
			}
			if h.Opcode() != pdu.OpLoginResponse || h.Has(pdu.Transit) || h.InitiatorTaskTag() != 5 {
				t.Errorf("response %x", h[:])
			}
			if err != nil && (strings.Contains(err.Error(), "alicesecret") || strings.Contains(err.Error(), "bobsecret")) {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

// testNonce is the chance of the tests.
var testNonce = Nonce{9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// many repeats a request.
func many(n int, r request) []request {
	all := make([]request, n)
	for k := range all {
		all[k] = r
	}
	return all
}

// TestNoLogin: a connection that begins with something else is closed without an answer
// (RFC 7143 §6.3.1).
func TestNoLogin(t *testing.T) {
	s := newScript(t, &registry{}, Wishes{})
	h, _, done, err := s.send(request{change: func(h *pdu.Header) { h.Reset(pdu.OpCommand) }})
	if !errors.Is(err, errNoLogin) || done || h != (pdu.Header{}) {
		t.Errorf("%v, %x", err, h[:])
	}
}

// TestEnterRefuses: the registry refuses at the last moment.
func TestEnterRefuses(t *testing.T) {
	s := newScript(t, &registry{status: pdu.OutOfResources}, Wishes{})
	if h, _, done, err := s.send(leave(operational, full)); err == nil || done || h.LoginStatus() != pdu.OutOfResources {
		t.Errorf("%v", err)
	}
}

// TestAnswers: what a target answers to legal keys.
func TestAnswers(t *testing.T) {
	for _, c := range []struct{ offer, answer string }{
		{"X-stag=1", "X-stag=NotUnderstood"},
		{"NoSuchKey=1", "NoSuchKey=NotUnderstood"},
		{"X#NodeArchitecture=MIPS", ""},
		{"IFMarker=Yes", "IFMarker=No"},
		{"OFMarker=No", "OFMarker=No"},
		{"IFMarkInt=2048~8192", "IFMarkInt=Reject"},
		{"RDMAExtensions=Yes", "RDMAExtensions=No"},
		{"InitiatorRecvDataSegmentLength=8192", "InitiatorRecvDataSegmentLength=Irrelevant"},
		{"iSERHelloRequired=Yes", "iSERHelloRequired=Irrelevant"},
		{"MaxBurstLength=0x10000", "MaxBurstLength=65536"},
		{"MaxBurstLength=16777215", "MaxBurstLength=262144"},
		{"HeaderDigest=X-mine,None,CRC32C", "HeaderDigest=None"},
		{"ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"},
		{"TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"},
		{"iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"},
		{"DefaultTime2Wait=0", "DefaultTime2Wait=2"},
		{"DefaultTime2Retain=3600", "DefaultTime2Retain=20"},
	} {
		s := newScript(t, &registry{}, Wishes{Time2Wait: 2, Time2Retain: 20})
		_, data := s.ok(leave(operational, full, c.offer))
		key, _, _ := strings.Cut(c.offer, "=")
		var got string
		for p := pdu.NewText(data); p.Next(); {
			if string(p.Key) == key {
				got = key + "=" + string(p.Value)
			}
		}
		if got != c.answer {
			t.Errorf("%s: answer %q, want %q", c.offer, got, c.answer)
		}
	}
}
