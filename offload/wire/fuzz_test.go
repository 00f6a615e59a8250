package wire_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// Each target checks that parsing does not panic, and that a parsed header, appended
// again, parses to an equal one.

func FuzzEthernet(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, ok := wire.ParseEthernet(b)
		if !ok {
			return
		}
		again := wire.EthernetFields{Dst: h.Dst(), Src: h.Src(), Type: h.Type()}.Append(nil)
		if again = append(again, payload...); !bytes.Equal(again, b) {
			t.Errorf("% x became % x", b, again)
		}
	})
}

func FuzzVLAN(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, ok := wire.ParseVLAN(b)
		if !ok {
			return
		}
		again := wire.VLANFields{ID: h.ID(), Priority: h.Priority(), DropEligible: h.DropEligible(), Type: h.Type()}.Append(nil)
		if again = append(again, payload...); !bytes.Equal(again, b) {
			t.Errorf("% x became % x", b, again)
		}
	})
}

func v4Fields(h wire.IPv4) wire.IPv4Fields {
	return wire.IPv4Fields{TOS: h.TOS(), Length: uint16(h.Length()), ID: h.ID(), DontFragment: h.DontFragment(),
		TTL: h.TTL(), Protocol: h.Protocol(), Src: [4]byte(h.Src()), Dst: [4]byte(h.Dst())}
}

func FuzzIPv4(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, why := wire.ParseIPv4(b)
		if why != wire.OK {
			return
		}
		fields := v4Fields(h)
		h2, payload2, why := wire.ParseIPv4(append(fields.Append(nil), payload...))
		if why != wire.OK || v4Fields(h2) != fields || !bytes.Equal(payload, payload2) {
			t.Errorf("%v: %+v became %+v", why, fields, v4Fields(h2))
		}
	})
}

func v6Fields(h wire.IPv6) wire.IPv6Fields {
	return wire.IPv6Fields{TrafficClass: h.TrafficClass(), FlowLabel: h.FlowLabel(), Length: uint16(h.Length()),
		Protocol: h.Protocol(), HopLimit: h.HopLimit(), Src: [16]byte(h.Src()), Dst: [16]byte(h.Dst())}
}

func FuzzIPv6(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, why := wire.ParseIPv6(b)
		if why != wire.OK {
			return
		}
		again := append(v6Fields(h).Append(nil), payload...)
		if !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("% x became % x", b, again)
		}
	})
}

func FuzzTCP(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, why := wire.ParseTCP(b)
		if why != wire.OK {
			return
		}
		var fields, fields2 wire.TCPFields
		h.Fields(&fields)
		h2, payload2, why := wire.ParseTCP(append(fields.Append(nil), payload...))
		if why != wire.OK {
			t.Fatal(why)
		}
		if !h2.Fields(&fields2) || fields != fields2 || !bytes.Equal(payload, payload2) {
			t.Errorf("%+v became %+v", fields, fields2)
		}
		if h2.Len() != fields.HeaderLen() {
			t.Errorf("header of %d octets, HeaderLen says %d", h2.Len(), fields.HeaderLen())
		}
	})
}

func FuzzICMP(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		for size, parse := range map[int]func([]byte) (wire.TooBig, wire.Reason){
			4: wire.ParseFragNeeded, 16: wire.ParsePacketTooBig,
		} {
			q, why := parse(b)
			if (why == wire.OK) != (len(q.Src) == size && len(q.Dst) == size) {
				t.Errorf("%v: addresses % x, % x", why, q.Src, q.Dst)
			}
		}
	})
}

// FuzzPacket writes a segment that was taken through a template of its own
// tuple and parses it again.
func FuzzPacket(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		var p wire.Packet
		if wire.ParsePacket(b, &p) != wire.OK {
			return
		}
		p.VerifyChecksum(b, true)
		if p.ICMP || len(p.Data(b)) > 60000 { // our header may be longer than the one that was parsed
			return
		}
		h := wire.HeaderFields{TTL: 1, VLAN: p.VLAN, SrcMAC: wire.MAC(p.SrcMAC(b)), DstMAC: wire.MAC(p.DstMAC(b)),
			Src: addrPort(p.Src, p.TCP.SrcPort), Dst: addrPort(p.Dst, p.TCP.DstPort)}
		tpl, err := wire.NewHeaderTemplate(h)
		if err != nil {
			return // port 0, reserved VLAN id, mapped address
		}
		room := tpl.Len(&p.TCP)
		again := append(make([]byte, room), p.Data(b)...)
		if n := tpl.Write(again, room, &p.TCP); n != room {
			t.Fatalf("wrote %d octets of headers, not %d", n, room)
		}
		var p2 wire.Packet
		if why := wire.ParsePacket(again, &p2); why != wire.OK {
			t.Fatal(why)
		}
		if why := p2.VerifyChecksum(again, false); why != wire.OK {
			t.Fatal(why)
		}
		if p2.TCP != p.TCP || p2.VLAN != p.VLAN || !bytes.Equal(p2.Src, p.Src) || !bytes.Equal(p2.Dst, p.Dst) ||
			!bytes.Equal(p2.Data(again), p.Data(b)) {
			t.Errorf("%+v became %+v", p, p2)
		}
	})
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, port)
}
