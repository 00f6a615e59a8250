package bell

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Ringer is the other process's side of a page.
type Ringer struct {
	page *page
	fd   int
}

// NewRinger makes a Ringer from the page and the eventfd that the adapter's process has passed.
func NewRinger(memory []byte, fd int) (*Ringer, error) {
	p, err := pageAt(memory)
	if err != nil {
		return nil, err
	}
	return &Ringer{p, fd}, nil
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// Ring sets bit i, which must be less than Queues. If the adapter sleeps, Ring wakes it. The
// caller must have moved the tail of the queue before.
func (r *Ringer) Ring(i int) error {
	r.page.words[i/64].Or(1 << (i % 64))
	if r.page.asleep.Load() == 0 {
		return nil
	}
	_, err := unix.Write(r.fd, one)
	if err == unix.EAGAIN { // the counter is full: the eventfd is readable anyway
		return nil
	}
	return os.NewSyscallError("write", err)
}
