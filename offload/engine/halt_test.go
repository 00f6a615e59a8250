package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// bare is a port without a link: nothing arrives, and every packet is lost. It sleeps in
// real time, and fails when fail is closed.
type bare struct {
	lane  port.Lane
	mem   []byte
	spare []port.Frame
	wake  chan struct{}
	fail  chan struct{}
}

const bareFrames = 256

func newBare(lane port.Lane) *bare {
	b := &bare{lane: lane, mem: make([]byte, bareFrames*2048), wake: make(chan struct{}, 1), fail: make(chan struct{})}
	for i := range bareFrames {
		b.spare = append(b.spare, port.Frame{Addr: uint64(i)*2048 + port.Headroom, Len: 2048 - port.Headroom})
	}
	return b
}

func (b *bare) Receive([]port.Frame) int             { return 0 }
func (b *bare) Bytes(f port.Frame) []byte            { return b.mem[f.Addr : f.Addr+uint64(f.Len)] }
func (b *bare) Record(port.Frame) []byte             { return nil }
func (b *bare) Recycle([]port.Frame)                 {}
func (b *bare) Free(frames []port.Frame)             { b.spare = append(b.spare, frames...) }
func (b *bare) Room() int                            { return bareFrames }
func (b *bare) InFlight(port.Frame) bool             { return false }
func (b *bare) Send(frames []port.Frame) int         { return len(frames) }
func (b *bare) Flush() error                         { return nil }
func (b *bare) SleepUntilWake(d time.Duration) error { return b.Sleep(d) }

func (b *bare) Take(dst []port.Frame) int {
	n := copy(dst, b.spare)
	b.spare = b.spare[n:]
	return n
}

func (b *bare) Arm(d time.Duration) (time.Duration, error) {
	if d < 0 {
		d = time.Hour
	}
	return d, nil
}

func (b *bare) Sleep(limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-b.fail:
		return syscall.ENETDOWN
	case <-b.wake:
	case <-t.C:
	}
	return nil
}

func (b *bare) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *bare) Limits() port.Limits {
	return port.Limits{Lane: b.lane, Port: uint16(b.lane), FrameSize: 2048, RxFrames: bareFrames, TxFrames: bareFrames, MaxPacket: 1518, MaxPayload: 1900}
}

// counter is an upper layer that counts its calls.
type counter struct {
	served, faults atomic.Int64
	err            error // of Fault
}

func (*counter) Receive(clock.Instant, stream.Stream)    {}
func (c *counter) Transmit(clock.Instant, stream.Stream) { c.served.Add(1) }
func (c *counter) Fault(_ clock.Instant, err error)      { c.err = err; c.faults.Add(1) }
func (*counter) Deadline() clock.Instant                 { return clock.Never }

// pairOf is two engines of an adapter, of a port each, and a connection at the first one.
type pairOf struct {
	*testing.T
	engines [2]*Engine
	ports   [2]*bare
	ends    chan End
	failed  chan error
	id      FlowID
	ulp     *counter
	stop    [2]context.CancelCauseFunc
	ran     [2]chan error
}

// newPair makes the engines and runs them. edit may change the configuration of the first.
func newPair(t *testing.T, edit func(*Config)) *pairOf {
	t.Helper()
	p := &pairOf{T: t, ends: make(chan End, 16), failed: make(chan error, 1), ulp: &counter{}}
	dir, err := NewDirectory(64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.engines {
		c := Config{Ended: func(e End) { p.ends <- e }}
		if i == 0 {
			c.Failed = func(err error) bool { p.failed <- err; return true }
			if edit != nil {
				edit(&c)
			}
		}
		p.ports[i] = newBare(port.Lane(i))
		if p.engines[i], err = New(p.ports[i], dir, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := Join(p.engines[0], p.engines[1]); err != nil {
		t.Fatal(err)
	}
	for i, e := range p.engines {
		ctx, stop := context.WithCancelCause(context.Background())
		p.stop[i], p.ran[i] = stop, make(chan error, 1)
		go func() { p.ran[i] <- e.Run(ctx) }()
		t.Cleanup(func() {
			stop(nil)
			<-e.stopped
		})
	}
	p.id = p.install(p.engines[0], 7, p.ulp)
	return p
}

// install gives an engine a connection.
func (p *pairOf) install(e *Engine, number byte, ulp stream.ULP) FlowID {
	p.Helper()
	key := bpf.FlowKey{RemotePort: [2]byte{number}}
	id, err := e.dir.Reserve(key)
	p.must(err)
	ctx := context.Background()
	p.must(e.Park(ctx, id, key, nil))
	p.must(e.dir.Move(id, e.lane))
	now := clock.Now()
	st := tcp.State{At: now, SndUna: 1, SndNxt: 1, SndWnd: 1 << 16, SndWL1: 1, MaxWnd: 1 << 16, RcvNxt: 1, RcvWnd: 1 << 16, RcvWup: 1, MSS: 1460, MTU: 1500}
	p.must(e.Install(ctx, id, st, wire.HeaderTemplate{}, ulp))
	return id
}

func (p *pairOf) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// halt makes the port of the first engine fail.
func (p *pairOf) halt() {
	p.Helper()
	close(p.ports[0].fail)
	if err := <-p.failed; !errors.Is(err, syscall.ENETDOWN) {
		p.Errorf("Failed got %v", err)
	}
}

// move moves the connection to the second engine.
func (p *pairOf) move() {
	p.Helper()
	_, gone, err := Move(context.Background(), p.id, p.engines[0], p.engines[1], nil)
	if gone != nil || err != nil {
		p.Fatalf("%+v, %v", gone, err)
	}
}

// served waits until the upper layer has been called after ring.
func (p *pairOf) served(how string, ring func()) {
	p.Helper()
	before := p.ulp.served.Load()
	ring()
	for end := time.Now().Add(20 * time.Second); p.ulp.served.Load() == before; {
		if time.Now().After(end) {
			p.Fatalf("%s: the doorbell is lost", how)
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// rings are the two ways to ring.
var rings = map[string]func(*Engine, FlowID){
	"Ring": (*Engine).Ring,
	"RingSilently": func(e *Engine, id FlowID) {
		if e.RingSilently(id); !e.Awake() {
			e.Visit(clock.Now())
		}
	},
}

// The connections of an engine whose port has failed stay until they move. The calls work,
// and nothing else comes there.
func TestHalted(t *testing.T) {
	p := newPair(t, nil)
	other := &counter{}
	second := p.install(p.engines[0], 8, other)
	p.halt()
	ctx := context.Background()
	p.must(p.engines[0].Inspect(ctx, p.id, func(*tcp.Conn) {}))
	saw := 0
	g, err := p.engines[0].Look(ctx, []FlowID{p.id, second}, nil, func(int, *tcp.Conn, Arrivals) { saw++ })
	if err != nil || saw != 2 || g.Flows != 2 {
		t.Errorf("Look saw %d connections of %d, %v", saw, g.Flows, err)
	}
	if err := p.engines[0].Between(ctx, func() {}); err != nil {
		t.Error(err)
	}
	if err := p.engines[0].Redirect(ctx, []Heading{{Flow: p.id, MTU: 1400}}); err != nil {
		t.Error(err)
	}
	id, err := p.engines[0].dir.Reserve(bpf.FlowKey{VLAN: 1})
	p.must(err)
	if err := p.engines[0].Park(ctx, id, bpf.FlowKey{VLAN: 1}, nil); !errors.Is(err, ErrStopped) {
		t.Errorf("Park: %v", err)
	}
	if !p.engines[0].Asleep() || p.engines[0].Awake() {
		t.Error("a halted engine says that it is awake: a doorbell would be left to it")
	}
	p.move()
	p.must(p.engines[1].Inspect(ctx, p.id, func(*tcp.Conn) {}))
	if err := p.engines[0].Inspect(ctx, p.id, func(*tcp.Conn) {}); !errors.Is(err, ErrNoFlow) {
		t.Errorf("Inspect where the connection was: %v", err)
	}
	if _, _, err := Move(ctx, p.id, p.engines[1], p.engines[0], nil); !errors.Is(err, ErrStopped) {
		t.Errorf("Move to a halted engine: %v", err)
	}
	p.must(p.engines[1].Inspect(ctx, p.id, func(*tcp.Conn) {}))
	if n := p.ulp.faults.Load() + other.faults.Load(); n != 0 {
		t.Errorf("%d connections have ended", n)
	}

	cause := errors.New("the cause")
	p.stop[0](cause)
	if err := <-p.ran[0]; !errors.Is(err, syscall.ENETDOWN) {
		t.Errorf("Run returned %v", err)
	}
	if end := <-p.ends; end.ID != second || !end.Gone || !errors.Is(end.Err, stream.ErrPort) || !errors.Is(end.Err, syscall.ENETDOWN) {
		t.Errorf("the connection that had not moved has ended as %+v", end)
	}
	if other.faults.Load() != 1 || !errors.Is(other.err, stream.ErrPort) || p.ulp.faults.Load() != 0 {
		t.Errorf("faults: %d, and %d of the connection that had moved", other.faults.Load(), p.ulp.faults.Load())
	}
	if err := p.engines[0].Inspect(ctx, second, func(*tcp.Conn) {}); !errors.Is(err, ErrStopped) {
		t.Errorf("Inspect: %v", err)
	}
}

// A connection that its new engine cannot run goes back to the halted one, and to a third
// one from there.
func TestMoveBackToAHaltedEngine(t *testing.T) {
	p := newPair(t, nil)
	p.halt()
	ctx := context.Background()
	parted, err := p.engines[0].Detach(ctx, p.id)
	p.must(err)
	p.must(p.engines[0].adopt(ctx, p.id, parted)) // as Move does after an error of the other engine
	p.must(p.engines[0].Inspect(ctx, p.id, func(*tcp.Conn) {}))
	p.served("moved from there", p.move)
}

// A doorbell that rings at an engine before, while or after the engine halts, or when it has
// stopped, reaches the engine that has the connection then.
func TestBellAtAHaltedEngine(t *testing.T) {
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			p.halt()
			ring(p.engines[0], p.id)
			p.served("rung before the move", p.move)
			p.served("rung after the move", func() { ring(p.engines[0], p.id) })
			p.stop[0](nil)
			<-p.engines[0].stopped
			p.served("rung after the halted engine has stopped", func() { ring(p.engines[0], p.id) })
		})
	}
}

// A doorbell that rings at an engine that has stopped without a failure also reaches the
// present engine.
func TestBellAtAStoppedEngine(t *testing.T) {
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			p.move()
			p.stop[0](nil)
			<-p.engines[0].stopped
			for range 3 {
				p.served("rung", func() { ring(p.engines[0], p.id) })
			}
		})
	}
}

// A visitor that finds the token of a halted engine taken leaves its doorbell to the holder,
// who has already looked at the doorbells.
func TestBellWhileAHaltedEngineHoldsTheToken(t *testing.T) {
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			during := make(chan func(), 1)
			p := newPair(t, func(c *Config) {
				c.Ended = func(End) { (<-during)() }
			})
			p.halt()
			p.move()
			p.served("the token was taken", func() {
				during <- func() { ring(p.engines[0], p.id) }
				p.must(p.engines[0].Between(context.Background(), func() { p.engines[0].ends = append(p.engines[0].ends, End{}) }))
			})
		})
	}
}

// Goroutines ring all the time while the port fails, the connection moves and the engine
// stops. No doorbell is lost.
func TestBellsAroundAFailure(t *testing.T) {
	const rounds, callers = 30, 3
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				p := newPair(t, nil)
				var at atomic.Pointer[Engine]
				at.Store(p.engines[0])
				var over atomic.Bool
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for !over.Load() {
							ring(at.Load(), p.id)
						}
						before := p.ulp.served.Load()
						ring(p.engines[0], p.id) // a caller that has been asleep since before the move
						for end := time.Now().Add(20 * time.Second); p.ulp.served.Load() == before; {
							if time.Now().After(end) {
								t.Error("the last doorbell is lost")
								return
							}
							time.Sleep(10 * time.Microsecond)
						}
					})
				}
				p.halt()
				p.move()
				at.Store(p.engines[1])
				over.Store(true)
				p.stop[0](nil)
				wg.Wait()
				<-p.engines[0].stopped
				p.stop[1](nil)
				<-p.engines[1].stopped
				if t.Failed() {
					return
				}
			}
		})
	}
}
