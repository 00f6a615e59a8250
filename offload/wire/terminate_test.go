package wire_test

import (
	"reflect"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

const (
	taggedHex   = "c140deadbe000000000000001000"
	untaggedHex = "414100000000000000010000000100000000"
	readHex     = "00000011000000000000002200000040deadbe000000000000001000"
)

// Terminates as peers send them. The swapped ones were captured from siw.
func TestParseTerminate(t *testing.T) {
	tagged, untagged, read := unhex(t, taggedHex), unhex(t, untaggedHex), unhex(t, readHex)
	type fields = wire.TerminateFields
	for _, c := range []struct {
		name, payload string
		want          fields
	}{
		{"bad CRC", "20020000", fields{Layer: 2, Code: 2}},
		{"bad CRC by hardware", "23020000", fields{Layer: 2, Type: 3, Code: 2}},
		{"consumer's wish", "00ff0000", fields{Code: 0xff}},
		{"STag that cannot be invalidated, nothing quoted", "01090000", fields{Type: 1, Code: 9}},
		{"MSN, nothing quoted", "12030000", fields{Layer: 1, Type: 2, Code: 3}},
		{"insufficient IRD", "20060000", fields{Layer: 2, Code: 6, Ambiguous: true}}, // siw's bad opcode is the same
		{"no common RTR", "20070000", fields{Layer: 2, Code: 7, Ambiguous: true}},
		{"unexpected opcode", "02060000", fields{Type: 2, Code: 6, Ambiguous: true}}, // siw's insufficient IRD is the same
		{"catastrophe that quotes something", "02078000", fields{Type: 2, Code: 7}},
		{"siw: catastrophe that quotes something", "20070100", fields{Type: 2, Code: 7, Swapped: true}},
		{"no order but one", "00050000", fields{Code: 5}},
		{"reserved flags", "100018ff", fields{Layer: 1}},
		{"siw's flags, though nothing is quoted", "10001fff", fields{Type: 1, Swapped: true}},
		{"unknown in either order", "33330000", fields{Layer: 3, Type: 3, Code: 0x33}},
		{"unknown, not the same", "51330000", fields{Layer: 5, Type: 1, Code: 0x33}},
		{"tagged header", "1101c000 0013" + taggedHex,
			fields{Layer: 1, Type: 1, Code: 1, HasSegment: true, SegmentLen: 19, Header: tagged}},
		{"header without length", "11014000 0013" + taggedHex, fields{Layer: 1, Type: 1, Code: 1, Header: tagged}},
		{"Read Request", "0100e000 002e" + untaggedHex + readHex,
			fields{Type: 1, HasSegment: true, SegmentLen: 46, Header: untagged, ReadRequest: read}},
		{"Read Request without its header", "01002000" + readHex, fields{Type: 1, ReadRequest: read}},
		{"something behind", "20020000 ffffffff", fields{Layer: 2, Code: 2}},

		{"siw: bad CRC", "02020000", fields{Layer: 2, Code: 2, Swapped: true}},
		{"siw: DDP version", "21060000", fields{Layer: 1, Type: 2, Code: 6, Swapped: true}},
		{"siw: Write out of bounds", "11010300 0040" + taggedHex,
			fields{Layer: 1, Type: 1, Code: 1, HasSegment: true, SegmentLen: 0x40, Header: tagged, Swapped: true}},
		{"siw: Read Response nobody asked for", "01000300 0040" + taggedHex,
			fields{Layer: 1, Code: 0, HasSegment: true, SegmentLen: 0x40, Header: tagged, Swapped: true}},
		{"siw: bad source STag", "10000700 0000" + untaggedHex + readHex,
			fields{Type: 1, HasSegment: true, Header: untagged, ReadRequest: read, Swapped: true}},
		{"siw: foreign STag, no Read Request where one is announced", "10090700 0010" + untaggedHex,
			fields{Type: 1, Code: 9, HasSegment: true, SegmentLen: 16, Header: untagged, Swapped: true}},

		{"announces a header, sends none", "1101c000", fields{Layer: 1, Type: 1, Code: 1}},
		{"ends within the length", "1101c000 00", fields{Layer: 1, Type: 1, Code: 1}},
		{"ends behind the length", "1101c000 0013", fields{Layer: 1, Type: 1, Code: 1}},
		{"ends within the tagged header", "1101c000 0013" + taggedHex[:26], fields{Layer: 1, Type: 1, Code: 1}},
		{"ends within the untagged header", "1203c000 0013" + untaggedHex[:34], fields{Layer: 1, Type: 2, Code: 3}},
		{"ends within the Read Request", "0100e000 002e" + untaggedHex + readHex[2:],
			fields{Type: 1, HasSegment: true, SegmentLen: 46, Header: untagged}},
	} {
		got, ok := wire.ParseTerminate(unhex(t, c.payload))
		if !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s is read as\n%+v, want\n%+v", c.name, c.payload, got, c.want)
		}
	}
	for _, s := range []string{"", "200200"} {
		if _, ok := wire.ParseTerminate(unhex(t, s)); ok {
			t.Errorf("%q is taken for a Terminate", s)
		}
	}
}

// TestReread: the six words that mean something in both orders, and only those,
// are ambiguous, and reread twice are the same.
func TestReread(t *testing.T) {
	ambiguous := 0
	for word := range 1 << 16 {
		f, _ := wire.ParseTerminate([]byte{byte(word >> 8), byte(word), 0, 0})
		if !f.Ambiguous {
			continue
		}
		ambiguous++
		if layers := f.Layer | f.Type<<4; layers != 0x20 && layers != 0x02 || f.Code < 5 || f.Code > 7 || f.Swapped {
			t.Errorf("%04x is ambiguous: %+v", word, f)
		}
		o := f.Reread()
		if o.Layer != f.Type || o.Type != f.Layer || o.Code != f.Code || !o.Swapped || !reflect.DeepEqual(o.Reread(), f) {
			t.Errorf("%04x is reread as %+v", word, o)
		}
	}
	if ambiguous != 6 {
		t.Errorf("%d words are ambiguous, want 6", ambiguous)
	}
}
