package iscsi_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

const (
	aliceSecret = "alicesecret12"
	bobSecret   = "bobsecret12345"
)

// chapKinds are the ways in which tgtd authenticates. Its only algorithm that others agree
// with is MD5.
var chapKinds = []struct {
	name      string
	config    tgtd.Config
	arguments []string
}{
	{"no CHAP", tgtd.Config{}, nil},
	{"CHAP", tgtd.Config{User: "alice", Secret: aliceSecret}, []string{"auth=md5"}},
	{"mutual CHAP", tgtd.Config{User: "alice", Secret: aliceSecret, PeerUser: "bob", PeerSecret: bobSecret},
		[]string{"auth=md5", "target_user=bob", "target_password=" + bobSecret}},
}

// digestWishes are what an initiator can ask for.
var digestWishes = []string{"none", "crc32c", "crc32c,none", "none,crc32c"}

// TestEveryLogin logs in to tgtd with every digest of either end and every kind of CHAP, and
// reads.
func TestEveryLogin(t *testing.T) {
	for _, chap := range chapKinds {
		for _, theirs := range [][2]string{{"None", "None"}, {"CRC32C", "None"}, {"None", "CRC32C"}, {"CRC32C", "CRC32C"}} {
			// tgtadm takes no comma in a path, and the disk lies in a directory with the test's name.
			t.Run(fmt.Sprintf("%s header %s data %s", chap.name, theirs[0], theirs[1]), func(t *testing.T) {
				c := chap.config
				c.Keys = map[string]string{"HeaderDigest": theirs[0], "DataDigest": theirs[1]}
				s := newStage(t, "kernel port", c)
				for _, header := range digestWishes {
					for _, data := range digestWishes {
						arguments := append([]string{"header_digest=" + header, "data_digest=" + data}, chap.arguments...)
						s.logIn("?"+strings.Join(arguments, "&"), agreed(header, theirs[0]), agreed(data, theirs[1]))
					}
				}
			})
		}
	}
}

// agreed returns the digest that a list in a URL leads to, or "" if no login is possible.
// tgtd takes what it is configured for. If the initiator does not offer that, tgtd rejects
// the key, and the default remains: no digest.
func agreed(list, theirs string) string {
	offers := strings.Split(list, ",")
	switch {
	case slices.Contains(offers, strings.ToLower(theirs)):
		return theirs
	case slices.Contains(offers, "none"):
		return "None"
	}
	return ""
}

// logIn logs in and reads, or makes sure that no login is possible.
func (s *stage) logIn(arguments, wantHeader, wantData string) {
	s.Helper()
	d, err := iscsi.Dial(s.Ctx(), s.target.URL(arguments), iscsi.Config{Adapter: s.adapter})
	if wantHeader == "" || wantData == "" {
		if err == nil {
			s.Errorf("%s: logged in", arguments)
			d.Close()
		}
		return
	}
	if err != nil {
		s.Errorf("%s: %v", arguments, err)
		return
	}
	header, data := d.Session().Digests()
	if header != (wantHeader == "CRC32C") || data != (wantData == "CRC32C") {
		s.Errorf("%s: digests %v and %v, want %s and %s", arguments, header, data, wantHeader, wantData)
	}
	_, err = d.ReadAt(make([]byte, 4096), 0)
	s.Check(err)
	s.Check(d.Close())
}

// TestRefusals: what tgtd refuses has the status of RFC 7143, and no secret.
func TestRefusals(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{User: "alice", Secret: aliceSecret, PeerUser: "bob", PeerSecret: bobSecret})
	portal := strings.SplitAfter(s.target.URL(""), "@")[1]
	for _, c := range []struct {
		name, url string
		status    pdu.LoginStatus
		byPeer    bool
	}{
		{"wrong secret", "alice%alicesecret13@" + portal + "?auth=md5", pdu.AuthenticationFailure, true},
		{"unknown user", "eve%" + aliceSecret + "@" + portal + "?auth=md5", pdu.AuthenticationFailure, true},
		{"no user", portal, pdu.AuthenticationFailure, true},
		{"wrong secret of the target", "alice%" + aliceSecret + "@" + portal + "?auth=md5&target_user=bob&target_password=bobsecret99999", pdu.AuthenticationFailure, false},
		{"wrong name of the target", "alice%" + aliceSecret + "@" + portal + "?auth=md5&target_user=rob&target_password=" + bobSecret, pdu.AuthenticationFailure, false},
		{"unknown target", strings.Replace(portal, tgtd.Name, "iqn.2026-01.test.stag:none", 1), pdu.TargetNotFound, true},
	} {
		d, err := iscsi.Dial(s.Ctx(), "iscsi://"+c.url, iscsi.Config{Adapter: s.adapter})
		if err == nil {
			t.Errorf("%s: logged in", c.name)
			d.Close()
			continue
		}
		var refused *login.Refused
		if !errors.As(err, &refused) || refused.Status != c.status || refused.ByPeer != c.byPeer {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, secret := range []string{"alicesecret", "bobsecret"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error has a secret: %v", c.name, err)
			}
		}
	}
}

// TestEnvironment: secrets come from the variables of libiscsi.
func TestEnvironment(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{User: "alice", Secret: aliceSecret, PeerUser: "bob", PeerSecret: bobSecret})
	url := "iscsi://" + strings.SplitAfter(s.target.URL("?auth=md5"), "@")[1]
	t.Setenv("LIBISCSI_CHAP_USERNAME", "alice")
	t.Setenv("LIBISCSI_CHAP_PASSWORD", aliceSecret)
	t.Setenv("LIBISCSI_CHAP_TARGET_USERNAME", "bob")
	t.Setenv("LIBISCSI_CHAP_TARGET_PASSWORD", bobSecret)
	d, err := iscsi.Dial(s.Ctx(), url, iscsi.Config{Adapter: s.adapter})
	rig.Must(t, err)
	rig.Check(t, d.Close())
	t.Setenv("LIBISCSI_CHAP_TARGET_PASSWORD", "bobsecret99999")
	if d, err := iscsi.Dial(s.Ctx(), url, iscsi.Config{Adapter: s.adapter}); err == nil {
		t.Error("a target with another secret is taken")
		d.Close()
	}
}

// TestDiscover: the targets of a portal that wants CHAP and digests for its disks.
func TestDiscover(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{User: "alice", Secret: aliceSecret, Keys: map[string]string{"HeaderDigest": "CRC32C", "DataDigest": "CRC32C"}})
	portal, _, _ := strings.Cut(strings.SplitAfter(s.target.URL(""), "@")[1], "/")
	for _, arguments := range []string{"", "?header_digest=crc32c,none&data_digest=crc32c,none"} {
		found, err := iscsi.Discover(s.Ctx(), "iscsi://"+portal+arguments, iscsi.Config{Adapter: s.adapter})
		rig.Must(t, err)
		if len(found) != 1 || found[0].Name != tgtd.Name || !slices.Equal(found[0].Portals, []string{portal}) {
			t.Errorf("%s: %+v", arguments, found)
		}
	}
}
