package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/stag-rdma/stag/iscsi/nbd"
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
	if binary.BigEndian.Uint64(hello[:]) != nbd.Magic || binary.BigEndian.Uint64(hello[8:]) != nbd.OptionMagic || flags&nbd.FixedNewstyle == 0 {
		return errNBD
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(flags&(nbd.FixedNewstyle|nbd.NoZeroes)))
	out = binary.BigEndian.AppendUint64(out, nbd.OptionMagic)
	out = binary.BigEndian.AppendUint32(out, nbd.OptGo)
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
		case kind == nbd.RepAck:
			return nil
		case kind&nbd.RepError != 0:
			return fmt.Errorf("the server refuses export %q: error %d %s", export, kind&^nbd.RepError, data)
		case kind == nbd.RepInfo && len(data) >= 12 && binary.BigEndian.Uint16(data) == nbd.InfoExport:
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
	if binary.BigEndian.Uint64(h[:]) != nbd.OptionReplyMagic || n > nbd.LongestReply {
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
	r := nbd.Request{Flags: flags, Type: kind, Cookie: cookie, Offset: uint64(off), Length: uint32(length)}
	h := r.Append(make([]byte, 0, nbd.RequestLen))
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
		if binary.BigEndian.Uint32(h[:]) != nbd.SimpleReplyMagic || c == nil {
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
		_ = l.send(nbd.CmdDisconnect, 0, 0, 0, 0, nil)
	}
	l.close(net.ErrClosed)
}
