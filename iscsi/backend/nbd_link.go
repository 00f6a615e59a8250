package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// Numbers of the NBD protocol.
const (
	nbdMagic       = 0x4e42444d41474943 // "NBDMAGIC"
	nbdOptionMagic = 0x49484156454f5054 // "IHAVEOPT"
	nbdReplyMagic  = 0x0003e889045565a9 // of an option
	nbdRequest     = 0x25609513
	nbdSimpleReply = 0x67446698

	nbdFixed    = 1 // handshake flags: fixed newstyle
	nbdNoZeroes = 2

	nbdOptionGo = 7
	nbdAck      = 1
	nbdInfo     = 3
	nbdExport   = 0       // kind of information: size and flags
	nbdError    = 1 << 31 // bit of a reply that is an error

	nbdReadOnly = 1 << 1 // transmission flags
	nbdFlush    = 1 << 2
	nbdZeroes   = 1 << 6

	nbdRead         = 0 // commands
	nbdWrite        = 1
	nbdDisconnect   = 2
	nbdFlushCommand = 3
	nbdWriteZeroes  = 6

	nbdNoHole = 1 << 1 // flag of WRITE_ZEROES

	nbdLongestReply = 64 << 10 // octets of the reply to an option
)

// nbdLink is one connection to a server.
type nbdLink struct {
	conn  net.Conn
	size  int64
	flags uint16

	writing sync.Mutex // one request leaves at a time

	mu    sync.Mutex
	calls map[uint64]*nbdCall
	next  uint64
	err   error // why the connection is lost
}

// nbdCall is a request in progress.
type nbdCall struct {
	in   []byte
	done chan error
}

var errNBD = errors.New("the server does not speak NBD as doc/proto.md says: check address and export")

// greet negotiates: fixed newstyle, NBD_OPT_GO.
func (l *nbdLink) greet(export string) error {
	var hello [18]byte
	if _, err := io.ReadFull(l.conn, hello[:]); err != nil {
		return err
	}
	flags := binary.BigEndian.Uint16(hello[16:])
	if binary.BigEndian.Uint64(hello[:]) != nbdMagic || binary.BigEndian.Uint64(hello[8:]) != nbdOptionMagic || flags&nbdFixed == 0 {
		return errNBD
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(flags&(nbdFixed|nbdNoZeroes)))
	out = binary.BigEndian.AppendUint64(out, nbdOptionMagic)
	out = binary.BigEndian.AppendUint32(out, nbdOptionGo)
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(export)+2))
	out = binary.BigEndian.AppendUint32(out, uint32(len(export)))
	out = append(out, export...)
	out = append(out, 0, 0) // no particular information
	if _, err := l.conn.Write(out); err != nil {
		return err
	}
	for {
		kind, data, err := l.optionReply()
		switch {
		case err != nil:
			return err
		case kind == nbdAck:
			return nil
		case kind&nbdError != 0:
			return fmt.Errorf("the server refuses export %q: error %d %s", export, kind&^nbdError, data)
		case kind == nbdInfo && len(data) >= 12 && binary.BigEndian.Uint16(data) == nbdExport:
			l.size, l.flags = int64(binary.BigEndian.Uint64(data[2:])), binary.BigEndian.Uint16(data[10:])
		}
	}
}

// optionReply reads one reply to an option.
func (l *nbdLink) optionReply() (kind uint32, data []byte, err error) {
	var h [20]byte
	if _, err := io.ReadFull(l.conn, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(h[16:])
	if binary.BigEndian.Uint64(h[:]) != nbdReplyMagic || n > nbdLongestReply {
		return 0, nil, errNBD
	}
	data = make([]byte, n)
	_, err = io.ReadFull(l.conn, data)
	return binary.BigEndian.Uint32(h[12:]), data, err
}

// do sends a request and waits for the reply. in gets the data of a read.
func (l *nbdLink) do(kind, flags uint16, off int64, length int, out, in []byte) error {
	c := &nbdCall{in: in, done: make(chan error, 1)}
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return l.err
	}
	l.next++
	cookie := l.next
	l.calls[cookie] = c
	l.mu.Unlock()
	if err := l.send(kind, flags, cookie, off, length, out); err != nil {
		l.close(err)
	}
	return <-c.done
}

// send writes a request.
func (l *nbdLink) send(kind, flags uint16, cookie uint64, off int64, length int, out []byte) error {
	h := make([]byte, 0, 28)
	h = binary.BigEndian.AppendUint32(h, nbdRequest)
	h = binary.BigEndian.AppendUint16(h, flags)
	h = binary.BigEndian.AppendUint16(h, kind)
	h = binary.BigEndian.AppendUint64(h, cookie)
	h = binary.BigEndian.AppendUint64(h, uint64(off))
	h = binary.BigEndian.AppendUint32(h, uint32(length))
	l.writing.Lock()
	defer l.writing.Unlock()
	all := net.Buffers{h, out}
	_, err := all.WriteTo(l.conn)
	return err
}

// listen reads replies until the connection is lost.
func (l *nbdLink) listen() {
	var h [16]byte
	for {
		if _, err := io.ReadFull(l.conn, h[:]); err != nil {
			l.close(err)
			return
		}
		l.mu.Lock()
		cookie := binary.BigEndian.Uint64(h[8:])
		c := l.calls[cookie]
		delete(l.calls, cookie)
		l.mu.Unlock()
		if binary.BigEndian.Uint32(h[:]) != nbdSimpleReply || c == nil {
			l.close(errNBD)
			if c != nil {
				c.done <- errNBD
			}
			return
		}
		var err error
		if code := binary.BigEndian.Uint32(h[4:]); code != 0 {
			err = fmt.Errorf("the NBD server answers: %w", syscall.Errno(code)) // the numbers are Linux's
		} else if _, err = io.ReadFull(l.conn, c.in); err != nil {
			l.close(err)
		}
		c.done <- err
	}
}

// lost returns why the connection is lost, or nil.
func (l *nbdLink) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// close ends the connection, and all requests in progress.
func (l *nbdLink) close(why error) {
	l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = fmt.Errorf("the connection to the NBD server is lost: %w", why)
	}
	for cookie, c := range l.calls {
		delete(l.calls, cookie)
		c.done <- l.err
	}
}

// disconnect says good-bye, and ends the connection. The server may not hear it.
func (l *nbdLink) disconnect() {
	if l.lost() == nil {
		_ = l.send(nbdDisconnect, 0, 0, 0, 0, nil)
	}
	l.close(net.ErrClosed)
}
