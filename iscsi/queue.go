package iscsi

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/clock"
)

// Op is what an IO does.
type Op uint8

const (
	Read Op = iota
	Write
	Sync        // write the volatile cache to the medium; LBA and Buffers are not used
	Discard     // the unit need not keep Blocks blocks (UNMAP)
	WriteZeroes // write zeros to Blocks blocks (WRITE SAME)
)

// IO is a request for a Queue.
type IO struct {
	ID  uint64 // cookie of the completion
	Op  Op
	LBA uint64 // first logical block

	// Blocks is the number of logical blocks of a Discard or WriteZeroes, at most what
	// Disk.Traits tells. Read and Write have Buffers instead.
	Blocks uint32

	FUA bool // of a Write: the completion says that the octets are on the medium

	// Buffers are the octets, in order: at most 16 buffers, together a multiple of the
	// block size. They belong to the queue until Poll returns the completion. They need no
	// registration.
	Buffers [][]byte
}

// Completion is the result of an IO.
type Completion struct {
	ID     uint64
	Err    error // nil: the target says GOOD; a *StatusError; ErrSessionLost; ErrUncertain; ErrCanceled; another error of the data
	Length int   // octets that were transferred
}

// ErrCanceled is the error of an IO that Cancel has ended.
var ErrCanceled error = flow.Canceled

// Queue is a queue of IOs to a disk, as a QP with a CQ of package rdma: Post posts IOs, the
// target's data is placed in their buffers, and Poll returns completions. It is safe for
// concurrent use.
type Queue struct {
	disk  *Disk
	q     *sessionQueue // nil: the commands take several paths
	paths *pathQueue    // nil: there is one session
	wake  chan struct{}
	nap   nap

	visited atomic.Bool // Post has just done the connection's work

	posting sync.Mutex
	polling sync.Mutex
	got     [16]flow.Completion // of Poll
	closed  bool
}

// Queue makes a queue for depth IOs. Config.Depth limits the depths of all queues of the
// session together. The caller must close the queue.
func (d *Disk) Queue(depth int) (*Queue, error) {
	q := &Queue{disk: d, wake: make(chan struct{}, 1)}
	if err := d.Err(); err != nil {
		return nil, err
	}
	var err error
	if d.paths != nil {
		if q.paths, err = d.paths.newQueue(depth, q.news); err != nil {
			return nil, err
		}
		return q, nil
	}
	if q.q, err = d.s.takeQueue(depth, q.news); err != nil {
		return nil, err
	}
	q.nap.ready = func() bool { return q.q.Ready() || q.nap.ctx.Err() != nil }
	return q, nil
}

// news runs after a step in which an armed queue got a completion.
func (q *Queue) news() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
	q.nap.end(q.disk.s)
}

// Post posts IOs in order, as many as the queue has room for, and returns how many. An
// error is about the IO after those, and the session does not see that one. Errors also:
// ErrClosed, ErrSessionLost.
func (q *Queue) Post(ios ...IO) (n int, err error) {
	q.posting.Lock()
	if q.closed {
		q.posting.Unlock()
		return 0, fmt.Errorf("iscsi: post to a queue: %w", ErrClosed)
	}
	for n < len(ios) && q.room() != 0 {
		var posted int
		if posted, err = q.post(&ios[n]); err != nil || posted == 0 {
			break
		}
		n++
	}
	q.posting.Unlock()
	switch {
	case n == 0:
	case q.paths != nil:
		q.paths.ring()
	default:
		q.disk.s.link().Post(true)
		q.visited.Store(true)
	}
	if err == flow.ErrEnded {
		err = ErrSessionLost
	}
	return n, err
}

func (q *Queue) post(io *IO) (int, error) {
	var octets uint64
	for _, b := range io.Buffers {
		octets += uint64(len(b))
	}
	size := uint64(q.disk.BlockSize())
	c := flow.Command{ID: io.ID, LUN: uint64(scsi.LUNOf(q.disk.lun))}
	blocks := octets / size
	var cdb scsi.CDB
	switch {
	case io.Op > WriteZeroes:
		return 0, fmt.Errorf("iscsi: post IO %d: there is no Op %d", io.ID, io.Op)
	case io.Op != Read && io.Op != Write:
		cdb, c.Out = q.disk.bare(io)
	case octets%size != 0 || blocks > math.MaxUint32:
		return 0, fmt.Errorf("iscsi: post IO %d of %d octets: %w, %d", io.ID, octets, ErrAlignment, size)
	case io.Op == Read:
		cdb, c.In = scsi.Read(io.LBA, uint32(blocks), 0), io.Buffers
	default:
		var flags uint8
		if io.FUA {
			flags = scsi.FUA
		}
		cdb, c.Out = scsi.Write(io.LBA, uint32(blocks), flags), io.Buffers
	}
	c.CDB = length(&cdb)
	if q.paths != nil {
		return q.paths.post(&c)
	}
	return q.q.Post(c)
}

// room returns how many IOs Post takes.
func (q *Queue) room() int {
	if q.paths != nil {
		return q.paths.room()
	}
	return q.q.Room()
}

// bare returns the command of an IO without Buffers, and the command's data.
func (d *Disk) bare(io *IO) (scsi.CDB, [][]byte) {
	switch io.Op {
	case Discard:
		b := scsi.AppendUnmap(nil, []scsi.Extent{{LBA: io.LBA, Blocks: io.Blocks}})
		return scsi.Unmap(uint16(len(b))), list(b)
	case WriteZeroes:
		return scsi.WriteSame(io.LBA, io.Blocks, 0), list(make([]byte, d.BlockSize()))
	}
	return scsi.SynchronizeCache(0, 0), nil
}

// Cancel ends the IOs of this ID that are in flight. Each completes with ErrCanceled,
// unless the target's answer is there before. When Poll returns the completion, the buffers
// are the caller's, though the target may still execute the IO. Cancel reports whether
// there is such an IO.
func (q *Queue) Cancel(id uint64) bool {
	if q.paths != nil {
		return q.paths.cancel(id)
	}
	q.posting.Lock()
	found := q.q.Cancel(id)
	q.posting.Unlock()
	if found {
		q.disk.s.wake()
	}
	return found
}

// Poll moves completions into dst, oldest first, and returns their number. With inline
// progress, a Poll that finds none does the present work of the connection, unless a Post has
// just done that.
func (q *Queue) Poll(dst []Completion) int {
	n := q.poll(dst)
	if n == 0 && q.paths != nil {
		q.paths.visit()
		return q.poll(dst)
	}
	if n == 0 && !q.visited.Swap(false) {
		if r := q.disk.s.link().Runner(); r != nil {
			r.Visit(clock.Now())
			n = q.poll(dst)
		}
	}
	return n
}

func (q *Queue) poll(dst []Completion) (n int) {
	q.polling.Lock()
	defer q.polling.Unlock()
	for n < len(dst) {
		k := q.take(q.got[:min(len(q.got), len(dst)-n)])
		for i := range q.got[:k] {
			dst[n] = q.completion(&q.got[i])
			n++
		}
		if k == 0 {
			break
		}
	}
	return n
}

// take moves completions into dst, and returns their number.
func (q *Queue) take(dst []flow.Completion) int {
	if q.paths != nil {
		return q.paths.poll(dst)
	}
	return q.q.Poll(dst)
}

// completion converts a completion.
func (q *Queue) completion(c *flow.Completion) Completion {
	out := Completion{ID: c.ID, Length: int(c.Length)}
	switch {
	case c.Why == flow.Lost:
		out.Err = q.disk.lost()
	case c.Why != flow.OK:
		out.Err = c.Why
	case c.Status() != 0 || c.Header.Response() != 0:
		_, out.Err = result(nil, c)
	}
	return out
}

// Wait sleeps until there is a completion to poll. With inline progress it first does the
// work of the connection for a short time. It returns the cause of the end of ctx, or
// ErrSessionLost if the session has ended and all its completions have been polled.
func (q *Queue) Wait(ctx context.Context) error {
	if q.paths != nil {
		return q.paths.wait(ctx, q.wake)
	}
	for {
		if q.q.Ready() || q.spin() {
			return nil
		}
		q.q.Arm()
		if q.q.Ready() || q.nap.wait(ctx, q.disk.s, nil) && q.q.Ready() {
			return nil
		}
		if r := q.disk.s.link().Runner(); r != nil {
			r.Watch()
			if q.q.Ready() {
				return nil
			}
		}
		select {
		case <-q.wake:
		case <-q.disk.s.done: // every IO has its completion
			if q.q.Ready() {
				return nil
			}
			return q.disk.s.lost()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// spin does the connection's work for a short time, and reports whether there is a
// completion.
func (q *Queue) spin() bool {
	r := q.disk.s.link().Runner()
	if r == nil {
		return false
	}
	for end := clock.Now().Add(q.disk.s.spin(r)); !r.Awake(); {
		now := clock.Now()
		if now >= end {
			return false
		}
		if r.Visit(now); q.q.Ready() {
			return true
		}
	}
	return q.q.Ready()
}

// Depth returns how many IOs the queue takes.
func (q *Queue) Depth() int {
	if q.paths != nil {
		return len(q.paths.slots)
	}
	return q.q.Depth()
}

// Close closes the queue. It fails while IOs are posted that have not been polled.
func (q *Queue) Close() error {
	q.posting.Lock()
	defer q.posting.Unlock()
	if left := q.Depth() - q.room(); left != 0 && !q.closed {
		return fmt.Errorf("iscsi: close a queue: %d IOs are in flight or not polled: cancel and poll them first", left)
	}
	switch {
	case q.closed:
	case q.paths != nil:
		q.disk.paths.giveQueue(q.paths)
	default:
		q.disk.s.giveQueue(q.q)
		q.nap.close()
	}
	q.closed = true
	return nil
}
