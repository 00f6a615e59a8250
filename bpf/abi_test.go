package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/port"
)

// types returns the BTF types that the C compiler wrote into the object.
func types(t *testing.T) *btf.Spec {
	t.Helper()
	spec, err := Spec()
	if err != nil {
		t.Fatal(err)
	}
	return spec.Types
}

// layout is the size of a structure and the offset of each field, in octets. The field
// names are in lower case without underscores.
type layout struct {
	size   uint32
	fields map[string]uint32
}

func plain(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

func layoutInC(t *testing.T, name string) layout {
	t.Helper()
	var s *btf.Struct
	if err := types(t).TypeByName(name, &s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	l := layout{s.Size, map[string]uint32{}}
	for _, m := range s.Members {
		l.fields[plain(m.Name)] = m.Offset.Bytes()
	}
	return l
}

func layoutInGo(v any) layout {
	rt := reflect.TypeOf(v)
	l := layout{uint32(rt.Size()), map[string]uint32{}}
	for i := range rt.NumField() {
		f := rt.Field(i)
		name := plain(f.Name)
		if name == "id" {
			name = "flow" // the C field of Flow.ID is flow
		}
		l.fields[name] = uint32(f.Offset)
	}
	return l
}

func TestLayoutsMatchC(t *testing.T) {
	for name, mirror := range map[string]any{
		"stag_flow_key4": Key4{},
		"stag_flow_key6": Key6{},
		"stag_flow":      Flow{},
		"stag_config":    Config{},
		"stag_options":   Options{},
	} {
		if c, g := layoutInC(t, name), layoutInGo(mirror); !reflect.DeepEqual(c, g) {
			t.Errorf("%s in C: %v\nin Go: %v", name, c, g)
		}
	}
	record := layout{RecordLen, map[string]uint32{
		"magic": recMagic, "flow": recFlow, "kind": recKind, "flags": recFlags, "owner": recOwner,
		"stag": recSTag,
	}}
	if c := layoutInC(t, "stag_record"); !reflect.DeepEqual(c, record) {
		t.Errorf("stag_record in C: %v\nin Go: %v", c, record)
	}
	if c := layoutInC(t, "stag_entry"); c.size != EntryLen {
		t.Errorf("stag_entry has %d octets in C, %d in Go", c.size, EntryLen)
	}
	if RecordLen != port.RecordLen {
		t.Errorf("record: %d octets, the port seam says %d", RecordLen, port.RecordLen)
	}
}

func TestReasonsMatchC(t *testing.T) {
	var e *btf.Enum
	if err := types(t).TypeByName("stag_reason", &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Values) != int(Reasons)+1 {
		t.Fatalf("%d reasons in C, %d in Go", len(e.Values)-1, Reasons)
	}
	for _, v := range e.Values[:Reasons] {
		if want := strings.ToLower(strings.TrimPrefix(v.Name, "STAG_")); Reason(v.Value).String() != want {
			t.Errorf("%s is %d, which Go calls %v", v.Name, v.Value, Reason(v.Value))
		}
	}
}

func TestMapsInObject(t *testing.T) {
	spec, err := Spec()
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string][2]uint32{
		MapFlows4:  {16, uint32(binary.Size(Flow{}))},
		MapFlows6:  {40, uint32(binary.Size(Flow{}))},
		MapSocks:   {4, 4},
		MapLanes:   {4, 4},
		MapStats:   {4, 8},
		MapConfig:  {4, uint32(binary.Size(Config{}))},
		MapOptions: {4, uint32(binary.Size(Options{}))},
		MapTable:   {4, EntryLen},
		MapPages:   {4, 8},
	} {
		m := spec.Maps[name]
		if m == nil {
			t.Errorf("no map %s", name)
			continue
		}
		if m.KeySize != size[0] || m.ValueSize != size[1] || m.Key == nil || m.Value == nil {
			t.Errorf("%s: key %d, value %d octets, BTF %v and %v", name, m.KeySize, m.ValueSize, m.Key, m.Value)
		}
	}
	if n := spec.Maps[MapLanes].MaxEntries; n != Lanes {
		t.Errorf("room for %d lanes in C, %d in Go", n, Lanes)
	}
	if len(spec.Maps) != 9 {
		t.Errorf("%d maps, want 9", len(spec.Maps))
	}
	for _, name := range []string{MapTable, MapPages} {
		if m := spec.Maps[name]; m.Type != ebpf.Array || m.Flags&unix.BPF_F_MMAPABLE == 0 {
			t.Errorf("%s is a %v with flags %#x: want an array that can be mapped", name, m.Type, m.Flags)
		}
	}
	if n := spec.Maps[MapStats].MaxEntries; n != uint32(Reasons) {
		t.Errorf("stats has %d entries for %d reasons", n, Reasons)
	}
	if got := spec.Programs[Program]; got == nil || got.License != "Dual BSD/GPL" {
		t.Errorf("program %v", got)
	}
}

func TestFlowKeyRoundTrip(t *testing.T) {
	for _, c := range []struct {
		remote, local, wantR, wantL string
		vlan                        uint16
		family                      uint8
	}{
		{"192.0.2.7:4420", "192.0.2.1:40000", "192.0.2.7:4420", "192.0.2.1:40000", 0, 4},
		{"[::ffff:192.0.2.7]:1", "192.0.2.1:2", "192.0.2.7:1", "192.0.2.1:2", 0, 4},
		{"[2001:db8::7]:65535", "[fe80::1%eth0]:3260", "[2001:db8::7]:65535", "[fe80::1]:3260", 100, 6},
	} {
		k, err := NewFlowKey(netip.MustParseAddrPort(c.remote), netip.MustParseAddrPort(c.local), c.vlan)
		if err != nil {
			t.Fatal(err)
		}
		if k.RemoteAddr().String() != c.wantR || k.LocalAddr().String() != c.wantL || k.Family != c.family || k.VLAN != c.vlan {
			t.Errorf("%s from %s: %v", c.local, c.remote, k)
		}
		name, in := k.InMap()
		if back := in.(interface{ FlowKey() FlowKey }).FlowKey(); back != k || name != fmt.Sprintf("flows%d", c.family) {
			t.Errorf("%v is %v in map %s, which is %v", k, in, name, back)
		}
	}
}

func TestFlowKeyRefused(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("192.0.2.7:1"), netip.MustParseAddrPort("[2001:db8::1]:2")
	for name, c := range map[string]struct {
		remote, local netip.AddrPort
		vlan          uint16
	}{
		"families": {v4, v6, 0}, "nothing": {netip.AddrPort{}, v4, 0}, "vlan": {v4, v4, 4095},
	} {
		if k, err := NewFlowKey(c.remote, c.local, c.vlan); err == nil {
			t.Errorf("%s: accepted as %v", name, k)
		}
	}
}

func TestFlowID(t *testing.T) {
	id := NewFlowID(0xabcde, 0x123)
	if id != 0x123abcde || id.Index() != 0xabcde || id.Generation() != 0x123 {
		t.Errorf("%#x: index %#x generation %#x", uint32(id), id.Index(), id.Generation())
	}
	if text := id.LogValue().String(); text != "0x123abcde" {
		t.Errorf("a log has it as %q", text)
	}
	if wrapped := NewFlowID(1<<20|5, 1<<12|7); wrapped.Index() != 5 || wrapped.Generation() != 7 {
		t.Errorf("index %d generation %d, want 5 and 7", wrapped.Index(), wrapped.Generation())
	}
}

func TestWipedRecordIsNotBelieved(t *testing.T) {
	b := make([]byte, RecordLen)
	binary.NativeEndian.PutUint32(b, Magic)
	if _, ok := ParseRecord(b); !ok {
		t.Error("a record with the magic is refused")
	}
	if _, ok := ParseRecord(b[:RecordLen-1]); ok {
		t.Error("a record that is cut off is believed")
	}
	Wipe(b)
	if _, ok := ParseRecord(b); ok {
		t.Error("a wiped record is believed")
	}
}
