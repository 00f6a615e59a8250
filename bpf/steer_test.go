package bpf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/test/packet"
)

// These are the flows of every table test, by kind.
var (
	idRDMA  = bpf.NewFlowID(0x12345, 0xabc)
	idISCSI = bpf.NewFlowID(7, 1)
)

func standard(t testing.TB) *bench {
	b := newBench(t)
	b.plug()
	rdma := bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live, Owner: 3}
	iscsi := bpf.Flow{ID: idISCSI, Kind: bpf.KindISCSI, State: bpf.Park, Owner: bpf.NoOwner}
	b.flow(packet.Peer4, packet.Our4, 0, rdma)
	b.flow(packet.Peer6, packet.Our6, 0, rdma)
	b.flow(packet.Peer4, packet.Our4, 100, rdma)
	b.flow("192.0.2.2:3260", packet.Our4, 0, iscsi)
	return b
}

// to4 and to6 return segments of the flows of kind RDMA.
func to4(p packet.TCP) []byte { return p.Bytes() }
func to6(p packet.TCP) []byte { p.V6 = true; return p.Bytes() }

// patch returns a copy of a frame with some octets replaced.
func patch(frame []byte, at int, with ...byte) []byte {
	frame = bytes.Clone(frame)
	copy(frame[at:], with)
	return frame
}

func TestPassed(t *testing.T) {
	b := standard(t)
	plain4, plain6 := to4(packet.TCP{Payload: []byte("x")}), to6(packet.TCP{Payload: []byte("x")})
	tagged := to4(packet.TCP{Link: packet.Link{VLAN: []uint16{100}}})
	stranger := packet.IP{Src: "192.0.2.2:2001"}
	for _, row := range []struct {
		name  string
		frame []byte
		why   bpf.Reason
	}{
		{"ARP", packet.ARP{}.Bytes(), bpf.NotIP},
		{"not IP", packet.Ethernet{Type: 0x88cc, Payload: make([]byte, 46)}.Bytes(), bpf.NotIP},
		{"802.1ad", patch(tagged, 12, 0x88, 0xa8), bpf.NotIP},
		{"two tags", packet.TCP{Link: packet.Link{VLAN: []uint16{100, 100}}}.Bytes(), bpf.NotIP},
		{"ARP in a VLAN", packet.ARP{Link: packet.Link{VLAN: []uint16{100}}}.Bytes(), bpf.NotIP},
		{"UDP", packet.UDP{}.Bytes(), bpf.NotTCP},
		{"UDP of a flow's tuple, IPv6", packet.UDP{IP: packet.IP{V6: true}}.Bytes(), bpf.NotTCP},

		{"first fragment", to4(packet.TCP{IP: packet.IP{More: true}}), bpf.Fragment},
		{"later fragment", to4(packet.TCP{IP: packet.IP{Offset: 3}}), bpf.Fragment},
		{"first fragment, IPv6", to6(packet.TCP{IP: packet.IP{More: true}}), bpf.Fragment},
		{"IP options", to4(packet.TCP{IP: packet.IP{Options: 1}}), bpf.IPOptions},
		{"hop-by-hop header", to6(packet.TCP{IP: packet.IP{HopByHop: true}}), bpf.IPOptions},

		{"IPv4 says version 6", patch(plain4, 14, 0x65), bpf.BadIP},
		{"IPv4 header of 16 octets", patch(plain4, 14, 0x44), bpf.BadIP},
		{"IPv4 shorter than its header", patch(plain4, 16, 0, 19), bpf.BadIP},
		{"IPv4 longer than the frame", to4(packet.TCP{IP: packet.IP{LengthChange: 1}}), bpf.BadIP},
		{"IPv6 says version 4", patch(plain6, 14, 0x40), bpf.BadIP},
		{"IPv6 longer than the frame", to6(packet.TCP{IP: packet.IP{LengthChange: 1}}), bpf.BadIP},

		{"unknown flow", packet.TCP{IP: stranger}.Bytes(), bpf.NoFlow},
		{"unknown flow, longer than the frame", packet.TCP{IP: packet.IP{Src: "192.0.2.2:2001", LengthChange: 1}}.Bytes(), bpf.NoFlow},
		{"ends swapped", ours(false).Bytes(), bpf.NoFlow},
		{"another VLAN", packet.TCP{Link: packet.Link{VLAN: []uint16{101}}}.Bytes(), bpf.NoFlow},
		{"IPv6 address that begins as the IPv4 one",
			to6(packet.TCP{IP: packet.IP{Src: "[c000:202::]:2000", Dst: "[c000:201::]:1000"}}), bpf.NoFlow},
		{"TCP header of 16 octets", patch(plain4, 46, 0x40), bpf.BadTCP},
		{"TCP header longer than the packet", patch(plain4, 46, 0xf0), bpf.BadTCP},
		{"TCP header in the padding",
			to4(packet.TCP{IP: packet.IP{LengthChange: -20}, Payload: []byte("x")}), bpf.BadTCP},

		{"echo request", packet.Echo{}.Bytes(), bpf.ICMPOther},
		{"echo request, IPv6", packet.Echo{IP: packet.IP{V6: true}}.Bytes(), bpf.ICMPOther},
		{"too big, of an unknown flow", packet.TooBig{Quote: packet.TCP{IP: packet.IP{Src: packet.Our4, Dst: "192.0.2.2:2001"}}.Bytes()}.Bytes(), bpf.ICMPNoFlow},
		{"too big, quoting what the peer sent", packet.TooBig{Quote: plain4}.Bytes(), bpf.ICMPNoFlow},
		{"too big, about UDP", packet.TooBig{Quote: packet.UDP{IP: packet.IP{Src: packet.Our4, Dst: packet.Peer4}, Payload: make([]byte, 64)}.Bytes()}.Bytes(), bpf.ICMPOther},
		{"too big, about UDP, IPv6", packet.TooBig{IP: packet.IP{V6: true}, Quote: packet.UDP{IP: packet.IP{Src: packet.Our6, Dst: packet.Peer6}, Payload: make([]byte, 64)}.Bytes()}.Bytes(), bpf.ICMPOther},
		{"too big, quoting 27 octets", packet.TooBig{Quote: ours(false).Bytes(), Cut: 27}.Bytes(), bpf.ShortICMP},
		{"too big, quoting 47 octets, IPv6", packet.TooBig{IP: packet.IP{V6: true}, Quote: ours(true).Bytes(), Cut: 47}.Bytes(), bpf.ShortICMP},
		{"host unreachable", patch(packet.TooBig{Quote: ours(false).Bytes()}.Bytes(), 35, 1), bpf.ICMPOther},
		{"too big, quoting a fragment", patch(packet.TooBig{Quote: ours(false).Bytes()}.Bytes(), 48, 0x20, 3), bpf.ICMPOther},
		{"too big, in a fragment", packet.TooBig{IP: packet.IP{More: true}, Quote: ours(false).Bytes()}.Bytes(), bpf.Fragment},
	} {
		t.Run(row.name, func(t *testing.T) {
			verdict, record, out, why, err := b.run(row.frame, 0)
			if err != nil {
				t.Fatal(err)
			}
			if verdict != pass || why != row.why {
				t.Errorf("verdict %d for %v, want %d for %v", verdict, why, pass, row.why)
			}
			if len(record) != 0 || !bytes.Equal(out, row.frame) {
				t.Errorf("the packet changed: %d octets of metadata, % x", len(record), out)
			}
		})
	}
}

// TestCutOff cuts a packet of a known flow at every octet. It checks that the program
// passes the packet and counts the header that is cut off.
func TestCutOff(t *testing.T) {
	b := standard(t)
	type bounds []struct {
		end int // end of the header, in octets
		why bpf.Reason
	}
	too4 := packet.TooBig{Quote: ours(false).Bytes()}.Bytes()
	for name, c := range map[string]struct {
		frame []byte
		bounds
	}{
		"IPv4":   {to4(packet.TCP{}), bounds{{14, bpf.ShortEthernet}, {34, bpf.ShortIP4}, {54, bpf.ShortTCP}}},
		"IPv6":   {to6(packet.TCP{}), bounds{{14, bpf.ShortEthernet}, {54, bpf.ShortIP6}, {74, bpf.ShortTCP}}},
		"tagged": {to4(packet.TCP{Link: packet.Link{VLAN: []uint16{100}}}), bounds{{14, bpf.ShortEthernet}, {18, bpf.ShortVLAN}, {38, bpf.ShortIP4}, {58, bpf.ShortTCP}}},
		"ICMP":   {too4, bounds{{14, bpf.ShortEthernet}, {34, bpf.ShortIP4}, {70, bpf.ShortICMP}, {len(too4), bpf.BadIP}}},
	} {
		for n := range c.frame {
			want := bpf.Reason(0)
			for _, h := range c.bounds {
				if n < h.end {
					want = h.why
					break
				}
			}
			verdict, _, _, why, err := b.run(c.frame[:n], 0)
			if n < 14 && errors.Is(err, unix.EINVAL) {
				continue // most kernels accept no such frame in a test run
			}
			if err != nil {
				t.Fatalf("%s cut to %d octets: %v", name, n, err)
			}
			if verdict != pass || why != want {
				t.Errorf("%s cut to %d octets: verdict %d for %v, want %d for %v", name, n, verdict, why, pass, want)
			}
		}
	}
}

// TestShortBehindIP cuts packets at every octet after the IP header and adapts the IP
// length.
func TestShortBehindIP(t *testing.T) {
	b := standard(t)
	too4, too6 := packet.TooBig{Quote: ours(false).Bytes()}, packet.TooBig{IP: packet.IP{V6: true}, Quote: ours(true).Bytes(), Cut: 48}
	for name, c := range map[string]struct {
		frame  []byte
		l4     int // offset of the header after IP
		length int // offset of the IP length, which counts from octet from
		from   int
		why    bpf.Reason
	}{
		"TCP over IPv4":  {to4(packet.TCP{}), 34, 16, 14, bpf.ShortTCP},
		"TCP over IPv6":  {to6(packet.TCP{}), 54, 18, 54, bpf.ShortTCP},
		"ICMP over IPv4": {too4.Bytes(), 34, 16, 14, bpf.ShortICMP},
		"ICMP over IPv6": {too6.Bytes(), 54, 18, 54, bpf.ShortICMP},
	} {
		for n := c.l4; n < len(c.frame); n++ {
			frame := bytes.Clone(c.frame[:n])
			binary.BigEndian.PutUint16(frame[c.length:], uint16(n-c.from))
			verdict, _, _, why, err := b.run(frame, 0)
			if err != nil {
				t.Fatal(err)
			}
			if verdict != pass || why != c.why {
				t.Errorf("%s of %d octets: verdict %d for %v, want %d for %v", name, n, verdict, why, pass, c.why)
			}
		}
	}
	// The header claims options that the frame has no room for. The check of the IP
	// length therefore fails first. Only a frame whose rest is in fragments may end
	// early.
	verdict, _, _, why, err := b.run(patch(to4(packet.TCP{}), 46, 0x60), 0)
	if err != nil || verdict != pass || why != bpf.BadTCP {
		t.Errorf("options that are not there: verdict %d for %v, %v", verdict, why, err)
	}
}

func TestEmptySlotDrops(t *testing.T) {
	b := newBench(t)
	b.orphanWait(time.Hour)
	b.flow(packet.Peer4, packet.Our4, 0, bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live})
	for name, frame := range map[string][]byte{
		"segment": to4(packet.TCP{}),
		"too big": packet.TooBig{Quote: ours(false).Bytes()}.Bytes(),
	} {
		verdict, _, _, why, err := b.run(frame, 0)
		if err != nil || verdict != drop || why != bpf.NoSocket {
			t.Errorf("%s: verdict %d for %v, %v; want %d for %v", name, verdict, why, err, drop, bpf.NoSocket)
		}
	}
	if verdict, why := b.crowded(to4(packet.TCP{})); verdict != drop || why != bpf.NoSocket {
		t.Errorf("without room for a record: verdict %d for %v", verdict, why)
	}
	if verdict, _, _, why, err := b.run(packet.TCP{IP: packet.IP{Src: "192.0.2.9:1"}}.Bytes(), 0); err != nil || verdict != pass {
		t.Errorf("another flow: verdict %d for %v, %v", verdict, why, err)
	}
}

// TestOrphanIsGivenUp checks that the program drops packets of a flow whose engine is
// dead for a while. Then it passes them to the kernel, which resets the peer.
func TestOrphanIsGivenUp(t *testing.T) {
	for name, frame := range map[string][]byte{
		"segment": to4(packet.TCP{}),
		"too big": packet.TooBig{Quote: ours(false).Bytes()}.Bytes(),
	} {
		for _, owner := range []uint16{0, 3, bpf.NoOwner} {
			b := newBench(t)
			b.flow(packet.Peer4, packet.Our4, 0, bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live, Owner: owner})
			decided := func(verdict uint32, why bpf.Reason) {
				t.Helper()
				got, _, _, reason, err := b.run(frame, 0)
				if err != nil || got != verdict || reason != why {
					t.Errorf("%s, owner %d: verdict %d for %v, %v; want %d for %v", name, owner, got, reason, err, verdict, why)
				}
			}
			b.orphanWait(time.Hour)
			decided(drop, bpf.NoSocket)
			decided(drop, bpf.NoSocket)
			b.orphanWait(0)
			decided(pass, bpf.Orphaned)
			if verdict, _, _, _, err := b.run(frame, 0); err != nil || verdict != pass {
				t.Errorf("%s, owner %d: verdict %d, %v for a flow that is not there any more", name, owner, verdict, err)
			}
		}
	}
}

// TestLivingEngineKeepsItsFlows checks that a queue without a socket loses packets, but
// not the flows of a living engine. The engine's lane may be on this port or on
// another.
func TestLivingEngineKeepsItsFlows(t *testing.T) {
	for _, lane := range []uint16{2, 77, bpf.Lanes - 1} {
		b := newBench(t)
		b.orphanWait(0)
		b.live(uint32(lane))
		b.flow(packet.Peer4, packet.Our4, 0, bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live, Owner: lane})
		for range 3 {
			verdict, _, _, why, err := b.run(to4(packet.TCP{}), 0)
			if err != nil || verdict != drop || why != bpf.NoSocket {
				t.Errorf("lane %d: verdict %d for %v, %v", lane, verdict, why, err)
			}
		}
	}
}

// TestOwnerThatCannotBe checks that a flow with an impossible owner counts as a flow of
// a dead engine.
func TestOwnerThatCannotBe(t *testing.T) {
	for _, lane := range []uint16{bpf.Lanes, 0xfffe, bpf.NoOwner} {
		b := newBench(t)
		b.orphanWait(0)
		b.live(0)
		b.flow(packet.Peer4, packet.Our4, 0, bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live, Owner: lane})
		verdict, _, _, why, err := b.run(to4(packet.TCP{}), 0)
		if err != nil || verdict != pass || why != bpf.Orphaned {
			t.Errorf("lane %d: verdict %d for %v, %v", lane, verdict, why, err)
		}
	}
}

// TestFlowOfAnotherPort checks that a segment goes to the socket of the queue where it
// arrives. The record names the lane that owns the flow.
func TestFlowOfAnotherPort(t *testing.T) {
	b := newBench(t)
	b.plug()
	b.flow(packet.Peer4, packet.Our4, 0, bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live, Owner: 77})
	verdict, rec, _, why, err := b.run(to4(packet.TCP{}), 0)
	if err != nil || verdict != redirect || why != bpf.Steered {
		t.Fatalf("verdict %d for %v, %v", verdict, why, err)
	}
	if r, ok := bpf.ParseRecord(rec); !ok || r.Owner() != 77 || r.Flow() != idRDMA {
		t.Errorf("record %x", rec)
	}
}

func TestNoRoomForRecord(t *testing.T) {
	b := standard(t)
	if verdict, why := b.crowded(to4(packet.TCP{})); verdict != redirect || why != bpf.SteeredBare {
		t.Errorf("verdict %d for %v, want %d for %v", verdict, why, redirect, bpf.SteeredBare)
	}
}

// TestTooLong checks that a packet that is longer than its flow's sockets take is
// dropped. Every other packet is steered or passed, in any number of fragments.
func TestTooLong(t *testing.T) {
	b := newBench(t)
	b.plug()
	rdma := bpf.Flow{ID: idRDMA, Kind: bpf.KindRDMA, State: bpf.Live, Owner: 3}
	b.flow("192.0.2.2:2001", packet.Our4, 0, rdma) // without a limit
	rdma.Longest = 3520
	b.flow(packet.Peer4, packet.Our4, 0, rdma)
	b.flow(packet.Peer6, packet.Our6, 0, rdma)
	b.flow(packet.Peer4, packet.Our4, 100, rdma)
	tagged := packet.Link{VLAN: []uint16{100}}
	filled := func(p packet.TCP, length int) []byte {
		p.Payload = make([]byte, length-len(p.Bytes()))
		return p.Bytes()
	}
	v6 := packet.TCP{IP: packet.IP{V6: true}}
	for _, row := range []struct {
		name    string
		frame   []byte
		verdict uint32
		why     bpf.Reason
	}{
		{"as long as can be", filled(packet.TCP{}, 3520), redirect, bpf.Steered},
		{"one octet longer", filled(packet.TCP{}, 3521), drop, bpf.TooLong},
		{"jumbo", filled(packet.TCP{}, 9014), drop, bpf.TooLong},
		{"IPv6, as long as can be", filled(v6, 3520), redirect, bpf.Steered},
		{"IPv6, one octet longer", filled(v6, 3521), drop, bpf.TooLong},
		{"IPv6, jumbo", filled(v6, 9014), drop, bpf.TooLong},
		{"tagged, as long as can be", filled(packet.TCP{Link: tagged}, 3520), redirect, bpf.Steered},
		{"tagged, jumbo", filled(packet.TCP{Link: tagged}, 9018), drop, bpf.TooLong},
		{"no limit", filled(packet.TCP{IP: packet.IP{Src: "192.0.2.2:2001"}}, 9014), redirect, bpf.Steered},
		{"no flow", filled(packet.TCP{IP: packet.IP{Src: "192.0.2.2:2002"}}, 9014), pass, bpf.NoFlow},
		{"UDP", packet.UDP{Payload: make([]byte, 8900)}.Bytes(), pass, bpf.NotTCP},
		{"fragment", filled(packet.TCP{IP: packet.IP{More: true}}, 9014), pass, bpf.Fragment},
		{"other ICMP", packet.Echo{}.Bytes(), pass, bpf.ICMPOther},
		{"too big", packet.TooBig{Quote: ours(false).Bytes()}.Bytes(), redirect, bpf.Steered},
		{"too big, with a long quotation", packet.TooBig{Quote: filled(packet.TCP{IP: packet.IP{Src: packet.Our4, Dst: packet.Peer4}}, 9014), Cut: 9000}.Bytes(), drop, bpf.TooLong},
	} {
		t.Run(row.name, func(t *testing.T) {
			verdict, _, out, why, err := b.run(row.frame, 0)
			if err != nil {
				t.Fatal(err)
			}
			if verdict != row.verdict || why != row.why {
				t.Errorf("verdict %d for %v, want %d for %v", verdict, why, row.verdict, row.why)
			}
			if !bytes.Equal(out, row.frame) {
				t.Errorf("the packet of %d octets changed, or became %d", len(row.frame), len(out))
			}
		})
	}
}
