package kernelport

// This file has the methods of stream.Stream. The ULP calls them within a step.

// Views implements stream.Stream.
func (c *Conn) Views(dst [][]byte) int {
	if c.aborted {
		return 0
	}
	return c.rx.views(dst)
}

// Consume implements stream.Stream.
func (c *Conn) Consume(n int) { c.rx.drop(n) }

// EOF implements stream.Stream.
func (c *Conn) EOF() bool { return c.eof && c.rx.used == 0 }

// Emit implements stream.Stream. The kernel decides where segments end. Without Config.Emit, a
// segment that is sent for the first time usually ends where the octets of an Emit end.
func (c *Conn) Emit(n int) []byte {
	if c.closing || c.aborted {
		return nil
	}
	if n <= 0 || n > c.most.emit {
		panic("kernelport: Emit of more than MaxEmit, or of nothing")
	}
	if err := c.needOutbox(); err != nil {
		c.ended = err
		return nil
	}
	return c.tx.add(n)
}

// MaxEmit implements stream.Stream. MaxEmit returns the kernel's effective segment
// size, or Config.Emit.
func (c *Conn) MaxEmit() int { return c.most.emit }

// Room implements stream.Stream. Room returns 0 because the kernel decides where
// segments end.
func (c *Conn) Room() int { return 0 }

// Unacked implements stream.Stream. Unacked counts octets that the kernel has not
// accepted.
func (c *Conn) Unacked() int { return c.tx.used() }

// CloseWrite implements stream.Stream.
func (c *Conn) CloseWrite() { c.closing = true }

// Abort implements stream.Stream.
func (c *Conn) Abort() { c.aborted = true }
