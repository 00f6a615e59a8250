package kernelport

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapBuffers makes the memory of the ring and the outbox. It is outside of the Go heap: the
// kernel provides a page when the page is first used, and the garbage collector does not take
// the whole length for memory in use, which would make it run too seldom.
func (c *Conn) mapBuffers(rcv, snd int) error {
	b, err := unix.Mmap(-1, 0, rcv+snd, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map %d octets for buffers (is vm.max_map_count or a limit of memory reached?): %w", rcv+snd, err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // it fails on a kernel without huge pages
	c.buffers, c.rx.buf, c.tx.buf = b, b[:rcv:rcv], b[rcv:]
	return nil
}

// unmapBuffers frees the memory. No step may follow.
func (c *Conn) unmapBuffers() {
	if c.buffers != nil {
		_ = unix.Munmap(c.buffers) // it cannot fail: the mapping is whole
	}
	c.buffers, c.rx, c.tx = nil, ring{}, outbox{}
}

// shed gives the pages of empty buffers back to the kernel.
func (c *Conn) shed() {
	c.stepping.Lock()
	defer c.letGo()
	if c.rx.used == 0 && c.tx.used() == 0 {
		_ = unix.Madvise(c.buffers, unix.MADV_DONTNEED) // it cannot fail: the mapping is whole
	}
}
