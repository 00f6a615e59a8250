package kernelport

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/contract"
)

// sockets returns the two ends of a connection over the loopback.
func sockets(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// port makes a connection whose caller has closed its socket.
func port(t testing.TB, c *net.TCPConn, u stream.ULP, cfg Config) *Conn {
	t.Helper()
	k, err := New(c, u, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return k
}

// realPair is a contract.Pair in real time.
type realPair struct {
	t    testing.TB
	cfg  Config
	mu   sync.Mutex // held by ULP methods and conditions
	ends [2]*Conn
}

func (p *realPair) Start(a, b stream.ULP) {
	ca, cb := sockets(p.t)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	p.ends[contract.A] = port(p.t, ca, contract.Serialize(&p.mu, a), p.cfg)
	p.ends[contract.B] = port(p.t, cb, contract.Serialize(&p.mu, b), p.cfg)
	for _, c := range p.ends {
		running.Go(func() { _ = c.Run(ctx) })
	}
	p.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// run runs k and returns when it is under way.
func run(k *Conn) {
	go k.Run(context.Background())
	for started := false; !started; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		started = k.begun
		k.mu.Unlock()
	}
}

func (p *realPair) Doorbell(e contract.End) { p.ends[e].Ring() }

func (p *realPair) Until(cond func() bool) bool {
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		p.mu.Lock()
		ok := cond()
		p.mu.Unlock()
		if ok {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

func TestContract(t *testing.T) {
	contract.Run(t, func(t testing.TB) contract.Pair { return &realPair{t: t} })
}

// The same with buffers as small as they may be and short segments.
func TestContractInLittleRoom(t *testing.T) {
	contract.Run(t, func(t testing.TB) contract.Pair {
		return &realPair{t: t, cfg: Config{RcvBuf: 4096, SndBuf: 64 << 10, Segment: 777}}
	})
}

// The same with Emits that are longer than a segment.
func TestContractOfLongEmits(t *testing.T) {
	contract.Run(t, func(t testing.TB) contract.Pair {
		return &realPair{t: t, cfg: Config{Segment: 777, Emit: 20000}}
	})
}

// MaxEmit is Config.Emit, also after the segment size was read again.
func TestEmitIsFixed(t *testing.T) {
	a, _ := sockets(t)
	k := port(t, a, octets.NewEcho(), Config{Segment: 777, Emit: maxSegment})
	defer k.Close(context.Background())
	for range 2 {
		if k.MaxEmit() != maxSegment {
			t.Errorf("MaxEmit is %d", k.MaxEmit())
		}
		if err := k.most.refresh(k.fd, clock.Now()); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseWaitsForThePeer(t *testing.T) {
	a, b := sockets(t)
	k := port(t, a, octets.NewSink(0, 0), Config{})
	run(k)
	closed := make(chan error, 1)
	go func() { closed <- k.Close(context.Background()) }()
	b.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := b.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("the peer read %d octets: %v", n, err)
	}
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v before the peer closed", err)
	case <-time.After(20 * time.Millisecond):
	}
	b.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := k.Run(context.Background()); !errors.Is(err, ErrRunning) {
		t.Errorf("Run after the end: %v", err)
	}
}

func TestCloseResetsWhenItsTimeIsUp(t *testing.T) {
	a, b := sockets(t)
	sink := octets.NewSink(0, 0)
	k := port(t, a, sink, Config{})
	run(k)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := k.Close(ctx)
	if !errors.Is(err, stream.ErrAborted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	<-sink.Done()
	if !errors.Is(sink.Err(), stream.ErrAborted) {
		t.Errorf("the ULP was told %v", sink.Err())
	}
	b.SetDeadline(time.Now().Add(10 * time.Second))
	b.Read(make([]byte, 1)) // the FIN
	if _, err := b.Write([]byte("x")); err == nil {
		_, err = b.Read(make([]byte, 1))
		if err == nil {
			t.Error("the peer was not reset")
		}
	}
}

func TestCloseBeforeRun(t *testing.T) {
	a, _ := sockets(t)
	sink := octets.NewSink(0, 0)
	k := port(t, a, sink, Config{})
	if err := k.Close(context.Background()); err != nil {
		t.Error(err)
	}
	k.Ring()
	if err := k.Run(context.Background()); !errors.Is(err, ErrRunning) {
		t.Errorf("Run: %v", err)
	}
	<-sink.Done()
	if !errors.Is(sink.Err(), ErrClosed) || !errors.Is(sink.Err(), stream.ErrAborted) {
		t.Errorf("the ULP was told %v", sink.Err())
	}
}

func TestConfigMistakesAreAllNamed(t *testing.T) {
	a, _ := sockets(t)
	_, err := New(a, octets.NewEcho(), Config{RcvBuf: 1, SndBuf: 1, Segment: 1, Emit: 1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{"RcvBuf", "SndBuf", "Segment", "Emit"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
}

func TestNewRefusesWhatIsNoConnection(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(l, octets.NewEcho(), Config{}); err == nil {
		t.Error("took a listener")
	}
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if _, err := New(u.(*net.UDPConn), octets.NewEcho(), Config{}); err == nil {
		t.Error("took a UDP socket")
	}
}

// lazy is a ULP that consumes nothing.
type lazy struct {
	octets.Echo
	deadline clock.Instant
}

func (*lazy) Receive(clock.Instant, stream.Stream)  {}
func (*lazy) Transmit(clock.Instant, stream.Stream) {}
func (l *lazy) Deadline() clock.Instant             { return l.deadline }
