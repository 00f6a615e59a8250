package packet

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// decode decodes a frame and checks that no part of it is malformed.
func decode(t *testing.T, b []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("% x: %v", b, e.Error())
	}
	return p
}

func TestTCPDecodes(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			want := []byte("payload")
			b := TCP{Link: Link{VLAN: []uint16{7}}, IP: IP{V6: v6, TOS: 3}, Seq: 1, Ack: 2, Flags: "PA",
				TS: &TS{3, 4}, SACK: [][2]uint32{{5, 6}}, Payload: want}.Bytes()
			p := decode(t, b)
			tcp := p.TransportLayer().(*layers.TCP)
			if tcp.SrcPort != 2000 || tcp.DstPort != 1000 || !tcp.PSH || !tcp.ACK || tcp.SYN {
				t.Errorf("decoded %+v", tcp)
			}
			if !bytes.Equal(tcp.Payload, want) {
				t.Errorf("payload %q", tcp.Payload)
			}
			if v := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); v.VLANIdentifier != 7 {
				t.Errorf("VLAN %d", v.VLANIdentifier)
			}
		})
	}
}

func TestNoPaddingUnlessAsked(t *testing.T) {
	if n := len(TCP{}.Bytes()); n != 54 {
		t.Errorf("bare ACK: %d octets", n)
	}
	if n := len(TCP{Link: Link{Pad: 6}}.Bytes()); n != 60 {
		t.Errorf("padded ACK: %d octets", n)
	}
}

func TestKinds(t *testing.T) {
	ours := TCP{IP: IP{Src: Our4, Dst: Peer4}}.Bytes()
	ours6 := TCP{IP: IP{Src: Our6, Dst: Peer6}}.Bytes()
	for name, c := range map[string]struct {
		frame []byte
		layer gopacket.LayerType
	}{
		"UDP":           {UDP{}.Bytes(), layers.LayerTypeUDP},
		"UDP6":          {UDP{IP: IP{V6: true}}.Bytes(), layers.LayerTypeUDP},
		"ARP":           {ARP{}.Bytes(), layers.LayerTypeARP},
		"echo":          {Echo{}.Bytes(), layers.LayerTypeICMPv4},
		"echo6":         {Echo{IP: IP{V6: true}}.Bytes(), layers.LayerTypeICMPv6Echo},
		"too big":       {TooBig{MTU: 1400, Quote: ours}.Bytes(), layers.LayerTypeICMPv4},
		"too big 6":     {TooBig{IP: IP{V6: true}, MTU: 1400, Quote: ours6}.Bytes(), layers.LayerTypeICMPv6},
		"options":       {TCP{IP: IP{Options: 2}}.Bytes(), layers.LayerTypeTCP},
		"hop by hop":    {TCP{IP: IP{V6: true, HopByHop: true}}.Bytes(), layers.LayerTypeIPv6HopByHop},
		"fragment":      {TCP{IP: IP{More: true}}.Bytes(), gopacket.LayerTypeFragment},
		"last fragment": {TCP{IP: IP{V6: true, Offset: 3}}.Bytes(), layers.LayerTypeIPv6Fragment},
		"two tags":      {TCP{Link: Link{VLAN: []uint16{1, 2}}}.Bytes(), layers.LayerTypeTCP},
	} {
		if decode(t, c.frame).Layer(c.layer) == nil {
			t.Errorf("%s: no %v in % x", name, c.layer, c.frame)
		}
	}
}
