package loader_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// inhabit keeps a process in end B's namespace. A namespace without a name can only be
// found by a process in it.
func inhabit(t *testing.T, p *pair.Pair) {
	t.Helper()
	c := exec.Command("sleep", "600")
	netns.In(t, p, pair.B, c.Start)
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
}

// atA calls f in end A's namespace with the interface of end A.
func atA(t *testing.T, p *pair.Pair, f func(*loader.Net, loader.Link) error) {
	t.Helper()
	netns.In(t, p, pair.A, func() error {
		n, err := loader.Open()
		if err != nil {
			return err
		}
		defer n.Close()
		l, err := n.LookupLink(p.Ends[pair.A].Name)
		if err != nil {
			return err
		}
		return f(n, l)
	})
}

// far looks at the other end of end A's veth.
func far(t *testing.T, p *pair.Pair) (end loader.FarEnd, fix string) {
	t.Helper()
	atA(t, p, func(n *loader.Net, l loader.Link) (err error) {
		fix = n.ChecksumFix(l)
		end, err = n.FarEnd(l)
		return err
	})
	return end, fix
}

// TestChecksumFix: the far end of a veth is found in its namespace, and the command that
// ChecksumFix returns makes it compute checksums.
func TestChecksumFix(t *testing.T) {
	need.Root(t)
	need.Tool(t, "ethtool")
	p := netns.Pair(t, pair.Config{ChecksumOffload: true})
	inhabit(t, p)
	end, fix := far(t, p)
	if end.Name != p.Ends[pair.B].Name || end.Sums {
		t.Fatalf("%+v; want %s, which leaves checksums out", end, p.Ends[pair.B].Name)
	}
	if !strings.HasPrefix(fix, "nsenter --net=") {
		t.Fatalf("the command does not enter the other namespace: %s", fix)
	}
	if out, err := exec.Command("sh", "-c", fix).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", fix, err, out)
	}
	if end, _ = far(t, p); !end.Sums {
		t.Errorf("after %q: %+v", fix, end)
	}
}

// TestSpacesWith: the namespace that has an interface is found, and its command enters
// the namespace.
func TestSpacesWith(t *testing.T) {
	need.Root(t)
	p := netns.Pair(t, pair.Config{})
	inhabit(t, p)
	name := p.Ends[pair.B].Name
	found := false
	netns.In(t, p, pair.A, func() error {
		for _, enter := range loader.SpacesWith(name) {
			out, err := exec.Command("sh", "-c", enter+" ip -o link show "+name).CombinedOutput()
			found = found || err == nil && strings.Contains(string(out), name)
		}
		return nil
	})
	if !found {
		t.Errorf("no command enters a namespace with %s", name)
	}
	names := loader.SpaceNames()
	var own uint64
	netns.In(t, p, pair.B, func() error {
		n, err := loader.Open()
		if err != nil {
			return err
		}
		defer n.Close()
		own = n.Cookie()
		return nil
	})
	if _, known := names[own]; !known {
		t.Errorf("namespace %d is not among %d names", own, len(names))
	}
	if found := loader.SpacesWith("no-such-link"); len(found) != 0 {
		t.Errorf("an interface that does not exist is in %q", found)
	}
}

// TestCheckTags: veth keeps the VLAN tags of packets, so CheckTags accepts veth.
func TestCheckTags(t *testing.T) {
	need.Root(t)
	p := netns.Pair(t, pair.Config{})
	atA(t, p, func(n *loader.Net, l loader.Link) error {
		if o := n.Offloads(l); o.LRO || o.HidesTags(l) {
			t.Errorf("a veth has %+v", o)
		}
		return n.CheckTags(l)
	})
}
