package reach

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Place is a place in a Space.
type Place struct {
	space *Space
	addr  uint64 // address in the client
	rest  uint64 // octets from there to the end of the region
}

// splitFrom is the length from which it is worth a second buffer that the rest begins at
// the beginning of a page (package comment).
const splitFrom = 16 << 10

// head returns how many of n octets at addr come before a page begins, or 0 if n is short.
func head(addr uint64, n int) int {
	if n < splitFrom {
		return 0
	}
	return int(-addr % pageSize)
}

// write writes b at addr, and returns how many octets it has written. Fewer than all means
// that the client has no memory behind them, or no memory at all any more.
func (s *Space) write(addr uint64, b []byte) (done int) {
	for done < len(b) {
		at, rest := addr+uint64(done), b[done:]
		var n int
		var err error
		if h := head(at, len(rest)); h != 0 {
			n, err = unix.Pwritev(s.mem, [][]byte{rest[:h], rest[h:]}, int64(at))
		} else {
			n, err = unix.Pwrite(s.mem, rest, int64(at))
		}
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil || n <= 0:
			return done
		default:
			done += n
		}
	}
	return done
}

// read fills b from addr on, and returns how many octets it has read. Fewer than all means
// what it means for write.
func (s *Space) read(addr uint64, b []byte) (done int) {
	for done < len(b) {
		at, rest := addr+uint64(done), b[done:]
		var n int
		var err error
		if h := head(at, len(rest)); h != 0 {
			n, err = unix.Preadv(s.mem, [][]byte{rest[:h], rest[h:]}, int64(at))
		} else {
			n, err = unix.Pread(s.mem, rest, int64(at))
		}
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil || n <= 0:
			return done
		default:
			done += n
		}
	}
	return done
}

// probe checks that the first and the last of n octets can be read.
func (s *Space) probe(addr, n uint64) error {
	var b [1]byte
	for _, at := range []uint64{addr, addr + n - 1} {
		if s.read(at, b[:]) != 1 {
			return fmt.Errorf("%w: the octet at %#x cannot be read", ErrNoAccess, at)
		}
	}
	return nil
}
