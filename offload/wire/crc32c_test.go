package wire

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestCRC32C compares with the standard library's: every length up to that of
// some segments, from every offset in a cache line, on top of something.
func TestCRC32C(t *testing.T) {
	b := make([]byte, 4096+64)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for n := range 4097 {
		at := n % 64
		d := b[at : at+n]
		before := r.Uint32()
		if got, want := UpdateCRC32C(before, d), crc32.Update(before, castagnoli, d); got != want {
			t.Fatalf("%d octets at %d after %#x: %#x, want %#x", n, at, before, got, want)
		}
		if got, want := CRC32C(d), crc32.Checksum(d, castagnoli); got != want {
			t.Fatalf("%d octets at %d: %#x, want %#x", n, at, got, want)
		}
	}
	long := make([]byte, MaxFPDULen)
	long[0], long[len(long)-1] = 1, 1
	if got, want := CRC32C(long), crc32.Checksum(long, castagnoli); got != want {
		t.Errorf("%d octets: %#x, want %#x", len(long), got, want)
	}
	if n := testing.AllocsPerRun(10, func() { CRC32C(b[:1448]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCopyCRC32C: the copy is whole, nothing behind it is touched, and the CRC is that of the
// standard library.
func TestCopyCRC32C(t *testing.T) {
	src, dst := make([]byte, 4096+64), make([]byte, 4096+128)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for n := range 4097 {
		at, to := n%64, n*7%61
		s, d := src[at:at+n], dst[to:]
		clear(dst)
		before := r.Uint32()
		if got, want := CopyCRC32C(before, d, s), crc32.Update(before, castagnoli, s); got != want {
			t.Fatalf("%d octets from %d to %d after %#x: %#x, want %#x", n, at, to, before, got, want)
		}
		if !bytes.Equal(d[:n], s) || !bytes.Equal(dst[:to], make([]byte, to)) || !bytes.Equal(d[n:], make([]byte, len(d)-n)) {
			t.Fatalf("%d octets from %d to %d: the copy differs", n, at, to)
		}
	}
	if n := testing.AllocsPerRun(10, func() { CopyCRC32C(0, dst, src[:1448]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCRC32C cuts the octets in two.
func FuzzCRC32C(f *testing.F) {
	f.Add([]byte("123456789"), 4)
	f.Add(make([]byte, 1448), 300)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if cut < 0 || cut > len(b) {
			cut = len(b)
		}
		if got, want := UpdateCRC32C(CRC32C(b[:cut]), b[cut:]), crc32.Checksum(b, castagnoli); got != want {
			t.Errorf("%#x, want %#x", got, want)
		}
	})
}

func BenchmarkCopyCRC32C(b *testing.B) {
	for _, n := range []int{1428, 16 << 10} {
		src, dst := make([]byte, n), make([]byte, n+32)[20:]
		b.Run(fmt.Sprint(n, " in one pass"), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				CopyCRC32C(0, dst, src)
			}
		})
		b.Run(fmt.Sprint(n, " in two passes"), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(dst, src)
				CRC32C(dst[:n])
			}
		})
	}
}

func BenchmarkCRC32C(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"header", 20}, {"FPDU of 1500", 1444}, {"FPDU of 3506", 3448}, {"longest", MaxULPDU}} {
		d := make([]byte, c.n)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(c.n))
			for b.Loop() {
				CRC32C(d)
			}
		})
		b.Run(c.name+" standard library", func(b *testing.B) {
			b.SetBytes(int64(c.n))
			for b.Loop() {
				crc32.Checksum(d, castagnoli)
			}
		})
	}
}
