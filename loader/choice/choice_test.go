package choice

import (
	"strings"
	"testing"
)

// Ports of the table.
var (
	veth    = Port{Name: "veth0", Driver: "veth", Queues: 1, Native: Yes, ZeroCopy: No, MTU: 1500, MaxMTU: 3506}
	ice     = Port{Name: "eth1", Driver: "ice", Queues: 8, Native: Yes, ZeroCopy: Yes, MTU: 1500, MaxMTU: 3046}
	e1000   = Port{Name: "eth2", Driver: "e1000", Queues: 1, Native: No, ZeroCopy: No, MTU: 1500}
	strange = Port{Name: "eth3", Driver: "odd", Queues: 1, MTU: 1500}
)

func with(p Port, f func(*Port)) Port { f(&p); return p }

// root are the rights of a process that may do everything.
var root = Rights{Locks: 1 << 62, Needs: 32 << 20}

// TestChoose: the whole rule. A change of a row is a change of what users get.
func TestChoose(t *testing.T) {
	auto := func(w Wish) Request { return Request{Carrier: Auto, Wish: w} }
	jumbo := with(veth, func(p *Port) { p.MTU = 9000 })
	for name, c := range map[string]struct {
		request Request
		rights  Rights
		ports   []Port
		want    Carrier
		why     string // words of the sentence
	}{
		"interfaces alone":              {Request{}, root, []Port{ice}, AFXDP, "the interface is named, and no wish is said"},
		"interfaces alone, veth":        {Request{}, root, []Port{veth}, AFXDP, "for throughput the kernel port is better"},
		"interfaces alone, no rights":   {Request{}, Rights{Lacks: []string{"CAP_BPF"}}, []Port{veth}, AFXDP, "named"}, // Open says what is missing
		"nothing":                       {Request{}, root, nil, Kernel, askedFor},
		"afxdp, veth, throughput":       {Request{Carrier: AFXDP, Wish: Throughput}, root, []Port{veth}, AFXDP, askedFor},
		"afxdp, no rights":              {Request{Carrier: AFXDP}, Rights{Lacks: []string{"CAP_BPF"}}, []Port{veth}, AFXDP, askedFor},
		"kernel, zero copy":             {Request{Carrier: Kernel}, root, []Port{ice}, Kernel, askedFor},
		"auto, no interface":            {auto(Latency), root, nil, Kernel, "no interface"},
		"a wish alone, no interface":    {Request{Wish: Throughput}, root, nil, Kernel, "no interface"},
		"auto, zero copy":               {auto(NoWish), root, []Port{ice}, AFXDP, "driver ice has zero copy"},
		"auto, zero copy, throughput":   {auto(Throughput), root, []Port{ice}, AFXDP, "driver ice has zero copy"},
		"auto, zero copy, latency":      {auto(Latency), root, []Port{ice}, AFXDP, "lower latency"},
		"auto, veth":                    {auto(NoWish), root, []Port{veth}, AFXDP, "--for throughput"},
		"auto, veth, latency":           {auto(Latency), root, []Port{veth}, AFXDP, "driver veth has no zero copy, which costs throughput"},
		"auto, veth, throughput":        {auto(Throughput), root, []Port{veth}, Kernel, "driver veth has no zero copy, so the kernel's TCP"},
		"a wish alone, throughput":      {Request{Wish: Throughput}, root, []Port{veth}, Kernel, "no zero copy"},
		"a wish alone, latency":         {Request{Wish: Latency}, root, []Port{veth}, AFXDP, "latency"},
		"one of two ports copies":       {auto(Throughput), root, []Port{ice, veth}, Kernel, "driver veth"},
		"zero copy is off":              {Request{Carrier: Auto, Wish: Throughput, Copy: true}, root, []Port{ice}, Kernel, "turned off"},
		"zero copy is not known":        {auto(Throughput), root, []Port{with(ice, func(p *Port) { p.ZeroCopy = Unknown })}, Kernel, "not known to have zero copy"},
		"loaded in generic mode":        {auto(Latency), root, []Port{with(ice, func(p *Port) { p.Loaded = "generic" })}, Kernel, "generic mode"},
		"generic mode is asked for":     {Request{Carrier: Auto, Generic: true}, root, []Port{ice}, Kernel, "generic mode"},
		"loaded in native mode":         {auto(Latency), root, []Port{with(strange, func(p *Port) { p.Loaded = "native" })}, AFXDP, "latency"},
		"no native XDP":                 {auto(Latency), root, []Port{e1000}, Kernel, "driver e1000 has no native XDP"},
		"nothing is known":              {auto(Latency), root, []Port{strange}, Kernel, "nobody tells"},
		"another program":               {auto(Latency), root, []Port{with(ice, func(p *Port) { p.Taken = "another XDP program is on eth1" })}, Kernel, "another XDP program"},
		"MTU":                           {auto(Latency), root, []Port{jumbo}, Kernel, "ip link set veth0 mtu 3506"},
		"MTU, loaded":                   {auto(Latency), root, []Port{with(jumbo, func(p *Port) { p.Loaded = "native" })}, AFXDP, "latency"},
		"no rights":                     {auto(Latency), Rights{Lacks: []string{"CAP_BPF", "CAP_NET_RAW"}}, []Port{ice}, Kernel, "CAP_BPF, CAP_NET_RAW"},
		"user namespace":                {auto(Latency), Rights{Contained: true, Locks: 1 << 62}, []Port{ice}, Kernel, "user namespace"},
		"memlock":                       {auto(Latency), Rights{Locks: 8 << 20, Needs: 32 << 20}, []Port{ice}, Kernel, "ulimit -l 32768"},
		"memlock, just enough":          {auto(Latency), Rights{Locks: 32 << 20, Needs: 32 << 20}, []Port{ice}, AFXDP, "latency"},
		"groups":                        {Request{Carrier: Auto, Wish: Throughput, Only: "groups of ports"}, root, []Port{veth}, AFXDP, "groups of ports"},
		"groups, no rights: Open fails": {Request{Carrier: Auto, Only: "groups of ports"}, Rights{Lacks: []string{"CAP_BPF"}}, []Port{veth}, AFXDP, "groups of ports"},
	} {
		got := c.request.Choose(c.rights, c.ports)
		if got.Carrier != c.want || !strings.Contains(got.Why, c.why) || strings.ContainsAny(got.Why, "\n") || strings.HasSuffix(got.Why, ".") {
			t.Errorf("%s: %v, %q; want %v, %q", name, got.Carrier, got.Why, c.want, c.why)
		}
		if !strings.HasPrefix(got.String(), map[Carrier]string{AFXDP: "AF_XDP: ", Kernel: "kernel port: "}[c.want]) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWords: the values of --carrier and --for are read as they are written.
func TestWords(t *testing.T) {
	for c := Auto; c < Carriers; c++ {
		if got, err := ParseCarrier(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	for w := Latency; w < Wishes; w++ {
		if got, err := ParseWish(w.String()); got != w || err != nil {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	for _, wrong := range []string{"", "xdp", "AFXDP"} {
		if c, err := ParseCarrier(wrong); err == nil || !strings.Contains(err.Error(), "auto, afxdp, kernel") {
			t.Errorf("%q: %v, %v", wrong, c, err)
		}
		if w, err := ParseWish(wrong); err == nil || !strings.Contains(err.Error(), "latency or throughput") {
			t.Errorf("%q: %v, %v", wrong, w, err)
		}
	}
	if Carriers.String() != "Carrier(4)" || Wishes.String() != "Wish(3)" {
		t.Errorf("%v, %v", Carriers, Wishes)
	}
}
