package pdu_test

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// FuzzParse: a PDU that was parsed and made again differs at most in pad and digests, and
// the iterators over its parts end.
func FuzzParse(f *testing.F) {
	for _, c := range golden {
		h := header(f, c.header)
		f.Add(uint8(3), pdu.Append(nil, pdu.Digests{Header: true, Data: true}, h, nil, make([]byte, h.DataLength())))
	}
	var h pdu.Header
	h.Reset(pdu.OpCommand)
	f.Add(uint8(1), pdu.Append(nil, pdu.Digests{Header: true}, &h, pdu.AppendBidiReadLength(nil, 5), []byte("a=b\x00")))
	f.Fuzz(func(t *testing.T, digests uint8, b []byte) {
		d := pdu.Digests{Header: digests&1 != 0, Data: digests&2 != 0}
		p, rest, ok := pdu.Parse(d, b)
		if !ok {
			if len(rest) != len(b) {
				t.Fatalf("%d of %d octets are left", len(rest), len(b))
			}
			return
		}
		if p.Len()+len(rest) != len(b) || p.Len() != d.Len(p.Header()) {
			t.Fatalf("PDU of %d octets, rest %d, of %d", p.Len(), len(rest), len(b))
		}
		_ = p.Header().Check()
		octetsInside(t, p)
		h := *p.Header()
		again, _, ok := pdu.Parse(d, pdu.Append(nil, d, &h, p.AHS(), p.Data()))
		if !ok || h != *p.Header() || !bytes.Equal(again.AHS(), p.AHS()) || !bytes.Equal(again.Data(), p.Data()) || again.Len() != p.Len() {
			t.Fatalf("%x became %x", b, again.Header())
		}
		if head, data := again.Intact(); !head || !data {
			t.Fatalf("digests of a PDU that Append made: %v, %v", head, data)
		}
	})
}

// octetsInside runs the iterators over the parts of a PDU.
func octetsInside(t *testing.T, p pdu.PDU) {
	n := 0
	for a := pdu.NewAHS(p.AHS()); a.Next(); {
		_, _ = a.ReadLength()
		n += 4 + len(a.Data)
	}
	if n > len(p.AHS()) {
		t.Fatalf("%d octets of AHS in %d", n, len(p.AHS()))
	}
	if sense, rest, ok := pdu.SplitSense(p.Data()); ok && len(p.Data()) != 0 && 2+len(sense)+len(rest) != len(p.Data()) {
		t.Fatalf("sense %d, rest %d, of %d", len(sense), len(rest), len(p.Data()))
	}
}

// FuzzText: the pairs of a text, made again, are the same text but for superfluous NUL
// octets, and a binary value that was read and made again has the same octets.
func FuzzText(f *testing.F) {
	for _, text := range []string{"InitiatorName=iqn.2026-01.test:i\x00SessionType=Normal\x00", "CHAP_R=0x00ff\x00\x00CHAP_C=0bAAE=\x00", "a", "=\x00", "MaxBurstLength=0x40000\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var again []byte
		it := pdu.NewText(text)
		for it.Next() {
			again = pdu.AppendText(again, string(it.Key), string(it.Value))
			binaryAgain(t, it.Value)
			_, _ = pdu.ParseNumber(it.Value)
		}
		second := pdu.NewText(again)
		var third []byte
		for second.Next() {
			third = pdu.AppendText(third, string(second.Key), string(second.Value))
		}
		if second.Err() != nil || !bytes.Equal(again, third) || len(again) > len(text) {
			t.Fatalf("%q became %q and %q, %v", text, again, third, second.Err())
		}
	})
}

func binaryAgain(t *testing.T, value []byte) {
	octets, ok := pdu.AppendBinary(nil, value)
	if !ok {
		return
	}
	for _, text := range [][]byte{pdu.AppendHex(nil, octets), pdu.AppendBase64(nil, octets)} {
		if got, ok := pdu.AppendBinary(nil, text); (!ok || !bytes.Equal(got, octets)) && len(octets) != 0 {
			t.Fatalf("%s became %x, want %x", text, got, octets)
		}
	}
}

// FuzzISER: a header that was parsed and made again is the same but for reserved octets.
func FuzzISER(f *testing.F) {
	f.Add(pdu.ISERFields{HasRead: true, ReadSTag: 7, ReadBase: 9}.Append(nil))
	f.Add(pdu.AppendHello(nil, 4))
	f.Add(pdu.AppendHelloReply(nil, true, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, ok := pdu.ParseISER(b)
		if !ok {
			return
		}
		if len(rest)+pdu.ISERHeaderLen != len(b) {
			t.Fatalf("rest %d of %d", len(rest), len(b))
		}
		if h.Op() != pdu.ISERControl {
			return
		}
		want := fieldsOf(h)
		if !want.HasWrite {
			want.WriteSTag, want.WriteBase = 0, 0
		}
		if !want.HasRead {
			want.ReadSTag, want.ReadBase = 0, 0
		}
		again, _, ok := pdu.ParseISER(want.Append(nil))
		if !ok || fieldsOf(again) != want {
			t.Fatalf("%+v became %+v", want, fieldsOf(again))
		}
	})
}
