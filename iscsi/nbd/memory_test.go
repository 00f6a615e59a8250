package nbd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/block"
	"github.com/stag-rdma/stag/test/rig"
)

// memory is a volume in memory.
type memory struct {
	shape block.Shape

	mu     sync.Mutex
	data   []byte
	log    []block.Request       // what was submitted, without data
	errs   map[block.Op]error    // the results of operations
	held   bool                  // requests do not complete
	quiet  bool                  // the log stays empty
	queues map[*memoryQueue]bool // that are not closed
}

func newMemory(size int64, b int) *memory {
	return &memory{
		shape: block.Shape{Size: size, Block: b, Physical: int64(b), WriteCache: true, Discard: 1 << 30, DiscardUnit: int64(b), WriteZeroes: 1 << 30},
		data:  make([]byte, size), errs: map[block.Op]error{}, queues: map[*memoryQueue]bool{},
	}
}

func (m *memory) Shape() block.Shape { return m.shape }

func (m *memory) Queue(depth int) (block.Queue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := &memoryQueue{m: m, wake: make(chan struct{}, 1)}
	m.queues[q] = true
	return q, nil
}

type memoryQueue struct {
	m             *memory
	flying, ended []*block.Request // guarded by m.mu
	wake          chan struct{}
	canceled      bool
}

var errHeld = errors.New("canceled")

func (q *memoryQueue) Submit(rs ...*block.Request) (int, error) {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	for _, r := range rs {
		x := *r
		x.Data = nil
		if !q.m.quiet {
			q.m.log = append(q.m.log, x)
		}
		switch {
		case q.canceled:
			r.Err = errHeld
		case q.m.held:
			q.flying = append(q.flying, r)
			continue
		default:
			q.m.execute(r)
		}
		q.ended = append(q.ended, r)
	}
	q.ring()
	return len(rs), nil
}

func (m *memory) execute(r *block.Request) {
	if r.Err = m.errs[r.Op]; r.Err != nil || r.Op == block.Flush {
		return
	}
	place := m.data[r.Offset : r.Offset+r.Length]
	switch r.Op {
	case block.Read:
		copy(r.Data, place)
	case block.Write:
		copy(place, r.Data)
	default:
		clear(place)
	}
}

func (q *memoryQueue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *memoryQueue) Poll(dst []*block.Request) (n int) {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	n = copy(dst, q.ended)
	q.ended = q.ended[:copy(q.ended, q.ended[n:])]
	return n
}

func (q *memoryQueue) Wait(ctx context.Context) error {
	for {
		q.m.mu.Lock()
		ready := len(q.ended) != 0
		q.m.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *memoryQueue) Cancel() {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	q.canceled = true
	for _, r := range q.flying {
		r.Err = errHeld
	}
	q.ended, q.flying = append(q.ended, q.flying...), nil
	q.ring()
}

func (q *memoryQueue) Close() error {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	if len(q.ended)+len(q.flying) != 0 {
		return errors.New("closed with requests in flight")
	}
	delete(q.m.queues, q)
	return nil
}

// submitted returns what was submitted.
func (m *memory) submitted() []block.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// change calls f with the volume's octets.
func (m *memory) change(f func(data []byte)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.data)
}

// export serves a volume at a socket until the test ends, and demands that nothing is left
// then.
func export(t testing.TB, m *memory, change func(*Config)) (s *Server, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nbd")
	l, err := net.Listen("unix", socket)
	rig.Must(t, err)
	c := Config{Volume: m, Name: "disk"}
	if change != nil {
		change(&c)
	}
	s, err = Serve(l, c)
	rig.Must(t, err)
	t.Cleanup(func() {
		rig.Check(t, s.Close())
		rig.Check(t, s.Close())
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.queues) != 0 {
			t.Errorf("%d queues are open", len(m.queues))
		}
	})
	return s, socket
}

// patience is far longer than anything here takes.
const patience = 20 * time.Second
