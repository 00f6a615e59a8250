package doctor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/netdev"
)

// TestSpread checks that the probe reports a table that leaves out queues.
func TestSpread(t *testing.T) {
	l := loader.Link{Port: "eth1", RxQueues: 4}
	if p := spreadOver("spread", l, []uint32{0, 1, 2, 3, 0, 1, 2, 3}); p.Outcome != OK {
		t.Errorf("over all: %+v", p)
	}
	if p := spreadOver("spread", l, []uint32{0, 1, 0, 1}); p.Outcome != Hint || p.Fix != "ethtool -X eth1 equal 4" || !strings.Contains(p.Detail, "2 of 4") {
		t.Errorf("over some: %+v", p)
	}
}

// TestGroupRoom checks the room of control groups of both versions. Inactive pages of
// files count as free.
func TestGroupRoom(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		room    uint64
		limited bool
	}{
		"limited":   {map[string]string{"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 5\ninactive_file 200\n"}, 500, true},
		"beyond":    {map[string]string{"memory.max": "1000\n", "memory.current": "1700\n", "memory.stat": ""}, 0, true},
		"idle":      {map[string]string{"memory.max": "1000\n", "memory.current": "100\n", "memory.stat": "inactive_file 200\n"}, 1000, true},
		"unlimited": {map[string]string{"memory.max": "max\n", "memory.current": "700\n"}, 0, false},
		"none":      {nil, 0, false},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		room, limited := groupRoom(dir, "memory.max", "memory.current", "inactive_file")
		if room != c.room || limited != c.limited {
			t.Errorf("%s: %d, %v; want %d, %v", name, room, limited, c.room, c.limited)
		}
	}
}

// TestCustoms checks that a quirk is marked as not tried unless it was seen, and that its remedy names the
// interface.
func TestCustoms(t *testing.T) {
	for _, driver := range loader.Drivers() {
		if driver.Quirk == "" {
			continue
		}
		p := probeCustoms(loader.Link{Port: "eth1", Driver: driver.Name})
		if p.Outcome != Hint || strings.Contains(p.Fix, "IFACE") || strings.Contains(p.Detail, "not tried here") == driver.Seen {
			t.Errorf("%+v", p)
		}
	}
	if p := probeCustoms(loader.Link{Port: "eth1", Driver: "veth"}); p.Outcome != OK {
		t.Errorf("%+v", p)
	}
}

// TestCards checks the rows for properties that a veth does not have.
func TestCards(t *testing.T) {
	const name = "row"
	l := loader.Link{Name: "eth1.7", Port: "eth1", Driver: "ice", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 7}}
	other := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	silent := errors.New("the kernel does not tell")
	for _, c := range []struct {
		got  Probe
		want Outcome
		says string // text in detail or fix
	}{
		{tried(name, triedLinux+".1-some"), OK, "that stag was tried on"},
		{tried(name, "5.15.0"), Hint, "Linux 5.18 or later"},
		{tried(name, "6.8.0-31"), Hint, "tried on 6.18 only"},
		{tried(name, "unheard of"), Unknown, "stag is made for 5.18 and later"},
		{takes(name, l, &netlink.LinkAttrs{HardwareAddr: l.MAC}), OK, "nothing that is for others"},
		{takes(name, l, &netlink.LinkAttrs{HardwareAddr: other}), Hint, "ip link set eth1.7 address 02:00:00:00:00:01"},
		{takes(name, l, &netlink.LinkAttrs{HardwareAddr: other, Promisc: 1}), OK, "promiscuous"},
		{offersZeroCopy(name, l, netdev.ZeroCopy, nil), OK, "ice offers it"},
		{offersZeroCopy(name, l, netdev.Pieces, nil), OK, "ice has none"},
		{offersZeroCopy(name, l, 0, silent), Unknown, "is said to have it; this kernel does not tell"},
		{offersZeroCopy(name, loader.Link{Driver: "e1000"}, 0, silent), Unknown, "not known"},
		{interruptsOn(name, l, map[string]int{"0": 4}), Hint, "all 4 of eth1 end on processor 0"},
		{interruptsOn(name, l, map[string]int{"0": 2, "1": 2}), OK, "take them: 2"},
		{interruptsOn(name, l, map[string]int{"0": 1}), OK, "take them: 1"},
		{interruptsOn(name, l, nil), OK, "none"},
		{joins(name, l, loader.Offloads{LRO: true, GRO: true}), Hint, "ethtool -K eth1 lro off"},
		{joins(name, l, loader.Offloads{GRO: true}), OK, "GRO, "},
		{joins(name, l, loader.Offloads{}), OK, "off"},
	} {
		if c.got.Outcome != c.want || (c.got.Fix == "") != (c.want == OK) || !strings.Contains(c.got.Detail+" "+c.got.Fix, c.says) {
			t.Errorf("%+v, want %s that says %q", c.got, c.want, c.says)
		}
	}
}
