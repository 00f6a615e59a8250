package dump

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/wire"
	packets "github.com/stag-rdma/stag/test/packet"
)

// at is the time of every packet in these tests.
var at = time.Date(2026, 11, 21, 17, 4, 5, 123456000, time.Local)

// frame returns a segment from one address to another.
func frame(t testing.TB, f wire.HeaderFields, h wire.TCPFields, payload []byte) []byte {
	t.Helper()
	if !f.Src.IsValid() {
		f.Src, f.Dst = netip.MustParseAddrPort("192.0.2.1:7174"), netip.MustParseAddrPort("192.0.2.2:40000")
	}
	f.DstMAC, f.SrcMAC, f.TTL = wire.MAC{2, 0, 0, 0, 0, 2}, wire.MAC{2, 0, 0, 0, 0, 1}, 64
	head, err := wire.NewHeaderTemplate(f)
	if err != nil {
		t.Fatal(err)
	}
	b := append(make([]byte, port.Headroom), payload...)
	return b[port.Headroom-head.Write(b, port.Headroom, &h):]
}

// captured returns a frame as an engine passes it to a capture.
func captured(b []byte) report.Packet {
	return report.Packet{At: at, Device: "eth1", Queue: 3, Out: true, Flow: 0x100003, QP: 7, Length: len(b), Data: b}
}

// fpdu returns an FPDU with a CRC of zeros. These tests do not check the CRC.
func fpdu(ulpdu []byte) []byte {
	b := append([]byte{byte(len(ulpdu) >> 8), byte(len(ulpdu))}, ulpdu...)
	return append(b, make([]byte, wire.FPDULen(len(ulpdu))-len(b))...)
}

// tagged and untagged return FPDUs with n octets of payload, or with the given payload.
func tagged(f wire.TaggedFields, n int) []byte {
	return fpdu(append(f.Append(nil), make([]byte, n)...))
}

func untagged(f wire.UntaggedFields, payload []byte) []byte {
	return fpdu(append(f.Append(nil), payload...))
}

const before = "17:04:05.123456 eth1 Out queue 3 flow 0x100003 qp 7 IP 192.0.2.1:7174 > 192.0.2.2:40000: Flags [P.], seq 1000"

var seg = wire.TCPFields{Seq: 1000, Ack: 2000, Flags: wire.ACK | wire.PSH, Window: 512}

func TestOperations(t *testing.T) {
	read := wire.ReadRequestFields{SinkSTag: 0x101, SinkTO: 4096, Size: 65536, SourceSTag: 0x202, SourceTO: 8}
	for name, c := range map[string]struct {
		payload []byte
		kind    Kind
		text    string
	}{
		"write": {tagged(wire.TaggedFields{Last: true, Opcode: wire.OpWrite, STag: 0x1234, TO: 4096}, 100), Write,
			":1120, ack 2000, win 512, length 120: RDMA Write stag 0x00001234 offset 4096 length 100 last"},
		"empty write": {tagged(wire.TaggedFields{Last: true, Opcode: wire.OpWrite, STag: 0, TO: 0}, 0), Write,
			":1020, ack 2000, win 512, length 20: RDMA Write stag 0x00000000 offset 0 length 0 last"},
		"read response": {tagged(wire.TaggedFields{Opcode: wire.OpReadResponse, STag: 0x1234, TO: 1 << 40}, 6), ReadResponse,
			":1028, ack 2000, win 512, length 28: RDMA Read Response stag 0x00001234 offset 1099511627776 length 6"},
		"read request": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpReadRequest, Queue: 1, MSN: 5}, read.Append(nil)), ReadRequest,
			":1052, ack 2000, win 512, length 52: RDMA Read Request msn 5 offset 0 sink 0x00000101 offset 4096 source 0x00000202 offset 8 length 65536"},
		"send": {untagged(wire.UntaggedFields{Opcode: wire.OpSend, MSN: 9, MO: 1424}, make([]byte, 10)), Send,
			":1036, ack 2000, win 512, length 36: Send msn 9 offset 1424 length 10"},
		"send with invalidate": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpSendSEInvalidate, Invalidate: 0x77, MSN: 9}, nil), Send,
			":1024, ack 2000, win 512, length 24: Send with Solicited Event and Invalidate msn 9 offset 0 stag 0x00000077 length 0 last"},
		"send with immediate": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpSendImm, Invalidate: 0x77, MSN: 9}, make([]byte, 8)), Send,
			":1032, ack 2000, win 512, length 32: Send with Immediate msn 9 offset 0 data 0x0000000000000077 length 8 last"},
		"terminate": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpTerminate, Queue: 2, MSN: 1}, wire.TerminateFields{Layer: 1, Type: 1, Code: 2}.Append(nil)), Terminate,
			":1028, ack 2000, win 512, length 28: Terminate msn 1 offset 0 layer 1 type 1 code 2"},
		"immediate": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpImmediateSE, MSN: 9}, wire.AppendImmediate(nil, 0x1122)), Immediate,
			":1032, ack 2000, win 512, length 32: Immediate Data with Solicited Event msn 9 offset 0 data 0x0000000000001122"},
		"atomic request": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpAtomicRequest, Queue: 1, MSN: 5},
			wire.AtomicRequestFields{Op: wire.CmpSwap, ID: 6, STag: 0x101, TO: 4096, Data: 1, Mask: 2, Compare: 3, CompareMask: 4}.Append(nil)), AtomicRequest,
			":1076, ack 2000, win 512, length 76: Atomic Request msn 5 offset 0 id 6 CmpSwap stag 0x00000101 offset 4096 data 0x0000000000000001 mask 0x0000000000000002 compare 0x0000000000000003 mask 0x0000000000000004"},
		"atomic response": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpAtomicResponse, Queue: 3, MSN: 5}, wire.AtomicResponseFields{ID: 6, Value: 7}.Append(nil)), AtomicResponse,
			":1036, ack 2000, win 512, length 36: Atomic Response msn 5 offset 0 id 6 original 0x0000000000000007"},
		"cut atomic request": {untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpAtomicRequest, Queue: 1, MSN: 5}, make([]byte, 52))[:40], AtomicRequest,
			":1040, ack 2000, win 512, length 40: Atomic Request msn 5 offset 0 length 52 last"},
		"behind a Marker": {append(make([]byte, 4), tagged(wire.TaggedFields{Opcode: wire.OpWrite, STag: 1, TO: 2}, 3)...), Write,
			":1028, ack 2000, win 512, length 28: RDMA Write stag 0x00000001 offset 2 length 3"},
		"cut":               {tagged(wire.TaggedFields{Opcode: wire.OpWrite, STag: 1, TO: 2}, 1000)[:300], Write, ":1300, ack 2000, win 512, length 300: RDMA Write stag 0x00000001 offset 2 length 1000"},
		"cut header":        {tagged(wire.TaggedFields{Opcode: wire.OpWrite, STag: 1, TO: 2}, 1000)[:15], Data, ":1015, ack 2000, win 512, length 15"},
		"one octet":         {[]byte{5}, Data, ":1001, ack 2000, win 512, length 1"},
		"zeros":             {make([]byte, 100), Data, ":1100, ack 2000, win 512, length 100"},
		"text":              {[]byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), Data, ":1037, ack 2000, win 512, length 37"},
		"reserved bit":      {fpdu(append([]byte{0x81 | 0x04, 0x40}, make([]byte, 12)...)), Data, ":1020, ack 2000, win 512, length 20"},
		"DDP version 0":     {fpdu(append([]byte{0x80, 0x40}, make([]byte, 12)...)), Data, ":1020, ack 2000, win 512, length 20"},
		"RDMAP version 0":   {fpdu(append([]byte{0x81, 0x00}, make([]byte, 12)...)), Data, ":1020, ack 2000, win 512, length 20"},
		"tagged send":       {fpdu(append([]byte{0x81, 0x43}, make([]byte, 12)...)), Data, ":1020, ack 2000, win 512, length 20"},
		"send on queue 1":   {untagged(wire.UntaggedFields{Opcode: wire.OpSend, Queue: 1, MSN: 1}, nil), Data, ":1024, ack 2000, win 512, length 24"},
		"untagged write":    {untagged(wire.UntaggedFields{Opcode: wire.OpWrite, MSN: 1}, nil), Data, ":1024, ack 2000, win 512, length 24"},
		"an opcode of none": {untagged(wire.UntaggedFields{Opcode: 14, Queue: 1, MSN: 1}, nil), Data, ":1024, ack 2000, win 512, length 24"},
		"no length":         {[]byte{0, 0, 0x81, 0x40, 1, 2, 3, 4}, Data, ":1008, ack 2000, win 512, length 8"},
	} {
		t.Run(name, func(t *testing.T) {
			var r reader
			l := r.read(captured(frame(t, wire.HeaderFields{}, seg, c.payload)), false)
			if got, want := text(l, false), before+c.text; got != want || l.Kind != c.kind {
				t.Errorf("%s:\n%s, want %s\n%s", l.Kind, got, c.kind, want)
			}
		})
	}
}

// TestSegments: read parses TCP segments and the headers in front of them.
func TestSegments(t *testing.T) {
	v6 := wire.HeaderFields{VLAN: 100, Src: netip.MustParseAddrPort("[2001:db8::1]:7174"), Dst: netip.MustParseAddrPort("[2001:db8::2]:40000")}
	for want, c := range map[string]struct {
		f    wire.HeaderFields
		h    wire.TCPFields
		n    int
		kind Kind
	}{
		"IP 192.0.2.1:7174 > 192.0.2.2:40000: Flags [.], seq 5, ack 6, win 7, length 0":        {h: wire.TCPFields{Seq: 5, Ack: 6, Flags: wire.ACK, Window: 7}, kind: Ack},
		"IP 192.0.2.1:7174 > 192.0.2.2:40000: Flags [F.], seq 5, ack 6, win 7, length 0":       {h: wire.TCPFields{Seq: 5, Ack: 6, Flags: wire.ACK | wire.FIN, Window: 7}, kind: Ack},
		"IP 192.0.2.1:7174 > 192.0.2.2:40000: Flags [R], seq 5, win 0, length 0":               {h: wire.TCPFields{Seq: 5, Flags: wire.RST}, kind: Ack},
		"IP 192.0.2.1:7174 > 192.0.2.2:40000: Flags [none], seq 4294967295:1, win 0, length 2": {h: wire.TCPFields{Seq: 0xffffffff}, n: 2, kind: Data},
		"vlan 100 IP6 [2001:db8::1]:7174 > [2001:db8::2]:40000: Flags [.], seq 5, ack 6, win 7, options [TS val 8 ecr 9,sack 2 {1:2}{3:4}], length 0": {f: v6, kind: Ack,
			h: wire.TCPFields{Seq: 5, Ack: 6, Flags: wire.ACK, Window: 7, HasTS: true, TSVal: 8, TSEcr: 9, NSACK: 2, SACK: [4]wire.SACKBlock{{Left: 1, Right: 2}, {Left: 3, Right: 4}}}},
	} {
		var r reader
		p := captured(frame(t, c.f, c.h, make([]byte, c.n)))
		p.Out, p.QP, p.Flow = false, 0, 0
		l := r.read(p, false)
		l.PID = 42
		if got := text(l, true); got != "17:04:05.123456 pid 42 eth1 In  queue 3 "+want || l.Kind != c.kind {
			t.Errorf("%s: %s\nwant %s: %s", l.Kind, got, c.kind, want)
		}
	}
}

// TestStrange: read handles packets that are not TCP segments.
func TestStrange(t *testing.T) {
	var r reader
	l := r.read(captured(make([]byte, 60)), false)
	if l.Kind != Other || !strings.HasSuffix(text(l, false), "), length 60") || l.Problem == "" {
		t.Errorf("%s: %s", l.Kind, text(l, false))
	}
	if l = r.read(captured(nil), false); l.Kind != Other {
		t.Errorf("%s: %s", l.Kind, text(l, false))
	}
	quote := frame(t, wire.HeaderFields{}, seg, make([]byte, 1000))
	l = r.read(captured(packets.TooBig{IP: packets.IP{Src: "198.51.100.1:0", Dst: "192.0.2.1:0"}, MTU: 1280, Quote: quote}.Bytes()), false)
	want := "IP 198.51.100.1 > 192.0.2.1: ICMP packet too big, mtu 1280: seq 1000 of 192.0.2.1:7174 > 192.0.2.2:40000"
	if got := text(l, false); l.Kind != ICMP || !strings.HasSuffix(got, want) {
		t.Errorf("%s: %s, want %s", l.Kind, got, want)
	}
	l = r.read(captured(packets.UDP{}.Bytes()), false)
	if l.Kind != Other || !strings.Contains(text(l, false), "not taken apart (") {
		t.Errorf("%s: %s", l.Kind, text(l, false))
	}
}

// TestCutShort: read reports nothing about octets beyond the snap length.
func TestCutShort(t *testing.T) {
	whole := frame(t, wire.HeaderFields{}, seg, untagged(wire.UntaggedFields{Last: true, Opcode: wire.OpReadRequest, Queue: 1, MSN: 5}, make([]byte, 28)))
	var r reader
	full := r.read(captured(whole), false)
	for n := range len(whole) {
		p := captured(whole)
		p.Data = whole[:n]
		l := r.read(p, false)
		switch {
		case n < 54:
			if l.RDMA != nil {
				t.Errorf("%d octets: an operation", n)
			}
		case n < 54+2+wire.UntaggedLen:
			if l.Kind != Data || l.RDMA != nil || l.TCP.Length != full.TCP.Length {
				t.Errorf("%d octets: %+v", n, l)
			}
		case n < 54+2+wire.UntaggedLen+wire.ReadRequestLen:
			if l.Kind != ReadRequest || l.RDMA.Read != nil || *l.RDMA.MSN != 5 {
				t.Errorf("%d octets: %+v", n, l)
			}
		default:
			if !reflect.DeepEqual(l, full) {
				t.Errorf("%d octets: %+v, want %+v", n, l, full)
			}
		}
	}
}

// TestNoise: read rarely takes random payload for an FPDU.
func TestNoise(t *testing.T) {
	noise := rand.NewChaCha8([32]byte{1})
	b := make([]byte, 64)
	wrong := 0
	const tries = 200000
	for range tries {
		noise.Read(b)
		if _, _, ok := parseOperation(b); ok {
			wrong++
		}
	}
	if wrong > tries/5000 { // 2 in 256 times 2 in 256 are expected
		t.Errorf("%d of %d", wrong, tries)
	}
}

func TestParseKinds(t *testing.T) {
	if got, err := ParseKinds([]string{"write", " ack"}); err != nil || !reflect.DeepEqual(got, []Kind{Write, Ack}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseKinds([]string{"writes"}); err == nil || !strings.Contains(err.Error(), `"writes": choose of write,read-request,`) {
		t.Errorf("%v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(frame(f, wire.HeaderFields{}, seg, tagged(wire.TaggedFields{Opcode: wire.OpWrite}, 9)), 9)
	f.Add(frame(f, wire.HeaderFields{}, seg, untagged(wire.UntaggedFields{Opcode: wire.OpTerminate, Queue: 2, MSN: 1}, wire.TerminateFields{Layer: 1}.Append(nil))), 0)
	f.Add(frame(f, wire.HeaderFields{}, seg, octets(f, "21800002 00000014 00000000 00000000 1eb483e5 00000000 00000001 7f160c71 7f160cf1 00000000 00000000 00000000 0012 70000600 0000000a 00000000 29000000 0000")), 1)
	f.Fuzz(func(t *testing.T, b []byte, more int) {
		p := captured(b)
		p.Length += more & 0xffff
		var r reader
		l := r.read(p, false)
		if more&1 != 0 {
			l = r.read(p, true)
		}
		if s := text(l, true); strings.ContainsAny(s, "\n\r\x1b") {
			t.Errorf("%q", s)
		}
		if _, err := json.Marshal(l); err != nil {
			t.Error(err)
		}
	})
}
