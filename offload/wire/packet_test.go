package wire_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

var (
	ours  = packet.TCP{IP: packet.IP{Src: packet.Our4, Dst: packet.Peer4, DF: true}, Seq: 77, Payload: make([]byte, 100)}.Bytes()
	ours6 = packet.TCP{IP: packet.IP{Src: packet.Our6, Dst: packet.Peer6}, Seq: 77, Payload: make([]byte, 100)}.Bytes()
)

// set returns b with octets replaced from off on.
func set(b []byte, off int, octets ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[off:], octets)
	return b
}

func TestReasons(t *testing.T) {
	v6 := packet.IP{V6: true}
	for name, c := range map[string]struct {
		frame []byte
		want  wire.Reason
	}{
		"TCP":                     {packet.TCP{}.Bytes(), wire.OK},
		"TCP over IPv6":           {packet.TCP{IP: v6}.Bytes(), wire.OK},
		"empty":                   {nil, wire.Short},
		"Ethernet cut":            {make([]byte, 13), wire.Short},
		"Ethernet alone":          {packet.Ethernet{Type: 0x0800}.Bytes(), wire.Short},
		"IPv6 Ethernet alone":     {packet.Ethernet{Type: 0x86dd}.Bytes(), wire.Short},
		"tag cut":                 {packet.Ethernet{Type: 0x8100, Payload: []byte{0, 1, 8}}.Bytes(), wire.Short},
		"two tags":                {packet.TCP{Link: packet.Link{VLAN: []uint16{1, 2}}}.Bytes(), wire.NotIP},
		"ARP":                     {packet.ARP{}.Bytes(), wire.NotIP},
		"IPv6 as IPv4":            {set(ours6, 12, 0x08, 0x00), wire.BadVersion},
		"IPv4 as IPv6":            {set(ours, 12, 0x86, 0xdd), wire.BadVersion},
		"IPv4 header of 4 words":  {set(ours, 14, 0x44), wire.BadLength},
		"IPv4 options":            {packet.TCP{IP: packet.IP{Options: 1}}.Bytes(), wire.IPOptions},
		"IPv4 longer than frame":  {packet.TCP{IP: packet.IP{LengthChange: 1}}.Bytes(), wire.BadLength},
		"IPv4 shorter than self":  {packet.TCP{IP: packet.IP{LengthChange: -21}}.Bytes(), wire.BadLength},
		"IPv6 longer than frame":  {packet.TCP{IP: packet.IP{V6: true, LengthChange: 1}}.Bytes(), wire.BadLength},
		"IPv6 hop by hop":         {packet.TCP{IP: packet.IP{V6: true, HopByHop: true}}.Bytes(), wire.Extension},
		"first fragment":          {packet.TCP{IP: packet.IP{More: true}}.Bytes(), wire.Fragment},
		"last fragment":           {packet.TCP{IP: packet.IP{Offset: 1}}.Bytes(), wire.Fragment},
		"IPv6 first fragment":     {packet.TCP{IP: packet.IP{V6: true, More: true}}.Bytes(), wire.Fragment},
		"UDP":                     {packet.UDP{}.Bytes(), wire.OtherProtocol},
		"UDP over IPv6":           {packet.UDP{IP: v6}.Bytes(), wire.OtherProtocol},
		"ICMPv6 over IPv4":        {set(ours, 23, 58), wire.OtherProtocol},
		"echo":                    {packet.Echo{}.Bytes(), wire.OtherICMP},
		"echo over IPv6":          {packet.Echo{IP: v6}.Bytes(), wire.OtherICMP},
		"TCP cut by IP length":    {packet.TCP{IP: packet.IP{LengthChange: -1}}.Bytes(), wire.Short},
		"TCP header of 4 words":   {set(ours, 46, 0x40), wire.BadTCPHeader},
		"TCP header over the end": {set(packet.TCP{}.Bytes(), 46, 0x60), wire.BadTCPHeader},
		"too big":                 {packet.TooBig{MTU: 1400, Quote: ours}.Bytes(), wire.OK},
		"too big over IPv6":       {packet.TooBig{IP: v6, MTU: 1400, Quote: ours6}.Bytes(), wire.OK},
		"too big, 7 octets":       {packet.TooBig{MTU: 1400, Quote: ours, Cut: 27}.Bytes(), wire.BadQuote},
		"too big 6, 7 octets":     {packet.TooBig{IP: v6, MTU: 1400, Quote: ours6, Cut: 47}.Bytes(), wire.BadQuote},
		"too big, no header":      {packet.TooBig{MTU: 1400, Quote: ours, Cut: 19}.Bytes(), wire.BadQuote},
		"too big of UDP":          {packet.TooBig{MTU: 1400, Quote: packet.UDP{}.Bytes()}.Bytes(), wire.BadQuote},
		"too big of a fragment":   {packet.TooBig{MTU: 1400, Quote: packet.TCP{IP: packet.IP{Offset: 9}}.Bytes()}.Bytes(), wire.BadQuote},
		"too big 6 of UDP":        {packet.TooBig{IP: v6, MTU: 1400, Quote: packet.UDP{IP: v6}.Bytes()}.Bytes(), wire.BadQuote},
		"too big of the wrong IP": {packet.TooBig{MTU: 1400, Quote: ours6}.Bytes(), wire.BadQuote},
		"ICMP cut":                {packet.TooBig{MTU: 1400, Quote: ours, IP: packet.IP{LengthChange: -29}}.Bytes(), wire.Short},
	} {
		t.Run(name, func(t *testing.T) {
			var p wire.Packet
			if got := wire.ParsePacket(c.frame, &p); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A frame cut anywhere must be refused: every header boundary and every octet
// between.
func TestTruncationAnywhere(t *testing.T) {
	for name, frame := range map[string][]byte{
		"IPv4": packet.TCP{Link: packet.Link{VLAN: []uint16{9}}, TS: &packet.TS{}, Payload: []byte("abc")}.Bytes(),
		"IPv6": packet.TCP{IP: packet.IP{V6: true}, TS: &packet.TS{}, Payload: []byte("abc")}.Bytes(),
		"ICMP": packet.TooBig{MTU: 1, Quote: ours}.Bytes(),
	} {
		var p wire.Packet
		for n := range frame {
			if wire.ParsePacket(frame[:n:n], &p) == wire.OK {
				t.Errorf("%s cut to %d of %d octets was taken", name, n, len(frame))
			}
		}
	}
}

func TestFieldsOfSegment(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			b := packet.TCP{
				Link: packet.Link{VLAN: []uint16{100}, Priority: 5, Pad: 3},
				IP:   packet.IP{V6: v6, TOS: 0xab}, // CE
				Seq:  0x01020304, Ack: 0x05060708, Flags: "PAE", Window: 0x1234,
				TS:      &packet.TS{Val: 0xa, Ecr: 0xb},
				SACK:    [][2]uint32{{1, 2}, {3, 4}, {5, 6}},
				Payload: []byte("payload"),
			}.Bytes()
			b = slices.Clip(b)
			var p wire.Packet
			if why := wire.ParsePacket(b, &p); why != wire.OK {
				t.Fatal(why)
			}
			want := wire.TCPFields{
				SrcPort: 2000, DstPort: 1000, Seq: 0x01020304, Ack: 0x05060708,
				Flags: wire.PSH | wire.ACK | wire.ECE, Window: 0x1234,
				HasTS: true, TSVal: 0xa, TSEcr: 0xb,
				SACK: [4]wire.SACKBlock{{Left: 1, Right: 2}, {Left: 3, Right: 4}, {Left: 5, Right: 6}}, NSACK: 3,
			}
			if p.TCP != want {
				t.Errorf("fields %+v, want %+v", p.TCP, want)
			}
			if p.VLAN != 100 || !p.CE || p.ICMP || p.BadOptions || p.L3 != 18 {
				t.Errorf("packet %+v", p)
			}
			if got := p.Data(b); string(got) != "payload" || cap(got) != len("payload")+3 {
				t.Errorf("payload %q, capacity %d", got, cap(got))
			}
			if wire.MAC(p.SrcMAC(b)).String() != packet.PeerMAC || wire.MAC(p.DstMAC(b)).String() != packet.OurMAC {
				t.Errorf("MAC addresses % x, % x", p.SrcMAC(b), p.DstMAC(b))
			}
			if why := p.VerifyChecksum(b, false); why != wire.OK {
				t.Errorf("checksums: %v", why)
			}
		})
	}
}

func TestOptions(t *testing.T) { // RFC 9293 §3.1, RFC 7323 §3.2, RFC 2018 §3
	ts := []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 2}
	for name, c := range map[string]struct {
		raw   []byte
		ts    bool
		nsack uint8
		bad   bool
	}{
		"none":                   {nil, false, 0, false},
		"timestamps unaligned":   {append(bytes.Clone(ts), 1, 1), true, 0, false},
		"unknown before":         {append([]byte{253, 6, 0, 0, 0, 0}, append(ts, 0, 0, 0, 0)[:14]...), true, 0, false},
		"end hides the rest":     {append([]byte{0, 1}, ts...), false, 0, false},
		"length 0":               {[]byte{8, 0, 1, 1}, false, 0, true},
		"length 1":               {[]byte{8, 1, 1, 1}, false, 0, true},
		"length beyond":          {[]byte{8, 10, 0, 0}, false, 0, true},
		"kind without length":    {[]byte{1, 1, 1, 8}, false, 0, true},
		"timestamps of length 8": {[]byte{8, 8, 0, 0, 0, 1, 0, 0}, false, 0, false},
		"SACK of no block":       {[]byte{5, 2, 1, 1}, false, 0, false},
		"SACK of half a block":   {[]byte{5, 6, 0, 0, 0, 1, 1, 1}, false, 0, false},
		"SACK of one block":      {[]byte{1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2}, false, 1, false},
		"good before bad":        {append(append([]byte{1, 1}, ts...), 9, 1, 1, 1), true, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := packet.TCP{Raw: c.raw, Payload: []byte{1}}.Bytes()
			var p wire.Packet
			if why := wire.ParsePacket(b, &p); why != wire.OK {
				t.Fatal(why)
			}
			if p.TCP.HasTS != c.ts || p.TCP.NSACK != c.nsack || p.BadOptions != c.bad {
				t.Errorf("timestamps %v, SACK %d, bad %v", p.TCP.HasTS, p.TCP.NSACK, p.BadOptions)
			}
			if c.ts && (p.TCP.TSVal != 1 || p.TCP.TSEcr != 2) {
				t.Errorf("timestamps %d, %d", p.TCP.TSVal, p.TCP.TSEcr)
			}
		})
	}
}

func TestSecondSACKReplacesFirst(t *testing.T) {
	two := []byte{5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4}
	one := []byte{5, 10, 0, 0, 0, 9, 0, 0, 0, 10}
	var p wire.Packet
	wire.ParsePacket(packet.TCP{Raw: append(two, one...)}.Bytes(), &p)
	if p.TCP.NSACK != 1 || p.TCP.SACK != [4]wire.SACKBlock{{Left: 9, Right: 10}} {
		t.Errorf("%d blocks: %v", p.TCP.NSACK, p.TCP.SACK)
	}
}

func TestTooBig(t *testing.T) { // RFC 1191 §4, RFC 4443 §3.2
	for name, c := range map[string]struct {
		frame    []byte
		src, dst []byte
		mtu      uint32
	}{
		"IPv4":         {packet.TooBig{MTU: 1400, Quote: ours}.Bytes(), ours[26:30], ours[30:34], 1400},
		"IPv4, old":    {packet.TooBig{MTU: 0, Quote: ours}.Bytes(), ours[26:30], ours[30:34], 0},
		"IPv4, tagged": {packet.TooBig{Link: packet.Link{VLAN: []uint16{3}}, MTU: 1400, Quote: ours, Cut: 60}.Bytes(), ours[26:30], ours[30:34], 1400},
		"IPv6":         {packet.TooBig{IP: packet.IP{V6: true}, MTU: 70000, Quote: ours6, Cut: 48}.Bytes(), ours6[22:38], ours6[38:54], 70000},
	} {
		t.Run(name, func(t *testing.T) {
			var p wire.Packet
			if why := wire.ParsePacket(c.frame, &p); why != wire.OK || !p.ICMP {
				t.Fatal(why, p.ICMP)
			}
			q := p.TooBig
			if q.MTU != c.mtu || q.SrcPort != 1000 || q.DstPort != 2000 || q.Seq != seq.Num(77) {
				t.Errorf("%+v", q)
			}
			if !bytes.Equal(q.Src, c.src) || !bytes.Equal(q.Dst, c.dst) {
				t.Errorf("quoted addresses % x, % x", q.Src, q.Dst)
			}
			if why := p.VerifyChecksum(c.frame, false); why != wire.OK {
				t.Errorf("checksums: %v", why)
			}
		})
	}
}

func TestChecksums(t *testing.T) {
	v6 := packet.IP{V6: true}
	for name, c := range map[string]struct {
		frame   []byte
		accept  bool
		want    wire.Reason
		partial bool
	}{
		"bad IP":              {packet.TCP{IP: packet.IP{BadSum: true}}.Bytes(), true, wire.BadIPChecksum, false},
		"bad TCP":             {packet.TCP{Sum: packet.SumWrong}.Bytes(), true, wire.BadTCPChecksum, false},
		"bad TCP over IPv6":   {packet.TCP{IP: v6, Sum: packet.SumWrong}.Bytes(), true, wire.BadTCPChecksum, false},
		"partial":             {packet.TCP{Sum: packet.SumPartial, Payload: []byte("abc")}.Bytes(), false, wire.PartialChecksum, true},
		"partial over IPv6":   {packet.TCP{IP: v6, Sum: packet.SumPartial}.Bytes(), false, wire.PartialChecksum, true},
		"accepted":            {packet.TCP{Sum: packet.SumPartial, Payload: []byte("abc")}.Bytes(), true, wire.OK, true},
		"accepted over IPv6":  {packet.TCP{IP: v6, Sum: packet.SumPartial}.Bytes(), true, wire.OK, true},
		"padding not covered": {packet.TCP{Link: packet.Link{Pad: 5}, Payload: []byte("abc")}.Bytes(), false, wire.OK, false},
		"bad ICMP":            {packet.TooBig{Quote: ours, BadSum: true}.Bytes(), true, wire.BadICMPChecksum, false},
		"bad ICMPv6":          {packet.TooBig{IP: v6, Quote: ours6, BadSum: true}.Bytes(), true, wire.BadICMPChecksum, false},
	} {
		t.Run(name, func(t *testing.T) {
			var p wire.Packet
			if why := wire.ParsePacket(c.frame, &p); why != wire.OK {
				t.Fatal(why)
			}
			if got := p.VerifyChecksum(c.frame, c.accept); got != c.want || p.Partial != c.partial {
				t.Errorf("got %q, partial %v; want %q, %v", got, p.Partial, c.want, c.partial)
			}
		})
	}
}

// A sender may write 0xffff where computing the sum gives 0 (RFC 1071 §2).
func TestBothZeroes(t *testing.T) {
	for w := range 0x10000 {
		b := packet.TCP{Window: uint16(w)}.Bytes()
		if b[50] != 0 || b[51] != 0 {
			continue
		}
		for _, sum := range []packet.Sum{packet.SumRight, packet.SumFFFF} {
			b := packet.TCP{Window: uint16(w), Sum: sum}.Bytes()
			var p wire.Packet
			wire.ParsePacket(b, &p)
			if why := p.VerifyChecksum(b, false); why != wire.OK {
				t.Errorf("checksum % x: %v", b[50:52], why)
			}
		}
		return
	}
	t.Fatal("no window gives a checksum of 0")
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range wire.NumReasons {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d is named %q", r, r)
		}
		seen[r.String()] = true
	}
	if wire.NumReasons.String() != "unknown_reason" {
		t.Error("a reason out of range has a name")
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	b := packet.TCP{TS: &packet.TS{}, SACK: [][2]uint32{{1, 2}}, Payload: make([]byte, 1000)}.Bytes()
	var p wire.Packet
	if n := testing.AllocsPerRun(100, func() {
		if wire.ParsePacket(b, &p) != wire.OK || p.VerifyChecksum(b, false) != wire.OK {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParseAndVerify(b *testing.B) {
	frame := packet.TCP{TS: &packet.TS{}, Payload: make([]byte, 1448)}.Bytes()
	var p wire.Packet
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if wire.ParsePacket(frame, &p) != wire.OK || p.VerifyChecksum(frame, false) != wire.OK {
			b.Fatal("refused")
		}
	}
}
