package rdma

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
)

// TestCarrierChosen: Open chooses as the rule says, connections between two choices work,
// and the adapter and its report say what was chosen and why.
func TestCarrierChosen(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want Carrier
		why  string
	}{
		"as named":           {Config{}, CarrierAFXDP, "for throughput the kernel port is better"},
		"auto":               {Config{Carrier: CarrierAuto}, CarrierAFXDP, "no wish is said"},
		"for latency":        {Config{For: ForLatency}, CarrierAFXDP, "lower latency"},
		"for throughput":     {Config{Carrier: CarrierAuto, For: ForThroughput}, CarrierKernel, "driver veth has no zero copy"},
		"afxdp":              {Config{Carrier: CarrierAFXDP, For: ForThroughput}, CarrierAFXDP, "asked for by name"},
		"kernel":             {Config{Carrier: CarrierKernel}, CarrierKernel, "asked for by name"},
		"in generic mode":    {Config{Carrier: CarrierAuto, Generic: true}, CarrierKernel, "generic mode"},
		"groups need AF_XDP": {Config{For: ForThroughput, VLAN: 7}, CarrierAFXDP, "a VLAN is asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStage(t, pair.Config{})
			r.openHosts(func(side pair.Side) Config {
				if side == pair.B {
					return Config{KernelPort: true}
				}
				c.cfg.Ports = []string{r.pair.Ends[side].Name}
				return c.cfg
			})
			if got, why := r.a.Carrier(); got != c.want || !strings.Contains(why, c.why) {
				r.Fatalf("%v, %q", got, why)
			}
			seen, err := r.a.Report(r.Ctx())
			r.Must(err)
			d, path := seen.Devices[0], r.pair.Ends[pair.A].Name
			if c.want == CarrierKernel {
				path = report.KernelDevice
			}
			if got, why := r.a.Carrier(); d.Name != path || d.Carrier != got.String() || d.Why != why {
				r.Errorf("reported as %+v", d)
			}
			if c.cfg.VLAN != 0 {
				return // the other side has no such VLAN
			}
			x, y := r.connect(wants{})
			y.receive(RecvWR{SGL: []SGE{y.mr.SGE(0, 64)}})
			x.post(SendWR{Op: WRSend, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 64)}})
			r.ok(y.got(1))
			r.ok(x.sent(1))
		})
	}
}

// TestCarrierNotHad: if AF_XDP is asked for by name and cannot be had, Open fails and says
// what else there is. With CarrierAuto the same interface gives the kernel's TCP, and the
// reason.
func TestCarrierNotHad(t *testing.T) {
	r := newHosts(t, pair.Config{})
	name := r.pair.Ends[pair.A].Name
	r.Must(r.pair.Do(pair.A, func() error {
		_, err := Open(Config{Ports: []string{name}, Carrier: CarrierAFXDP, NoControl: true})
		r.Says(err, nil, "AF_XDP is asked for by name", "in use by", "--carrier kernel")
		a := r.open(Config{Ports: []string{name}, Carrier: CarrierAuto, NoControl: true})
		if got, why := a.Carrier(); got != CarrierKernel || !strings.Contains(why, name) {
			r.Errorf("%v, %q", got, why)
		}
		_, err = Open(Config{Ports: []string{"stag-none"}, Carrier: CarrierAuto, NoControl: true})
		r.Says(err, nil, "no network interface stag-none")
		return nil
	}))
}

// TestCarrierMistakes: contradictions are errors, and no choice is made for them.
func TestCarrierMistakes(t *testing.T) {
	for says, c := range map[string]Config{
		"KernelPort is set, and Carrier is auto":  {KernelPort: true, Carrier: CarrierAuto},
		"KernelPort is set, and Carrier is afxdp": {KernelPort: true, Carrier: CarrierAFXDP},
		"AF_XDP is asked for and no port":         {Carrier: CarrierAFXDP},
		"a Carrier of 9":                          {Carrier: 9},
		"a For of 9":                              {KernelPort: true, For: 9},
		"which only AF_XDP has":                   {Ports: []string{"a"}, Carrier: CarrierKernel, ZeroCopy: ZeroCopyRequire},
		"Carrier, For":                            {Daemon: "/nowhere", For: ForLatency},
	} {
		if a, err := Open(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", says, a, err)
		}
	}
	a, err := Open(Config{Carrier: CarrierAuto, NoControl: true})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got, why := a.Carrier(); got != CarrierKernel || why != "no interface is named" {
		t.Errorf("%v, %q", got, why)
	}
}
