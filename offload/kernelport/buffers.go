package kernelport

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// stock is memory for the rings or for the outboxes of connections. The memory is outside of
// the Go heap: the kernel provides a page when the page is first used, and the garbage
// collector does not take the whole length for memory in use, which would make it run too
// seldom.
//
// The buffer that came back last is lent first, because the caches of the processor still
// have it. With a buffer of its own for each of a thousand connections, every octet would go
// through memory.
type stock struct {
	size int

	mu   sync.Mutex
	free [][]byte
}

// mostFree limits the number of buffers that a stock keeps. More come back only after many
// connections at the same time had octets that their ULPs or sockets did not take.
const mostFree = 64

// lend returns a buffer. Its octets have any values.
func (s *stock) lend() ([]byte, error) {
	s.mu.Lock()
	if n := len(s.free) - 1; n >= 0 {
		b := s.free[n]
		s.free[n], s.free = nil, s.free[:n]
		s.mu.Unlock()
		return b, nil
	}
	s.mu.Unlock()
	b, err := unix.Mmap(-1, 0, s.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d octets for a buffer (is vm.max_map_count or a limit of memory reached?): %w", s.size, err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // it fails on a kernel without huge pages
	return b, nil
}

// takeBack takes a buffer back that lend has returned.
func (s *stock) takeBack(b []byte) {
	s.mu.Lock()
	keep := len(s.free) < mostFree
	if keep {
		s.free = append(s.free, b)
	}
	s.mu.Unlock()
	if !keep {
		_ = unix.Munmap(b) // it cannot fail: the mapping is whole
	}
}

// empty gives the memory of the free buffers back to the kernel.
func (s *stock) empty() {
	s.mu.Lock()
	free := s.free
	s.free = nil
	s.mu.Unlock()
	for _, b := range free {
		_ = unix.Munmap(b) // it cannot fail: the mapping is whole
	}
}

// stocks are the stocks of a Lot, by size. Nearly always there is one.
type stocks struct {
	mu  sync.Mutex
	all map[int]*stock
}

// of returns the stock of buffers of a size.
func (s *stocks) of(size int) *stock {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[size] == nil {
		if s.all == nil {
			s.all = map[int]*stock{}
		}
		s.all[size] = &stock{size: size}
	}
	return s.all[size]
}

// empty empties all stocks.
func (s *stocks) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		one.empty()
	}
}

// lender has the stocks for the ring and for the outbox of a connection.
type lender struct{ rx, tx *stock }

// stockUp finds the stocks of the connection. Without a Lot it has stocks of its own, and takes
// its buffers at once.
func (c *Conn) stockUp(rcv, snd int) error {
	if lot := c.parking.lot; lot != nil {
		c.lender.rx, c.lender.tx = lot.stocks.of(rcv), lot.stocks.of(snd)
		return nil
	}
	c.lender.rx, c.lender.tx = &stock{size: rcv}, &stock{size: snd}
	if err := c.needRing(); err != nil {
		return err
	}
	return c.needOutbox()
}

// needRing makes sure that the ring has a buffer.
func (c *Conn) needRing() (err error) {
	if c.rx.buf == nil {
		c.rx.buf, err = c.lender.rx.lend()
	}
	return err
}

// needOutbox makes sure that the outbox has a buffer.
func (c *Conn) needOutbox() (err error) {
	if c.tx.buf == nil {
		c.tx.buf, err = c.lender.tx.lend()
	}
	return err
}

// full reports whether there is no room for further received octets.
func (c *Conn) full() bool { return c.rx.buf != nil && c.rx.used == len(c.rx.buf) }

// giveBack gives the buffers back that have no octets.
func (c *Conn) giveBack() {
	if c.rx.buf != nil && c.rx.used == 0 {
		c.lender.rx.takeBack(c.rx.buf)
		c.rx = ring{}
	}
	if c.tx.buf != nil && c.tx.used() == 0 {
		c.lender.tx.takeBack(c.tx.buf)
		c.tx = outbox{}
	}
}

// dropBuffers gives the buffers back, and with them their octets. No step may follow.
func (c *Conn) dropBuffers() {
	c.rx.used, c.tx = 0, outbox{buf: c.tx.buf}
	c.giveBack()
	if c.parking.lot == nil && c.lender.rx != nil {
		c.lender.rx.empty()
		c.lender.tx.empty()
	}
}

// shed gives the buffers and the eventfd of an idle connection back, and the memory of buffers to
// the kernel if all connections are idle.
func (c *Conn) shed() {
	c.dropEvent()
	c.stepping.Lock()
	c.giveBack()
	c.letGo()
	if lot := c.parking.lot; lot.quiet() {
		lot.stocks.empty()
	}
}
