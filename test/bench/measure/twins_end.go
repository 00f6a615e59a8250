package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/gaps"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// end is one end of a connection of twins. It sends a pattern up to a limit, checks the
// pattern that arrives, and measures the gaps between arrivals. stag's engine runs it as a
// ULP, or goroutines run it over a kernel socket.
type end struct {
	out, in octets.Pattern
	limit   atomic.Uint64 // octets to send in all
	sent    atomic.Uint64
	wrong   atomic.Uint64 // pieces that differ from what the peer has sent
	arrived gaps.Meter

	// For an engine.
	conn  *adapter.Conn
	flow  *nic.Flow
	views [8][]byte

	// For a kernel.
	socket  *net.TCPConn
	more    chan struct{} // holds a token when limit has grown
	running sync.WaitGroup

	mu  sync.Mutex
	err error // why the connection has ended
}

// endless is a limit that is never reached.
const endless = 1 << 62

func newEnd(side pair.Side) *end {
	e := &end{out: 1, in: 2, more: make(chan struct{}, 1)}
	if side == to {
		e.out, e.in = e.in, e.out
	}
	return e
}

// send sets how many octets the end sends in all.
func (e *end) send(limit uint64) {
	e.limit.Store(limit)
	if e.conn != nil {
		e.conn.Wake()
		return
	}
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// take checks octets that have arrived.
func (e *end) take(b []byte, at uint64) {
	if e.in.Differs(b, at) >= 0 {
		e.wrong.Add(1)
	}
	e.arrived.Arrive(uint64(len(b)))
}

// Receive implements stream.ULP.
func (e *end) Receive(_ clock.Instant, s stream.Stream) {
	for n := s.Views(e.views[:]); n != 0; n = s.Views(e.views[:]) {
		taken := 0
		for _, v := range e.views[:n] {
			e.take(v, e.arrived.Arrived())
			taken += len(v)
		}
		s.Consume(taken)
	}
}

// Transmit implements stream.ULP.
func (e *end) Transmit(_ clock.Instant, s stream.Stream) {
	limit, at := e.limit.Load(), e.sent.Load()
	for at < limit {
		b := s.Emit(int(min(uint64(s.MaxEmit()), limit-at)))
		if b == nil {
			break
		}
		e.out.Fill(b, at)
		at += uint64(len(b))
	}
	e.sent.Store(at)
}

// Fault implements stream.ULP.
func (e *end) Fault(_ clock.Instant, err error) {
	if err == nil {
		err = io.EOF
	}
	e.failed(err)
}

// Deadline implements stream.ULP.
func (*end) Deadline() clock.Instant { return clock.Never }

func (e *end) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
}

// run sends and receives over a kernel socket until stop.
func (e *end) run(c *net.TCPConn) {
	e.socket = c
	e.running.Go(func() { e.failed(e.write()) })
	e.running.Go(func() { e.failed(e.read()) })
}

func (e *end) write() error {
	b := make([]byte, 64<<10)
	for {
		at, limit := e.sent.Load(), e.limit.Load()
		if at >= limit {
			if _, open := <-e.more; !open {
				return net.ErrClosed
			}
			continue
		}
		piece := b[:min(uint64(len(b)), limit-at)]
		e.out.Fill(piece, at)
		if _, err := e.socket.Write(piece); err != nil {
			return err
		}
		e.sent.Add(uint64(len(piece)))
	}
}

func (e *end) read() error {
	b := make([]byte, 64<<10)
	for {
		n, err := e.socket.Read(b)
		if n > 0 {
			e.take(b[:n], e.arrived.Arrived())
		}
		if err != nil {
			return err
		}
	}
}

// health returns an error if the connection has ended, or if wrong octets have arrived.
func (e *end) health() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return fmt.Errorf("a connection has ended: %w", e.err)
	}
	if n := e.wrong.Load(); n != 0 {
		return fmt.Errorf("%d pieces of the stream were not what the peer has sent", n)
	}
	return nil
}

// stop ends the end of a kernel. The end of an engine ends with its adapter.
func (e *end) stop() error {
	if e.socket == nil {
		return nil
	}
	err := errors.Join(e.socket.SetLinger(0), e.socket.Close())
	close(e.more)
	e.running.Wait()
	return err
}

// stopAll ends all ends. It returns an error if one of them had failed before.
func stopAll(all [][2]*end) error {
	var errs []error
	for _, both := range all {
		for _, e := range both {
			errs = append(errs, e.health())
		}
	}
	for _, both := range all {
		for _, e := range both {
			errs = append(errs, e.stop())
		}
	}
	return errors.Join(errs...)
}

// finish ends the sending of both ends, and waits until everything has arrived, or for
// patience at most. It returns how many octets were lost or doubled.
func finish(ctx context.Context, both [2]*end, patience time.Duration) (astray uint64, err error) {
	for _, e := range both {
		e.send(0)
	}
	whole := func() bool {
		return both[from].sent.Load() == both[to].arrived.Arrived() && both[to].sent.Load() == both[from].arrived.Arrived()
	}
	if err := sleep(ctx, 100*time.Millisecond); err != nil { // an octet that comes twice comes late
		return 0, err
	}
	for late := time.Now().Add(patience); !whole() && time.Now().Before(late); {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	for i, e := range both {
		sent, arrived := e.sent.Load(), both[1-i].arrived.Arrived()
		astray += max(sent, arrived) - min(sent, arrived)
	}
	return astray, nil
}

// goOn waits until n more octets have arrived at each end that the peer sends to.
func goOn(ctx context.Context, both [2]*end, n uint64) error {
	var want [2]uint64
	for i, e := range both {
		want[i] = e.arrived.Arrived() + n
	}
	for i, e := range both {
		if both[1-i].limit.Load() != endless {
			continue
		}
		if err := e.arrived.Until(ctx, want[i]); err != nil {
			return errors.Join(err, e.health())
		}
	}
	return nil
}

// info returns the TCP_INFO of a kernel's end.
func (e *end) info() (info *unix.TCPInfo, err error) {
	raw, err := e.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) })
	return info, errors.Join(err, failed)
}

// retransmits returns how many segments the end has sent again.
func (e *end) retransmits(ctx context.Context) (uint64, error) {
	if e.flow != nil {
		s, err := e.flow.Stats(ctx)
		return s.Retransmits, err
	}
	info, err := e.info()
	if err != nil {
		return 0, err
	}
	return uint64(info.Total_retrans), nil
}

// copies returns how many segments the kernel of a side has received that it had already.
func copies(p *pair.Pair, side pair.Side) (n uint64, err error) {
	err = p.Do(side, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		n, err = counters(string(text), "TcpExt:", "TCPDSACKOldSent", "TCPDSACKOfoSent")
		return err
	})
	return n, err
}
