package heap

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20 // octets

// seals are the seals of the file of a shared heap. Its size never changes, so a process
// that has mapped the file never faults for a page that is gone.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// NewShared maps a heap of size octets that other processes can map too: a sealed file in
// memory (memfd_create). It uses huge pages if enough of them are reserved and free. The
// kernel merges no pages of such a file unless shmem_enabled says so, so that New is
// faster for large regions. The caller must close the heap.
func NewShared(size uint64) (*Heap, error) {
	if size == 0 || size > math.MaxInt64-hugePage {
		return nil, fmt.Errorf("region heap of %d octets: ask for at least one and fewer than 2^63", size)
	}
	if size >= hugePage {
		if h, err := newShared((size+hugePage-1)&^(hugePage-1), unix.MFD_HUGETLB|unix.MFD_HUGE_2MB); err == nil {
			return h, nil
		}
	}
	h, err := newShared(wholePages(size), 0)
	if err != nil {
		return nil, fmt.Errorf("region heap of %d MiB in a file in memory: %w: ask for less or free memory", size>>20, err)
	}
	return h, nil
}

func newShared(size uint64, flags int) (*Heap, error) {
	fd, err := unix.MemfdCreate("stag-heap", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "stag-heap")
	mem, err := mapSealed(fd, int64(size))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // where shmem_enabled is "advise"
	return over(mem, file, func() error { return unix.Munmap(mem) }), nil
}

// mapSealed gives a file in memory its size for good, and maps it.
func mapSealed(fd int, size int64) ([]byte, error) {
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// File returns the file of the whole heap, for another process to map. File returns nil
// for a heap of New. The file is open until Close.
func (h *Heap) File() *os.File { return h.file }

// Inherit maps the heap of another process, whose File is f. Inherit takes f over, also on
// error. All parts of the heap are free until the parts of the other process are restored.
func Inherit(f *os.File) (*Heap, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	if err == nil && (st.Size <= 0 || st.Mode&unix.S_IFMT != unix.S_IFREG) {
		err = unix.EINVAL
	}
	got := 0
	if err == nil {
		if got, err = unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err == nil && got&seals != seals {
			err = errors.New("its size may change")
		}
	}
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(int(f.Fd()), 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the region heap of another process: %w", err), f.Close())
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // where shmem_enabled is "advise"
	h := over(mem, f, func() error { return unix.Munmap(mem) })
	h.fresh = h.Size() // the other process has used any of it
	return h, nil
}
