package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// Both ends must have the same constants. Each end has window receives of bufLen octets for
// data.
const (
	window  = 16
	bufLen  = 16 << 10
	grant   = window / 2 // number of messages for which one grant gives credit
	spare   = 4          // number of receives for empty messages; at most this many empty messages are outstanding
	closing = 5 * time.Second
)

// Conn is a stream over messages: a net.Conn, with CloseWrite as net.TCPConn has it.
//
// A message for which the receiver has no receive ends the connection. Therefore the
// sender counts credits. The sender starts with window credits, and uses one credit for
// each message of data. When the receiver has read grant messages, it returns grant
// credits by an empty message. An empty message with the flag Solicited means that its
// sender writes no more data.
type Conn struct {
	ep *rdma.Endpoint // the connection and its region; the region has window buffers to send from, then window+spare buffers to receive into

	credits chan struct{} // holds a value for each message of data that may be sent
	buffers chan int      // numbers of the free send buffers
	arrived chan arrival  // messages of data that have not been read, then the end of the data
	ended   chan struct{} // a channel that is closed when nothing more arrives
	failure error         // the reason why the connection ended: io.EOF after a normal end; valid when ended is closed

	reading  sync.Mutex // Read holds this mutex
	rest     []byte     // octets of the oldest message that have not been read
	from     int        // number of the buffer of that message
	consumed int        // number of messages read since the last grant
	heard    bool       // the peer writes no more data, and everything has been read

	writing sync.Mutex // Write and CloseWrite hold this mutex
	said    bool       // true if CloseWrite has been called

	readEnd, writeEnd deadline

	open      context.Context // a context that Close ends
	shut      context.CancelFunc
	closeOnce sync.Once
	closeErr  error
	workers   sync.WaitGroup
}

// arrival is a message in a buffer. Length 0 means that the peer writes no more data.
type arrival struct{ buffer, length int }

// newConn makes one end of a connection. It calls connect to connect the end.
func newConn(adapter *rdma.Adapter, connect func(*rdma.Endpoint) error) (*Conn, error) {
	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{Size: (2*window + spare) * bufLen})
	if err != nil {
		return nil, err
	}
	c := &Conn{
		ep: ep, credits: make(chan struct{}, window), buffers: make(chan int, window), arrived: make(chan arrival, window+1),
		ended: make(chan struct{}),
	}
	c.open, c.shut = context.WithCancel(context.Background())
	for i := range window + spare {
		err = errors.Join(err, c.listen(window+i))
	}
	if err == nil {
		err = connect(ep)
	}
	if err != nil {
		return nil, errors.Join(err, ep.Close())
	}
	for i := range window {
		c.credits <- struct{}{}
		c.buffers <- i
	}
	c.workers.Go(c.receive)
	c.workers.Go(c.reuse)
	return c, nil
}

// memory returns the octets of a buffer.
func (c *Conn) memory(buffer int) []byte { return c.ep.MR.Bytes()[buffer*bufLen:][:bufLen] }

// listen posts a receive with a buffer for the next message.
func (c *Conn) listen(buffer int) error {
	_, err := c.ep.QP.PostRecv(rdma.RecvWR{ID: uint64(buffer), SGL: []rdma.SGE{c.ep.MR.SGE(buffer*bufLen, bufLen)}})
	return err
}

// receive handles completions of receives until the connection ends.
func (c *Conn) receive() {
	defer close(c.ended)
	for {
		m, err := c.ep.Received(c.open)
		if err == nil && m.Length == 0 && !m.Solicited {
			err = c.granted(int(m.ID))
		} else if err == nil {
			err = c.data(arrival{int(m.ID), int(m.Length)})
		}
		switch {
		case c.open.Err() != nil:
			c.failure = net.ErrClosed
			return
		case err != nil:
			c.failure = err
			return
		}
	}
}

// errGrants means that the peer has sent or granted more messages than the window allows.
var errGrants = errors.New("the peer does not speak as this program does")

func (c *Conn) data(a arrival) error {
	select {
	case c.arrived <- a:
		return nil
	default:
		return errGrants
	}
}

func (c *Conn) granted(buffer int) error {
	for range grant {
		select {
		case c.credits <- struct{}{}:
		default:
			return errGrants
		}
	}
	return c.listen(buffer)
}

// emptyID is the work request ID of an empty message. A message of data has the number
// of its buffer.
const emptyID = window

// sendEmpty sends a message without data.
func (c *Conn) sendEmpty(flags rdma.SendFlags) error {
	_, err := c.ep.QP.PostSend(rdma.SendWR{ID: emptyID, Op: rdma.WRSend, Flags: rdma.Signaled | flags})
	return err
}

// reuse frees the buffers of messages that have been sent.
func (c *Conn) reuse() {
	for {
		m, err := c.ep.Sent(c.open)
		if err != nil {
			return // receive reports the reason
		}
		if m.ID != emptyID {
			c.buffers <- int(m.ID)
		}
	}
}

// Read reads data that has arrived. If there is none, Read waits. After all data it returns
// io.EOF if the peer has called CloseWrite or Close.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.open.Err() != nil {
		return 0, net.ErrClosed // the memory of rest may have been unmapped
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := c.more(); err != nil {
		return 0, err
	}
	n = copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) > 0 {
		return n, nil
	}
	// The whole message has been read. An error here is an error of the connection, which
	// the next Read returns.
	if c.listen(c.from) != nil {
		return n, nil
	}
	if c.consumed++; c.consumed == grant {
		c.consumed = 0
		c.sendEmpty(0)
	}
	return n, nil
}

// more waits until rest has octets.
func (c *Conn) more() error {
	expired := c.readEnd.expired()
	switch {
	case isClosed(expired):
		return os.ErrDeadlineExceeded
	case len(c.rest) > 0:
		return nil
	case c.heard:
		return io.EOF
	}
	a, err := c.next(expired)
	if err != nil {
		return err
	}
	if c.heard = a.length == 0; c.heard {
		return io.EOF
	}
	c.from, c.rest = a.buffer, c.memory(a.buffer)[:a.length]
	return nil
}

// next waits for the next message of data, or for the end of the data.
func (c *Conn) next(expired <-chan struct{}) (a arrival, err error) {
	select {
	case a = <-c.arrived:
		return a, nil
	case <-c.open.Done():
		return a, net.ErrClosed
	case <-expired:
		return a, os.ErrDeadlineExceeded
	case <-c.ended:
	}
	select { // read the messages that arrived before the end first
	case a = <-c.arrived:
		return a, nil
	default:
		return a, c.failure
	}
}

// Write sends p. Write waits while the peer has no receives left.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.said {
		return 0, io.ErrClosedPipe
	}
	for n < len(p) {
		if err := wait(c, c.credits, nil); err != nil {
			return n, err
		}
		var buffer int
		if err := wait(c, c.buffers, &buffer); err != nil {
			select {
			case c.credits <- struct{}{}:
			default: // the channel is full because the peer has granted too much, which ends the connection
			}
			return n, err
		}
		k := copy(c.memory(buffer), p[n:])
		_, err := c.ep.QP.PostSend(rdma.SendWR{
			ID: uint64(buffer), Op: rdma.WRSend, Flags: rdma.Signaled, SGL: []rdma.SGE{c.ep.MR.SGE(buffer*bufLen, k)},
		})
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// wait receives a value from the channel from. It returns an error if the connection ends
// or the deadline of Write passes, before the call or during it.
func wait[T any](c *Conn, from chan T, into *T) error {
	expired := c.writeEnd.expired()
	if c.cannotWrite(expired) == nil {
		select {
		case v := <-from:
			if into != nil {
				*into = v
			}
			return nil
		case <-expired:
		case <-c.open.Done():
		case <-c.ended:
		}
	}
	return c.cannotWrite(expired)
}

// cannotWrite returns why no data can be written any more, or nil.
func (c *Conn) cannotWrite(expired <-chan struct{}) error {
	switch {
	case isClosed(expired):
		return os.ErrDeadlineExceeded
	case c.open.Err() != nil:
		return net.ErrClosed
	case !isClosed(c.ended):
		return nil
	case c.failure == io.EOF:
		return io.ErrClosedPipe
	}
	return c.failure
}

// CloseWrite ends this direction of the stream: after all data, the peer's Read returns
// io.EOF. Read still works until the peer calls CloseWrite, too. The caller must still call
// Close. CloseWrite waits until a running Write has returned.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.open.Err() != nil {
		return net.ErrClosed
	}
	if c.said {
		return nil
	}
	if err := c.cannotWrite(nil); err != nil {
		return err
	}
	c.said = true
	return c.sendEmpty(rdma.Solicited)
}

// Close sends the data that has been written, and closes both directions of the connection
// normally. It waits for the peer for at most 5 seconds.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		c.shut() // ends Read, Write and the workers
		c.reading.Lock()
		defer c.reading.Unlock()
		c.writing.Lock()
		defer c.writing.Unlock()
		c.workers.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		c.closeErr = errors.Join(c.ep.QP.Disconnect(ctx), c.ep.Close())
	})
	return c.closeErr
}

// LocalAddr and RemoteAddr are the addresses of the TCP connection below.
func (c *Conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.ep.QP.Conn().Local) }
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.ep.QP.Conn().Remote) }

// SetDeadline ends every Read and Write that waits at t or later, with
// os.ErrDeadlineExceeded. The zero time means never.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *Conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(&c.readEnd, t) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeEnd, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	if c.open.Err() != nil {
		return net.ErrClosed
	}
	d.set(t)
	return nil
}
