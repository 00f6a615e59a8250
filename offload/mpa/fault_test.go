package mpa_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

// TestEveryBit: with the CRC, no octet of an FPDU can change unnoticed, and
// nothing is delivered from there on; what came before is. A changed length
// may ask for octets that do not come.
func TestEveryBit(t *testing.T) {
	for _, markers := range []bool{false, true} {
		s := makeStretch(rand.New(rand.NewPCG(4, 4)), true, markers, 3, 400)
		for i := s.ends[0]; i < s.ends[1]; i++ {
			bad := bytes.Clone(s.bytes)
			bad[i] ^= 1 << (i % 8)
			for _, pieces := range [][][]byte{{bad}, octetwise(bad)} {
				got, f, partial := deframe(true, markers, pieces...)
				if len(got) != 1 || !bytes.Equal(got[0], s.ulpdus[0]) {
					t.Fatalf("Markers %v, octet %d: %d FPDUs delivered", markers, i, len(got))
				}
				if f == mpa.OK && !partial {
					t.Fatalf("Markers %v, octet %d: the change goes unnoticed", markers, i)
				}
				if length := i - s.ends[0]; f != mpa.BadCRC && (length < 0 || length > 5) {
					t.Fatalf("Markers %v, octet %d: %v, want a bad CRC", markers, i, f)
				}
			}
		}
	}
}

// TestNoCRC: without the CRC its field may hold anything.
func TestNoCRC(t *testing.T) {
	b := unhex(t, "0012 c142 00000100 0000000000002000 deadbeef 7ee25167")
	for _, pieces := range [][][]byte{{b}, octetwise(b)} {
		if got, f, _ := deframe(false, false, pieces...); f != mpa.OK || len(got) != 1 {
			t.Errorf("off: %v, %d FPDUs", f, len(got))
		}
		if got, f, _ := deframe(true, false, pieces...); f != mpa.BadCRC || len(got) != 0 || f.Code() != 2 {
			t.Errorf("on: %v, code %d, %d FPDUs", f, f.Code(), len(got))
		}
	}
	var out sink
	if frame(mpa.NewFramer(false, false), &out, b[2:20]); !bytes.Equal(out.bytes[20:], make([]byte, 4)) {
		t.Errorf("sent % x without a CRC", out.bytes[20:])
	}
}

// TestPaddingIsNotLookedAt: but for the CRC (RFC 5044 §4.1).
func TestPaddingIsNotLookedAt(t *testing.T) {
	b := unhex(t, "000f c140 00000001 0000000000000000 55 ffeedd 00000000")
	wire.PutCRC32C(b[20:], wire.CRC32C(b[:20]))
	if got, f, _ := deframe(true, false, b); f != mpa.OK || len(got) != 1 || len(got[0]) != 15 {
		t.Errorf("%v, %d FPDUs", f, len(got))
	}
}

// TestBadLength: shorter than a tagged header, whatever else is there or not.
func TestBadLength(t *testing.T) {
	for n := range 14 {
		b := append([]byte{0, byte(n)}, make([]byte, 60)...)
		for _, markers := range []bool{false, true} {
			if markers {
				b = append(make([]byte, 4), b...)
			}
			head := len(b) - 60
			for _, pieces := range [][][]byte{{b}, {b[:head]}, octetwise(b)} {
				got, f, _ := deframe(true, markers, pieces...)
				if f != mpa.BadLength || f.Code() != 3 || len(got) != 0 {
					t.Errorf("length %d, Markers %v: %v, code %d, %d FPDUs", n, markers, f, f.Code(), len(got))
				}
			}
		}
	}
}

// TestBadMarker: a Marker that points elsewhere, though the CRC is good.
func TestBadMarker(t *testing.T) {
	for _, crc := range []bool{true, false} {
		s := makeStretch(rand.New(rand.NewPCG(5, 5)), crc, true, 1, 3000)
		if len(s.bytes) < 1100 {
			t.Fatal("the FPDU is too short for this test")
		}
		for _, at := range []int{0, 512, 1024} {
			for _, c := range []struct {
				octet int
				bit   byte
				want  mpa.Fault
			}{{3, 4, mpa.BadMarker}, {2, 0x80, mpa.BadMarker}, {3, 3, mpa.OK}, {0, 0xff, mpa.OK}} {
				b := bytes.Clone(s.bytes)
				b[at+c.octet] ^= c.bit
				if crc {
					wire.PutCRC32C(b[len(b)-4:], wire.CRC32C(b[:len(b)-4]))
				}
				got, f, _ := deframe(crc, true, b)
				if f != c.want || (len(got) == 1) != (f == mpa.OK) || f == mpa.BadMarker && f.Code() != 3 {
					t.Errorf("CRC %v, Marker at %d, octet %d: %v, want %v", crc, at, c.octet, f, c.want)
				}
			}
		}
	}
}

// TestFaultStays: nothing is delivered after a fault, though it would be sound.
func TestFaultStays(t *testing.T) {
	good := unhex(t, golden[0])
	bad := bytes.Clone(good)
	bad[10] ^= 1
	d, s := mpa.NewDeframer(true, false), &feed{}
	s.arrive(slices.Concat(bad, good))
	for range 3 {
		if u, f := d.Next(s); u != nil || f != mpa.BadCRC {
			t.Fatalf("ULPDU % x, %v", u, f)
		}
		s.arrive(good)
	}
	s.Consume(len(bad))
	if u, f := d.Next(s); u != nil || f != mpa.BadCRC {
		t.Fatalf("with the bad FPDU out of the way: ULPDU % x, %v", u, f)
	}
}

// TestAskedAgain: until Done, Next returns the same FPDU, wherever it lies, and
// what follows stays where it is.
func TestAskedAgain(t *testing.T) {
	first, second := unhex(t, golden[1]), unhex(t, golden[2])
	both := slices.Concat(first, second)
	for _, views := range [][][]byte{{both}, {both[:5], both[5:]}, {first, second}} {
		d, s := mpa.NewDeframer(true, false), &feed{}
		for _, v := range views {
			s.arrive(v)
		}
		for range 3 {
			u, f := d.Next(s)
			if f != mpa.OK || !bytes.Equal(u, first[2:21]) || d.Partial(s) {
				t.Fatalf("%v, % x, partial %v", f, u, d.Partial(s))
			}
		}
		d.Done(s)
		if u, f := d.Next(s); f != mpa.OK || !bytes.Equal(u, second[2:24]) {
			t.Fatalf("then %v, % x", f, u)
		}
		d.Done(s)
		if len(s.views) != 0 {
			t.Errorf("% x is left", s.views)
		}
	}
}

// TestRecut: a stream may show the same octets in other views the next time.
func TestRecut(t *testing.T) {
	b := unhex(t, golden[1])
	d, s := mpa.NewDeframer(true, false), &feed{views: [][]byte{b}}
	d.Next(s)
	s.views = [][]byte{b[:7], b[7:]}
	u, f := d.Next(s)
	if f != mpa.OK || !bytes.Equal(u, b[2:21]) {
		t.Fatalf("%v, % x", f, u)
	}
	d.Done(s)
	if u, f := d.Next(s); u != nil || f != mpa.OK || len(s.views) != 0 {
		t.Errorf("then %v, % x, left % x", f, u, s.views)
	}
}

func TestDoneWithoutFPDU(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Done without an FPDU is not refused")
		}
	}()
	mpa.NewDeframer(true, false).Done(&feed{})
}

// TestWindow: an FPDU that is longer than what the stream can hold is consumed
// as it comes.
func TestWindow(t *testing.T) {
	s := makeStretch(rand.New(rand.NewPCG(6, 6)), true, false, 4, wire.MaxULPDU)
	d, f := mpa.NewDeframer(true, false), &feed{spoil: true}
	n := 0
	for _, p := range random(rand.New(rand.NewPCG(7, 7)), s.bytes, 1460) {
		f.arrive(p)
		got, _ := drain(d, f)
		n += len(got)
		if len(f.views) != 0 {
			t.Fatal("octets of an unfinished FPDU stay in the stream")
		}
	}
	if n != len(s.ulpdus) {
		t.Errorf("%d FPDUs, want %d", n, len(s.ulpdus))
	}
}
