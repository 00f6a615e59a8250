package loader_test

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/loader"
)

// TestDrivers checks that each driver has one row, and that every quirk has a remedy.
func TestDrivers(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range loader.Drivers() {
		if d.Name == "" || seen[d.Name] || (d.Quirk == "") != (d.Remedy == "") || strings.Contains(d.Quirk+d.Remedy+d.Speed, "\n") {
			t.Errorf("%+v", d)
		}
		seen[d.Name] = true
		if got := loader.DriverNamed(d.Name); got != d {
			t.Errorf("%s: found %+v", d.Name, got)
		}
		l := loader.Link{Driver: d.Name}
		if mtu := l.NativeMTU(); mtu < 1500 || d.MTU != 0 && mtu != d.MTU {
			t.Errorf("%s takes a program up to an MTU of %d", d.Name, mtu)
		}
	}
	if got := loader.DriverNamed("unheard of"); got != (loader.Driver{Name: "unheard of"}) {
		t.Errorf("a driver that nobody knows: %+v", got)
	}
}

// TestLongestByDriver checks that the chunk limits a frame, and that in native mode the
// driver may limit it, too.
func TestLongestByDriver(t *testing.T) {
	for _, c := range []struct {
		driver  string
		generic bool
		chunk   int
		want    int
	}{
		{"veth", false, 4096, 3520},
		{"veth", false, 2048, 1792},
		{"veth", true, 4096, 3840},
		{"ice", false, 4096, 3840},
	} {
		if got := (loader.Link{Driver: c.driver}).Longest(c.generic, c.chunk); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
