package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tap"
)

const (
	// captureIdleLeast and captureIdleMost bound how long a capture that found no
	// packets waits before it looks again: engines do not wake it. A ring of 8 MiB
	// lasts longer than that at 16 Gb/s.
	captureIdleLeast = 250 * time.Microsecond
	captureIdleMost  = 4 * time.Millisecond

	// captureBatch is about how many octets of packets a batch has at most.
	captureBatch = 2 << 20

	// captureSettle is how long packets of several queues wait to be put in order. It
	// is more than the time between an engine's reading the clock and its writing the
	// packet to the ring. A packet that a delayed engine writes later than that counts
	// as of that time.
	captureSettle = 2 * time.Millisecond

	// captureClose bounds how long Close waits for captures to hand over what
	// they have.
	captureClose = time.Second
)

// captures counts the captures that run, so that Close can let them have the last
// packets.
type captures struct {
	packets, lost atomic.Uint64 // of all captures since Open

	mu      sync.Mutex // guards what follows; no engine takes it
	ended   bool
	count   int // captures that run
	running sync.WaitGroup
	quiet   chan struct{}                   // closed when there will be no more packets
	past    map[engine.FlowID]report.Stream // of connections that layers have closed while a capture ran
}

func newCaptures() *captures { return &captures{quiet: make(chan struct{})} }

// begin counts one more capture. It returns false if the adapter is being closed.
func (c *captures) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.count++
		c.running.Add(1)
	}
	return !c.ended
}

// done counts one capture less.
func (c *captures) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count--; c.count == 0 {
		c.past = nil
	}
	c.running.Done()
}

// end lets every capture that runs come to its end. A capture whose receiver takes
// nothing is left alone after captureClose.
func (c *captures) end() {
	c.mu.Lock()
	if !c.ended {
		c.ended = true
		close(c.quiet)
	}
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(captureClose):
	}
}

// Capture calls f with the packets that the adapter's engines receive and send from now
// on. The first call has an empty batch, which says that the capture has begun; later
// calls follow whenever there are packets. Capture ends when ctx does, when f fails,
// when all engines have failed, or when the adapter is closed. It returns an error only
// for a failure of f or of all engines.
//
// While f runs, packets are kept for it: up to 8 MiB for each queue, and less if there
// are more than eight queues. Packets that do not fit are lost and counted. Engines
// never wait. The packets of several queues are in the order of their time. With the
// first packet of a connection, Batch.Streams says what the connection's ends agreed on
// before the take-over.
//
// With filter.Flow or filter.QP, the packets of that flow are captured at whichever
// port they arrive, unless filter.Device names one. The kernel has the packets of an
// adapter with KernelPort: they cannot be captured here. Capture fails with
// tap.ErrTooMany or ErrClosed.
func (a *Adapter) Capture(ctx context.Context, filter report.Filter, f func(report.Batch) error) error {
	if !a.tapped.begin() {
		return fmt.Errorf("capture: the adapter is %w", ErrClosed)
	}
	defer a.tapped.done()
	c, err := a.newCapture(filter)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	defer c.end()
	a.log.Debug("capture begun", "queues", len(c.queues), "filter", filter)
	defer func() { a.log.Debug("capture ended", "lost", c.lost) }()
	if err := f(report.Batch{}); err != nil {
		return err
	}
	return c.run(ctx, f)
}

// Captured returns how many packets captures have been handed since Open, and how many
// packets captures have lost.
func (a *Adapter) Captured() (packets, lost uint64) {
	return a.tapped.packets.Load(), a.tapped.lost.Load()
}

// capture is one capture that runs. It belongs to one goroutine.
type capture struct {
	adapter *Adapter
	taps    []*nic.Tap
	queues  []tappedQueue
	known   map[engine.FlowID]report.Stream // streams that f was told
	conns   map[engine.FlowID]report.Stream // streams of the layers' connections that were taken over
	asked   bool                            // whether this batch has read conns
	streams []report.Stream                 // streams that are new in this batch

	newcomers []Connection // that are being taken over

	epoch   time.Time     // the time of day ...
	zero    clock.Instant // ... at that instant
	handed  clock.Instant // with several queues: all packets up to this instant were handed over
	records []tap.Record  // scratch
	lost    uint64        // as last told
}

// tappedQueue is one queue of a capture.
type tappedQueue struct {
	ring   *tap.Ring
	port   *Port
	queue  uint16
	engine *engine.Engine
}

// flowOf names a flow and its port. Packets of the flow can arrive at other ports.
type flowOf struct {
	port *Port
	id   engine.FlowID
}

func (a *Adapter) newCapture(filter report.Filter) (*capture, error) {
	c := &capture{adapter: a, known: map[engine.FlowID]report.Stream{}, conns: map[engine.FlowID]report.Stream{}, epoch: time.Now().Round(0), zero: clock.Now()}
	c.learn()
	ports, id, err := c.choose(filter)
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		t, err := p.nic.Tap(tap.Config{Flow: id, SnapLen: filter.SnapLen, Clock: clock.Now})
		if err != nil {
			c.end()
			return nil, err
		}
		c.taps = append(c.taps, t)
		for i, e := range p.nic.Engines() {
			c.queues = append(c.queues, tappedQueue{ring: t.Rings[i], port: p, queue: e.Queue(), engine: e})
		}
	}
	return c, nil
}

func (c *capture) end() {
	for _, t := range c.taps {
		t.End()
	}
}

// choose returns the ports that the filter means, and the flow; id is 0 if the filter
// names none.
func (c *capture) choose(filter report.Filter) (ports []*Port, id engine.FlowID, err error) {
	if c.adapter.cfg.KernelPort {
		return nil, 0, errors.New("the adapter uses the kernel port: its packets are the kernel's, so use tcpdump")
	}
	ports, id = c.adapter.ports, engine.FlowID(filter.Flow)
	if filter.Device != "" {
		ports = slices.DeleteFunc(slices.Clone(ports), func(p *Port) bool { return p.name != filter.Device })
		if len(ports) == 0 {
			return nil, 0, fmt.Errorf("no device %s: the adapter has %s", filter.Device, strings.Join(c.adapter.cfg.Ports, ", "))
		}
	}
	if filter.QP != 0 {
		f, err := c.flowOfQP(filter.QP)
		switch {
		case err != nil:
			return nil, 0, err
		case id != 0 && f.id != id:
			return nil, 0, fmt.Errorf("QP %d has flow %#x, not %#x", filter.QP, uint32(f.id), filter.Flow)
		case !slices.Contains(ports, f.port):
			return nil, 0, fmt.Errorf("QP %d is on %s, not %s", filter.QP, f.port.name, filter.Device)
		}
		return ports, f.id, nil
	}
	if id != 0 {
		if !slices.ContainsFunc(ports, func(p *Port) bool { return p.nic.HasFlow(id) }) {
			return nil, 0, fmt.Errorf("no flow %#x: `stag show flows` lists those that there are", filter.Flow)
		}
	}
	return ports, id, nil
}

// flowOfQP returns the flow of the QP with this number.
func (c *capture) flowOfQP(number uint32) (flowOf, error) {
	for _, conn := range c.adapter.connections() {
		if conn.Stream.QP != number {
			continue
		}
		if f, ok := conn.Conn.flowID(); ok {
			return f, nil
		}
		return flowOf{}, fmt.Errorf("QP %d has no connection yet: begin the capture when it has", number)
	}
	return flowOf{}, fmt.Errorf("no QP %d: `stag show qps` lists those that there are", number)
}

// run hands packets over until the capture ends.
func (c *capture) run(ctx context.Context, f func(report.Batch) error) error {
	idle := captureIdleLeast
	alarm := time.NewTimer(idle)
	defer alarm.Stop()
	for {
		ended, failed := c.ended() // before looking: no packet comes after the end
		b := c.batch(ended || failed)
		switch {
		case ctx.Err() != nil:
			return nil // f has ended the capture: it does not want the rest
		case len(b.Packets) != 0 || b.Lost != c.lost:
			c.count(b)
			if err := f(b); err != nil {
				return err
			}
			idle = captureIdleLeast
			continue
		case ended:
			return nil
		case failed:
			return errors.New("capture: the engines have stopped: the interface is gone, or failed")
		}
		alarm.Reset(idle)
		select {
		case <-ctx.Done():
		case <-c.adapter.tapped.quiet:
		case <-alarm.C:
		}
		idle = min(2*idle, captureIdleMost)
	}
}

// ended reports whether no more packets come: because the adapter closes, or
// because its engines have failed.
func (c *capture) ended() (closed, failed bool) {
	select {
	case <-c.adapter.tapped.quiet:
		return true, false
	default:
	}
	for _, q := range c.queues {
		select {
		case <-q.engine.Stopped():
		default:
			return false, false
		}
	}
	return false, true
}

func (c *capture) count(b report.Batch) {
	c.adapter.tapped.packets.Add(uint64(len(b.Packets)))
	c.adapter.tapped.lost.Add(b.Lost - c.lost)
	c.lost = b.Lost
}

// batch takes packets from the queues. Each queue gives only packets that are older
// than what any queue may still hold back, so that the packets come in the order of
// time. The last batch has all of them.
func (c *capture) batch(last bool) (b report.Batch) {
	c.asked, c.streams = false, nil
	limit := max(captureBatch/len(c.queues), 64<<10)
	until := clock.Now()
	if len(c.queues) > 1 && !last {
		until = until.Add(-captureSettle)
	}
	for _, q := range c.queues {
		if at, more, ok := q.ring.Reach(limit); ok && more && at.Before(until) {
			until = at
		}
	}
	for _, q := range c.queues {
		c.records = q.ring.Take(c.records[:0], until, limit)
		for _, r := range c.records {
			b.Packets = append(b.Packets, c.packet(q, r))
		}
		b.Lost += q.ring.Lost()
	}
	if len(c.queues) > 1 {
		c.handed = max(c.handed, until)
		slices.SortStableFunc(b.Packets, func(x, y report.Packet) int { return x.At.Compare(y.At) })
	}
	b.Streams = c.streams
	return b
}

func (c *capture) packet(q tappedQueue, r tap.Record) report.Packet {
	return report.Packet{
		At: c.epoch.Add(max(r.At, c.handed).Sub(c.zero)), Device: q.port.name, Queue: q.queue,
		Out: r.Out, Flow: uint32(r.Flow), QP: c.stream(flowOf{q.port, r.Flow}, r).QP,
		Length: r.Length, Data: r.Data,
	}
}
