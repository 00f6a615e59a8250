package iscsi

import (
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
)

// TestURLs: the syntax of libiscsi.
func TestURLs(t *testing.T) {
	for _, name := range []string{"USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"} {
		t.Setenv("LIBISCSI_CHAP_"+name, "")
	}
	const iqn = "iqn.2026-01.test.stag:t1"
	for _, c := range []struct {
		in             string
		portal, target string
		lun            uint16
		user, secret   string
		peer           string
		wrong          string // what the error says
	}{
		{in: "iscsi://192.0.2.1", portal: "192.0.2.1:3260"},
		{in: "iscsi://192.0.2.1/", portal: "192.0.2.1:3260"},
		{in: "iscsi://192.0.2.1:860/" + iqn + "/1", portal: "192.0.2.1:860", target: iqn, lun: 1},
		{in: "iscsi://[2001:db8::1]/" + iqn + "/16383", portal: "[2001:db8::1]:3260", target: iqn, lun: 16383},
		{in: "iscsi://[2001:db8::1]:3261", portal: "[2001:db8::1]:3261"},
		{in: "iscsi://storage.example/IQN.2026-01.TEST:a/0", portal: "storage.example:3260", target: "iqn.2026-01.test:a"},
		{in: "iscsi://h/eui.02004567A425678D/0", portal: "h:3260", target: "eui.02004567a425678d"},
		{in: "iscsi://h/naa.52004567BA64678D/0", portal: "h:3260", target: "naa.52004567ba64678d"},
		{in: "iscsi://alice%alicesecret12@h/" + iqn + "/1", portal: "h:3260", target: iqn, lun: 1, user: "alice", secret: "alicesecret12"},
		{in: "iscsi://alice%a@b%c@[2001:db8::1]", portal: "[2001:db8::1]:3260", user: "alice", secret: "a@b%c"},
		{in: "iscsi://alice%alicesecret12@h?target_user=bob&target_password=bobsecret12345", portal: "h:3260", user: "alice", secret: "alicesecret12", peer: "bob"},

		{in: "iscsi://h?path=&policy=failover", wrong: "names no host"},
		{in: "iscsi://h?path=a:b", wrong: "1 to 65535"},
		{in: "iscsi://h?policy=random", wrong: "choose round-robin, queue-depth, failover"},

		{in: "192.0.2.1", wrong: "iscsi://"},
		{in: "http://192.0.2.1", wrong: "iscsi://"},
		{in: "iscsi://", wrong: "names no host"},
		{in: "iscsi:///" + iqn, wrong: "names no host"},
		{in: "iscsi://2001:db8::1", wrong: "brackets"},
		{in: "iscsi://h:0", wrong: "1 to 65535"},
		{in: "iscsi://h:65536", wrong: "1 to 65535"},
		{in: "iscsi://h:iscsi", wrong: "1 to 65535"},
		{in: "iscsi://h/disk/0", wrong: "iqn., eui. or naa."},
		{in: "iscsi://h/" + iqn + "/16384", wrong: "0 to 16383"},
		{in: "iscsi://h/" + iqn + "/one", wrong: "0 to 16383"},
		{in: "iscsi://h/" + iqn + "/1/2", wrong: "0 to 16383"},
		{in: "iscsi://h?header_digest=md5", wrong: "none or crc32c"},
		{in: "iscsi://h?data_digest=", wrong: "none or crc32c"},
		{in: "iscsi://a%b@h?auth=sha-512", wrong: "sha3-256"},
		{in: "iscsi://h?colour=blue", wrong: "no argument"},
		{in: "iscsi://h?target_user=bob&target_password=bobsecret12345", wrong: "user%secret@"},
		{in: "iscsi://h?a=%zz", wrong: "name=value"},
	} {
		u, err := ParseURL(c.in)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "bobsecret") {
				t.Errorf("%s: %v, want %q", c.in, err, c.wrong)
			}
			continue
		}
		if err != nil || u.Portal != c.portal || u.Target != c.target || u.LUN != c.lun {
			t.Errorf("%s: %+v, %v", c.in, u, err)
			continue
		}
		var user, secret, peer string
		if u.chap != nil {
			user, secret, peer = u.chap.User, string(u.chap.Secret), u.chap.PeerUser
		}
		if user != c.user || secret != c.secret || peer != c.peer {
			t.Errorf("%s: user %q, secret %q, target's user %q", c.in, user, secret, peer)
		}
	}
}

// TestURLEnvironment: the variables hold what the URL does not say.
func TestURLEnvironment(t *testing.T) {
	t.Setenv("LIBISCSI_CHAP_USERNAME", "carol")
	t.Setenv("LIBISCSI_CHAP_PASSWORD", "carolsecret12")
	t.Setenv("LIBISCSI_CHAP_TARGET_USERNAME", "dave")
	t.Setenv("LIBISCSI_CHAP_TARGET_PASSWORD", "davesecret1234")
	for in, want := range map[string][4]string{
		"iscsi://h":                     {"carol", "carolsecret12", "dave", "davesecret1234"},
		"iscsi://alice@h":               {"alice", "carolsecret12", "dave", "davesecret1234"},
		"iscsi://alice%alicesecret12@h": {"alice", "alicesecret12", "dave", "davesecret1234"},
		"iscsi://h?target_user=bob&target_password=bobsecret1234": {"carol", "carolsecret12", "bob", "bobsecret1234"},
	} {
		u, err := ParseURL(in)
		if err != nil {
			t.Fatal(err)
		}
		if c := u.chap; c == nil || [4]string{c.User, string(c.Secret), c.PeerUser, string(c.PeerSecret)} != want {
			t.Errorf("%s: got other users or secrets than %q", in, want)
		}
	}
}

// TestURLDigests: lists keep their order.
func TestURLDigests(t *testing.T) {
	u, err := ParseURL("iscsi://a%b@h?header_digest=CRC32C,None&data_digest=none&auth=SHA256")
	if err != nil || !slices.Equal(u.headerDigest, []login.Digest{login.CRC32C, login.NoDigest}) ||
		!slices.Equal(u.dataDigest, []login.Digest{login.NoDigest}) || !slices.Equal(u.chap.Algorithms, []login.Algorithm{login.SHA256}) {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestPathURLs: further portals, and the policy.
func TestPathURLs(t *testing.T) {
	u, err := ParseURL("iscsi://h/iqn.a/2?path=h2&path=[2001:db8::1]:3261&policy=queue-depth&data_digest=crc32c")
	if err != nil || !slices.Equal(u.Paths, []string{"h2:3260", "[2001:db8::1]:3261"}) || u.policy != LeastQueueDepth || !u.policed {
		t.Fatalf("%+v, %v", u, err)
	}
	var portals []string
	for _, x := range u.spread() {
		if portals = append(portals, x.Portal); x.Target != "iqn.a" || x.LUN != 2 || len(x.dataDigest) != 1 || x.Paths != nil {
			t.Errorf("%+v", x)
		}
	}
	if !slices.Equal(portals, []string{"h:3260", "h2:3260", "[2001:db8::1]:3261"}) {
		t.Errorf("portals %v", portals)
	}
}
