package heap

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The octets of a shared heap are those of its file, and nobody can change the size of
// the file.
func TestSharedHeap(t *testing.T) {
	for _, size := range []uint64{PageSize, 3 * PageSize, hugePage + 1} {
		h, err := NewShared(size)
		if err != nil {
			t.Fatal(err)
		}
		if h.Size() < size || h.Size()%PageSize != 0 {
			t.Errorf("%d octets asked for: %d", size, h.Size())
		}
		mem, part, err := h.Alloc(PageSize)
		if err != nil {
			t.Fatal(err)
		}
		other, err := unix.Mmap(int(h.File().Fd()), 0, int(h.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		other[h.offset(mem)+7] = 42
		if mem[7] != 42 {
			t.Error("an octet that is written through the file is not in the heap")
		}
		for _, n := range []int64{0, int64(h.Size()) - PageSize, int64(h.Size()) + PageSize} {
			if err := unix.Ftruncate(int(h.File().Fd()), n); err == nil {
				t.Errorf("the file of %d octets was made %d octets long", h.Size(), n)
			}
		}
		if _, err := unix.FcntlInt(h.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err == nil {
			t.Error("the file took another seal, which can make it unwritable")
		}
		if err := unix.Munmap(other); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if h.File().Fd() != ^uintptr(0) {
			t.Error("the file of a closed heap is open")
		}
		if !mapped(t, mem) || mem[7] != 42 {
			t.Fatal("the part went with the heap")
		}
		if err := part.Release(); err != nil {
			t.Fatal(err)
		}
		if mapped(t, mem) {
			t.Error("the heap is still mapped, with nothing handed out")
		}
	}
}

// A heap of anonymous memory has no file.
func TestPrivateHeapHasNoFile(t *testing.T) {
	h, err := New(PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if h.File() != nil {
		t.Error("a heap of anonymous memory has a file")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// A heap of another process has its octets. What is handed out of it is zero.
func TestInheritedHeap(t *testing.T) {
	h, err := NewShared(4 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	mem, _, err := h.Alloc(PageSize)
	if err != nil {
		t.Fatal(err)
	}
	mem[7] = 42
	fd, err := unix.FcntlInt(h.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Inherit(os.NewFile(uintptr(fd), "heap"))
	if err != nil {
		t.Fatal(err)
	}
	if other.Size() != h.Size() || other.Memory()[h.offset(mem)+7] != 42 {
		t.Errorf("%d octets, and octet 7 is %d", other.Size(), other.Memory()[h.offset(mem)+7])
	}
	again, part, err := other.Alloc(PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if again[7] != 0 {
		t.Error("memory of another process was handed out as it was")
	}
	if err := errors.Join(part.Release(), other.Close()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/zero", os.Args[0]} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Inherit(f); err == nil {
			t.Errorf("%s was taken for a heap", path)
		}
	}
}
