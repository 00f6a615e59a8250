package wire_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/packet"
)

var (
	macA = wire.MAC{2, 0, 0, 0, 0, 0xa}
	macB = wire.MAC{2, 0, 0, 0, 0, 0xb}
	ip4A = [4]byte{192, 0, 2, 1}
	ip4B = [4]byte{192, 0, 2, 2}
	ip6A = netip.MustParseAddr("2001:db8::1").As16()
	ip6B = netip.MustParseAddr("2001:db8::ab:cdef").As16()
)

// asked are frames, and what tshark reads in them: the fields of tsharkFields in their
// order, with the empty ones left out.
var asked = []struct {
	name  string
	frame []byte
	want  string
}{
	{"ARP request", wire.ARPFields{Op: wire.ARPRequest, SenderMAC: macA, SenderIP: ip4A, TargetIP: ip4B}.Append(
		wire.EthernetFields{Dst: wire.Broadcast, Src: macA, Type: wire.TypeARP}.Append(nil)),
		"ff:ff:ff:ff:ff:ff 1 02:00:00:00:00:0a 192.0.2.1 00:00:00:00:00:00 192.0.2.2"},
	{"ARP reply", wire.ARPFields{Op: wire.ARPReply, SenderMAC: macA, SenderIP: ip4A, TargetMAC: macB, TargetIP: ip4B}.Append(
		wire.EthernetFields{Dst: macB, Src: macA, Type: wire.TypeARP}.Append(nil)),
		"02:00:00:00:00:0b 2 02:00:00:00:00:0a 192.0.2.1 02:00:00:00:00:0b 192.0.2.2"},
	{"Solicitation", wire.NeighbourFields{Src: ip6A, Dst: wire.SolicitedNode(ip6B), Target: ip6B, MAC: macA}.Append(
		wire.EthernetFields{Dst: wire.MulticastMAC(wire.SolicitedNode(ip6B)), Src: macA, Type: wire.TypeIPv6}.Append(nil)),
		"33:33:ff:ab:cd:ef 2001:db8::1 ff02::1:ffab:cdef 135 1 2001:db8::ab:cdef 1 02:00:00:00:00:0a"},
	{"Advertisement", wire.NeighbourFields{Src: ip6A, Dst: wire.AllNodes, Advertise: true, Router: true, Override: true, Target: ip6A, MAC: macA}.Append(
		wire.EthernetFields{Dst: wire.MulticastMAC(wire.AllNodes), Src: macA, Type: wire.TypeIPv6}.Append(nil)),
		"33:33:00:00:00:01 2001:db8::1 ff02::1 136 1 1 0 1 2001:db8::1 2 02:00:00:00:00:0a"},
	{"Advertisement that answers", wire.NeighbourFields{Src: ip6A, Dst: ip6B, Advertise: true, Solicited: true, Target: ip6A, MAC: macA}.Append(
		wire.EthernetFields{Dst: macB, Src: macA, Type: wire.TypeIPv6}.Append(nil)),
		"02:00:00:00:00:0b 2001:db8::1 2001:db8::ab:cdef 136 1 0 1 0 2001:db8::1 2 02:00:00:00:00:0a"},
}

var tsharkFields = []string{"eth.dst", "arp.opcode", "arp.src.hw_mac", "arp.src.proto_ipv4", "arp.dst.hw_mac", "arp.dst.proto_ipv4",
	"ipv6.src", "ipv6.dst", "icmpv6.type", "icmpv6.checksum.status", "icmpv6.nd.na.flag.r", "icmpv6.nd.na.flag.s", "icmpv6.nd.na.flag.o",
	"icmpv6.nd.ns.target_address", "icmpv6.nd.na.target_address", "icmpv6.opt.type", "icmpv6.opt.linkaddr"}

// TestTsharkReadsAddressResolution compares the frames with what tshark reads in them.
func TestTsharkReadsAddressResolution(t *testing.T) {
	need.Tool(t, "tshark")
	file := filepath.Join(t.TempDir(), "frames.pcap")
	if err := os.WriteFile(file, pcapOf(), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-r", file, "-n", "-T", "fields", "-E", "separator=/s"}
	for _, f := range tsharkFields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(asked) {
		t.Fatalf("tshark reads %d of %d frames:\n%s", len(lines), len(asked), out)
	}
	for i, c := range asked {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != c.want {
			t.Errorf("%s: tshark reads\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// pcapOf returns a capture of the frames.
func pcapOf() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	for _, word := range []uint32{4<<16 | 2, 0, 0, 65535, 1} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	for i, c := range asked {
		for _, word := range []uint32{uint32(i), 0, uint32(len(c.frame)), uint32(len(c.frame))} {
			b = binary.LittleEndian.AppendUint32(b, word)
		}
		b = append(b, c.frame...)
	}
	return b
}

func TestParseARP(t *testing.T) {
	_, body, _ := wire.ParseEthernet(packet.ARP{}.Bytes())
	p, ok := wire.ParseARP(body)
	if !ok || p.Op() != wire.ARPRequest || p.SenderMAC().String() != packet.PeerMAC || p.TargetMAC() != (wire.MAC{}) {
		t.Errorf("%+v %v", p, ok)
	}
	if p.SenderIP() != netip.MustParseAddrPort(packet.Peer4).Addr().As4() || p.TargetIP() != netip.MustParseAddrPort(packet.Our4).Addr().As4() {
		t.Errorf("%+v %v", p, ok)
	}
	for n := range wire.ARPLen {
		if _, ok := wire.ParseARP(body[:n:n]); ok {
			t.Errorf("an ARP packet cut to %d octets was taken", n)
		}
	}
	for _, at := range []int{1, 2, 4, 5} {
		if _, ok := wire.ParseARP(set(body, at, 9)); ok {
			t.Errorf("octet %d may have any value", at)
		}
	}
}

func TestParseNeighbourRefuses(t *testing.T) {
	whole := wire.NeighbourFields{Src: ip6A, Dst: ip6B, Advertise: true, Solicited: true, Target: ip6A, MAC: macA}
	good := whole.Append(nil)
	if _, ok := parseNeighbour(good); !ok {
		t.Fatal("the unchanged message is refused")
	}
	multicast := whole
	multicast.Target = wire.AllNodes
	for name, b := range map[string][]byte{
		"hop limit":      set(good, 7, 254),
		"another type":   sum(set(good, 40, 137)),
		"code":           sum(set(good, 41, 1)),
		"checksum":       set(good, 42, good[42]^1),
		"group":          multicast.Append(nil),
		"option of 0":    sum(set(good, 65, 0)),
		"long option":    sum(set(good, 65, 2)),
		"option cut":     sum(set(good[:len(good)-1], 5, 31)),
		"no target":      sum(set(good[:63], 5, 23)),
		"not ICMPv6":     set(good, 6, 17),
		"fragment":       set(good, 6, 44),
		"nothing at all": nil,
	} {
		if _, ok := parseNeighbour(b); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

// sum makes the checksum of a Neighbour message right.
func sum(b []byte) []byte {
	b = set(b, 42, 0, 0)
	m := b[wire.IPv6Len:]
	s := wire.Sum(58).Add(b[8:40]).Add16(uint16(len(m))).Add(m)
	binary.BigEndian.PutUint16(m[2:], s.Checksum())
	return b
}

func parseNeighbour(b []byte) (wire.Neighbour, bool) {
	ip, body, why := wire.ParseIPv6(b)
	if why != wire.OK {
		return wire.Neighbour{}, false
	}
	return wire.ParseNeighbour(ip, body)
}

func FuzzARP(f *testing.F) {
	f.Add(asked[0].frame[wire.EthernetLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := wire.ParseARP(b)
		if !ok {
			return
		}
		again := wire.ARPFields{Op: p.Op(), SenderMAC: p.SenderMAC(), TargetMAC: p.TargetMAC(), SenderIP: p.SenderIP(), TargetIP: p.TargetIP()}.Append(nil)
		if !bytes.Equal(again, b[:wire.ARPLen]) {
			t.Errorf("% x became % x", b, again)
		}
	})
}

func FuzzNeighbour(f *testing.F) {
	for _, c := range asked[2:] {
		f.Add(c.frame[wire.EthernetLen:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parseNeighbour(b)
		if !ok {
			return
		}
		mac, has := m.MAC()
		again := wire.NeighbourFields{Src: [16]byte(b[8:]), Dst: [16]byte(b[24:]), Advertise: m.Advertises(),
			Router: m.Router(), Solicited: m.Solicited(), Override: m.Override(), Target: m.Target(), MAC: mac}.Append(nil)
		m2, ok := parseNeighbour(again)
		mac2, _ := m2.MAC()
		if !ok || m2.Target() != m.Target() || m2.Advertises() != m.Advertises() || has && mac2 != mac {
			t.Errorf("% x became % x", b, again)
		}
	})
}
