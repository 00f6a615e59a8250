package wire

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// naive returns the sum of RFC 1071 §1, word by word.
func naive(b []byte) uint16 {
	var sum uint32
	for i, octet := range b {
		sum += uint32(octet) << (8 * (1 - i%2))
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum>>16 + sum&0xffff)
}

// same compares one's complement numbers, of which zero has two forms. Ours
// gives 0 for data that is all zero and for no other.
func same(t interface{ Errorf(string, ...any) }, b []byte) {
	if got, want := Sum(0).Add(b).Fold(), naive(b); got != want {
		t.Errorf("sum of %d octets %#04x, want %#04x", len(b), got, want)
	}
}

func TestSumExample(t *testing.T) { // RFC 1071 §3
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	if got := Sum(0).Add(b).Fold(); got != 0xddf2 {
		t.Errorf("sum %#04x, want 0xddf2", got)
	}
	if got := Sum(0).Add(b).Checksum(); got != 0x220d {
		t.Errorf("checksum %#04x, want 0x220d", got)
	}
}

func TestSumEveryLengthAndOffset(t *testing.T) {
	buf := make([]byte, 300)
	for i := range buf {
		buf[i] = byte(i*151 + 7)
	}
	for off := range 9 {
		for n := range len(buf) - off {
			same(t, buf[off:off+n])
		}
	}
}

// Nothing behind the octets is read: here they end with the last page.
func TestSumAtTheEndOfMemory(t *testing.T) {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for n := range 300 {
		b := mem[page-n : page]
		for i := range b {
			b[i] = byte(i*151 + 7)
		}
		same(t, b)
	}
}

// All ones make every addition carry; all zeros none.
func TestSumExtremes(t *testing.T) {
	for _, fill := range []byte{0x00, 0xff} {
		for _, n := range []int{0, 1, 2, 7, 8, 63, 64, 65, 1500, 65535} {
			b := make([]byte, n)
			for i := range b {
				b[i] = fill
			}
			same(t, b)
		}
	}
}

func TestSumIsAdditive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "octets")
		cut := 2 * rapid.IntRange(0, len(b)/2).Draw(t, "words")
		if got, want := Sum(0).Add(b[:cut]).Add(b[cut:]).Fold(), naive(b); got != want {
			t.Fatalf("in two parts at %d: %#04x, want %#04x", cut, got, want)
		}
		word := rapid.Uint16().Draw(t, "word")
		if got, want := Sum(0).Add(b[:cut]).Add16(word).Fold(), naive(append(b[:cut:cut], byte(word>>8), byte(word))); got != want {
			t.Fatalf("with a word: %#04x, want %#04x", got, want)
		}
	})
}

// Data with its own checksum in place sums to Good, whichever zero the sender
// wrote.
func TestSumVerifies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 4, 100).Draw(t, "octets")
		b[0], b[1], b[2] = 0, 0, 1 // never all zero
		sum := Sum(0).Add(b).Checksum()
		b[0], b[1] = byte(sum>>8), byte(sum)
		if Sum(0).Add(b).Fold() != Good {
			t.Fatalf("checksum %#04x does not verify", sum)
		}
		if sum == 0 {
			b[0], b[1] = 0xff, 0xff
			if Sum(0).Add(b).Fold() != Good {
				t.Fatal("the other zero does not verify")
			}
		}
	})
}

func FuzzSum(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte, off uint8) {
		if int(off) <= len(b) {
			same(t, b[off:])
		}
	})
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{20, 64, 512, 1460, 4096, 65536} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			buf := make([]byte, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			var sum Sum
			for b.Loop() {
				sum += Sum(0).Add(buf)
			}
		})
	}
}
