package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stag-rdma/stag/iscsi/nbd"
)

// NBD is an export of an NBD server (github.com/NetworkBlockDevice/nbd, doc/proto.md). A
// request that finds the connection lost connects once more, so a server may restart. NBD
// is safe for concurrent use.
type NBD struct {
	network, address, export string

	size  int64
	flags uint16

	mu     sync.Mutex
	link   *nbdLink // the connection, which may be lost
	closed bool

	patience time.Duration // limit for a new connection; the requests wait for it
}

// ThinNBD is an NBD whose server can give storage back.
type ThinNBD struct{ *NBD }

// String returns the kind and the address of the medium.
func (n *NBD) String() string { return "nbd " + n.address + " " + n.export }

const defaultNBDPort = "10809"

// nbdPatience is how long a lost connection may take to be there again.
const nbdPatience = 10 * time.Second

var errSilentNBD = errors.New("the NBD server does not answer: see whether it runs")

// OpenNBD connects to an export: nbd://host[:port]/export, or
// nbd+unix:///export?socket=path. The result is a *ThinNBD if the server writes zeros by
// command, and an *NBD otherwise. ctx is for the connection only. The caller must close
// the medium.
func OpenNBD(ctx context.Context, address string) (Medium, error) {
	n, err := parseNBD(address)
	if err != nil {
		return nil, err
	}
	if n.link, err = n.dial(ctx); err != nil {
		return nil, fmt.Errorf("NBD export %s: %w", address, err)
	}
	n.size, n.flags = n.link.size, n.link.flags
	if n.size <= 0 {
		return nil, errors.Join(fmt.Errorf("NBD export %s: the server says that it has %d octets", address, n.size), n.Close())
	}
	if n.flags&(nbd.SendWriteZeroes|nbd.ReadOnly) == nbd.SendWriteZeroes {
		return &ThinNBD{n}, nil
	}
	return n, nil
}

// parseNBD reads the URL of an export.
func parseNBD(address string) (*NBD, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	n := &NBD{export: strings.TrimPrefix(u.Path, "/"), patience: nbdPatience}
	switch u.Scheme {
	case "nbd":
		n.network, n.address = "tcp", u.Host
		if u.Port() == "" {
			n.address = net.JoinHostPort(u.Hostname(), defaultNBDPort)
		}
	case "nbd+unix":
		n.network, n.address = "unix", u.Query().Get("socket")
	}
	if n.address == "" || len(n.export) > nbd.MaxName {
		return nil, fmt.Errorf("NBD export %q: use nbd://host[:port]/export or nbd+unix:///export?socket=path", address)
	}
	return n, nil
}

// dial makes a connection.
func (n *NBD) dial(ctx context.Context) (*nbdLink, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, n.network, n.address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	l := &nbdLink{conn: c, calls: map[uint64]*nbdCall{}}
	err = l.greet(n.export)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	go l.listen()
	return l, nil
}

// current returns the connection, and makes a new one if it is lost.
func (n *NBD) current() (*nbdLink, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, net.ErrClosed
	}
	if n.link.lost() == nil {
		return n.link, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), n.patience, errSilentNBD)
	defer cancel()
	l, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	if l.size != n.size {
		l.close(fmt.Errorf("the NBD export has %d octets now, and had %d", l.size, n.size))
		return nil, l.lost()
	}
	n.link = l
	return l, nil
}

// do executes a request.
func (n *NBD) do(kind, flags uint16, off int64, length int, out, in []byte) error {
	l, err := n.current()
	if err != nil {
		return err
	}
	return l.do(kind, flags, off, length, out, in)
}

// Size returns the capacity in octets.
func (n *NBD) Size() int64 { return n.size }

// ReadAt implements io.ReaderAt.
func (n *NBD) ReadAt(p []byte, off int64) (int, error) {
	if !inside(off, int64(len(p)), n.size) {
		return 0, io.ErrUnexpectedEOF
	}
	if err := n.do(nbd.CmdRead, 0, off, len(p), nil, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAt implements io.WriterAt.
func (n *NBD) WriteAt(p []byte, off int64) (int, error) {
	if !inside(off, int64(len(p)), n.size) {
		return 0, io.ErrShortWrite
	}
	if err := n.do(nbd.CmdWrite, 0, off, len(p), p, nil); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Sync returns when the server has the octets on stable storage. A server without FLUSH
// says that it needs none.
func (n *NBD) Sync() error {
	if n.flags&nbd.SendFlush == 0 {
		return nil
	}
	return n.do(nbd.CmdFlush, 0, 0, 0, nil, nil)
}

// zeroStep is how many octets one request zeros.
const zeroStep = 1 << 30

// zero writes zeros.
func (n *NBD) zero(flags uint16, off, length int64) error {
	if !inside(off, length, n.size) {
		return io.ErrUnexpectedEOF
	}
	for length > 0 {
		k := min(length, zeroStep)
		if err := n.do(nbd.CmdWriteZeroes, flags, off, int(k), nil, nil); err != nil {
			return err
		}
		off, length = off+k, length-k
	}
	return nil
}

// Zero implements unit.Zeroer. The octets keep their storage.
func (n *ThinNBD) Zero(off, length int64) error { return n.zero(nbd.FlagNoHole, off, length) }

// Discard implements unit.Discarder. A trim does not promise zeros, so the server is asked
// for zeros, and may make a hole.
func (n *ThinNBD) Discard(off, length int64) error { return n.zero(0, off, length) }

// Close ends the connection. Requests in progress fail.
func (n *NBD) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.link.disconnect()
	return nil
}
