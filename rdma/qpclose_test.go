package rdma

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
	common "github.com/stag-rdma/stag/test/rig"
)

// Close ends an attempt to connect that has reached the take-over, and does not wait for
// what the take-over waits for.
func TestCloseEndsATakeOver(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	ctx, err := x.qp.begin(context.Background())
	r.Must(err)
	c, err := net.Dial("tcp", r.plainPeer(func(c net.Conn) { r.Cleanup(func() { c.Close() }) }))
	r.Must(err)
	s, err := r.a.device.Socket(r.Ctx(), c.(*net.TCPConn))
	r.Must(err)
	defer s.Close()
	r.Must(x.qp.start(s, mpa.Agreed{Initiator: true}))
	closed := make(chan error, 1)
	go func() { closed <- x.qp.Close() }()
	select {
	case <-ctx.Done():
		r.Says(context.Cause(ctx), ErrClosed)
	case <-time.After(patience):
		t.Error("Close waits for the take-over")
	}
	x.qp.kill(context.Cause(ctx)) // as run does when the take-over has failed
	x.qp.settle()
	r.Must(<-closed)
	if !errors.Is(x.qp.Err(), ErrClosed) {
		t.Error(x.qp.Err())
	}
}

// When any of several concurrent Closes of a QP has returned, the QP's CQs and PD can be
// closed.
func TestEveryCloseOfAQPIsWhole(t *testing.T) {
	r := newLoopback(t)
	for range 200 {
		e := r.newEnd(r.a, wants{heap: 1})
		r.Must(e.mr.Close())
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				r.Check(e.qp.Close())
				r.Check(e.pd.Close())
				r.Check(e.send.Close())
				r.Check(e.recv.Close())
			})
		}
		closing.Wait()
	}
}

// late is a log handler that counts the lines that come after the adapter's Close.
type late struct {
	slog.Handler
	closed, lines atomic.Int32
}

func (l *late) Enabled(context.Context, slog.Level) bool { return true }
func (l *late) Handle(_ context.Context, rec slog.Record) error {
	if rec.Message == "QP fatal" && l.closed.Load() != 0 {
		l.lines.Add(1)
	}
	return nil
}

// Two goroutines call news for the same end of a QP while the adapter is closed. When Close
// returns, the log line that either of them has begun is written.
func TestNewsBesideClose(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	why := errors.New("lost")
	for range 200 {
		l := &late{}
		a, err := Open(Config{KernelPort: true, NoControl: true, RegionHeap: 4096, MaxRegions: 63, Log: slog.New(l)})
		r.Must(err)
		qp := r.newEnd(a, wants{heap: 1}).qp
		qp.machine.Kill(why)
		var telling sync.WaitGroup
		for range 2 {
			telling.Go(qp.news)
		}
		r.Must(a.Close())
		l.closed.Store(1)
		telling.Wait()
		runtime.Gosched()
		if l.lines.Load() != 0 {
			t.Fatal("a QP's end was logged when the adapter was closed")
		}
	}
}
