package loader

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestTuning checks which settings are set for which interface, and when.
func TestTuning(t *testing.T) {
	eth := Link{Port: "eth0", PortIndex: 2, Driver: "ice"}
	tagged, veth := eth, eth
	tagged.VLAN = 100
	veth.Driver = "veth"
	taggedVeth := veth
	taggedVeth.VLAN = 100
	peer := &netlink.LinkAttrs{Name: "eth1", Index: 3}
	for name, c := range map[string]struct {
		link    Link
		generic bool
		peer    *netlink.LinkAttrs
		before  string
	}{
		"card":                 {eth, false, nil, "eth0 lro off;"},
		"card, generic":        {eth, true, nil, "eth0 gro off;eth0 lro off;"},
		"VLAN of a card":       {tagged, false, nil, "eth0 lro off;eth0 rxvlan off;"},
		"VLAN of a veth":       {taggedVeth, false, nil, "eth0 lro off;"},
		"veth":                 {veth, false, peer, "eth0 lro off;"},
		"veth, generic":        {veth, true, peer, "eth0 gro off;eth0 lro off;eth1 tso off;eth1 gso off;"},
		"veth, peer elsewhere": {veth, false, nil, "eth0 lro off;"},
	} {
		before, after := tuning(c.link, c.generic, TuneBasics, c.peer)
		text := ""
		for _, w := range before {
			text += fmt.Sprintf("%s %s %s;", w.link, w.setting, w.value)
			if _, known := knobs[w.setting]; !known || w.why == "" || w.index == 0 {
				t.Errorf("%s: %+v", name, w)
			}
		}
		if text != c.before || len(after) != 0 {
			t.Errorf("%s: %s then %+v", name, text, after)
		}
		for tune, value := range map[Tune]string{TuneLatency: "0", TuneThroughput: "1"} {
			more, after := tuning(c.link, c.generic, tune, c.peer)
			if len(more) != len(before) || len(after) != 1 || after[0].setting != "threaded" || after[0].value != value {
				t.Errorf("%s, %s: %+v then %+v", name, tune, more, after)
			}
		}
	}
}

// TestKnobsTurn checks that turn reports a driver that keeps the old value.
func TestKnobsTurn(t *testing.T) {
	stuck := knob{
		func(ethtool, string) (string, error) { return on, nil },
		func(ethtool, string, string) error { return nil },
	}
	if err := stuck.turn(ethtool{}, "eth0", off); err == nil {
		t.Error("a setting that did not change was taken for changed")
	}
	if err := stuck.turn(ethtool{}, "eth0", on); err != nil {
		t.Error(err)
	}
}

// TestTagsHidden checks that a NIC that removes VLAN tags is refused if the tags are
// needed. A veth passes the tags on.
func TestTagsHidden(t *testing.T) {
	card := Link{Port: "eth0", Driver: "ice", VLAN: 100}
	veth := Link{Port: "eth0", Driver: "veth", VLAN: 100}
	if err := (Offloads{RxVLAN: true}).checkTags(card); !errors.Is(err, ErrOffload) || !strings.Contains(err.Error(), "ethtool -K eth0 rxvlan off") {
		t.Errorf("a card that takes them off: %v", err)
	}
	if err := errors.Join(Offloads{LRO: true}.checkTags(card), Offloads{RxVLAN: true}.checkTags(veth)); err != nil {
		t.Error(err)
	}
}
