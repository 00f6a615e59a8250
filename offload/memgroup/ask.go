package memgroup

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/control"
)

// These are the reasons why memory of another member is not there.
var (
	ErrGone         = errors.New("the owner of the memory has ended, or does not answer")
	ErrAbsent       = errors.New("the owner of the memory does not know the STag")
	ErrNotShareable = errors.New("the memory cannot be shared")
	ErrLies         = errors.New("the answer of the owner of the memory is not true")
)

// answered is an owner's checked answer.
type answered struct {
	list list
	file *os.File      // the region heap, sealed and at least as long as the list says
	conn *net.UnixConn // ends with the owner
}

func (a *answered) close() { errors.Join(a.file.Close(), a.conn.Close()) }

// ask asks the process that listens at path for its list. number is the owner's, and pid its
// process, as the registry says. most is how many STags it can have. The caller must close
// the answer. Errors: ErrGone, ErrLies.
func ask(path string, number uint16, pid int, most uint32) (*answered, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.Dial("unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	a := &answered{conn: c.(*net.UnixConn)}
	if err := a.ask(number, pid, most); err != nil {
		if a.file != nil {
			a.file.Close()
		}
		c.Close()
		return nil, err
	}
	return a, nil
}

func (a *answered) ask(number uint16, pid int, most uint32) error {
	cred, err := control.PeerOf(a.conn)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrGone, err)
	case !control.Trusted(int(cred.Uid)) || cred.Pid != 0 && int(cred.Pid) != pid:
		return fmt.Errorf("%w: pid %d of user %d answers for pid %d", ErrLies, cred.Pid, cred.Uid, pid)
	}
	if err := a.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	question := head{kind: kindQuestion, last: true, owner: number}
	if _, err := a.conn.Write(question.append(nil)); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	buf := make([]byte, maxPacket+1)
	for !a.list.whole {
		packet, files, err := receive(a.conn, buf)
		if a.file == nil && len(files) == 1 {
			a.file, files = files[0], nil
		}
		for _, f := range files {
			f.Close()
			err = errors.Join(err, fmt.Errorf("%w: more files than the heap", ErrLies))
		}
		if err != nil {
			return err
		}
		if err := a.list.add(packet, most); err != nil {
			return fmt.Errorf("%w: %w", ErrLies, err)
		}
	}
	if a.list.owner != number {
		return fmt.Errorf("%w: it is of member %d, asked was %d", ErrLies, a.list.owner, number)
	}
	return a.checkFile()
}

// receive receives one packet and the files that it carries. It may return files and an
// error.
func receive(c *net.UnixConn, buf []byte) (packet []byte, files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(8*4))
	n, on, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				files = append(files, os.NewFile(uintptr(fd), "the region heap of another process"))
			}
		}
	}
	switch {
	case n == 0:
		return nil, files, fmt.Errorf("%w: it has closed the connection", ErrGone)
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return nil, files, fmt.Errorf("%w: a packet is too long", ErrLies)
	}
	return buf[:n], files, nil
}

// checkFile checks that the file is at least as long as the list says, and cannot become
// shorter. Otherwise an access could fault at any time.
func (a *answered) checkFile() error {
	if a.file == nil {
		return fmt.Errorf("%w: no file of the heap", ErrLies)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(a.file.Fd()), &st); err != nil {
		return fmt.Errorf("%w: look at the file of the heap: %w", ErrLies, err)
	}
	sealed, err := unix.FcntlInt(a.file.Fd(), unix.F_GET_SEALS, 0)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || err != nil:
		return fmt.Errorf("%w: what it says is the heap is no file in memory", ErrLies)
	case sealed&unix.F_SEAL_SHRINK == 0:
		return fmt.Errorf("%w: the file of the heap is not sealed against shrinking", ErrLies)
	case st.Size < 0 || uint64(st.Size) < a.list.heap:
		return fmt.Errorf("%w: the heap has %d octets, its file has %d", ErrLies, a.list.heap, st.Size)
	}
	return nil
}

// mapHeap maps the owner's heap.
func (a *answered) mapHeap() ([]byte, error) {
	mem, err := unix.Mmap(int(a.file.Fd()), 0, int(a.list.heap), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%w: map the heap: %w", ErrLies, err)
	}
	_ = unix.Madvise(mem, unix.MADV_DONTFORK) // a child must not keep the memory of an owner that has ended
	return mem, nil
}
