package reach

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// mapping is one mapping of a client, as /proc/PID/maps shows it.
type mapping struct {
	start, end uint64
	readable   bool
	writable   bool
	shared     bool
	offset     uint64 // of start in the file
	dev        uint64 // device and number of the file; the number is 0 if there is no file
	inode      uint64
}

var errNothing = errors.New("the client has mapped nothing there, or it has ended, or has begun another program")

// at returns the mapping that contains addr, or the next one behind it.
func (s *Space) at(addr uint64) (mapping, error) {
	v, err := s.query(addr)
	if errors.Is(err, unix.ENOTTY) { // before Linux 6.11
		return s.scan(addr)
	}
	return v, err
}

// query asks the kernel for one mapping (PROCMAP_QUERY).
func (s *Space) query(addr uint64) (mapping, error) {
	q := procmapQuery{flags: queryCoveringOrNext, addr: addr}
	switch err := q.ask(int(s.client.Maps.Fd())); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return mapping{}, errNothing
	case err != nil:
		return mapping{}, err
	}
	return mapping{
		start: q.start, end: q.end, offset: q.offset, inode: q.inode, dev: unix.Mkdev(q.major, q.minor),
		readable: q.vmaFlags&queryReadable != 0, writable: q.vmaFlags&queryWritable != 0, shared: q.vmaFlags&queryShared != 0,
	}, nil
}

// scan reads the list of mappings as text. The client shares the descriptor's position, so
// that scan does not use it.
func (s *Space) scan(addr uint64) (mapping, error) {
	r := io.NewSectionReader(s.client.Maps, 0, 1<<40)
	text, err := io.ReadAll(r)
	if err != nil {
		return mapping{}, err
	}
	for line := range bytes.Lines(text) {
		v, err := parseMapping(string(line))
		if err != nil {
			return mapping{}, err
		}
		if v.end > addr && v.start>>63 == 0 { // the page [vsyscall] is no memory of the process
			return v, nil
		}
	}
	return mapping{}, errNothing
}

// parseMapping reads a line of /proc/PID/maps:
//
//	7f0000000000-7f0000002000 rw-s 00001000 00:01 1234   /memfd:name (deleted)
func parseMapping(line string) (v mapping, err error) {
	var perms string
	var major, minor uint32
	n, err := fmt.Sscanf(line, "%x-%x %s %x %x:%x %d", &v.start, &v.end, &perms, &v.offset, &major, &minor, &v.inode)
	if n != 7 || len(perms) != 4 || v.start >= v.end {
		return mapping{}, fmt.Errorf("a line of maps that cannot be understood (%s): %w", strconv.Quote(line), errors.Join(err, errors.ErrUnsupported))
	}
	v.dev = unix.Mkdev(major, minor)
	v.readable, v.writable, v.shared = perms[0] == 'r', perms[1] == 'w', perms[3] == 's'
	return v, nil
}
