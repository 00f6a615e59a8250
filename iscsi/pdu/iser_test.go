package pdu_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/captures"
)

// TestISER reads headers that open-iscsi sent, and makes them again.
func TestISER(t *testing.T) { // RFC 7145 §9.2
	for _, c := range []struct {
		name, header string
		fields       pdu.ISERFields
	}{
		{"read", "14000000 00000000 0000000000000000 527b961b ffff888001e02000", pdu.ISERFields{HasRead: true, ReadSTag: 0x527b961b, ReadBase: 0xffff888001e02000}},
		{"write", "18000000 527b961a ffff8880032f6000 00000000 0000000000000000", pdu.ISERFields{HasWrite: true, WriteSTag: 0x527b961a, WriteBase: 0xffff8880032f6000}},
		{"neither", "10000000 00000000 0000000000000000 00000000 0000000000000000", pdu.ISERFields{}},
	} {
		want := octets(t, c.header)
		if got := c.fields.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", c.name, got, want)
		}
		h, rest, ok := pdu.ParseISER(append(want, 1, 2, 3))
		if got := fieldsOf(h); !ok || got != c.fields || len(rest) != 3 || h.Op() != pdu.ISERControl {
			t.Errorf("%s: %+v, rest %x, %v", c.name, got, rest, ok)
		}
	}
}

func fieldsOf(h pdu.ISER) (f pdu.ISERFields) {
	f.WriteSTag, f.WriteBase, f.HasWrite = h.Write()
	f.ReadSTag, f.ReadBase, f.HasRead = h.Read()
	return f
}

func TestISERHello(t *testing.T) { // RFC 7145 §9.3, §9.4
	hello := pdu.AppendHello(nil, 0x0102)
	if want := append([]byte{0x20, 0xaa, 1, 2}, make([]byte, 24)...); !bytes.Equal(hello, want) {
		t.Errorf("Hello %x", hello)
	}
	reply := pdu.AppendHelloReply(nil, true, 3)
	if want := append([]byte{0x31, 0xaa, 0, 3}, make([]byte, 24)...); !bytes.Equal(reply, want) {
		t.Errorf("HelloReply %x", reply)
	}
	h, _, ok := pdu.ParseISER(reply)
	if a, b := h.Versions(); !ok || a != pdu.ISERVersion || b != pdu.ISERVersion || h.Depth() != 3 || !h.Rejected() {
		t.Errorf("versions %d %d, depth %d, rejected %v", a, b, h.Depth(), h.Rejected())
	}
	for name, bad := range map[string][]byte{
		"short": hello[:27], "Hello with a PDU": append(bytes.Clone(hello), 0), "type 0": make([]byte, 28), "type 4": append([]byte{0x40}, make([]byte, 76)...),
	} {
		if _, _, ok := pdu.ParseISER(bad); ok {
			t.Errorf("%s was parsed", name)
		}
	}
}

// TestISERCaptures finds an iSER header and a whole PDU in each Send of each captured
// connection.
func TestISERCaptures(t *testing.T) {
	opcodes, reads, writes := map[pdu.Opcode]int{}, 0, 0
	for name, c := range captures.ISER(t) {
		for _, stream := range [][]byte{c.Client.Bytes(), c.Server.Bytes()} {
			for _, message := range sends(t, stream) {
				h, rest, ok := pdu.ParseISER(message)
				if !ok {
					t.Fatalf("%s: %x has no iSER header", name, message)
				}
				p, left, ok := pdu.Parse(pdu.Digests{}, padded(rest))
				if !ok || len(left) != 0 || p.Header().Check() != pdu.OK {
					t.Fatalf("%s: %x is no PDU: %v", name, rest, p.Header().Check())
				}
				opcodes[p.Header().Opcode()]++
				f := fieldsOf(h)
				if again := f.Append(nil); !bytes.Equal(again, message[:pdu.ISERHeaderLen]) {
					t.Errorf("%s: %x became %x", name, message[:pdu.ISERHeaderLen], again)
				}
				reads, writes = reads+count(f.HasRead), writes+count(f.HasWrite)
			}
		}
	}
	if opcodes[pdu.OpCommand] == 0 || opcodes[pdu.OpResponse] == 0 || reads == 0 || writes == 0 || opcodes[pdu.OpDataIn]+opcodes[pdu.OpR2T] != 0 {
		t.Errorf("opcodes %v, %d reads, %d writes", opcodes, reads, writes)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// padded adds the pad that the last data segment of a Send need not have.
func padded(b []byte) []byte { return append(bytes.Clone(b), make([]byte, pdu.Pad(len(b)))...) }

// sends returns the messages on DDP queue 0 of a stream without Markers, behind the MPA
// Request or Reply. The streams here have FPDUs of RFC 5044 §4.
func sends(t *testing.T, b []byte) (all [][]byte) {
	t.Helper()
	const request, untagged, last, queue = 20, 18, 0x40, 10
	if len(b) == 0 {
		return nil
	}
	b = b[request+int(binary.BigEndian.Uint16(b[request-2:])):]
	var message []byte
	for len(b) > 0 {
		n := 2 + int(binary.BigEndian.Uint16(b))
		fpdu := n + pdu.Pad(n) + 4
		if fpdu > len(b) {
			return all // the capture ends within the FPDU
		}
		if segment := b[2:n]; segment[0]&0x80 == 0 && binary.BigEndian.Uint32(segment[queue-4:]) == 0 {
			message = append(message, segment[untagged:]...)
			if segment[0]&last != 0 {
				all, message = append(all, message), nil
			}
		}
		b = b[fpdu:]
	}
	return all
}
