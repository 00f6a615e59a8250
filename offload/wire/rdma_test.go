package wire_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// unhex reads hexadecimal digits, between which there may be spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The CRCs of RFC 7143 appendix A.4, and the customary check value.
func TestCRC32C(t *testing.T) {
	rising, falling := make([]byte, 32), make([]byte, 32)
	for i := range rising {
		rising[i], falling[31-i] = byte(i), byte(i)
	}
	read10 := unhex(t, "01c00000 00000000 00000000 00000000 14000000 00000400"+
		"00000014 00000018 28000000 00000000 02000000 00000000")
	for _, c := range []struct {
		data []byte
		want string // on the wire
	}{
		{make([]byte, 32), "aa36918a"},
		{bytes.Repeat([]byte{0xff}, 32), "43aba862"},
		{rising, "4e79dd46"},
		{falling, "5cdb3f11"},
		{[]byte("123456789"), "839206e3"},
		{read10, "563a96d9"},
		{[]byte("abc\x00"), "4c0e9434"},
	} {
		got := make([]byte, wire.CRCLen)
		wire.PutCRC32C(got, wire.CRC32C(c.data))
		if !bytes.Equal(got, unhex(t, c.want)) {
			t.Errorf("CRC of % x is %x, want %s", c.data, got, c.want)
		}
		if wire.ReadCRC32C(got) != wire.CRC32C(c.data) {
			t.Errorf("%x is read as %08x", got, wire.ReadCRC32C(got))
		}
		for i := range c.data {
			if crc := wire.UpdateCRC32C(wire.CRC32C(c.data[:i]), c.data[i:]); crc != wire.CRC32C(c.data) {
				t.Errorf("in two pieces, of %d octets and the rest, the CRC is %08x", i, crc)
			}
		}
	}
}

// DDP segments as tshark and siw understand them, and the fields of each.
var segments = []struct {
	name   string
	ulpdu  string
	header interface{ Append([]byte) []byte }
	behind interface{ Append([]byte) []byte } // nil: payload
}{
	{"RTR Write", "c140 00000001 0000000000000000",
		wire.TaggedFields{Last: true, Opcode: wire.OpWrite, STag: 1}, nil},
	{"Write", "c140 12345678 0000000000001000 68656c6c6f",
		wire.TaggedFields{Last: true, Opcode: wire.OpWrite, STag: 0x12345678, TO: 0x1000}, payload("hello")},
	{"Write, more to come", "8140 12345678 fedcba9876543210 68656c6c6f",
		wire.TaggedFields{Opcode: wire.OpWrite, STag: 0x12345678, TO: 0xfedcba9876543210}, payload("hello")},
	{"Send", "4143 00000000 00000000 00000001 00000000 70696e67",
		wire.UntaggedFields{Last: true, Opcode: wire.OpSend, MSN: 1}, payload("ping")},
	{"Send, more to come", "0143 00000000 00000000 00000001 00000004 70696e67",
		wire.UntaggedFields{Opcode: wire.OpSend, MSN: 1, MO: 4}, payload("ping")},
	{"Send with Invalidate", "4144 abcdef01 00000000 00000002 00000000",
		wire.UntaggedFields{Last: true, Opcode: wire.OpSendInvalidate, Invalidate: 0xabcdef01, MSN: 2}, nil},
	{"Read Request", "4141 00000000 00000001 00000001 00000000 00000100 0000000000002000 00001000 00000200 0000000000003000",
		wire.UntaggedFields{Last: true, Opcode: wire.OpReadRequest, Queue: wire.QueueReadRequest, MSN: 1},
		wire.ReadRequestFields{SinkSTag: 0x100, SinkTO: 0x2000, Size: 4096, SourceSTag: 0x200, SourceTO: 0x3000}},
	{"Read Response", "c142 00000100 0000000000002000 deadbeef",
		wire.TaggedFields{Last: true, Opcode: wire.OpReadResponse, STag: 0x100, TO: 0x2000}, payload("\xde\xad\xbe\xef")},
	{"Terminate of a Write", "4147 00000000 00000002 00000001 00000000 1101c000 0013 c140 12345678 0000000000001000",
		wire.UntaggedFields{Last: true, Opcode: wire.OpTerminate, Queue: wire.QueueTerminate, MSN: 1},
		wire.TerminateFields{Layer: wire.LayerDDP, Type: 1, Code: 1, HasSegment: true, SegmentLen: 19,
			Header: wire.TaggedFields{Last: true, STag: 0x12345678, TO: 0x1000}.Append(nil)}},
	{"Terminate for a bad CRC", "4147 00000000 00000002 00000001 00000000 20020000",
		wire.UntaggedFields{Last: true, Opcode: wire.OpTerminate, Queue: wire.QueueTerminate, MSN: 1},
		wire.TerminateFields{Layer: wire.LayerLLP, Code: 2}},
	{"FetchAdd", "414a 00000000 00000001 00000002 00000000 00000000 00000001 00000300 0000000000004000 0000000000000005 0000000000000000 0000000000000000 ffffffffffffffff",
		wire.UntaggedFields{Last: true, Opcode: wire.OpAtomicRequest, Queue: wire.QueueReadRequest, MSN: 2},
		wire.AtomicRequestFields{Op: wire.FetchAdd, ID: 1, STag: 0x300, TO: 0x4000, Data: 5, CompareMask: 1<<64 - 1}},
	{"CmpSwap", "414a 00000000 00000001 00000003 00000000 00000002 00000007 00000300 0000000000004008 0102030405060708 00000000ffffffff 1112131415161718 ffffffff00000000",
		wire.UntaggedFields{Last: true, Opcode: wire.OpAtomicRequest, Queue: wire.QueueReadRequest, MSN: 3},
		wire.AtomicRequestFields{Op: wire.CmpSwap, ID: 7, STag: 0x300, TO: 0x4008, Data: 0x0102030405060708, Mask: 0xffffffff,
			Compare: 0x1112131415161718, CompareMask: 0xffffffff << 32}},
	{"Atomic Response", "414b 00000000 00000003 00000001 00000000 00000001 0000000000000010",
		wire.UntaggedFields{Last: true, Opcode: wire.OpAtomicResponse, Queue: wire.QueueAtomicResponse, MSN: 1},
		wire.AtomicResponseFields{ID: 1, Value: 0x10}},
	{"Immediate Data", "4148 00000000 00000000 00000003 00000000 0011223344556677",
		wire.UntaggedFields{Last: true, Opcode: wire.OpImmediate, MSN: 3}, payload("\x00\x11\x22\x33\x44\x55\x66\x77")},
}

type payload string

func (p payload) Append(b []byte) []byte { return append(b, p...) }

func TestSegments(t *testing.T) {
	for _, c := range segments {
		want := unhex(t, c.ulpdu)
		got := c.header.Append([]byte{0xee})[1:] // behind what is there
		if c.behind != nil {
			got = c.behind.Append(got)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is written\n% x, want\n% x", c.name, got, want)
		}
		header, rest := again(t, want)
		if !reflect.DeepEqual(header, c.header) {
			t.Errorf("%s is read as %+v, want %+v", c.name, header, c.header)
		}
		if behind := rest.(interface{ Append([]byte) []byte }); c.behind != nil && !reflect.DeepEqual(behind, c.behind) {
			t.Errorf("%s holds %+v, want %+v", c.name, behind, c.behind)
		}
	}
}

// again parses a segment of version 1 and gives the fields that make it.
func again(t *testing.T, b []byte) (header, behind any) {
	t.Helper()
	if wire.IsTagged(b) {
		h, data, ok := wire.ParseTagged(b)
		if !ok || h.DDPVersion() != wire.DDPVersion || h.RDMAPVersion() != wire.RDMAPVersion || !bytes.Equal(h.Bytes(), b[:14]) {
			t.Fatalf("% x: %v, versions %d and %d, header % x", b, ok, h.DDPVersion(), h.RDMAPVersion(), h.Bytes())
		}
		return wire.TaggedFields{Last: h.Last(), Opcode: h.Opcode(), STag: h.STag(), TO: h.TO()}, payload(data)
	}
	h, data, ok := wire.ParseUntagged(b)
	if !ok || h.DDPVersion() != wire.DDPVersion || h.RDMAPVersion() != wire.RDMAPVersion || !bytes.Equal(h.Bytes(), b[:18]) {
		t.Fatalf("% x: %v, versions %d and %d, header % x", b, ok, h.DDPVersion(), h.RDMAPVersion(), h.Bytes())
	}
	behind = payload(data)
	switch h.Opcode() {
	case wire.OpReadRequest:
		if behind, ok = wire.ParseReadRequest(data); !ok {
			t.Fatalf("no Read Request: % x", data)
		}
	case wire.OpAtomicRequest:
		if behind, ok = wire.ParseAtomicRequest(data); !ok {
			t.Fatalf("no Atomic Request: % x", data)
		}
	case wire.OpAtomicResponse:
		if behind, ok = wire.ParseAtomicResponse(data); !ok {
			t.Fatalf("no Atomic Response: % x", data)
		}
	case wire.OpTerminate:
		if behind, ok = wire.ParseTerminate(data); !ok {
			t.Fatalf("no Terminate: % x", data)
		}
	}
	return wire.UntaggedFields{Last: h.Last(), Opcode: h.Opcode(), Invalidate: h.Invalidate(), Queue: h.Queue(),
		MSN: h.MSN(), MO: h.MO()}, behind
}

// The 28 bits above the operation of an Atomic Request are reserved, and ignored (RFC
// 7306 §5.2.1). Code 1 is no operation.
func TestAtomicRequestReserved(t *testing.T) {
	b := wire.AtomicRequestFields{Op: wire.CmpSwap}.Append(nil)
	b[0], b[1], b[2], b[3] = 0xff, 0xff, 0xff, 0xf0|b[3]
	if f, ok := wire.ParseAtomicRequest(b); !ok || f.Op != wire.CmpSwap {
		t.Errorf("%v, %+v", ok, f)
	}
	for op := range wire.AtomicOp(16) {
		if known := op == 0 || op == 2; op.Known() != known || strings.Contains(op.String(), "operation") == known {
			t.Errorf("operation %d is known: %v, %v", uint8(op), op.Known(), op)
		}
	}
}

// Immediate Data is 8 octets in network order (RFC 7306 §6.2).
func TestImmediate(t *testing.T) {
	b := wire.AppendImmediate(nil, 0x0011223344556677)
	if v, ok := wire.ParseImmediate(b); !ok || v != 0x0011223344556677 || !bytes.Equal(b, unhex(t, "0011223344556677")) {
		t.Errorf("% x is read as %#x", b, v)
	}
}

// Too short by one octet, or of the other kind.
func TestSegmentsRefused(t *testing.T) {
	tagged, untagged := make([]byte, wire.TaggedLen), make([]byte, wire.UntaggedLen)
	tagged[0] = 0x80
	if _, _, ok := wire.ParseTagged(tagged); !ok {
		t.Error("a tagged header alone is refused")
	}
	if _, _, ok := wire.ParseUntagged(untagged); !ok {
		t.Error("an untagged header alone is refused")
	}
	for _, b := range [][]byte{nil, tagged[:13], untagged} {
		if _, _, ok := wire.ParseTagged(b); ok {
			t.Errorf("% x is taken for tagged", b)
		}
	}
	for _, b := range [][]byte{nil, untagged[:17], append(tagged, 0, 0, 0, 0)} {
		if _, _, ok := wire.ParseUntagged(b); ok {
			t.Errorf("% x is taken for untagged", b)
		}
	}
	for _, n := range []int{0, 27, 29} {
		if _, ok := wire.ParseReadRequest(make([]byte, n)); ok {
			t.Errorf("a Read Request of %d octets is accepted", n)
		}
	}
	for _, n := range []int{0, 11, 13, 51, 53} {
		if _, ok := wire.ParseAtomicRequest(make([]byte, n)); ok {
			t.Errorf("an Atomic Request of %d octets is accepted", n)
		}
		if _, ok := wire.ParseAtomicResponse(make([]byte, n)); ok {
			t.Errorf("an Atomic Response of %d octets is accepted", n)
		}
	}
	for _, n := range []int{0, 4, 7, 9} {
		if _, ok := wire.ParseImmediate(make([]byte, n)); ok {
			t.Errorf("Immediate Data of %d octets is accepted", n)
		}
	}
}

func TestNames(t *testing.T) {
	for op, want := range map[wire.Opcode]string{
		wire.OpWrite: "RDMA Write", wire.OpReadRequest: "RDMA Read Request", wire.OpReadResponse: "RDMA Read Response",
		wire.OpSend: "Send", wire.OpSendInvalidate: "Send with Invalidate", wire.OpTerminate: "Terminate",
		wire.OpAtomicResponse: "Atomic Response", wire.OpSendImm: "Send with Immediate", 14: "RDMAP opcode 14", 15: "RDMAP opcode 15",
	} {
		if op.String() != want {
			t.Errorf("opcode %d is called %q, want %q", uint8(op), op, want)
		}
	}
}
