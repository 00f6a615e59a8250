package rdma

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// Several goroutines post to one QP while several poll its CQs: everything
// completes once, and the octets are right.
func TestPostersAndPollers(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const posters, each = 4, 200
		x, y := r.connect(wants{heap: 1 << 20, qp: QPConfig{SendDepth: 32, RecvDepth: 32}})
		var work sync.WaitGroup
		for p := range posters {
			work.Go(func() {
				for i := range each {
					id := uint64(p*each + i)
					wr := SendWR{ID: id, Op: WRWrite, Flags: Signaled, Inline: []byte{byte(id), byte(id >> 8)}, RKey: y.mr.RKey(), RemoteAddr: 2 * id}
					for {
						n, err := x.qp.PostSend(wr)
						if n == 1 {
							break
						}
						if !errors.Is(err, ErrQueueFull) {
							r.Error(err)
							return
						}
					}
				}
			})
		}
		var mu sync.Mutex
		seen := map[uint64]int{}
		for range 3 {
			work.Go(func() {
				var dst [7]Completion
				for {
					mu.Lock()
					all := len(seen) == posters*each
					mu.Unlock()
					if all {
						return
					}
					n := x.send.Poll(dst[:])
					mu.Lock()
					for _, c := range dst[:n] {
						seen[c.ID]++
						if c.Status != Success || seen[c.ID] != 1 {
							r.Errorf("%+v, seen %d times", c, seen[c.ID])
						}
					}
					mu.Unlock()
				}
			})
		}
		work.Wait()
		x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 1)}, RKey: y.mr.RKey()})
		r.ok(x.sent(1))
		for id := range posters * each {
			if got := y.mr.Bytes()[2*id : 2*id+2]; got[0] != byte(id) || got[1] != byte(id>>8) {
				r.Fatalf("%d wrote % x", id, got)
			}
		}
	})
}

// Posting while either end closes the connection: each work request that was taken
// completes exactly once.
func TestPostWhileItEnds(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		ends := []func(x, y *end){
			func(x, _ *end) { x.qp.Abort() },
			func(x, _ *end) { x.qp.Close() },
			func(_, y *end) { y.qp.Close() },
			func(_, y *end) { y.qp.Disconnect(r.Ctx()) },
		}
		for round := range 12 {
			x, y := r.connect(wants{cqDepth: 1 << 15})
			var work sync.WaitGroup
			var posted [2]int
			start := make(chan struct{})
			for i, post := range []func() (int, error){
				func() (int, error) { return x.qp.PostSend(SendWR{Op: WRWrite, Flags: Signaled, RKey: y.mr.RKey()}) },
				func() (int, error) { return x.qp.PostRecv(RecvWR{}) },
			} {
				work.Go(func() {
					<-start
					for range 3000 {
						n, err := post()
						if err != nil && !errors.Is(err, ErrQueueFull) {
							r.Error(err)
						}
						posted[i] += n
					}
				})
			}
			work.Go(func() { <-start; ends[round%len(ends)](x, y) })
			close(start)
			work.Wait()
			r.Check(x.qp.Close())
			r.Check(y.qp.Close())
			for i, cq := range []*CQ{x.send, x.recv} {
				n, dst := 0, make([]Completion, 100)
				for k := -1; k != 0; n += k {
					k = cq.Poll(dst)
				}
				if n != posted[i] || cq.Overrun() {
					r.Fatalf("round %d: %d posted, %d completions", round, posted[i], n)
				}
			}
		}
	})
}

// Many goroutines make and end many connections between two adapters at a time.
func TestManyConnections(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const n = 24
		l := r.listen(r.b)
		defer l.Close()
		var work sync.WaitGroup
		pd, err := r.b.AllocPD()
		r.Must(err)
		mr, err := pd.AllocMR(1<<16, all)
		r.Must(err)
		for range n {
			work.Go(func() {
				if err := serveOne(r, l, pd); err != nil {
					r.Error(err)
				}
			})
		}
		for i := range n {
			work.Go(func() {
				if err := writeOne(r, l, i, mr.RKey()); err != nil {
					r.Error(err)
				}
			})
		}
		work.Wait()
		for i := range n {
			if mr.Bytes()[i] != byte(i+1) {
				r.Errorf("octet %d is %d", i, mr.Bytes()[i])
			}
		}
	})
}

// serveOne accepts a connection and waits for its end.
func serveOne(r *rig, l *Listener, pd *PD) error {
	cq, err := pd.adapter.CreateCQ(8)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq, SendDepth: 2, RecvDepth: 2})
	if err != nil {
		return err
	}
	defer qp.Close()
	req, err := l.Accept(r.Ctx())
	if err != nil {
		return err
	}
	if err := req.Accept(r.Ctx(), qp, ConnParams{}); err != nil {
		return err
	}
	<-qp.Done()
	return qp.Err()
}

// writeOne writes octet i over a connection of its own.
func writeOne(r *rig, l *Listener, i int, to STag) error {
	e := r.newEnd(r.a, wants{heap: 1})
	if err := e.qp.Dial(r.Ctx(), l.Addr().String(), ConnParams{}); err != nil {
		return err
	}
	wr := SendWR{Op: WRWrite, Inline: []byte{byte(i + 1)}, RKey: to, RemoteAddr: uint64(i)}
	if _, err := e.qp.PostSend(wr); err != nil {
		return err
	}
	if err := e.qp.Disconnect(r.Ctx()); err != nil {
		return fmt.Errorf("connection %d: %w", i, err)
	}
	return e.qp.Close()
}

// Posting and polling allocate nothing, neither with an engine nor with the kernel port.
func TestDataPathAllocatesNothing(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		sgl, dst := []SGE{x.mr.SGE(0, 3000)}, make([]Completion, 8)
		to := []SGE{y.mr.SGE(0, 3000)}
		round := func() {
			y.qp.PostRecv(RecvWR{ID: 1, SGL: to})
			x.qp.PostSend(SendWR{Op: WRWrite, SGL: sgl, RKey: y.mr.RKey()}, SendWR{Op: WRSend, Flags: Signaled, SGL: sgl},
				SendWR{Op: WRRead, Flags: Signaled, SGL: sgl, RKey: y.mr.RKey()})
			for sent, got := 0, 0; sent < 2 || got < 1; {
				sent += x.send.Poll(dst)
				got += y.recv.Poll(dst)
				runtime.Gosched() // AllocsPerRun leaves one processor for all goroutines
			}
		}
		round()
		if n := testing.AllocsPerRun(200, round); n > 0 && !racing {
			r.Errorf("%v allocations a round", n)
		}
	})
}
