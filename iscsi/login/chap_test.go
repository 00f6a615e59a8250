package login

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestResponses: responses that open-iscsi and LIO computed; the one of SHA3-256 is
// computed from its definition.
func TestResponses(t *testing.T) {
	var counting string
	for k := range 32 {
		counting += fmt.Sprintf("%02x", k)
	}
	for _, c := range []struct {
		algorithm Algorithm
		id        uint8
		secret    string
		challenge string
		response  string
	}{
		{MD5, 0, alice, "bc41b5c5bc50bdc59eef6c17ee1183f7", "e5f613c31c9c053b704e57caf37a0e3f"},
		{MD5, 2, bob, "e26ed7322cdb647bd85e90f02c4f194c", "dcec1994001d01961408b101659bf65a"},
		{SHA1, 1, alice, "9c2efe31655f2e3d63ae6263369190e8fd354564", "12348a2532c1d23e49f66e56d2a542652d1fc1a4"},
		{SHA1, 51, bob, "dc39dd8806beffb7552fa2ec124bbfda2a5669d3", "895714ed10677ec6fe757f6ee11ed099697118c7"},
		{SHA256, 2, alice, "abf9666211a2f0fa96082c63eeff56bb43113af4d26074d1455b8b5c829c3a7e", "31846f6858769e568da0dc7fdab8ee36845d562322fa5702abc12a75f7329968"},
		{SHA256, 168, bob, "dce3060e4ada49805b5d94b03429a3b9aace2893cb48d5fa1ee74101b8042c00", "fad48cf6b8bc087fd901942149e762a61d54d6e974052eb173cf1dd4715afbb5"},
		{SHA3256, 7, alice, counting, "43f3b18a8e25d027271bcec659cbe5ed470c9599668f28b9ac45c81d97f9ede7"},
	} {
		if got := hex.EncodeToString(c.algorithm.response(c.id, Secret(c.secret), unhex(t, c.challenge))); got != c.response {
			t.Errorf("%v, identifier %d: %s, want %s", c.algorithm, c.id, got, c.response)
		}
		if c.algorithm.size() != len(c.response)/2 || strings.HasPrefix(c.algorithm.String(), "CHAP") {
			t.Errorf("%v has %d octets", c.algorithm, c.algorithm.size())
		}
	}
}

// TestAlgorithms: every algorithm, one way and mutual, and the first of the initiator's
// list that the target permits.
func TestAlgorithms(t *testing.T) {
	for _, a := range Algorithms {
		for _, mutual := range []bool{false, true} {
			c := initiatorConfig()
			c.CHAP = &Credentials{User: "alice", Secret: Secret(alice)}
			if mutual {
				c.CHAP.PeerSecret, c.CHAP.Nonce = Secret(bob), Nonce{77, 1}
			}
			v := &Verifier{Secret: secrets("alice", alice), User: "bob", OwnSecret: Secret(bob), Nonce: testNonce, Algorithms: []Algorithm{a}}
			i, m := newInitiator(t, c), newTarget(t, &registry{policy: Policy{CHAP: v}}, Wishes{})
			if _, err, targetErr := converse(t, i, m); err != nil || targetErr != nil {
				t.Errorf("%v, mutual %v: %v, %v", a, mutual, err, targetErr)
			}
			if i.proof.algorithm != a || m.proof.algorithm != a || len(m.proof.challenge) != a.size() {
				t.Errorf("%v: initiator %v, target %v", a, i.proof.algorithm, m.proof.algorithm)
			}
		}
	}
}

// TestInitiatorRefusesTarget: each row is a target that does not prove who it is. A
// machine of a target with one thing wrong plays it.
func TestInitiatorRefusesTarget(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(c *Credentials, v *Verifier, r *registry)
	}{
		{"wrong secret", func(_ *Credentials, v *Verifier, _ *registry) { v.OwnSecret = Secret("bobsecret99999") }},
		{"wrong name", func(_ *Credentials, v *Verifier, _ *registry) { v.User = "rob" }},
		{"no authentication", func(_ *Credentials, _ *Verifier, r *registry) { r.policy.CHAP = nil }},
		{"challenge of the initiator", func(c *Credentials, v *Verifier, _ *registry) {
			c.PeerSecret, c.PeerUser = Secret(bob), ""
			v.Nonce, c.Nonce = testNonce, testNonce // the same challenge in both directions
		}},
	} {
		r := &registry{policy: Policy{CHAP: &Verifier{Secret: secrets("alice", alice), User: "bob", OwnSecret: Secret(bob), Nonce: testNonce}}}
		config := initiatorConfig()
		config.CHAP = &Credentials{User: "alice", Secret: Secret(alice), PeerUser: "bob", PeerSecret: Secret(bob), Nonce: Nonce{5, 5}}
		c.spoil(config.CHAP, r.policy.CHAP, r)
		i, m := newInitiator(t, config), newTarget(t, r, Wishes{})
		_, err, _ := converse(t, i, m)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Status != pdu.AuthenticationFailure {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestInitiatorRefusesReflection: a target that answers with the initiator's own response,
// or that answers with the initiator's secret, proves nothing.
func TestInitiatorRefusesReflection(t *testing.T) {
	var c chap
	c.algorithm = SHA256
	n := Nonce{4, 4}
	c.dare(&n)
	q := &question{id: 9, challenge: []byte("a challenge of the peer")}
	r, fault := c.reply(q, Secret(alice))
	if fault != nil {
		t.Fatal(fault)
	}
	if c.verify(formatBinary(c.algorithm.response(4, Secret(bob), c.challenge)), Secret(bob), Secret(alice)) != nil {
		t.Error("the right response is refused")
	}
	for name, response := range map[string][]byte{
		"own response":                 r,
		"response with own secret":     c.algorithm.response(4, Secret(alice), c.challenge),
		"response to another question": c.algorithm.response(4, Secret(bob), q.challenge),
	} {
		if c.verify(formatBinary(response), Secret(bob), Secret(alice)) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	// The secret of both directions is the same: the right response is refused too.
	if c.verify(formatBinary(c.algorithm.response(4, Secret(alice), c.challenge)), Secret(alice), Secret(alice)) == nil {
		t.Error("one secret for both directions is taken")
	}
	if _, fault := c.reply(&question{id: 1, challenge: c.challenge}, Secret(alice)); fault == nil {
		t.Error("the own challenge is answered")
	}
}

// TestCredentials: configurations that are refused, and all mistakes at once.
func TestCredentials(t *testing.T) {
	good := func() Credentials {
		return Credentials{User: "alice", Secret: Secret(alice), PeerUser: "bob", PeerSecret: Secret(bob), Nonce: testNonce}
	}
	for _, c := range []struct {
		change func(*Credentials)
		want   string
	}{
		{func(*Credentials) {}, ""},
		{func(c *Credentials) { c.User = "" }, "user name"},
		{func(c *Credentials) { c.Secret = Secret("elevenchars") }, "has 11 octets: take at least 12"},
		{func(c *Credentials) { c.Secret = nil; c.ShortSecrets = true }, "has 0 octets"},
		{func(c *Credentials) { c.Secret, c.ShortSecrets = Secret("short"), true }, ""},
		{func(c *Credentials) { c.PeerSecret = Secret("short") }, "target's secret"},
		{func(c *Credentials) { c.PeerSecret = Secret(alice) }, "must differ"},
		{func(c *Credentials) { c.PeerSecret = nil }, "no secret for it"},
		{func(c *Credentials) { c.Nonce = Nonce{} }, "Nonce"},
		{func(c *Credentials) { c.Algorithms = []Algorithm{5, 9} }, "CHAP algorithm 9"},
	} {
		creds := good()
		c.change(&creds)
		config := initiatorConfig()
		config.CHAP = &creds
		_, err := NewInitiator(config)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	config := initiatorConfig()
	config.Name, config.CHAP, config.Wishes = "", &Credentials{}, Wishes{MaxBurstLength: 5, ErrorRecoveryLevel: 7, HeaderDigest: []Digest{3}}
	_, err := NewInitiator(config)
	for _, want := range []string{"needs a name", "user name", "MaxBurstLength is 5", "ErrorRecoveryLevel is 7", "HeaderDigest has no option 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// TestSecretIsNeverShown: neither by fmt nor in JSON.
func TestSecretIsNeverShown(t *testing.T) {
	c := &Credentials{User: "alice", Secret: Secret(alice), PeerSecret: Secret(bob)}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprintf("%v %+v %#v %s %q %x %d", c, c, c, c.Secret, c.Secret, c.Secret, c.Secret), string(encoded)} {
		if strings.Contains(s, "secret12") || strings.Contains(s, hex.EncodeToString([]byte(alice))) || strings.Contains(s, "97 108") || strings.Contains(s, "0x61") {
			t.Errorf("a secret is shown: %s", s)
		}
	}
}
