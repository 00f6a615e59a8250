package storage

import (
	"strings"
	"testing"
	"time"
)

// TestURL: a URL is shown without its secrets, and keeps them when it is made for another
// target.
func TestURL(t *testing.T) {
	const full = "iscsi://alice%se@cret@192.0.2.1:3261/iqn.2026-01.test.stag:t1/3?header_digest=crc32c&target_user=t&target_password=hidden"
	for address, secret := range map[string]bool{
		full: true, "iscsi://192.0.2.1": false, "iscsi://alice@192.0.2.1/iqn.a/1": false, "iscsi://h/iqn.a%41/1": false,
		"iscsi://alice%x@192.0.2.1": true, "iscsi://h/iqn.a/1?target_password=x": true, "iscsi://h/iqn.a/1?auth=md5": false, "a%b@c": false,
	} {
		if HasSecret(address) != secret {
			t.Errorf("HasSecret(%q) is not %v", address, secret)
		}
	}
	if got, want := public(full), "iscsi://192.0.2.1:3261/iqn.2026-01.test.stag:t1/3"; got != want {
		t.Errorf("public: %q, want %q", got, want)
	}
	if got := public("iscsi://bob%x@[2001:db8::1]"); got != "iscsi://[2001:db8::1]:3260" {
		t.Errorf("public: %q", got)
	}
	want := "iscsi://alice%se@cret@198.51.100.1:3260/iqn.b/0?header_digest=crc32c&target_user=t&target_password=hidden"
	if got := at(full, "198.51.100.1:3260", "iqn.b", 0); got != want {
		t.Errorf("at: %q, want %q", got, want)
	}
}

// TestParseMedium: the forms of a medium.
func TestParseMedium(t *testing.T) {
	for word, want := range map[string]Medium{
		"1=ram:64M":                     {1, kindRAM, "", 64 << 20},
		"255=ram:4096":                  {255, kindRAM, "", 4096},
		"0=file:/srv/a=b:c":             {0, kindFile, "/srv/a=b:c", 0},
		"2=nbd:nbd://192.0.2.9/e":       {2, kindNBD, "nbd://192.0.2.9/e", 0},
		"2=nbd://192.0.2.9:10810/e":     {2, kindNBD, "nbd://192.0.2.9:10810/e", 0},
		"3=nbd+unix:///e?socket=/run/s": {3, kindNBD, "nbd+unix:///e?socket=/run/s", 0},
	} {
		if got, err := ParseMedium(word); err != nil || got != want {
			t.Errorf("%q: %+v, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "1", "=ram:1M", "-1=ram:1M", "65536=ram:1M", "1=ram", "1=ram:", "1=file:", "1=disk:/a", "1=ram:-1", "1=ram:1.5G"} {
		if got, err := ParseMedium(word); err == nil {
			t.Errorf("%q: %+v", word, got)
		}
	}
}

// TestParseSize: numbers with and without a unit, and none that overflows.
func TestParseSize(t *testing.T) {
	for word, want := range map[string]int64{"0": 0, "512": 512, "1K": 1 << 10, "3m": 3 << 20, "2G": 2 << 30, "1T": 1 << 40, "4194304T": 1 << 62} {
		if got, err := ParseSize(word); err != nil || got != want {
			t.Errorf("%q: %d, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "K", "1KB", "1K1", "-1", "+-1", "0x10", "1e3", "4194305T", "9223372036854775808"} {
		if got, err := ParseSize(word); err == nil {
			t.Errorf("%q: %d", word, got)
		}
	}
}

// TestPage: numbers as in sg_vpd, and names.
func TestPage(t *testing.T) {
	for word, want := range map[string]uint8{"0": 0, "131": 0x83, "0x83": 0x83, "83h": 0x83, "B0H": 0xb0, "id": 0x83, "serial": 0x80, "supported": 0} {
		if got, err := Page(word); err != nil || got != want {
			t.Errorf("%q: %#x, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "256", "h", "-1", "100h", "0xg", "ID"} {
		if got, err := Page(word); err == nil {
			t.Errorf("%q: %#x", word, got)
		}
	}
}

// TestPortal: addresses with and without a port.
func TestPortal(t *testing.T) {
	for word, want := range map[string]string{
		"192.0.2.1": "192.0.2.1:3260", "192.0.2.1:3261": "192.0.2.1:3261", ":3262": ":3262", "": ":3260",
		"[2001:db8::1]": "[2001:db8::1]:3260", "2001:db8::1": "[2001:db8::1]:3260", "[2001:db8::1]:1": "[2001:db8::1]:1", "[fe80::1%eth0]:1": "[fe80::1%eth0]:1",
	} {
		if got, err := Portal(word); err != nil || got != want {
			t.Errorf("%q: %q, %v", word, got, err)
		}
	}
	for _, word := range []string{"192.0.2.1:65536", "192.0.2.1:-1", "a:b:c", "192.0.2.1:3260:1"} {
		if got, err := Portal(word); err == nil {
			t.Errorf("%q: %q", word, got)
		}
	}
}

// TestParseSecrets: what is wrong in a file of secrets is said by its line, without secrets.
func TestParseSecrets(t *testing.T) {
	s, err := parseSecrets(strings.NewReader("# a comment\n\n initiator alice alice-secret-12 \ninitiator bob bob-secret-1234\ntarget disks disk-secret-12\n"))
	if err != nil || s.initiators["alice"] != "alice-secret-12" || s.initiators["bob"] != "bob-secret-1234" || s.first != "alice" || s.target != [2]string{"disks", "disk-secret-12"} {
		t.Errorf("%v", err)
	}
	const line = "initiator alice alice-secret-12\n"
	for text, says := range map[string]string{
		"": "no line says initiator", "target disks disk-secret-12": "no line says initiator",
		line + "initiator alice": "line 2", line + "users alice alice-secret-12": "line 2", line + "initiator bob eleven-octe": "less than 12",
		line + line: "initiator alice again", line + "target a target-secret\ntarget b target-secret": "line 3: a second target",
		line + "initiator bob bob secret 1234": "line 2",
	} {
		_, err := parseSecrets(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret-12") {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestBusy: the columns of /proc/stat that count.
func TestBusy(t *testing.T) {
	got, err := busy("cpu  1000 200 300 99999 88888 4 5 6 700 800")
	if want := 1515 * tick; err != nil || got != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, line := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 x 4 5 6 7 8"} {
		if got, err := busy(line); err == nil {
			t.Errorf("%q: %v", line, got)
		}
	}
	u := usage{3 * time.Second, 5 * time.Second}
	if c := u.since(usage{time.Second, time.Second}, 2*time.Second); c != (CPU{100, 200}) {
		t.Errorf("%+v", c)
	}
}
