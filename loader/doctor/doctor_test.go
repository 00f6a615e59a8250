package doctor_test

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/doctor"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// named returns the probe with that name.
func named(t *testing.T, probes []doctor.Probe, name string) doctor.Probe {
	t.Helper()
	for _, p := range probes {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no probe %q", name)
	return doctor.Probe{}
}

func probeLink(t *testing.T, p *pair.Pair, name string, needs doctor.Needs) (probes []doctor.Probe) {
	t.Helper()
	netns.In(t, p, pair.A, func() (err error) {
		probes, err = doctor.Interface(name, needs)
		return err
	})
	return probes
}

func wellFormed(t *testing.T, probes []doctor.Probe) {
	t.Helper()
	for _, p := range probes {
		if p.Name == "" || p.Detail == "" || strings.Contains(p.Detail+p.Fix, "\n") || (p.Outcome == doctor.OK) != (p.Fix == "") {
			t.Errorf("malformed: %+v", p)
		}
	}
}

func TestProbeHost(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	var probes []doctor.Probe
	netns.In(t, p, pair.A, func() (err error) { probes, err = doctor.Host(doctor.Needs{}); return err })
	wellFormed(t, probes)
	for _, probe := range probes { // as root, with the mounts of TestMain
		if probe.Outcome == doctor.Bad {
			t.Errorf("%+v", probe)
		}
	}
	netns.In(t, p, pair.A, func() (err error) {
		if err := netns.SetLink("lo", false); err != nil {
			return err
		}
		probes, err = doctor.Host(doctor.Needs{})
		return err
	})
	if r := named(t, probes, "TCP_REPAIR"); r.Outcome != doctor.Bad || !strings.Contains(r.Fix, "lo up") {
		t.Errorf("with the loopback down: %+v", r)
	}
}

func TestProbeLinkAllWell(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{Queues: 2})
	probes := probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{Engines: 2})
	wellFormed(t, probes)
	for _, probe := range probes {
		if probe.Outcome == doctor.Bad {
			t.Errorf("%+v", probe)
		}
	}
	if c := named(t, probes, "checksums of the veth peer"); c.Outcome != doctor.OK || !strings.Contains(c.Detail, "accepted") {
		t.Errorf("a peer that cannot be seen: %+v", c)
	}
	mustLoad(t, p, loader.Options{}) // the probes have left nothing on the hook
}

func TestProbeLinkFaults(t *testing.T) {
	need.XDP(t)
	for name, row := range map[string]struct {
		config pair.Config
		spoil  func(*testing.T, *pair.Pair) error // runs in A's namespace
		needs  doctor.Needs
		probe  string
		says   string // text in detail or fix
	}{
		"engines": {probe: "queues", needs: doctor.Needs{Engines: 3}, says: "ethtool -L"},
		"receive offload in generic mode": {probe: "driver mode", says: "gro off", needs: doctor.Needs{Generic: true},
			spoil: func(t *testing.T, p *pair.Pair) error { return loader.SetGRO(p.Ends[pair.A].Name, true) }},
		"down": {probe: "link", says: "set",
			spoil: func(t *testing.T, p *pair.Pair) error { return netns.SetLink(p.Ends[pair.A].Name, false) }},
		"no carrier": {probe: "link", says: "carrier",
			spoil: func(t *testing.T, p *pair.Pair) error {
				return p.Do(pair.B, func() error { return netns.SetLink(p.Ends[pair.B].Name, false) })
			}},
		"foreign program": {probe: "XDP hook", says: "somebody",
			spoil: func(t *testing.T, p *pair.Pair) error { foreign(t, p); return nil }},
		"too few queues": {config: pair.Config{Queues: 2}, probe: "driver mode", says: "ethtool -L",
			spoil: func(t *testing.T, p *pair.Pair) error { return loader.SetChannels(p.Ends[pair.A].Name, 1, 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := netns.Pair(t, row.config)
			if row.spoil != nil {
				netns.In(t, p, pair.A, func() error { return row.spoil(t, p) })
			}
			probes := probeLink(t, p, p.Ends[pair.A].Name, row.needs)
			wellFormed(t, probes)
			if got := named(t, probes, row.probe); got.Outcome != doctor.Bad || !strings.Contains(got.Detail+got.Fix, row.says) {
				t.Errorf("%+v, want a fault that says %q", got, row.says)
			}
		})
	}
}

// TestProbeMTU checks that an MTU above a chunk is reported, but not as a fault.
func TestProbeMTU(t *testing.T) {
	need.XDP(t)
	for name, c := range map[string]struct {
		mtu   int
		needs doctor.Needs
		says  string
	}{
		"fits":         {1500, doctor.Needs{}, "1500"},
		"jumbo":        {9000, doctor.Needs{}, "9000, and connections that are taken over use packets of up to 3502"},
		"generic mode": {9000, doctor.Needs{Generic: true}, "packets of up to 3822"},
		"small chunks": {3000, doctor.Needs{Chunk: 2048}, "packets of up to 1774"},
	} {
		p := netns.Pair(t, pair.Config{MTU: c.mtu})
		probes := probeLink(t, p, p.Ends[pair.A].Name, c.needs)
		wellFormed(t, probes)
		if got := named(t, probes, "MTU"); got.Outcome != doctor.OK || !strings.HasSuffix(got.Detail, c.says) {
			t.Errorf("%s: %+v, want one that is met and says %q", name, got, c.says)
		}
		if got := named(t, probes, "driver mode"); got.Outcome == doctor.Bad {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestProbeNoNative(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	probes := probeLink(t, p, "lo", doctor.Needs{})
	wellFormed(t, probes)
	if d := named(t, probes, "driver mode"); d.Outcome != doctor.Bad || !strings.Contains(d.Fix, "generic") {
		t.Errorf("%+v", d)
	}
}

// TestProbeVisiblePeer has both ends of a veth in one namespace.
func TestProbeVisiblePeer(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	netns.In(t, p, pair.A, func() error {
		near := netlink.NewLinkAttrs()
		near.Name = "near"
		v := netlink.NewVeth(near)
		v.PeerName = "far"
		return netlink.LinkAdd(v)
	})
	const name = "checksums of the veth peer"
	if c := named(t, probeLink(t, p, "near", doctor.Needs{}), name); c.Outcome != doctor.OK || !strings.Contains(c.Detail, "far leaves them out, which is accepted") {
		t.Errorf("with the offload on: %+v", c)
	}
	netns.In(t, p, pair.A, func() error { return loader.SetTxChecksum("far", false) })
	if c := named(t, probeLink(t, p, "near", doctor.Needs{}), name); c.Outcome != doctor.OK || !strings.Contains(c.Detail, "far computes them") {
		t.Errorf("with the offload off: %+v", c)
	}
}

func TestProbeLeavesARunningStagAlone(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{})
	mustClaim(t, s.Link(), 0)
	probes := probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{})
	wellFormed(t, probes)
	if h := named(t, probes, "XDP hook"); h.Outcome != doctor.Bad || !strings.Contains(h.Detail, "in use by pid ") || !strings.Contains(h.Fix, "one process at a time") {
		t.Errorf("%+v", h)
	}
	if d := named(t, probes, "driver mode"); d.Outcome != doctor.OK || !strings.Contains(d.Detail, "native") {
		t.Errorf("%+v", d)
	}
	netns.In(t, p, pair.A, func() error {
		l, err := netlink.LinkByName(p.Ends[pair.A].Name)
		if err == nil && (l.Attrs().Xdp == nil || l.Attrs().Xdp.ProgId != s.ProgID()) {
			t.Errorf("on the hook now: %+v", l.Attrs().Xdp)
		}
		return err
	})
}

func TestProbeMissingLink(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	netns.In(t, p, pair.A, func() error {
		_, err := doctor.Interface("eth77", doctor.Needs{})
		rig.Says(t, err, loader.ErrNoLink, "eth77")
		return nil
	})
}

// TestProbeGeneric checks that native mode is not tried if generic mode is wanted.
func TestProbeGeneric(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{MTU: 3600})
	probes := probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{Generic: true})
	wellFormed(t, probes)
	for _, probe := range probes {
		if probe.Outcome == doctor.Bad {
			t.Errorf("%+v", probe)
		}
	}
	if d := named(t, probes, "driver mode"); !strings.Contains(d.Fix, "tso off") {
		t.Errorf("no word on the other end's offloads: %+v", d)
	}
}

func TestProbeNeeds(t *testing.T) {
	for _, needs := range []doctor.Needs{{Engines: -1}, {Chunk: 1000}} {
		if _, err := doctor.Host(needs); err == nil {
			t.Errorf("%+v was taken", needs)
		}
		if _, err := doctor.Interface("lo", needs); err == nil {
			t.Errorf("%+v was taken", needs)
		}
	}
}

// TestUnknown checks that a probe that could not check reports neither OK nor Bad.
func TestUnknown(t *testing.T) {
	need.XDP(t)
	for name, row := range map[string]struct {
		keep func(*testing.T, *pair.Pair) // keeps the probe from checking
		says string
	}{
		"a program in generic mode": {foreign, "attached in generic mode"},
		"a load": {func(t *testing.T, p *pair.Pair) {
			netns.In(t, p, pair.A, func() error {
				l, err := loader.LookupLink(p.Ends[pair.A].Name)
				rig.Must(t, err)
				c, _, err := loader.ClaimHook(l)
				rig.Must(t, err)
				t.Cleanup(func() { c.Close() })
				return nil
			})
		}, "is loading just now"},
	} {
		p := netns.Pair(t, pair.Config{})
		row.keep(t, p)
		probes := probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{})
		wellFormed(t, probes)
		if got := named(t, probes, "driver mode"); got.Outcome != doctor.Unknown || !strings.Contains(got.Detail, row.says) {
			t.Errorf("%s: %+v, want unknown, because %q", name, got, row.says)
		}
	}
}
