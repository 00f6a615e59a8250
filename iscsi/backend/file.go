package backend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FileOptions say how to open a file or block device. The zero value works.
type FileOptions struct {
	ReadOnly bool
	// Create makes the file, if there is none, with Size octets. A file that is there
	// keeps its size.
	Create bool
	Size   int64
	// Cached uses the kernel's page cache also for aligned requests.
	Cached bool
}

// File is a file or a block device. Requests whose offset, length and memory are
// multiples of 4096 octets go past the page cache (O_DIRECT), if the file system can do
// that. File is safe for concurrent use.
type File struct {
	file   *os.File
	direct *os.File // nil: no O_DIRECT
	size   int64
}

// ThinFile is a File that can give storage back.
type ThinFile struct{ *File }

// String returns the kind and the name of the medium.
func (m *File) String() string { return "file " + m.file.Name() }

// Medium is what OpenFile returns: a *File or a *ThinFile.
type Medium interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() int64
	Sync() error
}

// OpenFile opens a file or a block device. The result is a *ThinFile if storage can be
// given back, and a *File otherwise. The caller must close it.
func OpenFile(path string, o FileOptions) (Medium, error) {
	flags := os.O_RDWR
	if o.ReadOnly {
		flags = os.O_RDONLY
	}
	if o.Create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	m := &File{file: f}
	if err := m.measure(o); err != nil {
		f.Close()
		return nil, fmt.Errorf("medium %s: %w", path, err)
	}
	if !o.Cached {
		if d, err := os.OpenFile(path, flags|unix.O_DIRECT, 0); err == nil {
			m.direct = d
		}
	}
	if m.thin() {
		return &ThinFile{m}, nil
	}
	return m, nil
}

// measure finds the size, and gives a new file one.
func (m *File) measure(o FileOptions) error {
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		n, err := unix.IoctlGetInt(int(m.file.Fd()), unix.BLKGETSIZE64)
		if err != nil {
			return fmt.Errorf("size of the block device: %w", err)
		}
		m.size = int64(n)
	case !mode.IsRegular():
		return errors.New("neither a file nor a block device")
	default:
		m.size = info.Size()
	}
	if m.size == 0 && o.Create && o.Size > 0 {
		m.size = o.Size
		return m.file.Truncate(o.Size)
	}
	if m.size == 0 {
		return errors.New("the file is empty: give it a size by truncate -s")
	}
	return nil
}

// thin reports whether storage can be given back. For a file, thin gives back what is
// behind its end.
func (m *File) thin() bool {
	var st unix.Stat_t
	if unix.Fstat(int(m.file.Fd()), &st) != nil {
		return false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		at := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		for _, dir := range []string{at, at + "/.."} { // a partition has no queue of its own
			if text, err := os.ReadFile(dir + "/queue/discard_max_bytes"); err == nil {
				n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
				return n != 0
			}
		}
		return false
	}
	return m.punch(m.size, page) == nil
}

func (m *File) punch(off, n int64) error {
	return unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// Size returns the capacity in octets.
func (m *File) Size() int64 { return m.size }

// Sync returns when the octets are on stable storage.
func (m *File) Sync() error { return unix.Fdatasync(int(m.file.Fd())) }

// Close closes the file.
func (m *File) Close() error {
	err := m.file.Close()
	if m.direct != nil {
		err = errors.Join(err, m.direct.Close())
	}
	return err
}

// path returns the descriptor for a request: that of O_DIRECT if the request is aligned.
func (m *File) path(p []byte, off int64) *os.File {
	if m.direct != nil && aligned(p, off) {
		return m.direct
	}
	return m.file
}

// ReadAt implements io.ReaderAt.
func (m *File) ReadAt(p []byte, off int64) (int, error) {
	if !inside(off, int64(len(p)), m.size) {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := m.path(p, off).ReadAt(p, off)
	if errors.Is(err, unix.EINVAL) { // the device demands more than 4096 octets
		n, err = m.file.ReadAt(p, off)
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (m *File) WriteAt(p []byte, off int64) (int, error) {
	if !inside(off, int64(len(p)), m.size) {
		return 0, io.ErrShortWrite
	}
	n, err := m.path(p, off).WriteAt(p, off)
	if errors.Is(err, unix.EINVAL) {
		n, err = m.file.WriteAt(p, off)
	}
	return n, err
}

// Zero implements unit.Zeroer.
func (m *File) Zero(off, n int64) error {
	if !inside(off, n, m.size) {
		return io.ErrUnexpectedEOF
	}
	err := unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return m.writeZeros(off, n)
	}
	return err
}

// zeros are written where the file system has no faster way.
var zeros [64 << 10]byte

// writeZeros writes n octets.
func (m *File) writeZeros(off, n int64) error {
	for n > 0 {
		k, err := m.file.WriteAt(zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off, n = off+int64(k), n-int64(k)
	}
	return nil
}

// Discard implements unit.Discarder. If the storage cannot be given back, it is zeroed.
func (m *ThinFile) Discard(off, n int64) error {
	if !inside(off, n, m.size) {
		return io.ErrUnexpectedEOF
	}
	err := m.punch(off, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return m.writeZeros(off, n)
	}
	return err
}

// Mapped implements unit.Mapper.
func (m *ThinFile) Mapped(off int64) (mapped bool, n int64) {
	data, err := unix.Seek(int(m.file.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // no data up to the end
		return false, max(1, m.size-off)
	case err != nil:
		return true, max(1, m.size-off)
	case data > off:
		return false, data - off
	}
	hole, err := unix.Seek(int(m.file.Fd()), off, unix.SEEK_HOLE)
	if err != nil || hole <= off {
		return true, max(1, m.size-off)
	}
	return true, hole - off
}
