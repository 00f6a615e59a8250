package mpa_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FPDUs whose CRC tshark and an independent program found good, Markers off.
var golden = []string{
	"000e c140 00000001 0000000000000000 ebd34c5f",
	"0013 c140 12345678 0000000000001000 68656c6c6f 000000 4bf8eb4a",
	"0016 4143 00000000 00000000 00000001 00000000 70696e67 a5487fa7",
	"0012 4144 abcdef01 00000000 00000002 00000000 265e4e23",
	"002e 4141 00000000 00000001 00000001 00000000 00000100 0000000000002000 00001000 00000200 0000000000003000 011b9979",
	"0012 c142 00000100 0000000000002000 deadbeef 7ee25166",
	"0026 4147 00000000 00000002 00000001 00000000 1101c000 0013 c140 12345678 0000000000001000 43c9f29e",
	"0016 4147 00000000 00000002 00000001 00000000 20020000 7fe42585",
	"0046 414a 00000000 00000001 00000002 00000000 00000000 00000001 00000300 0000000000004000 0000000000000005" +
		"0000000000000000 0000000000000000 ffffffffffffffff 0950fd6d",
	"001e 414b 00000000 00000003 00000001 00000000 00000001 0000000000000010 9661a093",
	"001a 4148 00000000 00000000 00000003 00000000 0011223344556677 66fa69c8",
}

func TestGolden(t *testing.T) {
	for _, s := range golden {
		want := unhex(t, s)
		ulpdu := want[2 : 2+int(want[1])]
		var out sink
		if !frame(mpa.NewFramer(true, false), &out, ulpdu) || !bytes.Equal(out.bytes, want) {
			t.Errorf("framed as % x, want % x", out.bytes, want)
		}
		got, f, partial := deframe(true, false, want)
		if f != mpa.OK || partial || len(got) != 1 || !bytes.Equal(got[0], ulpdu) {
			t.Errorf("% x: %v, ULPDUs % x", want, f, got)
		}
	}
}

// RFC 5044 figures 5 and 6: FPDUs with a Marker before, and with one within.
func TestGoldenMarkers(t *testing.T) {
	first := unhex(t, "00000000 002a 4143 00000000 00000000 00000001 00000000"+strings.Repeat("00", 24)+"52239983")
	second := unhex(t, "002a 4143 00000000 00000000 00000002 00000000 00000014"+strings.Repeat("00", 24)+"84925898")
	fr, out := mpa.NewFramer(true, true), &sink{}
	frame(fr, out, first[6:48])
	if !bytes.Equal(out.bytes, first) {
		t.Errorf("figure 5 is framed as\n% x, want\n% x", out.bytes, first)
	}

	before := slices.Concat(unhex(t, "4143 00000000 00000000 00000001 00000000"), make([]byte, 492-4-2-18-4))
	fr, out = mpa.NewFramer(true, true), &sink{}
	frame(fr, out, before)
	frame(fr, out, slices.Concat(second[2:20], second[24:48]))
	if len(out.bytes) < 0x1ec || !bytes.Equal(out.bytes[0x1ec:], second) {
		t.Errorf("figure 6 is framed as\n% x, want\n% x", out.bytes[min(0x1ec, len(out.bytes)):], second)
	}
	got, f, _ := deframe(true, true, out.bytes)
	if f != mpa.OK || len(got) != 2 || !bytes.Equal(got[0], before) || !bytes.Equal(got[1][:18], second[2:20]) {
		t.Errorf("figure 6: %v, ULPDUs % x", f, got)
	}
}

// RFC 5044 §4.5 and appendix A.
func TestMaxULPDU(t *testing.T) {
	for _, c := range []struct{ emit, plain, marked int }{
		{1460, 1454, 1442}, {1448, 1442, 1430}, {8948, 8942, 8870}, {1459, 1450, 1438},
		{134, 126, 122}, {20, 14, 10}, {9, 2, 0}, {8, 2, 0}, {5, 0, 0}, {0, 0, 0},
		{65483, 64768, 64768}, {1 << 20, 64768, 64768},
	} {
		plain, marked := mpa.NewFramer(true, false).MaxULPDU(c.emit), mpa.NewFramer(true, true).MaxULPDU(c.emit)
		if plain != c.plain || marked != c.marked {
			t.Errorf("in %d octets fit %d and with Markers %d, want %d and %d", c.emit, plain, marked, c.plain, c.marked)
		}
	}
}

// Wherever the Markers fall, MaxULPDU fits.
func TestMaxULPDUFits(t *testing.T) {
	for _, markers := range []bool{false, true} {
		for emit := 40; emit < 1600; emit += 3 {
			f, out := mpa.NewFramer(true, markers), &sink{}
			for range 140 { // every place of the Markers
				n := f.MaxULPDU(emit)
				f.Begin(out, n)
				f.End()
				f.Begin(out, 14)
				f.End()
			}
			if most := slices.Max(out.lens); most > emit {
				t.Fatalf("Markers %v: an FPDU has %d octets, %d fit", markers, most, emit)
			}
		}
	}
}

func TestNoRoom(t *testing.T) {
	var out sink
	f := mpa.NewFramer(true, true)
	frame(f, &out, make([]byte, 100))
	out.full = true
	if frame(f, &out, make([]byte, 100)) {
		t.Error("an FPDU was begun where there is no room")
	}
	out.full = false
	frame(f, &out, make([]byte, 500))
	if got, why, _ := deframe(true, true, out.bytes); why != mpa.OK || len(got) != 2 {
		t.Errorf("%v, %d FPDUs: the attempt has moved the Markers", why, len(got))
	}
}

// stretch is a random stream and what is in it.
type stretch struct {
	crc, markers bool
	ulpdus       [][]byte
	ends         []int // where each FPDU ends
	bytes        []byte
}

// makeStretch frames n ULPDUs of up to most octets.
func makeStretch(r *rand.Rand, crc, markers bool, n, most int) stretch {
	s := stretch{crc: crc, markers: markers}
	f, out := mpa.NewFramer(crc, markers), &sink{}
	for range n {
		u := make([]byte, 14+r.IntN(most-13))
		for i := range u {
			u[i] = byte(r.Uint32())
		}
		frame(f, out, u)
		s.ulpdus = append(s.ulpdus, u)
		s.ends = append(s.ends, len(out.bytes))
	}
	s.bytes = out.bytes
	return s
}

// check feeds the stream in pieces and demands what is in it.
func (s stretch) check(t *testing.T, how string, pieces [][]byte) {
	t.Helper()
	got, f, partial := deframe(s.crc, s.markers, pieces...)
	if f != mpa.OK || partial || !slices.EqualFunc(got, s.ulpdus, bytes.Equal) {
		t.Fatalf("CRC %v, Markers %v, %s: %v, partial %v, %d FPDUs of %d", s.crc, s.markers, how, f, partial, len(got), len(s.ulpdus))
	}
}

// wanted is how many FPDUs end within the first n octets, and whether another
// has begun.
func (s stretch) wanted(n int) (whole int, partial bool) {
	for _, end := range s.ends {
		if end <= n {
			whole++
		}
	}
	return whole, whole < len(s.ends) && n > 0 && (whole == 0 || n > s.ends[whole-1])
}

func kinds(t *testing.T, fn func(t *testing.T, crc, markers bool)) {
	for _, crc := range []bool{false, true} {
		for _, markers := range []bool{false, true} {
			t.Run(fmt.Sprintf("CRC=%v,Markers=%v", crc, markers), func(t *testing.T) { fn(t, crc, markers) })
		}
	}
}

// TestEveryCut: a stream cut once, at each of its octets.
func TestEveryCut(t *testing.T) {
	kinds(t, func(t *testing.T, crc, markers bool) {
		s := makeStretch(rand.New(rand.NewPCG(1, 2)), crc, markers, 8, 700)
		s.check(t, "octet by octet", octetwise(s.bytes))
		for i := range s.bytes {
			s.check(t, fmt.Sprintf("cut at %d", i), [][]byte{s.bytes[:i], s.bytes[i:]})
			got, f, partial := deframe(crc, markers, s.bytes[:i])
			if n, begun := s.wanted(i); f != mpa.OK || len(got) != n || partial != begun {
				t.Fatalf("after %d octets: %v, %d FPDUs, partial %v; want %d, %v", i, f, len(got), partial, n, begun)
			}
		}
	})
}

// TestRandomCuts: small FPDUs and the largest that there are, cut at random.
func TestRandomCuts(t *testing.T) {
	kinds(t, func(t *testing.T, crc, markers bool) {
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, 3))
			n, most := 1+r.IntN(40), 14+r.IntN(3000)
			if seed%10 == 0 {
				n, most = 5, wire.MaxULPDU
			}
			s := makeStretch(r, crc, markers, n, most)
			s.check(t, fmt.Sprintf("seed %d, small pieces", seed), random(r, s.bytes, 40))
			s.check(t, fmt.Sprintf("seed %d", seed), random(r, s.bytes, 1+r.IntN(5000)))
			s.check(t, fmt.Sprintf("seed %d, whole", seed), [][]byte{s.bytes})
		}
	})
}

// TestLongest: the longest FPDU that a length field can announce, though no
// sender may make it.
func TestLongest(t *testing.T) {
	b := make([]byte, wire.MaxFPDULen)
	b[0], b[1] = 0xff, 0xff
	wire.PutCRC32C(b[len(b)-4:], wire.CRC32C(b[:len(b)-4]))
	for _, pieces := range [][][]byte{{b}, {b[:1], b[1:]}, random(rand.New(rand.NewPCG(1, 1)), b, 3000)} {
		got, f, partial := deframe(true, false, pieces...)
		if f != mpa.OK || partial || len(got) != 1 || len(got[0]) != 65535 {
			t.Errorf("in %d pieces: %v, %d ULPDUs", len(pieces), f, len(got))
		}
	}
}

// TestPut: Put makes the same FPDUs as a caller that writes the ULPDU itself, however the octets
// come: all by Put, or some of them written before, between and behind.
func TestPut(t *testing.T) {
	kinds(t, func(t *testing.T, crc, markers bool) {
		r := rand.New(rand.NewPCG(8, 9))
		var plain, put sink
		a, b := mpa.NewFramer(crc, markers), mpa.NewFramer(crc, markers)
		for range 300 {
			ulpdu := make([]byte, 14+r.IntN(3000))
			for i := range ulpdu {
				ulpdu[i] = byte(r.Uint32())
			}
			copy(a.Begin(&plain, len(ulpdu)), ulpdu)
			a.End()
			to := b.Begin(&put, len(ulpdu))[:0]
			for rest := ulpdu; len(rest) > 0; {
				n := min(len(rest), r.IntN(2000))
				if r.IntN(3) == 0 {
					to = append(to, rest[:n]...)
				} else {
					to = b.Put(to, rest[:n])
				}
				rest = rest[n:]
			}
			b.End()
		}
		if !bytes.Equal(plain.bytes, put.bytes) {
			t.Error("the FPDUs differ")
		}
	})
}
