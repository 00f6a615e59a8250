package bpf_test

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/bpf"
)

// TestNames: every kind and state that the C code knows has a name. Other values show
// their number.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for k := bpf.KindRDMA; k <= bpf.KindICMP; k++ {
		seen[k.String()] = true
	}
	for s := bpf.Park; s <= bpf.Orphan; s++ {
		seen[s.String()] = true
	}
	if len(seen) != 7 {
		t.Errorf("%d names for 4 kinds and 3 states: %v", len(seen), seen)
	}
	for name := range seen {
		if strings.ContainsAny(name, " 0123456789") {
			t.Errorf("%q is no name", name)
		}
	}
	if got := bpf.Kind(9).String() + ", " + bpf.State(8).String(); got != "kind 9, state 8" {
		t.Errorf("unknown values: %s", got)
	}
}

// TestLayout: the Config of this build gives the sizes of the Go types, which
// TestLayoutsMatchC compares with the C structures.
func TestLayout(t *testing.T) {
	l := bpf.Layout()
	if l.Version != bpf.Version || int(l.Key4Size) != binary.Size(bpf.Key4{}) || int(l.Key6Size) != binary.Size(bpf.Key6{}) || int(l.FlowSize) != binary.Size(bpf.Flow{}) {
		t.Errorf("%+v", l)
	}
	if l.RecordSize != bpf.RecordLen || l.EntrySize != bpf.EntryLen || int(l.Reasons) != int(bpf.Reasons) {
		t.Errorf("%+v", l)
	}
}

// TestFlowKeyText: the text of a key has the VLAN only if there is one.
func TestFlowKeyText(t *testing.T) {
	for vlan, want := range map[uint16]string{0: "192.0.2.1:80 from 192.0.2.9:4000", 12: "192.0.2.1:80 from 192.0.2.9:4000 vlan 12"} {
		k, err := bpf.NewFlowKey(netip.MustParseAddrPort("192.0.2.9:4000"), netip.MustParseAddrPort("192.0.2.1:80"), vlan)
		if err != nil || k.String() != want {
			t.Errorf("%v, %v; want %s", k, err, want)
		}
	}
}
