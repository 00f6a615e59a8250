package wire_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
	"pgregory.net/rapid"
)

var (
	ourMAC  = wire.MAC{2, 0, 0, 0, 0, 1}
	peerMAC = wire.MAC{2, 0, 0, 0, 0, 2}
)

// fields4 and fields6 are our side of the tuple that package packet builds
// frames for.
func fields4() wire.HeaderFields {
	return wire.HeaderFields{SrcMAC: ourMAC, DstMAC: peerMAC, TTL: 64, TOS: 0x28, ID: 41,
		Src: netip.MustParseAddrPort(packet.Our4), Dst: netip.MustParseAddrPort(packet.Peer4)}
}

func fields6() wire.HeaderFields {
	return wire.HeaderFields{SrcMAC: ourMAC, DstMAC: peerMAC, TTL: 64, TOS: 0x28, FlowLabel: 0x12345,
		Src: netip.MustParseAddrPort(packet.Our6), Dst: netip.MustParseAddrPort(packet.Peer6)}
}

func template(t testing.TB, h wire.HeaderFields) wire.HeaderTemplate {
	t.Helper()
	tpl, err := wire.NewHeaderTemplate(h)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// write gives the frame that tpl makes of f and the payload.
func write(tpl *wire.HeaderTemplate, f *wire.TCPFields, payload []byte) []byte {
	chunk := append(make([]byte, port.Headroom), payload...)
	n := tpl.Write(chunk, port.Headroom, f)
	return chunk[port.Headroom-n:]
}

// The frames must be equal, octet for octet, to those of an independent encoder.
func TestGoldenFrames(t *testing.T) {
	for _, payload := range []string{"", "x", "some octets"} {
		for _, tag := range []uint16{0, 100} {
			for _, v6 := range []bool{false, true} {
				for _, ect := range []bool{false, true} {
					t.Run(fmt.Sprintf("payload %d, VLAN %d, IPv6 %v, ECT %v", len(payload), tag, v6, ect), func(t *testing.T) {
						golden(t, []byte(payload), tag, v6, ect)
					})
				}
			}
		}
	}
}

func golden(t *testing.T, payload []byte, tag uint16, v6, ect bool) {
	h, src, dst := fields4(), packet.Our4, packet.Peer4
	if v6 {
		h, src, dst = fields6(), packet.Our6, packet.Peer6
	}
	link := packet.Link{SrcMAC: packet.OurMAC, DstMAC: packet.PeerMAC}
	if h.VLAN = tag; tag != 0 {
		h.Priority = 3
		link.VLAN, link.Priority = []uint16{tag}, 3
	}
	tos := uint8(0x28)
	if ect {
		tos |= 2 // ECT(0), RFC 3168 §5
	}
	want := packet.TCP{
		Link: link,
		IP:   packet.IP{Src: src, Dst: dst, TOS: tos, ID: 41, DF: true, FlowLabel: h.FlowLabel},
		Seq:  0xfffffff0, Ack: 9, Flags: "PA", Window: 500,
		TS: &packet.TS{Val: 1, Ecr: 2}, SACK: [][2]uint32{{20, 30}, {40, 50}, {60, 70}},
		Payload: payload,
	}.Bytes()
	f := wire.TCPFields{
		Seq: 0xfffffff0, Ack: 9, Flags: wire.PSH | wire.ACK, Window: 500, HasTS: true, TSVal: 1, TSEcr: 2,
		// A fourth block finds no room next to timestamps.
		SACK: [4]wire.SACKBlock{{Left: 20, Right: 30}, {Left: 40, Right: 50}, {Left: 60, Right: 70}, {Left: 80, Right: 90}}, NSACK: 4,
		ECT: ect,
	}
	tpl := template(t, h)
	if got := write(&tpl, &f, payload); !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
	partial(t, template(t, h), &f, payload, want)
}

// partial checks the frame of WritePartial: it needs only its checksum, and the receiver
// knows that from the checksum field.
func partial(t *testing.T, tpl wire.HeaderTemplate, f *wire.TCPFields, payload, want []byte) {
	chunk := append(make([]byte, port.Headroom), payload...)
	n, l4 := tpl.WritePartial(chunk, port.Headroom, f)
	frame := chunk[port.Headroom-n:]
	var p wire.Packet
	if why := wire.ParsePacket(frame, &p); why != wire.OK || p.L4 != l4 {
		t.Errorf("partial: %v; TCP header at %d, said to be at %d", why, p.L4, l4)
	}
	if why := p.VerifyChecksum(frame, false); why != wire.PartialChecksum {
		t.Errorf("partial: %v, want %v", why, wire.PartialChecksum)
	}
	if wire.Complete(frame, l4); !bytes.Equal(frame, want) {
		t.Errorf("completed % x\nwant      % x", frame, want)
	}
}

// Every packet of a flow has another identification (RFC 6864 §4.1).
func TestIDCounts(t *testing.T) {
	h := fields4()
	h.ID = 0xffff
	tpl := template(t, h)
	for _, want := range []uint16{0xffff, 0, 1} {
		b := write(&tpl, &wire.TCPFields{Flags: wire.ACK}, nil)
		ip, _, why := wire.ParseIPv4(b[wire.EthernetLen:])
		if why != wire.OK || ip.ID() != want || !ip.DontFragment() || ip.TTL() != 64 {
			t.Errorf("%v: id %d, want %d; DF %v, TTL %d", why, ip.ID(), want, ip.DontFragment(), ip.TTL())
		}
	}
}

func TestSetDstMAC(t *testing.T) {
	tpl := template(t, fields6())
	moved := wire.MAC{2, 0, 0, 0, 0, 9}
	tpl.SetDstMAC(moved)
	eth, _, _ := wire.ParseEthernet(write(&tpl, &wire.TCPFields{}, nil))
	if eth.Dst() != moved || tpl.DstMAC() != moved || eth.Src() != ourMAC {
		t.Errorf("from %v to %v", eth.Src(), eth.Dst())
	}
}

func TestSetSrcMAC(t *testing.T) {
	tpl := template(t, fields6())
	moved := wire.MAC{2, 0, 0, 0, 0, 9}
	before := tpl.DstMAC()
	tpl.SetSrcMAC(moved)
	eth, _, _ := wire.ParseEthernet(write(&tpl, &wire.TCPFields{}, nil))
	if eth.Src() != moved || tpl.SrcMAC() != moved || eth.Dst() != before {
		t.Errorf("from %v to %v", eth.Src(), eth.Dst())
	}
}

func TestTemplateMistakes(t *testing.T) {
	for want, spoil := range map[string]func(*wire.HeaderFields){
		"is not set":         func(h *wire.HeaderFields) { h.Dst = netip.AddrPort{} },
		"different families": func(h *wire.HeaderFields) { h.Src = fields6().Src },
		"unmap": func(h *wire.HeaderFields) {
			h.Src = netip.MustParseAddrPort("[::ffff:192.0.2.1]:1000")
			h.Dst = netip.MustParseAddrPort("[::ffff:192.0.2.2]:2000")
		},
		"port 0":         func(h *wire.HeaderFields) { h.Dst = netip.AddrPortFrom(h.Dst.Addr(), 0) },
		"VLAN id 4095":   func(h *wire.HeaderFields) { h.VLAN = 4095 },
		"VLAN priority":  func(h *wire.HeaderFields) { h.Priority = 8 },
		"ECN bits":       func(h *wire.HeaderFields) { h.TOS = 0x29 },
		"TTL is 0":       func(h *wire.HeaderFields) { h.TTL = 0 },
		"longer than 20": func(h *wire.HeaderFields) { h.FlowLabel = 1 << 20 },
		"IPv4 has no":    func(h *wire.HeaderFields) { h.FlowLabel = 1 },
	} {
		h := fields4()
		spoil(&h)
		if _, err := wire.NewHeaderTemplate(h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
	two := fields4()
	two.TTL, two.VLAN = 0, 5000
	_, err := wire.NewHeaderTemplate(two)
	if err == nil || !strings.Contains(err.Error(), "TTL") || !strings.Contains(err.Error(), "5000") {
		t.Errorf("two mistakes, one error: %v", err)
	}
}

// drawFields draws any header we may send.
func drawFields(t *rapid.T) wire.TCPFields {
	u32 := rapid.Uint32()
	f := wire.TCPFields{
		Seq: seq.Num(u32.Draw(t, "seq")), Ack: seq.Num(u32.Draw(t, "ack")),
		Flags: wire.TCPFlags(rapid.Byte().Draw(t, "flags")), Window: rapid.Uint16().Draw(t, "window"),
		HasTS: rapid.Bool().Draw(t, "has timestamps"),
	}
	most := 4
	if f.HasTS {
		f.TSVal, f.TSEcr = u32.Draw(t, "value"), u32.Draw(t, "echo")
		most = 3
	}
	f.NSACK = uint8(rapid.IntRange(0, most).Draw(t, "blocks"))
	for i := range f.NSACK {
		f.SACK[i] = wire.SACKBlock{Left: seq.Num(u32.Draw(t, "left")), Right: seq.Num(u32.Draw(t, "right"))}
	}
	return f
}

// An independent decoder and our own decoder read back the frames that the template
// writes, and both find the checksums right.
func TestWriteReadsBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := fields4()
		if rapid.Bool().Draw(rt, "IPv6") {
			h = fields6()
		}
		h.VLAN = rapid.Uint16Range(0, wire.MaxVLAN).Draw(rt, "VLAN")
		payload := rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(rt, "payload")
		f := drawFields(rt)
		tpl := template(t, h)
		b := write(&tpl, &f, payload)

		var p wire.Packet
		if why := wire.ParsePacket(b, &p); why != wire.OK {
			rt.Fatal(why)
		}
		want := f
		want.SrcPort, want.DstPort = h.Src.Port(), h.Dst.Port()
		if p.TCP != want || p.VLAN != h.VLAN || !bytes.Equal(p.Data(b), payload) {
			rt.Fatalf("read back %+v, want %+v", p, want)
		}
		if why := p.VerifyChecksum(b, false); why != wire.OK || p.Partial {
			rt.Fatal(why, p.Partial)
		}
		verifyByOthers(rt, b)
	})
}

// verifyByOthers has gopacket decode the frame and compute its checksums.
func verifyByOthers(t *rapid.T, b []byte) {
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	if e := p.ErrorLayer(); e != nil {
		t.Fatal(e.Error())
	}
	tcp := p.TransportLayer().(*layers.TCP)
	if err := tcp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	if err, result := tcp.VerifyChecksum(); err != nil || !result.Valid {
		t.Fatalf("TCP checksum %#x, gopacket wants %#x: %v", result.Actual, result.Correct, err)
	}
	if ip, ok := p.NetworkLayer().(*layers.IPv4); ok {
		if err, result := ip.VerifyChecksum(); err != nil || !result.Valid {
			t.Fatalf("IP checksum %#x, gopacket wants %#x: %v", result.Actual, result.Correct, err)
		}
	}
}

func TestWriteAllocatesNothing(t *testing.T) {
	for _, h := range []wire.HeaderFields{fields4(), fields6()} {
		tpl := template(t, h)
		chunk := make([]byte, 2048)
		f := wire.TCPFields{HasTS: true, NSACK: 3}
		if n := testing.AllocsPerRun(100, func() { tpl.Write(chunk, port.Headroom, &f) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// The longest headers fit in front of the payload, and no header writes in
// front of its own beginning.
func TestHeadroomSuffices(t *testing.T) {
	h := fields6()
	h.VLAN = 1
	tpl := template(t, h)
	f := wire.TCPFields{HasTS: true, NSACK: 4}
	if n := tpl.Len(&f); n > port.Headroom {
		t.Fatalf("headers take %d octets, headroom is %d", n, port.Headroom)
	}
	chunk := bytes.Repeat([]byte{0xee}, 2*port.Headroom)
	n := tpl.Write(chunk, port.Headroom, &f)
	for i, octet := range chunk[:port.Headroom-n] {
		if octet != 0xee {
			t.Errorf("octet %d in front of the frame was written", i)
		}
	}
	for i, octet := range chunk[port.Headroom:] {
		if octet != 0xee {
			t.Errorf("octet %d of the payload was written", i)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{0, 1448} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tpl := template(b, fields4())
			chunk := make([]byte, port.Headroom+n)
			f := wire.TCPFields{Flags: wire.ACK, HasTS: true}
			b.SetBytes(int64(n + tpl.Len(&f)))
			b.ReportAllocs()
			for b.Loop() {
				tpl.Write(chunk, port.Headroom, &f)
			}
		})
	}
}
