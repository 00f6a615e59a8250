package reach

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// view is a mapping of a client that is mapped here, too. All regions over it use it, so
// that the same octet has one address here.
type view struct {
	mapping
	octets []byte
	users  int // guarded by Space.mu
}

// mappable are the file systems whose files are mapped. Files of others could make an
// engine wait for a process of the client (FUSE) or for a network.
var mappable = map[int64]bool{
	unix.TMPFS_MAGIC: true, unix.HUGETLBFS_MAGIC: true, unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true,
}

// mapped maps the n octets from address addr of the client on. The error says why they cannot
// be mapped. The caller must have checked the client's rights to the octets.
func (s *Space) mapped(addr, n uint64) ([]byte, *view, error) {
	v, err := s.at(addr)
	switch {
	case err != nil:
		return nil, nil, err
	case !v.shared || v.inode == 0:
		return nil, nil, errors.New("the memory is private to the client")
	case v.start > addr || v.end-addr < n:
		return nil, nil, errors.New("the memory consists of several mappings")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.views[v]
	if w == nil {
		octets, err := s.open(v)
		if err != nil {
			return nil, nil, fmt.Errorf("shared memory cannot be mapped: %w", err)
		}
		w = &view{mapping: v, octets: octets}
		s.views[v] = w
	}
	w.users++
	return w.octets[addr-v.start:][:n:n], w, nil
}

// unmap ends the use of w by a region.
func (s *Space) unmap(w *view) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.users--; w.users != 0 {
		return nil
	}
	delete(s.views, w.mapping)
	return unix.Munmap(w.octets)
}

// open opens the file of v by the pid of the client, and maps it. The client may have begun
// another program since, which may have other rights. So the file must be the one of v, in
// which the client itself had the right to write if open asks for it.
func (s *Space) open(v mapping) ([]byte, error) {
	if s.client.Process == nil {
		return nil, errors.New("the client's pidfd is not known")
	}
	pid, err := pidOf(s.client.Process)
	if err != nil {
		return nil, err
	}
	if err := s.isMapsOf(pid); err != nil {
		return nil, err
	}
	flags, prot := os.O_RDONLY, unix.PROT_READ
	if v.writable {
		flags, prot = os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, v.start, v.end), flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := v.isOf(f); err != nil {
		return nil, err
	}
	if err := alive(s.client.Process); err != nil {
		return nil, err // pid may be another process's
	}
	return unix.Mmap(int(f.Fd()), int64(v.offset), int(v.end-v.start), prot, unix.MAP_SHARED)
}

// isOf checks that f is the file of v, and that its file system lets nobody wait.
func (v *mapping) isOf(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Ino != v.inode || st.Dev != v.dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("the client maps another file now, or its file system has no stable numbers")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if !mappable[int64(fs.Type)] {
		return fmt.Errorf("its file system (type %#x) is none that is mapped", fs.Type)
	}
	return nil
}

// isMapsOf checks that the list of mappings that the client has passed is that of the
// process pid. Otherwise it could be the list of a process that may write to a file that the
// client may only read.
func (s *Space) isMapsOf(pid int) error {
	var passed, its unix.Stat_t
	if err := unix.Fstat(int(s.client.Maps.Fd()), &passed); err != nil {
		return err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &its); err != nil {
		return err
	}
	if passed.Dev != its.Dev || passed.Ino != its.Ino {
		return errors.New("the client has passed the mappings of another process, or sees another /proc than this process")
	}
	return nil
}

// pidOf returns the pid of a pidfd, in the pid namespace of this process's /proc.
func pidOf(process *os.File) (pid int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", process.Fd()))
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(text), "\nPid:")
	if _, err := fmt.Sscan(line, &pid); err != nil || pid <= 0 {
		return 0, errors.New("the client has ended, or is not in the pid namespace of this process")
	}
	return pid, nil
}

// alive checks that the process of a pidfd has not ended. Before, its pid was its own.
func alive(process *os.File) error {
	fds := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); err != nil || n != 0 {
		return errors.Join(errors.New("the client has ended"), err)
	}
	return nil
}
