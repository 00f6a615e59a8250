package ublk

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/block"
)

// wakeTag is the user data of the read of the eventfd. The other entries have the tag of
// their request.
const wakeTag = depth

// queue is the device's queue. Its thread takes requests from the kernel, and returns their
// results.
type queue struct {
	q    block.Queue
	f    *os.File // /dev/ublkcN
	ring *ring
	desc []byte // the kernel's descriptors of requests, by tag
	data []byte // of requests, by tag

	event  int    // eventfd by which other goroutines wake the thread
	count  []byte // where the eventfd is read to
	wake   bool   // the eventfd has been read
	asleep chan struct{}

	requests [depth]block.Request
	batch    []*block.Request // to submit
	flying   int              // requests that have not been returned
	dead     int              // tags that the kernel uses no more
	err      error            // that ended the thread
}

// pieces of the queue's memory.
const (
	dataLen  = depth * buffer
	countLen = 8
)

func newQueue(path string, v block.Volume) (q *queue, err error) {
	q = &queue{event: -1, asleep: make(chan struct{}, 1), batch: make([]*block.Request, 0, depth)}
	defer func() {
		if err != nil {
			q.close() // the error before is the one to tell
		}
	}()
	if q.f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if q.desc, err = unix.Mmap(int(q.f.Fd()), 0, depth*descLen, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, os.NewSyscallError("mmap "+path, err)
	}
	if q.data, err = anonymous(dataLen + countLen); err != nil {
		return nil, err
	}
	q.count = q.data[dataLen:]
	if q.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if q.ring, err = newRing(2 * depth); err != nil {
		return nil, err
	}
	q.q, err = v.Queue(depth)
	return q, err
}

// close frees what newQueue has made. The thread has ended.
func (q *queue) close() error {
	if q.ring != nil {
		q.ring.close()
	}
	if q.event >= 0 {
		unix.Close(q.event)
	}
	for _, b := range [][]byte{q.desc, q.data} {
		if b != nil {
			unix.Munmap(b) // it cannot fail: the mapping is there
		}
	}
	if q.f != nil {
		q.f.Close()
	}
	if q.q != nil {
		return q.q.Close()
	}
	return nil
}

// run is the thread. It sends nil to started when the kernel may hand requests over.
func (q *queue) run(started chan<- error) {
	// The driver wants every command of a queue from one thread. The thread ends with run,
	// which tells the driver that nobody serves the queue.
	runtime.LockOSThread()
	for tag := range depth {
		q.io(ioFetch, tag, 0)
	}
	q.listen()
	err := q.ring.enter(0)
	q.ring.reap(func(data uint64, res int32) {
		if data != wakeTag && res < 0 && err == nil {
			err = syscall.Errno(-res)
		}
	})
	started <- err
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiter sync.WaitGroup
	waiter.Go(func() { q.wait(ctx) })
	q.err = q.loop()
	cancel()
	waiter.Wait()
}

// loop passes requests and results until the kernel uses no tag any more.
func (q *queue) loop() error {
	got := make([]*block.Request, depth)
	for {
		q.submit()
		for n := q.q.Poll(got); n != 0; n = q.q.Poll(got) {
			for _, r := range got[:n] {
				q.complete(r)
			}
		}
		if q.wake {
			q.wake = false
			q.listen()
			q.asleep <- struct{}{}
		}
		if q.dead == depth && q.flying == 0 {
			return nil
		}
		if err := q.ring.enter(1); err != nil {
			return err
		}
		q.ring.reap(q.reaped)
	}
}

// reaped handles a completion of the ring: a request of the kernel, the end of a tag, or a
// wake-up.
func (q *queue) reaped(data uint64, res int32) {
	switch {
	case data == wakeTag:
		q.wake = true
	case res < 0:
		q.dead++
	default:
		tag := int(data)
		r, ok := parseDesc(q.desc[tag*descLen:])
		q.flying++
		q.requests[tag] = r
		x := &q.requests[tag]
		x.Tag = tag
		if !ok {
			x.Err = syscall.EOPNOTSUPP
			q.complete(x)
			return
		}
		if r.Op == block.Read || r.Op == block.Write {
			x.Data = q.data[tag*buffer:][:r.Length]
		}
		q.batch = append(q.batch, x)
	}
}

// submit submits what the kernel has handed over.
func (q *queue) submit() {
	if len(q.batch) == 0 {
		return
	}
	n, err := q.q.Submit(q.batch...)
	for _, r := range q.batch[n:] {
		r.Err = err
		q.complete(r)
	}
	q.batch = q.batch[:0]
}

// complete returns a result to the kernel, and fetches the next request of the tag.
func (q *queue) complete(r *block.Request) {
	q.flying--
	result := -int32(block.Errno(r.Err))
	if r.Err == nil && (r.Op == block.Read || r.Op == block.Write) {
		result = int32(r.Length)
	}
	r.Data = nil
	q.io(ioCommitAndFetch, r.Tag, result)
}

// io prepares a command to the queue. Its structure is struct ublksrv_io_cmd.
//
//	0       2     4        8      16
//	| queue | tag | result | addr |
func (q *queue) io(op uint32, tag int, result int32) {
	e := q.ring.entry()
	command(e, int(q.f.Fd()), op, uint64(tag))
	b := e[commandAt:]
	binary.NativeEndian.PutUint16(b[2:], uint16(tag))
	binary.NativeEndian.PutUint32(b[4:], uint32(result))
	binary.NativeEndian.PutUint64(b[8:], address(q.data[tag*buffer:]))
}

// listen prepares the read of the eventfd.
func (q *queue) listen() {
	e := q.ring.entry()
	e[0] = opURingRead
	binary.NativeEndian.PutUint32(e[4:], uint32(q.event))
	binary.NativeEndian.PutUint64(e[16:], address(q.count))
	binary.NativeEndian.PutUint32(e[24:], countLen)
	binary.NativeEndian.PutUint64(e[32:], wakeTag)
}

// wait wakes the thread when the volume has completions. It ends when the volume is lost:
// then every submission fails at once.
func (q *queue) wait(ctx context.Context) {
	one := make([]byte, countLen)
	binary.NativeEndian.PutUint64(one, 1)
	for q.q.Wait(ctx) == nil {
		if _, err := unix.Write(q.event, one); err != nil {
			return
		}
		select {
		case <-q.asleep:
		case <-ctx.Done():
			return
		}
	}
}
