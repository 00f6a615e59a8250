package pdu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestPlausible: each captured header is plausible, but for the command with EDTL and
// without R and W. Zeros and most random octets are not.
func TestPlausible(t *testing.T) {
	for _, d := range directions(t) {
		all, _ := d.pdus()
		for _, p := range all {
			if h := p.Header(); !h.Plausible() && h.Check() != pdu.BadLength {
				t.Errorf("%s: %x is not plausible", d.name, *h)
			}
		}
	}
	var h pdu.Header
	if h.Plausible() {
		t.Error("zeros are plausible")
	}
	rnd, found := rand.New(rand.NewPCG(1, 2)), 0
	for range 1 << 20 {
		for i := range h {
			h[i] = uint8(rnd.Uint32())
		}
		if h.Plausible() {
			found++
		}
	}
	if found > 10 {
		t.Errorf("%d of 2^20 random headers are plausible", found)
	}
}

// TestReservedBits sets each bit of a valid header. Only the bits of fields may be set.
func TestReservedBits(t *testing.T) { // RFC 7143 §11
	fields := map[pdu.Opcode]int{
		pdu.OpR2T:    8 * (48 - 8),      // octets 8 to 47
		pdu.OpNOPOut: 1 + 24 + 8*(32-8), // the I bit, DataSegmentLength, octets 8 to 31
	}
	for op, want := range fields {
		got := 0
		for bit := range 8 * pdu.HeaderLen {
			var h pdu.Header
			h.Reset(op)
			h.SetFlags(pdu.Final)
			h.SetDesiredLength(3)
			if op == pdu.OpNOPOut {
				h.SetDesiredLength(0)
			}
			h[bit/8] ^= 0x80 >> (bit % 8)
			if h.Opcode() == op && h.Plausible() {
				got++
			}
		}
		if got != want {
			t.Errorf("%v: %d bits may change, want %d", op, got, want)
		}
	}
}
