package rdma

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	common "github.com/stag-rdma/stag/test/rig"
)

func (r *rig) openLoopback(c Config) {
	r.Helper()
	c.KernelPort = true
	r.a, r.b = r.open(c), r.open(c)
}

// inEveryWay runs test on both paths, with each kind of progress.
func inEveryWay(t *testing.T, test func(r *rig)) {
	for name, p := range map[string]Progress{"engine": ProgressEngine, "inline": ProgressInline} {
		t.Run("kernel port, "+name, func(t *testing.T) {
			r := &rig{Stage: common.On(t), host: "127.0.0.1"}
			common.NoLeaks(r)
			r.openLoopback(Config{Progress: p})
			test(r)
		})
		t.Run("offloaded, "+name, func(t *testing.T) {
			r := newStage(t, pair.Config{})
			r.openHosts(func(side pair.Side) Config { return Config{Ports: []string{r.pair.Ends[side].Name}, Progress: p} })
			test(r)
		})
	}
}

// inlineOnBothPaths runs test on both paths, with inline progress only.
func inlineOnBothPaths(t *testing.T, test func(r *rig)) {
	t.Run("kernel port", func(t *testing.T) {
		r := &rig{Stage: common.On(t), host: "127.0.0.1"}
		common.NoLeaks(r)
		r.openLoopback(Config{Progress: ProgressInline})
		test(r)
	})
	t.Run("offloaded", func(t *testing.T) {
		r := newStage(t, pair.Config{})
		r.openHosts(func(side pair.Side) Config {
			return Config{Ports: []string{r.pair.Ends[side].Name}, Progress: ProgressInline}
		})
		test(r)
	})
}

func TestProgressMistake(t *testing.T) {
	_, err := Open(Config{KernelPort: true, Progress: ProgressInline + 1})
	(&rig{Stage: common.On(t)}).Says(err, nil, "Progress of 3", "ProgressAuto")
}

// A CQ has each runner of its QPs once, however many QPs the runner has.
func TestRunnersComeAndGo(t *testing.T) {
	inlineOnBothPaths(t, func(r *rig) {
		at, err := r.a.Attributes()
		r.Must(err)
		if at.Progress != ProgressInline {
			r.Errorf("progress is %v", at.Progress)
		}
		x, _ := r.connect(wants{})
		count := func(cq *CQ) int {
			if m := cq.runners.Load(); m != nil {
				return len(*m)
			}
			return 0
		}
		if count(x.send) != 1 || count(x.recv) != 1 {
			r.Errorf("a connection has %d and %d runners", count(x.send), count(x.recv))
		}
		var more []*QP
		for n := 2; n <= mostRunners+1; n++ {
			qp := r.another(x)
			more = append(more, qp)
			want := n
			switch {
			case !r.a.cfg.KernelPort:
				want = 1 // queue
			case n > mostRunners:
				want = 0
			}
			if count(x.send) != want {
				r.Errorf("%d connections have %d runners, want %d", n, count(x.send), want)
			}
		}
		for _, qp := range more {
			r.Check(qp.Close())
		}
		r.Check(x.qp.Close())
		if x.send.runners.Load() != nil || x.recv.runners.Load() != nil {
			r.Error("a closed connection has runners")
		}
	})
}

// another connects one more QP with e's CQs.
func (r *rig) another(e *end) *QP {
	r.Helper()
	qp, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv, SendDepth: 2, RecvDepth: 2})
	r.Must(err)
	r.Must(r.join(&end{r: r, a: e.a, qp: qp}, r.newEnd(r.b, wants{}), wants{}))
	return qp
}

// A post sends its own message, and a Poll processes what has arrived. A message crosses
// even if the engines' own goroutines, the keepers, do nothing.
func TestPostAndPollAreEnough(t *testing.T) {
	inlineOnBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		var dst [1]Completion
		for i := range 200 {
			y.receive(RecvWR{ID: uint64(i), SGL: []SGE{y.mr.SGE(0, 64)}})
			x.post(SendWR{Op: WRSend, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 64)}})
			for _, cq := range []*CQ{x.send, y.recv} {
				r.Eventually("a completion", func() bool { return cq.Poll(dst[:]) == 1 })
				r.ok(dst[:])
			}
		}
	})
}

// Many goroutines post to, poll and wait for several QPs of one adapter, with CQs
// that share engines, while other QPs are made and closed: everything completes once.
func TestManyStepAtOnce(t *testing.T) {
	inEveryWay(t, func(r *rig) {
		const pairs, posters, each = 3, 2, 150
		stop := make(chan struct{})
		var churn sync.WaitGroup
		churn.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
				if err := r.join(x, y, wants{}); err != nil {
					r.Error(err)
					return
				}
				x.qp.PostSend(SendWR{Op: WRWrite, Inline: []byte{1}, RKey: y.mr.RKey()})
				x.send.Poll(make([]Completion, 1))
				for _, e := range []*end{x, y} {
					r.Check(errors.Join(e.qp.Close(), e.send.Close(), e.recv.Close()))
				}
			}
		})
		var work sync.WaitGroup
		for range pairs {
			x, y := r.connect(wants{heap: 1 << 16, qp: QPConfig{SendDepth: 16}})
			var done atomic.Int64
			for range posters {
				work.Go(func() {
					for i := 0; i < each; {
						n, err := x.qp.PostSend(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 3000)}, RKey: y.mr.RKey()})
						if err != nil && !errors.Is(err, ErrQueueFull) {
							r.Error(err)
							return
						}
						i += n
					}
				})
			}
			for poller := range 2 {
				work.Go(func() {
					var dst [5]Completion
					for done.Load() < posters*each {
						if poller == 0 {
							ctx, cancel := context.WithTimeout(r.Ctx(), time.Millisecond)
							if err := x.send.Wait(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
								r.Error(err)
							}
							cancel()
						}
						for _, c := range dst[:x.send.Poll(dst[:])] {
							if c.Status != Success {
								r.Errorf("%+v: %v", c, x.qp.Err())
							}
							done.Add(1)
						}
						y.send.Poll(dst[:])
					}
				})
			}
		}
		work.Wait()
		close(stop)
		churn.Wait()
	})
}

// A goroutine that polls without pause and then sleeps is woken by the next completion.
func TestWaitAfterPolling(t *testing.T) {
	inlineOnBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		for i := range 20 {
			y.receive(RecvWR{ID: uint64(i)})
			r.pollFor(y.recv, 3*time.Millisecond)
			slept := make(chan error, 1)
			switch i % 2 {
			case 0:
				go func() { slept <- y.recv.Wait(r.Ctx()) }()
			default:
				y.recv.Arm(false)
				go func() {
					select {
					case <-y.recv.Notify():
						slept <- nil
					case <-r.Ctx().Done():
						slept <- r.Ctx().Err()
					}
				}()
			}
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			x.post(SendWR{Op: WRSend, Flags: Signaled})
			r.Must(<-slept)
			r.ok(r.poll(y.recv, 1))
			r.ok(x.sent(1))
		}
	})
}

// pollFor polls a CQ that stays empty, without pause.
func (r *rig) pollFor(cq *CQ, d time.Duration) {
	r.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		r.none(cq)
	}
}

// When a program stops polling, the engine's own goroutine, the keeper, takes over: it
// answers the Reads, Writes and the close of the peer.
func TestKeeperTakesOver(t *testing.T) {
	inlineOnBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		for i := range 5 {
			r.pollFor(y.recv, 20*time.Millisecond) // long enough for the keeper to fall asleep
			fill(y.mr.Bytes()[:1000], i)
			x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 1000)}, RKey: y.mr.RKey()})
			r.ok(x.sent(1))
			want := make([]byte, 1000)
			fill(want, i)
			if string(x.mr.Bytes()[:1000]) != string(want) {
				r.Fatalf("round %d: the wrong octets were read", i)
			}
		}
		r.pollFor(y.recv, 20*time.Millisecond)
		r.Must(x.qp.Disconnect(r.Ctx()))
		y.done()
	})
}

// taker is a log handler that takes a lock of the program.
type taker struct {
	slog.Handler
	mu   *sync.Mutex
	said chan string
}

func (k *taker) Handle(_ context.Context, rec slog.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case k.said <- rec.Message:
	default:
	}
	return nil
}

func (k *taker) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// A goroutine that posts and polls may hold a lock that the program's log handler takes too.
func TestLogWithLockOfPoller(t *testing.T) {
	r := &rig{Stage: common.On(t), host: "127.0.0.1"}
	common.NoLeaks(r)
	k := &taker{Handler: slog.DiscardHandler, mu: new(sync.Mutex), said: make(chan string, 1)}
	r.a = r.open(Config{KernelPort: true, Progress: ProgressInline, Log: slog.New(k)})
	r.b = r.open(Config{KernelPort: true, Progress: ProgressInline})
	x, y := r.connect(wants{})
	k.mu.Lock()
	y.qp.Abort()
	var dst [1]Completion
	r.Eventually("the end of the connection", func() bool {
		x.send.Poll(dst[:])
		select {
		case <-x.qp.Done():
			return true
		default:
			return false
		}
	})
	k.mu.Unlock()
	select {
	case got := <-k.said:
		if got != "QP fatal" {
			t.Errorf("the log says %q", got)
		}
	case <-time.After(patience):
		t.Error("the log says nothing")
	}
}
