package reach

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Client is what a process passes to let this process reach its memory.
type Client struct {
	Mem     *os.File // /proc/self/mem, which the client itself has opened for reading and writing
	Maps    *os.File // /proc/self/maps, which the client itself has opened
	Process *os.File // pidfd of the client (SO_PEERPIDFD); nil: shared memory of the client is not mapped
}

// close closes the descriptors.
func (c Client) close() (err error) {
	for _, f := range []*os.File{c.Mem, c.Maps, c.Process} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Space is the memory of another process. A Space is safe for concurrent use.
type Space struct {
	client Client
	mem    int    // descriptor of client.Mem
	number uint16 // differs from that of every other Space of the last 65536

	atomics sync.Mutex // held by the Cell that reads and writes
	word    [8]byte    // of that Cell

	mu     sync.Mutex // guards the fields below; no engine takes it
	users  int        // regions
	closed bool
	views  map[mapping]*view
}

var spaces atomic.Uint32

// Errors of Space.
var (
	// ErrNoAccess means that the client itself has no such access to all of the memory.
	ErrNoAccess = errors.New("the client itself has no such access to the memory")
	errClosed   = errors.New("the space is closed")
)

// Open makes a Space from the descriptors that the client has passed. Open takes the
// descriptors over, also on an error. It refuses descriptors that are not those files: a
// write to another file would happen with the rights of this process.
func Open(c Client) (*Space, error) {
	s := &Space{client: c, number: uint16(spaces.Add(1)), views: map[mapping]*view{}}
	err := s.inspect()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open memory of a process: %w", err), c.close())
	}
	return s, nil
}

func (s *Space) inspect() error {
	if s.client.Mem == nil || s.client.Maps == nil {
		return errors.New("the client must pass its /proc/self/mem and its /proc/self/maps")
	}
	if err := ofProc(s.client.Mem, 0o600); err != nil {
		return fmt.Errorf("descriptor for /proc/self/mem: %w", err)
	}
	if err := ofProc(s.client.Maps, 0o444); err != nil {
		return fmt.Errorf("descriptor for /proc/self/maps: %w", err)
	}
	s.mem = int(s.client.Mem.Fd())
	if flags, err := unix.FcntlInt(uintptr(s.mem), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return errors.New("descriptor for /proc/self/mem: open it for reading and writing")
	}
	return s.isMemory()
}

// ofProc checks that f is a file of procfs with these permissions. No other file of a
// process has those of mem.
func ofProc(f *os.File, perm uint32) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC || st.Mode != unix.S_IFREG|perm {
		return fmt.Errorf("it is another file (type %#x, mode %#o)", fs.Type, st.Mode)
	}
	return nil
}

// isMemory checks that the descriptor is memory: an octet of a mapping of the client can be
// read, and an octet at address 0 cannot. A client that passes the memory of another process
// may itself write to that memory, because opening it needs the right to trace the process.
func (s *Space) isMemory() error {
	if n, _ := unix.Pread(s.mem, make([]byte, 1), 0); n > 0 {
		return errors.New("descriptor for /proc/self/mem: it has octets at address 0: it is another file")
	}
	v, err := s.at(0)
	for err == nil && !v.readable {
		v, err = s.at(v.end)
	}
	if err != nil {
		return fmt.Errorf("descriptor for /proc/self/maps: %w", err)
	}
	if n, err := unix.Pread(s.mem, make([]byte, 1), int64(v.start)); n != 1 {
		return fmt.Errorf("descriptor for /proc/self/mem: address %#x, which the client has mapped, cannot be read (%v): both descriptors must be of one process, which has not ended", v.start, err)
	}
	return nil
}

// Close closes the descriptors when no region uses the Space any more. No further region
// can be made.
func (s *Space) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.end()
}

// end closes the descriptors if nobody needs them. The caller holds mu.
func (s *Space) end() error {
	if !s.closed || s.users != 0 {
		return nil
	}
	return s.client.close()
}

// enter counts a region.
func (s *Space) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.users++
	return nil
}

// leave ends the count of a region.
func (s *Space) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	return s.end()
}
