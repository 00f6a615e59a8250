package iscsi_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/test/rig"
)

// overISER makes the portal of serveOn accept iSER.
func overISER(c *iscsi.ServerConfig) { c.Address = "iser://127.0.0.1:0" }

// serveISER starts a Server with one target over iSER.
func serveISER(t testing.TB, b unit.Backend, change func(*iscsi.ServerConfig)) *iscsi.Server {
	t.Helper()
	return serveOn(t, b, func(c *iscsi.ServerConfig) {
		overISER(c)
		if change != nil {
			change(c)
		}
	})
}

// iserURL is the URL of LUN 1.
func iserURL(s *iscsi.Server, arguments string) string {
	return "iser" + strings.TrimPrefix(url(s, "", arguments), "iscsi")
}

// TestServeISER: our initiator against our target, over both carriers, with memory that the
// backend lends and with a file.
func TestServeISER(t *testing.T) {
	for _, carrier := range carriers {
		for _, kind := range []string{"RAM", "file"} {
			t.Run(carrier+" "+kind, func(t *testing.T) { serveISERDisk(t, carrier, kind) })
		}
	}
}

func serveISERDisk(t *testing.T, carrier, kind string) {
	r := rig.On(t)
	rig.NoLeaks(r)
	p, adapters := bothEnds(t, carrier)
	b := medium(t, kind)
	s := serveOn(t, b, func(c *iscsi.ServerConfig) {
		c.Adapter = adapters[theirs]
		c.Address = "iser://" + netip.AddrPortFrom(p.Ends[theirs].V4.Addr(), 3260).String()
	})
	d, err := iscsi.Dial(r.Ctx(), iserURL(s, ""), iscsi.Config{Adapter: adapters[ours]})
	r.Must(err)
	defer func() { r.Check(d.Close()) }()
	patterns(t, d, b)
}

// medium makes a disk of 64 MiB.
func medium(t testing.TB, kind string) unit.Backend {
	t.Helper()
	if kind == "RAM" {
		return ram(t, 64<<20)
	}
	m, err := backend.OpenFile(filepath.Join(t.TempDir(), "disk"), backend.FileOptions{Create: true, Size: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rig.Check(t, m.Close()) })
	return m
}

// A discovery session over iSER gets the portals for iSER, and one over TCP the others.
func TestServeISERDiscovery(t *testing.T) {
	s := serveISER(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) {
		c.Portals = []iscsi.PortalConfig{{Address: "127.0.0.1:0"}}
	})
	for i, scheme := range []string{"iser", "iscsi"} {
		at := s.Addrs()[i].String()
		list, err := iscsi.Discover(context.Background(), fmt.Sprintf("%s://%s", scheme, at), iscsi.Config{})
		if err != nil || len(list) != 1 || list[0].Name != ownTarget || fmt.Sprint(list[0].Portals) != fmt.Sprintf("[%s]", at) {
			t.Errorf("%s: %+v, %v", scheme, list, err)
		}
	}
}

// More data is under way than the target has memory for: commands wait, and every octet is
// right.
func TestServeISEREdgeOfMemory(t *testing.T) {
	s := serveISER(t, medium(t, "file"), func(c *iscsi.ServerConfig) { c.Memory = 16 << 20 })
	r := rig.On(t)
	d, err := iscsi.Dial(r.Ctx(), iserURL(s, ""), iscsi.Config{})
	r.Must(err)
	rounds := 0
	newLoad(t, d, 16, 2<<20).run(&r, func() bool { rounds++; return rounds > 60 })
	r.Must(d.Close())
	for s.Sessions() != 0 && r.Ctx().Err() == nil {
	}
	if n := s.MemoryTaken(); n != 0 {
		t.Errorf("%d octets of memory are taken without a session", n)
	}
}
