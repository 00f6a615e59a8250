package pdu_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

func TestText(t *testing.T) { // RFC 7143 §6.1
	b := pdu.AppendText(nil, "InitiatorName", "iqn.2026-01.test:i")
	b = pdu.AppendText(b, "X#NodeArchitecture", "a=b")
	b = pdu.AppendText(b, "SendTargets", "")
	if want := "InitiatorName=iqn.2026-01.test:i\x00X#NodeArchitecture=a=b\x00SendTargets=\x00"; string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
	var got []string
	it := pdu.NewText(append(b, 0, 0))
	for it.Next() {
		got = append(got, string(it.Key)+" "+string(it.Value))
	}
	if want := "InitiatorName iqn.2026-01.test:i,X#NodeArchitecture a=b,SendTargets "; strings.Join(got, ",") != want || it.Err() != nil {
		t.Errorf("%q, %v", got, it.Err())
	}
	for _, bad := range []string{"a=b", "a\x00", "=b\x00", "1a=b\x00", "a b=c\x00", strings.Repeat("a", 64) + "=\x00"} {
		it := pdu.NewText([]byte(bad))
		if it.Next() || it.Err() != pdu.ErrText || it.Next() {
			t.Errorf("%q: %q, %v", bad, it.Key, it.Err())
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for it := pdu.NewText(b); it.Next(); {
		}
	}); n != 0 {
		t.Errorf("the iterator allocates %v times", n)
	}
}

func TestNumber(t *testing.T) { // RFC 7143 §6.1
	for text, want := range map[string]uint64{
		"0": 0, "8192": 8192, "0x2000": 8192, "0XfF": 255, "0x00ff": 255, "18446744073709551615": math.MaxUint64, "0xffffffffffffffff": math.MaxUint64,
	} {
		if got, ok := pdu.ParseNumber([]byte(text)); got != want || !ok {
			t.Errorf("%s is %d, %v", text, got, ok)
		}
	}
	for _, bad := range []string{"", "-1", "+1", "01", "1_000", "0x", "0b10", "0x1_0", "8192 ", "1.5", "18446744073709551616", "0x10000000000000000"} {
		if got, ok := pdu.ParseNumber([]byte(bad)); ok || got != 0 {
			t.Errorf("%q is %d", bad, got)
		}
	}
}

func TestBinary(t *testing.T) { // RFC 7143 §6.1
	for text, want := range map[string]string{"0xdeadBEEF": "\xde\xad\xbe\xef", "0Xabc": "\x0a\xbc", "0b3q2+7w==": "\xde\xad\xbe\xef", "0BAAE=": "\x00\x01"} {
		got, ok := pdu.AppendBinary([]byte("in front"), []byte(text))
		if string(got) != "in front"+want || !ok {
			t.Errorf("%s is %q, %v", text, got, ok)
		}
	}
	for _, bad := range []string{"", "0x", "0b", "deadbeef", "0xdeadbeeg", "0b3q2+7w", "0b3q2+\n7w==", "0b%%%%", "12"} {
		if got, ok := pdu.AppendBinary([]byte("in front"), []byte(bad)); ok || string(got) != "in front" {
			t.Errorf("%q is %q, %v", bad, got, ok)
		}
	}
	octets := []byte{0, 1, 0xfe}
	for _, text := range [][]byte{pdu.AppendHex(nil, octets), pdu.AppendBase64(nil, octets)} {
		if got, ok := pdu.AppendBinary(nil, text); !ok || !bytes.Equal(got, octets) {
			t.Errorf("%s is %x", text, got)
		}
	}
	if got := pdu.AppendHex(nil, octets); string(got) != "0x0001fe" {
		t.Errorf("hex %s", got)
	}
}

func TestSense(t *testing.T) { // RFC 7143 §11.4.7
	data := octets(t, "0012 70000600 0000000a 00000000 29000000 0000") // from tgtd
	sense, rest, ok := pdu.SplitSense(data)
	if !ok || len(sense) != 18 || sense[12] != 0x29 || len(rest) != 0 {
		t.Errorf("sense %x, rest %x, %v", sense, rest, ok)
	}
	if again := pdu.AppendSense(nil, sense); !bytes.Equal(again, data) {
		t.Errorf("%x became %x", data, again)
	}
	if sense, rest, ok := pdu.SplitSense([]byte{0, 1, 2, 3}); !ok || string(sense) != "\x02" || string(rest) != "\x03" {
		t.Errorf("sense %x, rest %x, %v", sense, rest, ok)
	}
	if sense, _, ok := pdu.SplitSense(nil); !ok || sense != nil {
		t.Errorf("no data: sense %x, %v", sense, ok)
	}
	for _, bad := range []string{"\x00", "\x00\x01", "\xff\xff\x00"} {
		if sense, _, ok := pdu.SplitSense([]byte(bad)); ok {
			t.Errorf("%x has sense %x", bad, sense)
		}
	}
}

func TestAHS(t *testing.T) { // RFC 7143 §11.2.2
	cdb := make([]byte, 32)
	for i := range cdb {
		cdb[i] = uint8(i)
	}
	b := pdu.AppendExtendedCDB(nil, cdb[:16])
	b = pdu.AppendExtendedCDB(b, cdb)
	b = pdu.AppendBidiReadLength(b, 0x01020304)
	b = pdu.AppendExtendedCDB(b, cdb[:18])
	want := "0011 01 00 101112131415161718191a1b1c1d1e1f  0005 02 00 01020304  0003 01 00 1011 0000"
	if !bytes.Equal(b, octets(t, want)) {
		t.Errorf("%x, want %s", b, want)
	}
	a := pdu.NewAHS(b)
	var types []pdu.AHSType
	for a.Next() {
		types = append(types, a.Type)
		n, ok := a.ReadLength()
		switch {
		case a.Type == pdu.AHSBidiRead && (n != 0x01020304 || !ok), a.Type == pdu.AHSExtendedCDB && ok:
			t.Errorf("read length %#x, %v", n, ok)
		case a.Type == pdu.AHSExtendedCDB && !bytes.HasPrefix(cdb[16:], a.Data):
			t.Errorf("CDB %x", a.Data)
		}
	}
	if len(types) != 3 || a.Err() != nil || len(a.Data) != 2 {
		t.Errorf("types %v, %v, last %x", types, a.Err(), a.Data)
	}
	for _, bad := range []string{"0011", "00110100", "00000100", "0005020001020304 000601", "ffff010000000000"} {
		a := pdu.NewAHS(octets(t, bad))
		for a.Next() {
		}
		if a.Err() != pdu.ErrAHS {
			t.Errorf("%s: %v", bad, a.Err())
		}
	}
}
