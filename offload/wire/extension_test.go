package wire_test

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// TestMPATrailer: the octets of each extension's trailer, written and read.
func TestMPATrailer(t *testing.T) {
	for _, c := range []struct {
		name, octets string
		trailer      wire.MPATrailer
	}{
		{"offer of aligned FPDUs", "537467 10 00000001", wire.MPATrailer{Extensions: wire.ExtAlignedFPDUs}},
		{"answer with aligned FPDUs", "537467 11 00000001", wire.MPATrailer{Reply: true, Extensions: wire.ExtAlignedFPDUs}},
		{"RFC 7306", "537467 10 00000002", wire.MPATrailer{Extensions: wire.ExtRFC7306}},
		{"paging", "537467 10 00000004", wire.MPATrailer{Extensions: wire.ExtPaging}},
		{"rails", "537467 11 00000008", wire.MPATrailer{Reply: true, Extensions: wire.ExtRails}},
		{"rail join", "537467 10 00000010", wire.MPATrailer{Extensions: wire.ExtRailJoin}},
		{"bits of a later version of stag", "537467 10 80000003",
			wire.MPATrailer{Extensions: 1<<31 | wire.ExtAlignedFPDUs | wire.ExtRFC7306}},
	} {
		want := unhex(t, c.octets)
		if got := c.trailer.Append([]byte("hi")); !bytes.Equal(got, append([]byte("hi"), want...)) {
			t.Errorf("%s is written % x, want % x", c.name, got[2:], want)
		}
		private, got, ok := wire.CutMPATrailer(append([]byte("hi"), want...), c.trailer.Reply)
		if !ok || got != c.trailer || string(private) != "hi" {
			t.Errorf("%s is read as %q, %+v, %v", c.name, private, got, ok)
		}
	}
}

// TestNoMPATrailer: private data that ends otherwise belongs to the application, and so
// does the trailer of the other role.
func TestNoMPATrailer(t *testing.T) {
	good := wire.MPATrailer{Extensions: wire.ExtRFC7306}.Append(nil)
	for i := range good {
		if private, _, ok := wire.CutMPATrailer(good[i:], false); ok != (i == 0) || !ok && !bytes.Equal(private, good[i:]) {
			t.Errorf("without %d octets: %v", i, ok)
		}
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if private, _, ok := wire.CutMPATrailer(bad, false); ok != (i >= 4) || !ok && !bytes.Equal(private, bad) {
				t.Errorf("with bit %d of octet %d changed: %v", bit, i, ok)
			}
		}
	}
	if _, _, ok := wire.CutMPATrailer(good, true); ok {
		t.Error("the initiator takes its own trailer for an answer")
	}
	if _, _, ok := wire.CutMPATrailer(wire.MPATrailer{Reply: true}.Append(nil), false); ok {
		t.Error("the responder takes an answer for an offer")
	}
}

// FuzzMPATrailer: a trailer that is read is written with the same octets, and nothing
// of the application's data is lost.
func FuzzMPATrailer(f *testing.F) {
	f.Add(false, wire.MPATrailer{Extensions: wire.ExtAlignedFPDUs}.Append([]byte("hi")))
	f.Add(true, wire.MPATrailer{Reply: true, Extensions: wire.ExtRFC7306}.Append(nil))
	f.Add(true, wire.MPATrailer{}.Append(nil))
	f.Add(false, []byte("Stg\x10\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, reply bool, b []byte) {
		private, trailer, ok := wire.CutMPATrailer(b, reply)
		if !ok {
			if !bytes.Equal(private, b) || trailer != (wire.MPATrailer{}) {
				t.Fatalf("% x: %+v without a trailer", b, trailer)
			}
			return
		}
		if again := trailer.Append(bytes.Clone(private)); !bytes.Equal(again, b) || trailer.Reply != reply {
			t.Fatalf("% x is written again as % x", b, again)
		}
	})
}
