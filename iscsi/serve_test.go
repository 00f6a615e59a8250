package iscsi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

const (
	ownTarget = "iqn.2026-01.test.stag:own"
	secret    = "alice-secret-12"
	ownSecret = "target-secret-12"
)

// ram makes a disk in memory.
func ram(t testing.TB, size int64) *backend.RAM {
	t.Helper()
	b, err := backend.NewRAM(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rig.Check(t, b.Close()) })
	return b
}

// serveOn starts a Server with one target on a free port of the kernel's TCP. change may
// change the configuration.
func serveOn(t testing.TB, b unit.Backend, change func(*iscsi.ServerConfig)) *iscsi.Server {
	t.Helper()
	c := iscsi.ServerConfig{Address: "127.0.0.1:0", Targets: []iscsi.TargetConfig{{Name: ownTarget, LUNs: map[uint16]iscsi.LUN{1: {Backend: b}}}}}
	if change != nil {
		change(&c)
	}
	s, err := iscsi.Serve(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rig.Check(t, s.Close()) })
	return s
}

func url(s *iscsi.Server, credentials, arguments string) string {
	return fmt.Sprintf("iscsi://%s%s/%s/1%s", credentials, s.Addr(), ownTarget, arguments)
}

// TestServeDisk: our initiator against our target, over both carriers, with and without
// digests, with memory that the backend lends and with a file.
func TestServeDisk(t *testing.T) {
	for _, carrier := range carriers {
		for _, arguments := range []string{"", "?header_digest=crc32c&data_digest=crc32c"} {
			for _, kind := range []string{"RAM", "file"} {
				t.Run(carrier+arguments+" "+kind, func(t *testing.T) { serveDisk(t, carrier, arguments, kind) })
			}
		}
	}
}

// bothEnds makes a pair of namespaces, and opens an adapter for a carrier in each.
func bothEnds(t testing.TB, carrier string) (p *pair.Pair, adapters map[pair.Side]*rdma.Adapter) {
	t.Helper()
	config := func(pair.Side) rdma.Config { return rdma.Config{KernelPort: true, NoControl: true} }
	if carrier == "AF_XDP" {
		p = netns.XDPPair(t, pair.Config{})
		config = func(side pair.Side) rdma.Config {
			return rdma.Config{Ports: []string{p.Ends[side].Name}, NoControl: true}
		}
	} else {
		p = netns.Pair(t, pair.Config{})
	}
	adapters = map[pair.Side]*rdma.Adapter{}
	for _, side := range []pair.Side{ours, theirs} {
		netns.In(t, p, side, func() (err error) {
			adapters[side], err = rdma.Open(config(side))
			return err
		})
		t.Cleanup(func() { rig.Check(t, adapters[side].Close()) })
	}
	return p, adapters
}

func serveDisk(t *testing.T, carrier, arguments, kind string) {
	r := rig.On(t)
	p, adapters := bothEnds(t, carrier)
	b := medium(t, kind)
	address := netip.AddrPortFrom(p.Ends[theirs].V4.Addr(), 3260).String()
	s := serveOn(t, b, func(c *iscsi.ServerConfig) {
		c.Adapter, c.Address = adapters[theirs], address
		c.Wishes.HeaderDigest = []login.Digest{login.CRC32C, login.NoDigest}
		c.Wishes.DataDigest = c.Wishes.HeaderDigest
	})
	d, err := iscsi.Dial(r.Ctx(), url(s, "", arguments), iscsi.Config{Adapter: adapters[ours]})
	r.Must(err)
	defer func() { r.Check(d.Close()) }()
	if h, data := d.Session().Digests(); h != (arguments != "") || data != h {
		t.Fatalf("digests %v, %v", h, data)
	}
	patterns(t, d, b)
}

// patterns writes patterns of many lengths by several goroutines, and compares what comes
// back, and what the backend has.
func patterns(t *testing.T, d *iscsi.Disk, b unit.Backend) {
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			off := int64(g) * 16 << 20
			for n := 512; n <= 2<<20; n *= 2 {
				want := random(n, uint64(n+g))
				got, there := make([]byte, n), make([]byte, n)
				if k, err := d.WriteAt(want, off); k != n || err != nil {
					t.Errorf("write %d octets at %d: %d, %v", n, off, k, err)
					return
				}
				if k, err := d.ReadAt(got, off); k != n || err != nil || !bytes.Equal(got, want) {
					t.Errorf("read %d octets at %d: %d, %v, equal %v", n, off, k, err, bytes.Equal(got, want))
					return
				}
				if _, err := b.ReadAt(there, off); err != nil || !bytes.Equal(there, want) {
					t.Errorf("%d octets at %d: the backend has others, %v", n, off, err)
				}
				off += int64(n)
			}
		})
	}
	all.Wait()
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
}

// TestServeAuthentication: CHAP in both directions, and access rules.
func TestServeAuthentication(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) {
		target := &c.Targets[0]
		target.Users = map[string]string{"alice": secret, "mallory": "mallory-secret-12"}
		target.User, target.Secret = "target", ownSecret
		target.Access = []iscsi.Rule{{User: "alice", Prefix: netip.MustParsePrefix("127.0.0.0/8")}}
	})
	for _, c := range []struct {
		credentials, arguments string
		status                 string
	}{
		{"alice%" + secret + "@", "", ""},
		{"alice%" + secret + "@", "?target_user=target&target_password=" + ownSecret, ""},
		{"", "", "0201"},
		{"alice%wrong-wrong-wrong@", "", "0201"},
		{"bob%" + secret + "@", "", "0201"},
		{"mallory%mallory-secret-12@", "", "0202"},
	} {
		d, err := iscsi.Dial(context.Background(), url(s, c.credentials, c.arguments), iscsi.Config{})
		if err == nil {
			rig.Check(t, d.Close())
		}
		if (err == nil) != (c.status == "") || err != nil && !strings.Contains(err.Error(), "status "+c.status) {
			t.Errorf("%s %s: %v, want status %q", c.credentials, c.arguments, err, c.status)
		}
	}
}

// TestServeRules: an initiator sees only what a rule permits.
func TestServeRules(t *testing.T) {
	b := ram(t, 1<<20)
	s := serveOn(t, b, func(c *iscsi.ServerConfig) {
		c.Targets[0].LUNs[2] = iscsi.LUN{Backend: b, Serial: "two"}
		c.Targets[0].Access = []iscsi.Rule{{Initiator: "iqn.2026-01.test.stag:*", LUNs: []uint16{1}}}
		c.Targets = append(c.Targets, iscsi.TargetConfig{Name: "iqn.2026-01.test.stag:hidden", Access: []iscsi.Rule{{Initiator: "iqn.nobody"}}})
	})
	known := iscsi.Config{InitiatorName: "iqn.2026-01.test.stag:i1"}
	d, err := iscsi.Dial(context.Background(), url(s, "", ""), known)
	if err != nil {
		t.Fatal(err)
	}
	rig.Check(t, d.Close())
	if d, err = iscsi.Dial(context.Background(), strings.TrimSuffix(url(s, "", ""), "1")+"2", known); err == nil {
		d.Close()
		t.Error("LUN 2 can be used")
	}
	if d, err = iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{InitiatorName: "iqn.2026-01.test.other:i1"}); err == nil {
		d.Close()
		t.Error("another initiator logs in")
	}
	list, err := iscsi.Discover(context.Background(), "iscsi://"+s.Addr().String(), known)
	if err != nil || len(list) != 1 || list[0].Name != ownTarget || len(list[0].Portals) != 1 || list[0].Portals[0] != s.Addr().String() {
		t.Errorf("discovered %+v, %v", list, err)
	}
}

// TestServeEnds: Close ends the sessions, and the initiators notice.
func TestServeEnds(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{RecoveryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if s.Sessions() != 1 {
		t.Errorf("%d sessions", s.Sessions())
	}
	rig.Check(t, s.Close())
	if _, err := d.ReadAt(make([]byte, 512), 0); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("a read after the end: %v", err)
	}
	if s.Sessions() != 0 {
		t.Errorf("%d sessions after Close", s.Sessions())
	}
}

// TestServeConfig: Serve says everything that is wrong.
func TestServeConfig(t *testing.T) {
	_, err := iscsi.Serve(context.Background(), iscsi.ServerConfig{
		Depth: 5000, Workers: -1, Wishes: login.Wishes{ErrorRecoveryLevel: 2},
		Targets: []iscsi.TargetConfig{{Name: "disk", LUNs: map[uint16]iscsi.LUN{300: {}}, Users: map[string]string{"alice": "short"}}},
	})
	for _, want := range []string{"Depth is 5000", "Workers is -1", "error recovery level 0 or 1", `target name "disk"`, "LUN 300", "less than 12 octets"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "short") {
		t.Error("the error has a secret in it")
	}
}

// TestServeTools: libiscsi's tools and qemu find the target and use it.
func TestServeTools(t *testing.T) {
	need.Tool(t, "iscsi-ls", "iscsi-inq", "iscsi-perf", "qemu-io")
	s := serveOn(t, ram(t, 16<<20), nil)
	for _, c := range []struct{ command, want string }{
		{"iscsi-ls -s iscsi://" + s.Addr().String(), "Type:DIRECT_ACCESS (Size:15M)"},
		{"iscsi-inq " + url(s, "", ""), "Vendor:STAG"},
		{"iscsi-inq -e 1 -c 131 " + url(s, "", ""), ownTarget},
		{"iscsi-perf -m 32 -b 8 -t 1 " + url(s, "", ""), "finished"},
		{"qemu-io -f raw -c write#-P#0xa5#1M#4M -c read#-P#0xa5#1M#4M -c flush " + url(s, "", ""), "read 4194304/4194304"},
	} {
		args := strings.Fields(c.command)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "#", " ")
		}
		out, err := exec.CommandContext(rig.On(t).Ctx(), args[0], args[1:]...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(c.want)) || bytes.Contains(out, []byte("Pattern verification failed")) {
			t.Errorf("%s: %v, no %q in\n%s", c.command, err, c.want, out)
		}
	}
}
