package nbd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/iscsi/block"
)

const (
	keptBuffer = 1 << 20          // octets of a slot's memory that outlive a request
	replyTime  = time.Second      // for replies when the server closes
	readAhead  = 64 << 10         // octets of the reader's buffer
	batch      = 16               // replies of one system call
	noErrno    = syscall.Errno(0) // success
)

// link is a connection that has negotiated. One goroutine reads requests, and another one
// writes the replies.
type link struct {
	conn   net.Conn
	in     *bufio.Reader
	shape  *block.Shape
	queue  block.Queue
	free   chan *slot
	depth  int
	memory budget

	writing sync.Mutex
	out     net.Buffers // of a write
	failed  error       // of a write
	deaf    atomic.Bool // failed is set: what the reader has buffered is not executed
}

// slot is a request in progress.
type slot struct {
	block.Request
	cookie uint64
	taken  int // octets of the budget
	mem    []byte
	reply  [ReplyLen]byte
	one    [1]*block.Request // the request, for Submit
	answer [1][]byte         // the reply, for write
}

// transmit executes a client's requests until it disconnects or ctx ends. The caller closes
// the connection.
func transmit(ctx context.Context, conn net.Conn, v block.Volume, s *block.Shape, depth, memory int) error {
	q, err := v.Queue(depth)
	if err != nil {
		return err
	}
	l := &link{conn: conn, in: bufio.NewReaderSize(conn, readAhead), shape: s, queue: q, free: make(chan *slot, depth), depth: depth}
	l.memory.init(memory)
	slots := make([]slot, depth)
	for i := range slots {
		slots[i].Tag = i
		slots[i].one[0] = &slots[i].Request
		l.free <- &slots[i]
	}
	replies, end := context.WithCancel(context.Background())
	var replier sync.WaitGroup
	replier.Go(func() { err = l.replies(replies, slots) }) // nobody else uses err before Wait
	stop := context.AfterFunc(ctx, func() {
		conn.SetReadDeadline(time.Unix(1, 0))
		conn.SetWriteDeadline(time.Now().Add(replyTime))
		q.Cancel()
	})
	received := l.receive(ctx)
	if received != nil || ctx.Err() != nil {
		q.Cancel()
	}
	for range depth {
		<-l.free
	}
	stop()
	end()
	replier.Wait()
	if ctx.Err() != nil {
		return q.Close() // the errors before are those of the end
	}
	return errors.Join(received, l.failed, err, q.Close())
}

// receive reads requests until the client disconnects.
func (l *link) receive(ctx context.Context) error {
	var b [RequestLen]byte
	for !l.deaf.Load() {
		if _, err := io.ReadFull(l.in, b[:]); err != nil {
			return left(err)
		}
		r, ok := ParseRequest(&b)
		if !ok {
			return errors.New("the client has sent octets that are no request")
		}
		if r.Type == CmdDisconnect {
			return nil
		}
		if r.Type == CmdWrite && r.Length > MaxPayload {
			return fmt.Errorf("the client writes %d octets at once: at most %d are permitted", r.Length, MaxPayload)
		}
		if err := l.begin(ctx, &r); err != nil {
			return left(err)
		}
	}
	return nil
}

// left returns nil if the client has closed the connection between two requests.
func left(err error) error {
	if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// begin submits a request, or answers it if the volume must not see it.
func (l *link) begin(ctx context.Context, r *Request) error {
	s := <-l.free
	s.cookie, s.taken = r.Cookie, 0
	errno := l.prepare(s, r)
	data := 0
	if r.Type == CmdWrite || r.Type == CmdRead && errno == noErrno {
		data = int(r.Length)
	}
	if errno != noErrno {
		if r.Type == CmdWrite {
			if _, err := io.CopyN(io.Discard, l.in, int64(data)); err != nil {
				l.free <- s
				return err
			}
		}
		l.answer(s, errno)
		return nil
	}
	if err := l.memory.take(ctx, data); err != nil {
		l.free <- s
		return err
	}
	s.taken = data
	s.Data = s.buffer(data)
	if r.Type == CmdWrite {
		if _, err := io.ReadFull(l.in, s.Data); err != nil {
			l.release(s)
			return err
		}
	}
	if n, err := l.queue.Submit(s.one[:]...); n == 0 {
		l.answer(s, block.Errno(err))
	}
	return nil
}

// prepare fills in the request of the volume. It returns an errno if the volume must not
// see it.
func (l *link) prepare(s *slot, r *Request) syscall.Errno {
	if int(r.Type) >= len(commands) || !commands[r.Type].known || r.Flags&^commands[r.Type].flags != 0 {
		return syscall.EINVAL
	}
	c := &commands[r.Type]
	s.Request = block.Request{Op: c.op, Tag: s.Tag, FUA: r.Flags&FlagFUA != 0}
	if c.op == block.Flush {
		return noErrno
	}
	if r.Offset > 1<<63-1 {
		if c.op == block.Read {
			return syscall.EINVAL
		}
		return syscall.ENOSPC
	}
	s.Offset, s.Length = int64(r.Offset), int64(r.Length)
	if c.op == block.Read && r.Length > MaxPayload {
		return syscall.EOVERFLOW
	}
	return block.Errno(s.Check(l.shape))
}

// buffer returns n octets of the slot's memory.
func (s *slot) buffer(n int) []byte {
	if n > len(s.mem) {
		size := 4096
		for size < n {
			size *= 2
		}
		s.mem = make([]byte, size)
	}
	return s.mem[:n]
}

// release makes a slot free.
func (l *link) release(s *slot) {
	l.memory.give(s.taken)
	s.Data = nil
	if len(s.mem) > keptBuffer {
		s.mem = nil
	}
	l.free <- s
}

// answer writes a reply without data.
func (l *link) answer(s *slot, e syscall.Errno) {
	putReply(&s.reply, e, s.cookie)
	l.write(append(s.answer[:0], s.reply[:]))
	l.release(s)
}

// replies writes a reply for each request that completes, until ctx ends.
func (l *link) replies(ctx context.Context, slots []slot) error {
	got := make([]*block.Request, min(batch, l.depth))
	room := make([][]byte, 0, 2*batch)
	for {
		n := l.queue.Poll(got)
		if n == 0 {
			if err := l.queue.Wait(ctx); err != nil {
				return l.over(ctx, err)
			}
			continue
		}
		out := room[:0]
		for _, r := range got[:n] {
			s := &slots[r.Tag]
			e := block.Errno(r.Err)
			putReply(&s.reply, e, s.cookie)
			out = append(out, s.reply[:])
			if r.Op == block.Read && e == noErrno {
				out = append(out, s.Data)
			}
		}
		l.write(out)
		for _, r := range got[:n] {
			l.release(&slots[r.Tag])
		}
	}
}

// over ends the connection of a volume that is lost.
func (l *link) over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	l.conn.Close()
	<-ctx.Done()
	return err
}

// write writes replies. If it fails, the connection is closed, which ends receive.
func (l *link) write(out [][]byte) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.failed != nil {
		return
	}
	l.out = out
	if _, err := l.out.WriteTo(l.conn); err != nil {
		l.failed = err
		l.deaf.Store(true)
		l.conn.Close()
	}
}

// budget limits the memory of a connection. One goroutine takes.
type budget struct {
	mu    sync.Mutex
	left  int
	freed chan struct{}
}

func (b *budget) init(n int) { b.left, b.freed = n, make(chan struct{}, 1) }

// take waits until n octets are left.
func (b *budget) take(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		ok := n <= b.left
		if ok {
			b.left -= n
		}
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-b.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *budget) give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.left += n
	b.mu.Unlock()
	select {
	case b.freed <- struct{}{}:
	default:
	}
}
