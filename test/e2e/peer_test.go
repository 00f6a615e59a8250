package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/octets"
)

type (
	bpfFlowKey = bpf.FlowKey
	bpfFlow    = bpf.Flow
)

// The patterns of the two directions.
const (
	seedOurs   octets.Pattern = 1
	seedTheirs octets.Pattern = 2
)

// talk is one side's use of a kernel socket. It writes a pattern without pause and checks the arriving pattern. It is
// the application at the peer, and at the local side until the take-over.
type talk struct {
	conn     *net.TCPConn
	out, in  octets.Pattern
	send     uint64           // number of octets to write at most
	halfShut bool             // close the writing direction when all is written
	limit    uint64           // stop reading at this octet; 0 means never
	pace     func(pos uint64) // called before each write; nil means no pause

	enough         atomic.Bool // write no more
	sent, received atomic.Uint64
	gap            atomic.Int64 // longest time between two reads that found something, ns
	wrote, read    chan error   // one value each
}

// start begins both directions.
func (k *talk) start() *talk {
	k.wrote, k.read = make(chan error, 1), make(chan error, 1)
	go func() { k.wrote <- k.write() }()
	go func() { k.read <- k.readAll() }()
	return k
}

func (k *talk) write() error {
	buf := make([]byte, 64<<10)
	for pos := k.sent.Load(); pos < k.send && !k.enough.Load(); {
		if k.pace != nil {
			k.pace(pos)
		}
		b := buf[:min(uint64(len(buf)), k.send-pos)]
		k.out.Fill(b, pos)
		n, err := k.conn.Write(b)
		pos += uint64(n)
		k.sent.Store(pos)
		if err != nil {
			return fmt.Errorf("write at octet %d: %w", pos, err)
		}
	}
	if k.halfShut {
		return k.conn.CloseWrite()
	}
	return nil
}

// readAll reads until the end of the stream, which is no error, or until limit.
func (k *talk) readAll() error {
	buf := make([]byte, 256<<10)
	last := time.Now()
	for pos := k.received.Load(); k.limit == 0 || pos < k.limit; {
		b := buf
		if k.limit != 0 {
			b = buf[:min(uint64(len(buf)), k.limit-pos)]
		}
		n, err := k.conn.Read(b)
		if i := k.in.Differs(buf[:n], pos); i >= 0 {
			return fmt.Errorf("octet %d is wrong", pos+uint64(i))
		}
		pos += uint64(n)
		k.received.Store(pos)
		if n > 0 {
			now := time.Now()
			k.gap.Store(max(k.gap.Load(), int64(now.Sub(last))))
			last = now
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read at octet %d: %w", pos, err)
		}
	}
	return nil
}

// upTo lets both directions run until limit octets have been read, and stops
// them there.
func (k *talk) upTo(limit uint64) error {
	k.limit = limit
	k.start()
	err := <-k.read
	k.read <- err
	return errors.Join(err, k.interrupt())
}

// interrupt stops both directions and leaves the connection unchanged. Octets that are written and not sent, or
// received and not read, stay in the kernel's queues.
func (k *talk) interrupt() error {
	k.conn.SetDeadline(time.Unix(1, 0))
	w, r := <-k.wrote, <-k.read
	for _, err := range []error{w, r} {
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return k.conn.SetDeadline(time.Time{})
}
