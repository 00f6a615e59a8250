package wire_test

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// Requests and Replies of RFC 5044 and RFC 6581.
func TestMPAFrames(t *testing.T) {
	for _, c := range []struct {
		name, frame string
		fields      wire.MPAFields
		block       *wire.MPAEnhancedFields
		private     string
	}{
		{"Request 1", "4d504120494420526571204672616d65 40 01 0000",
			wire.MPAFields{Flags: wire.MPACRC, Revision: 1}, nil, ""},
		{"Reply 1", "4d504120494420526570204672616d65 40 01 0000",
			wire.MPAFields{Reply: true, Flags: wire.MPACRC, Revision: 1}, nil, ""},
		{"Request 2", "4d504120494420526571204672616d65 50 02 0006 8008 c008 6869",
			wire.MPAFields{Flags: wire.MPACRC | wire.MPAEnhanced, Revision: 2, PrivateLen: 6},
			&wire.MPAEnhancedFields{PeerToPeer: true, Write: true, Read: true, IRD: 8, ORD: 8}, "hi"},
		{"Reply 2", "4d504120494420526570204672616d65 50 02 0004 8008 8008",
			wire.MPAFields{Reply: true, Flags: wire.MPACRC | wire.MPAEnhanced, Revision: 2, PrivateLen: 4},
			&wire.MPAEnhancedFields{PeerToPeer: true, Write: true, IRD: 8, ORD: 8}, ""},
		{"siw's Request", "4d504120494420526571204672616d65 10 02 0004 0001 0001",
			wire.MPAFields{Flags: wire.MPAEnhanced, Revision: 2, PrivateLen: 4},
			&wire.MPAEnhancedFields{IRD: 1, ORD: 1}, ""},
		{"Send as RTR, depths not negotiated, Markers, reserved flags", "4d504120494420526571204672616d65 9f 02 0004 ffff 3fff",
			wire.MPAFields{Flags: wire.MPAMarkers | wire.MPAEnhanced | 0x0f, Revision: 2, PrivateLen: 4},
			&wire.MPAEnhancedFields{PeerToPeer: true, Send: true, IRD: wire.NoDepth, ORD: wire.NoDepth}, ""},
		{"Rejection", "4d504120494420526570204672616d65 20 01 0002 6e6f",
			wire.MPAFields{Reply: true, Flags: wire.MPAReject, Revision: 1, PrivateLen: 2}, nil, "no"},
	} {
		want := unhex(t, c.frame)
		got := c.fields.Append(nil)
		if c.block != nil {
			got = c.block.Append(got)
		}
		if got = append(got, c.private...); !bytes.Equal(got, want) {
			t.Errorf("%s is written\n% x, want\n% x", c.name, got, want)
		}
		h, rest, ok := wire.ParseMPA(want)
		if !ok || mpaFields(h) != c.fields {
			t.Fatalf("%s is read as %+v, want %+v", c.name, mpaFields(h), c.fields)
		}
		if c.block != nil {
			var block wire.MPAEnhancedFields
			if block, rest, ok = wire.ParseMPAEnhanced(rest); !ok || block != *c.block {
				t.Errorf("%s has %+v, want %+v", c.name, block, *c.block)
			}
		}
		if string(rest) != c.private {
			t.Errorf("%s has private data %q, want %q", c.name, rest, c.private)
		}
	}
}

func mpaFields(h wire.MPA) wire.MPAFields {
	return wire.MPAFields{Reply: h.Reply(), Flags: h.Flags(), Revision: h.Revision(), PrivateLen: uint16(h.PrivateLen())}
}

func TestMPARefused(t *testing.T) {
	good := wire.MPAFields{Revision: 1}.Append(nil)
	for i := range good {
		if _, _, ok := wire.ParseMPA(good[:i]); ok {
			t.Errorf("%d octets are taken for a frame", i)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x20
		if _, _, ok := wire.ParseMPA(bad); ok != (i >= len(wire.MPARequestKey)) {
			t.Errorf("with octet %d changed: %v", i, ok)
		}
	}
	if _, _, ok := wire.ParseMPAEnhanced(make([]byte, wire.MPAEnhancedLen-1)); ok {
		t.Error("a block of 3 octets is accepted")
	}
}

func TestFPDULen(t *testing.T) {
	for n, want := range map[int]int{0: 8, 1: 8, 2: 8, 3: 12, 14: 20, 18: 24, 19: 28, 1454: 1460, 64768: 64776, 65535: wire.MaxFPDULen} {
		if got := wire.FPDULen(n); got != want {
			t.Errorf("the FPDU of %d octets has %d, want %d", n, got, want)
		}
	}
}

func TestMarker(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5}
	wire.PutMarker(b, 0x10014)
	if !bytes.Equal(b, []byte{0, 0, 0, 0x14, 5}) {
		t.Errorf("a Marker is written % x", b)
	}
	if p := wire.MarkerPointer([]byte{0xff, 0xff, 0x12, 0x37}); p != 0x1234 {
		t.Errorf("a Marker points back %#x", p)
	}
}
