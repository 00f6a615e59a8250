package login

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// response is a Login Response as a test writes it.
type response struct {
	stage, next pdu.Stage
	flags       pdu.Flags
	keys        []string
	change      func(h *pdu.Header)
}

// play gives responses to an initiator. It returns the requests, the last error and
// whether the login succeeded.
func play(t testing.TB, i *Initiator, all []response) (requests []map[string]string, done bool, err error) {
	t.Helper()
	add := func(out []byte) {
		if len(out) > 0 {
			_, texts, _ := part(out, pdu.OpLogin)
			requests = append(requests, texts...)
		}
	}
	add(i.Start(nil))
	for k, r := range all {
		var h pdu.Header
		h.Reset(pdu.OpLoginResponse)
		h.SetFlags(r.flags)
		h.SetStages(r.stage, r.next)
		h.SetISID(i.config.ISID)
		h.SetTSIH(i.config.TSIH)
		if r.flags&pdu.Transit != 0 && r.next == full {
			h.SetTSIH(5)
		}
		h.SetInitiatorTaskTag(i.config.Tag)
		var text []byte
		for _, kv := range r.keys {
			text = append(append(text, kv...), 0)
		}
		h.SetDataLength(len(text))
		if r.change != nil {
			r.change(&h)
		}
		var out []byte
		out, done, err = i.Step(&h, text, nil)
		add(out)
		if err != nil && k != len(all)-1 {
			t.Fatalf("response %d: %v", k, err)
		}
	}
	return requests, done, err
}

// answered are answers to all that an initiator offers by default.
var answered = []string{"TargetPortalGroupTag=1", "HeaderDigest=None", "DataDigest=None", "MaxConnections=1", "InitialR2T=Yes", "ImmediateData=Yes",
	"MaxBurstLength=262144", "FirstBurstLength=65536", "MaxOutstandingR2T=1", "DataPDUInOrder=Yes", "DataSequenceInOrder=Yes",
	"ErrorRecoveryLevel=0", "DefaultTime2Wait=2", "DefaultTime2Retain=0"}

// instead replaces the answer to a key, or leaves it out if v is empty.
func instead(key, v string) []string {
	var all []string
	for _, kv := range answered {
		if !strings.HasPrefix(kv, key+"=") {
			all = append(all, kv)
		}
	}
	if v != "" {
		all = append(all, key+"="+v)
	}
	return all
}

// TestBadTargets: each row is a target that breaks the protocol at its last response. The
// error says how.
func TestBadTargets(t *testing.T) {
	end := func(keys ...string) []response {
		return []response{{stage: operational, next: full, flags: pdu.Transit, keys: keys}}
	}
	change := func(f func(h *pdu.Header)) []response {
		return []response{{stage: operational, next: full, flags: pdu.Transit, keys: answered, change: f}}
	}
	plain := initiatorConfig
	withCHAP := func() InitiatorConfig {
		c := initiatorConfig()
		c.CHAP = &Credentials{User: "alice", Secret: Secret(alice), Algorithms: []Algorithm{SHA256, MD5}}
		return c
	}
	demanding := func() InitiatorConfig {
		c := initiatorConfig()
		c.Wishes.HeaderDigest = []Digest{CRC32C}
		return c
	}
	chap := func(keys ...string) []response {
		return []response{{keys: []string{"AuthMethod=CHAP"}}, {keys: keys}}
	}
	for _, c := range []struct {
		name   string
		config func() InitiatorConfig
		script []response
		want   string
	}{
		{"another PDU", plain, change(func(h *pdu.Header) { h.Reset(pdu.OpNOPIn) }), "sends NOP-In"},
		{"Reject", plain, change(func(h *pdu.Header) { h.Reset(pdu.OpReject); h.SetRejectReason(4) }), "rejects the request, reason 0x04"},
		{"another tag", plain, change(func(h *pdu.Header) { h.SetInitiatorTaskTag(1) }), "another login"},
		{"another ISID", plain, change(func(h *pdu.Header) { h.SetISID(pdu.ISID{}) }), "another login"},
		{"another version", plain, change(func(h *pdu.Header) { h.SetVersionActive(1) }), "version 1"},
		{"another stage", plain, change(func(h *pdu.Header) { h.SetStages(security, full) }), "in stage 0"},
		{"no handle", plain, change(func(h *pdu.Header) { h.SetTSIH(0) }), "no handle"},
		{"AHS", plain, change(func(h *pdu.Header) { h.SetAHSLength(8) }), "additional header segments"},
		{"moved, without address", plain, change(func(h *pdu.Header) { h.SetLoginStatus(pdu.TargetMovedPermanently) }), "does not say where"},
		{"Transit and Continue", plain, []response{{stage: operational, next: full, flags: pdu.Transit | pdu.Continue}}, "both set"},
		{"Transit that nobody asked for", withCHAP, []response{{stage: security, next: operational, flags: pdu.Transit}}, "did not ask for"},
		{"next stage too far", withCHAP, append(chap("CHAP_A=5", "CHAP_I=1", "CHAP_C=0x0102"), response{stage: security, next: full, flags: pdu.Transit}), "did not ask for"},
		{"next stage 2", plain, []response{{stage: operational, next: 2, flags: pdu.Transit, keys: answered}}, "did not ask for"},
		{"key without an answer", plain, end(instead("MaxBurstLength", "")...), "did not answer MaxBurstLength"},
		{"boolean without an answer", plain, end(instead("ImmediateData", "")...), "did not answer ImmediateData"},
		{"answer above the offer", plain, end(instead("MaxBurstLength", "262145")...), "does not permit"},
		{"answer below the offer", plain, end(instead("ErrorRecoveryLevel", "1")...), "does not permit"},
		{"digest that nobody offered", plain, end(instead("HeaderDigest", "CRC32C")...), "does not permit"},
		{"unknown digest", plain, end(instead("HeaderDigest", "MD4")...), "unknown option"},
		{"number that is none", plain, end(instead("MaxConnections", "one")...), "MaxConnections"},
		{"answer twice", plain, end(append(answered[:len(answered):len(answered)], "ErrorRecoveryLevel=0")...), "comes twice"},
		{"demanded digest rejected", demanding, end(instead("HeaderDigest", "Reject")...), "default is not acceptable"},
		{"key of the initiator", plain, end("InitiatorName=x"), "no key of this end"},
		{"offer with the end of the stage", plain, end(append(instead("", ""), "X-a=1")...), "wants an answer"},
		{"bad text", plain, []response{{stage: operational, keys: []string{"no pair"}}}, "no list of key=value"},
		{"operational key in the security stage", withCHAP, []response{{keys: []string{"MaxBurstLength=512"}}}, "does not belong to stage 0"},
		{"CHAP key in the operational stage", plain, []response{{stage: operational, keys: []string{"CHAP_A=5"}}}, "does not belong to stage 1"},
		{"end without a choice", withCHAP, []response{{}, {}, {}}, ""},
		{"unknown method", withCHAP, []response{{keys: []string{"AuthMethod=SRP"}}}, "unknown option"},
		{"algorithm that nobody offered", withCHAP, chap("CHAP_A=6", "CHAP_I=1", "CHAP_C=0x0102"), "did not offer"},
		{"no challenge", withCHAP, chap("CHAP_A=5"), "no CHAP challenge"},
		{"half a challenge", withCHAP, chap("CHAP_A=5", "CHAP_I=1"), "come together"},
		{"identifier too great", withCHAP, chap("CHAP_A=5", "CHAP_I=256", "CHAP_C=0x0102"), "CHAP_I"},
		{"challenge of 1025 octets", withCHAP, chap("CHAP_A=5", "CHAP_I=1", "CHAP_C=0x"+strings.Repeat("00", 1025)), "CHAP_C"},
		{"proof that nobody asked for", withCHAP, append(chap("CHAP_A=5", "CHAP_I=1", "CHAP_C=0x0102"),
			response{stage: security, next: operational, flags: pdu.Transit, keys: []string{"CHAP_N=bob", "CHAP_R=0x00"}}), "nobody asked for"},
		{"no end", plain, manyResponses(maxExchanges+1, response{stage: operational}), "no end of the login"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := newInitiator(t, c.config())
			_, done, err := play(t, i, c.script)
			if c.want == "" {
				if err != nil || done {
					t.Errorf("done %v, %v", done, err)
				}
				return
			}
			if done || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "status 02") {
				t.Errorf("done %v, %v, want %q", done, err, c.want)
			}
		})
	}
}

func manyResponses(n int, r response) []response {
	all := make([]response, n)
	for k := range all {
		all[k] = r
	}
	return all
}

// TestTolerance: what an initiator takes although it is unusual.
func TestTolerance(t *testing.T) {
	end := func(keys []string) response {
		return response{stage: operational, next: full, flags: pdu.Transit, keys: keys}
	}
	for _, c := range []struct {
		name   string
		script []response
		check  func(requests []map[string]string, p Params) bool
	}{
		{"all at once", []response{end(answered)}, func(q []map[string]string, p Params) bool {
			return len(q) == 1 && p.TSIH == 5 && p.MaxSendLength == 8192
		}},
		{"Irrelevant", []response{end(instead("FirstBurstLength", "Irrelevant"))}, func(_ []map[string]string, p Params) bool { return p.FirstBurstLength == 65536 }},
		{"Reject of a key whose default is acceptable", []response{end(instead("MaxOutstandingR2T", "Reject"))}, func(_ []map[string]string, p Params) bool { return p.MaxOutstandingR2T == 1 }},
		{"offers of the target", []response{{stage: operational, keys: append(instead("", ""), "X-lio=1", "IFMarker=Yes", "TaskReporting=FastAbort,RFC3720")}, end(nil)},
			func(q []map[string]string, p Params) bool {
				return q[1]["X-lio"] == "NotUnderstood" && q[1]["IFMarker"] == "No" && q[1]["TaskReporting"] == "RFC3720" && p.TaskReporting == RFC3720
			}},
		{"a text over two responses", []response{{stage: operational, flags: pdu.Continue, keys: answered[:3]}, {stage: operational, keys: answered[3:]}, end(nil)},
			func(q []map[string]string, p Params) bool { return len(q) == 3 && len(q[1]) == 0 && len(q[2]) == 0 }},
		{"an offer that needs no answer, with the end", []response{end(append(instead("", ""), "OFMarker=No"))}, func([]map[string]string, Params) bool { return true }},
		{"bursts the wrong way round", []response{end(instead("MaxBurstLength", "4096"))}, func(_ []map[string]string, p Params) bool { return p.FirstBurstLength == 4096 }},
	} {
		i := newInitiator(t, initiatorConfig())
		requests, done, err := play(t, i, c.script)
		if !done || err != nil || !c.check(requests, i.Params()) {
			t.Errorf("%s: done %v, %v, requests %v, %+v", c.name, done, err, requests, i.Params())
		}
	}
}

// TestRefusedText: an error of a target names the status and says what to do.
func TestRefusedText(t *testing.T) {
	for status, texts := range statuses {
		err := error(&Refused{Status: status, ByPeer: true, Address: "192.0.2.1"})
		if !strings.Contains(err.Error(), texts[0]) || !strings.Contains(err.Error(), texts[1]) {
			t.Errorf("%v", err)
		}
	}
	var refused *Refused
	if err := error(illegal("a reason")); !errors.As(err, &refused) || err.Error() != "iscsi login: status 0200, initiator error: a reason" {
		t.Errorf("%v", err)
	}
}
