package attach

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/block"
)

// Repeats of a part of a request.
const (
	mostRepeats = 100
	busyTime    = 50 * time.Millisecond // before the repeat, if the unit is busy
)

// errShort is the error of a part of which the target has not transferred everything.
var errShort = errors.New("the target transferred less than the request has")

// queue is a block.Queue over an iscsi.Queue. A request that is longer than the unit permits
// becomes several IOs.
type queue struct {
	v *Volume
	q *iscsi.Queue

	mu      sync.Mutex
	waiting ring // requests with parts that have not been posted
	parts   []part
	free    []int
	ended   ring // requests to poll
	posts   []iscsi.IO
	got     [16]iscsi.Completion
	delayed int  // parts that wait for busyTime
	cancel  bool // parts that are not posted yet fail
}

// part is an IO in flight. Its index is its ID.
type part struct {
	io      iscsi.IO
	r       *block.Request
	buffer  [1][]byte
	repeats int
}

// Queue implements block.Volume.
func (v *Volume) Queue(depth int) (block.Queue, error) {
	q, err := v.disk.Queue(depth)
	if err != nil {
		return nil, err
	}
	b := &queue{v: v, q: q, parts: make([]part, depth), posts: make([]iscsi.IO, 0, depth)}
	b.waiting.init(depth)
	b.ended.init(depth)
	for i := range depth {
		b.free = append(b.free, i)
	}
	return b, nil
}

// Submit implements block.Queue.
func (b *queue) Submit(rs ...*block.Request) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.v.disk.Err(); err != nil {
		return 0, err
	}
	for _, r := range rs {
		b.waiting.push(r)
	}
	b.post()
	return len(rs), nil
}

// post posts parts of the requests that wait.
func (b *queue) post() {
	for len(b.free) != 0 && b.waiting.n != 0 {
		r := b.waiting.front()
		if b.cancel && r.Err == nil {
			r.Err = iscsi.ErrCanceled
		}
		if r.Err == nil {
			b.take(r)
		} else {
			r.Posted, r.Synced = r.Length, true // no part follows
		}
		if b.posted(r) {
			b.waiting.pop()
			b.settle(r)
		}
	}
	b.flush()
}

// posted reports whether all parts of a request have been posted.
func (b *queue) posted(r *block.Request) bool {
	if r.Op == block.Flush {
		return r.Synced
	}
	return r.Posted == r.Length
}

// take prepares the next part of a request.
func (b *queue) take(r *block.Request) {
	p := b.part()
	p.r, p.repeats = r, 0
	p.io.Op, p.io.FUA = ops[r.Op], false
	r.Flying++
	if r.Op == block.Flush {
		p.io.Buffers, r.Synced = nil, true
		return
	}
	n := min(r.Length-r.Posted, b.v.longest(r.Op))
	p.io.LBA = uint64(r.Offset+r.Posted) / uint64(b.v.shape.Block)
	if r.Op == block.Read || r.Op == block.Write {
		p.buffer[0] = r.Data[r.Posted : r.Posted+n]
		p.io.Buffers = p.buffer[:]
		p.io.FUA = r.FUA && b.v.traits.FUA && b.v.shape.WriteCache
	} else {
		p.io.Buffers, p.io.Blocks = nil, uint32(n/int64(b.v.shape.Block))
	}
	r.Posted += n
}

// part takes a free part. flush posts it.
func (b *queue) part() *part {
	i := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	p := &b.parts[i]
	p.io.ID = uint64(i)
	b.posts = append(b.posts, iscsi.IO{ID: p.io.ID})
	return p
}

// ops are the operations of parts.
var ops = [...]iscsi.Op{
	block.Read: iscsi.Read, block.Write: iscsi.Write, block.Flush: iscsi.Sync, block.Discard: iscsi.Discard, block.WriteZeroes: iscsi.WriteZeroes,
}

// longest returns the length of the longest part in octets.
func (v *Volume) longest(op block.Op) int64 {
	switch op {
	case block.Discard:
		return v.traits.Discard
	case block.WriteZeroes:
		return v.traits.WriteZeroes
	}
	return v.traits.Transfer
}

// flush posts what take has prepared. The queue has room for each part.
func (b *queue) flush() {
	if len(b.posts) == 0 {
		return
	}
	for i := range b.posts {
		b.posts[i] = b.parts[b.posts[i].ID].io
	}
	n, err := b.q.Post(b.posts...)
	if err == nil && n != len(b.posts) {
		err = iscsi.ErrSessionLost
	}
	rest := b.posts[n:]
	b.posts = b.posts[:0]
	for i := range rest {
		b.failed(int(rest[i].ID), err)
	}
}

// failed ends a part with an error.
func (b *queue) failed(i int, err error) {
	r := b.parts[i].r
	if r.Err == nil {
		r.Err = err
	}
	b.ends(i)
}

// ends makes a part free, and ends its request with the last part.
func (b *queue) ends(i int) {
	r := b.parts[i].r
	b.parts[i].r, b.parts[i].buffer[0] = nil, nil
	b.free = append(b.free, i)
	r.Flying--
	b.settle(r)
}

// settle ends a request without parts in flight and to post. A FUA of the unit's other
// commands is a flush behind them.
func (b *queue) settle(r *block.Request) {
	if r.Flying != 0 || !b.posted(r) {
		return
	}
	if r.FUA && !r.Synced && r.Err == nil && b.v.shape.WriteCache && !(r.Op == block.Write && b.v.traits.FUA) && r.Op != block.Read {
		r.Synced = true
		b.sync(r)
		return
	}
	b.ended.push(r)
}

// sync posts the flush of a FUA. A part has just become free.
func (b *queue) sync(r *block.Request) {
	p := b.part()
	p.r, p.repeats = r, 0
	p.io.Op, p.io.FUA, p.io.Buffers = iscsi.Sync, false, nil
	r.Flying++
}

// Poll implements block.Queue.
func (b *queue) Poll(dst []*block.Request) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		k := b.q.Poll(b.got[:])
		for i := range b.got[:k] {
			b.completed(&b.got[i])
		}
		b.post()
		if k == 0 {
			break
		}
	}
	for n < len(dst) && b.ended.n != 0 {
		dst[n] = b.ended.pop()
		n++
	}
	return n
}

// completed handles the completion of a part.
func (b *queue) completed(c *iscsi.Completion) {
	i := int(c.ID)
	p := &b.parts[i]
	err := c.Err
	if want := len(p.buffer[0]); err == nil && p.io.Buffers != nil && c.Length != want {
		err = errShort
	}
	what, err := b.v.judge(p.r.Op, err)
	if p.repeats++; what != done && (p.repeats > mostRepeats || b.cancel) {
		what = failed
	}
	switch what {
	case done:
		b.ends(i)
	case again:
		b.posts = append(b.posts, iscsi.IO{ID: c.ID})
	case later:
		b.delayed++
		time.AfterFunc(busyTime, func() { b.repost(i) })
	default:
		b.failed(i, err)
	}
}

// repost posts a part again. If the session has ended, Wait sees that.
func (b *queue) repost(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delayed--
	b.posts = append(b.posts, iscsi.IO{ID: uint64(i)})
	b.flush()
	if b.cancel {
		b.q.Cancel(uint64(i))
	}
}

// Wait implements block.Queue.
func (b *queue) Wait(ctx context.Context) error {
	for {
		if ready, _ := b.state(); ready {
			return nil
		}
		err := b.q.Wait(ctx)
		if err == nil {
			return nil
		}
		ready, delayed := b.state()
		if ready {
			return nil
		}
		if !delayed || ctx.Err() != nil {
			return err
		}
		select { // the session has ended, and repost will see that
		case <-time.After(busyTime):
		case <-ctx.Done():
		}
	}
}

// state reports whether Poll would return a request, and whether a part waits for busyTime.
func (b *queue) state() (ready, delayed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended.n != 0, b.delayed != 0
}

// Cancel implements block.Queue.
func (b *queue) Cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = true
	for i := range b.parts {
		if b.parts[i].r != nil {
			b.q.Cancel(uint64(i))
		}
	}
}

// Close implements block.Queue.
func (b *queue) Close() error { return b.q.Close() }
