package backend

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/iscsi/unit"
)

// media makes a medium of each kind, of size octets.
func media(t *testing.T, size int64) map[string]unit.Backend {
	t.Helper()
	ram, err := NewRAM(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ram.Close() })
	all := map[string]unit.Backend{"RAM": ram}
	for name, o := range map[string]FileOptions{"direct": {}, "cached": {Cached: true}} {
		o.Create, o.Size = true, size
		m, err := OpenFile(filepath.Join(t.TempDir(), "disk"), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		all[name] = m
	}
	return all
}

// TestMedia runs random operations on each medium and on a slice of octets.
func TestMedia(t *testing.T) {
	const size = 1 << 20
	for name, m := range media(t, size) {
		t.Run(name, func(t *testing.T) {
			luck := rand.New(rand.NewPCG(1, 2))
			model := make([]byte, size)
			buffer := pageAligned(64 << 10)
			for range 500 {
				grain := []int{512, page}[luck.IntN(2)]
				off := luck.IntN(size/grain) * grain
				n := min(luck.IntN(64<<10/grain)*grain, size-off)
				b := buffer[:n]
				switch luck.IntN(4) {
				case 0:
					for i := range b {
						b[i] = byte(luck.Uint32())
					}
					copy(model[off:], b)
					if k, err := m.WriteAt(b, int64(off)); k != n || err != nil {
						t.Fatal(k, err)
					}
				case 1:
					clear(model[off : off+n])
					if err := m.(unit.Zeroer).Zero(int64(off), int64(n)); n != 0 && err != nil {
						t.Fatal(err)
					}
				case 2:
					if d, ok := m.(unit.Discarder); ok && n != 0 {
						clear(model[off : off+n])
						if err := d.Discard(int64(off), int64(n)); err != nil {
							t.Fatal(err)
						}
					}
				case 3:
					if k, err := m.ReadAt(b, int64(off)); k != n || err != nil {
						t.Fatal(k, err)
					}
					if !bytes.Equal(b, model[off:off+n]) {
						t.Fatalf("%d octets at %d are not what was written", n, off)
					}
				}
			}
			if err := m.Sync(); err != nil {
				t.Error(err)
			}
			if _, err := m.ReadAt(buffer, size-512); err == nil {
				t.Error("reads beyond the end")
			}
			if _, err := m.WriteAt(buffer, -512); err == nil {
				t.Error("writes before the beginning")
			}
		})
	}
}

// pageAligned returns n octets that O_DIRECT can use.
func pageAligned(n int) []byte {
	b := make([]byte, n+page)
	for !aligned(b[:page], 0) {
		b = b[1:]
	}
	return b[:n]
}

// TestMapped: what was written has storage, and what was discarded has none.
func TestMapped(t *testing.T) {
	const size = 1 << 20
	for name, m := range media(t, size) {
		mapper, ok := m.(unit.Mapper)
		if !ok {
			t.Logf("%s: the file system of %s cannot give storage back", name, t.TempDir())
			continue
		}
		if is, n := mapper.Mapped(0); is || n != size {
			t.Errorf("%s, at first: %v for %d octets", name, is, n)
		}
		b := pageAligned(256 << 10)
		for i := range b {
			b[i] = 1
		}
		if _, err := m.WriteAt(b, 256<<10); err != nil {
			t.Fatal(err)
		}
		if err := m.Sync(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			off, n int64
			is     bool
		}{{0, 256 << 10, false}, {256 << 10, 256 << 10, true}, {300 << 10, 212 << 10, true}, {512 << 10, 512 << 10, false}} {
			if is, n := mapper.Mapped(want.off); is != want.is || n != want.n {
				t.Errorf("%s, at %d: %v for %d octets, want %v for %d", name, want.off, is, n, want.is, want.n)
			}
		}
		if err := m.(unit.Discarder).Discard(256<<10, 256<<10); err != nil {
			t.Fatal(err)
		}
		if is, n := mapper.Mapped(0); is || n != size {
			t.Errorf("%s, after Discard: %v for %d octets", name, is, n)
		}
	}
}

// TestLend: memory that RAM lends is the medium.
func TestLend(t *testing.T) {
	ram, err := NewRAM(10000)
	if err != nil {
		t.Fatal(err)
	}
	defer ram.Close()
	if ram.Size() != 3*page {
		t.Errorf("size %d, want whole pages", ram.Size())
	}
	copy(ram.Lend(512, 512, true), "lent")
	got := make([]byte, 4)
	if _, err := ram.ReadAt(got, 512); err != nil || string(got) != "lent" {
		t.Errorf("%q, %v", got, err)
	}
	if is, _ := ram.Mapped(0); !is {
		t.Error("a page that was lent for writing has no storage")
	}
	ram.Lend(page, page, false)
	if is, _ := ram.Mapped(page); is {
		t.Error("a page that was lent for reading has storage")
	}
	if ram.Lend(3*page-512, 1024, false) != nil || ram.Lend(-512, 512, false) != nil {
		t.Error("lends octets outside of the medium")
	}
}

// TestOpenFile refuses what is no medium, with a word that helps.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, empty, filepath.Join(dir, "missing"), "/dev/null"} {
		if m, err := OpenFile(path, FileOptions{}); err == nil {
			m.Close()
			t.Errorf("%s was opened", path)
		}
	}
	m, err := OpenFile(filepath.Join(dir, "new"), FileOptions{Create: true, Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if m, err = OpenFile(filepath.Join(dir, "new"), FileOptions{ReadOnly: true, Create: true, Size: 5}); err != nil || m.Size() != 1<<20 {
		t.Fatal(m, err)
	}
	if _, err := m.WriteAt(make([]byte, 512), 0); err == nil {
		t.Error("a file that was opened read-only was written")
	}
	m.Close()
}
