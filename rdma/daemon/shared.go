package daemon

import (
	"os"

	"golang.org/x/sys/unix"
)

// shared is memory that the daemon has made and a client maps.
type shared struct {
	fd     int // -1 after passed
	memory []byte
}

// newShared makes n octets of sealed memory. The kernel reserves the memory at once, so that
// a lack of memory is an error here, and not a signal later.
func newShared(name string, n int) (*shared, error) {
	fd, err := unix.MemfdCreate("stag-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	s := &shared{fd: fd}
	if err := s.prepare(n); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *shared) prepare(n int) (err error) {
	if err := unix.Fallocate(s.fd, 0, 0, int64(n)); err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	s.memory, err = unix.Mmap(s.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return os.NewSyscallError("mmap", err)
}

// passed closes the descriptor, when the client has one of its own.
func (s *shared) passed() {
	if s != nil && s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

// free unmaps the memory. Nobody may use it any more.
func (s *shared) free() {
	if s == nil {
		return
	}
	s.passed()
	if s.memory != nil {
		unix.Munmap(s.memory)
		s.memory = nil
	}
}
