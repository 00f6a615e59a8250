package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// captureIdleLeast and captureIdleMost limit how long a capture that found no
	// packets waits before it looks again. A capture must look again because engines do
	// not wake it. Even at 16 Gb/s, a ring of 8 MiB is full only after a longer time.
	captureIdleLeast = 250 * time.Microsecond
	captureIdleMost  = 4 * time.Millisecond

	// captureBatch is about how many octets of packets a batch has at most.
	captureBatch = 2 << 20

	// captureSettle is how long packets of several queues wait before they are sorted.
	// captureSettle is longer than the time from an engine's reading of the clock to
	// its write to the ring. If a delayed engine writes a packet even later, the packet
	// gets the time of the write.
	captureSettle = 2 * time.Millisecond

	// captureClose limits how long Close waits for captures to hand over their packets.
	captureClose = time.Second
)

// captures counts the running captures, so that Close can let them read the last
// packets.
type captures struct {
	packets, lost atomic.Uint64 // numbers of packets that all captures since Open have received, and lost

	mu      sync.Mutex // guards the fields below; no engine takes it
	ended   bool
	count   int // number of running captures
	running sync.WaitGroup
	quiet   chan struct{}                   // channel that is closed when no more packets will come
	past    map[engine.FlowID]report.Stream // streams of connections that layers have closed while a capture ran
	moved   []movedFlow                     // moves while a capture ran
	before  uint64                          // number of moves that were in moved and are not any more
}

func newCaptures() *captures { return &captures{quiet: make(chan struct{})} }

// begin counts one more capture. begin returns false if the adapter is being closed.
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
		c.before += uint64(len(c.moved))
		c.past, c.moved = nil, nil
	}
	c.running.Done()
}

// end lets every running capture come to its end. If the receiver of a capture takes
// nothing, end stops waiting after captureClose.
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
// on. The first call has an empty batch, which says that the capture has begun. Later
// calls follow whenever there are packets. Capture ends when ctx ends, when f fails,
// when all engines have failed, or when the adapter is closed. Once the capture has
// begun, Capture returns an error only if f or all engines have failed.
//
// While f runs, the adapter keeps further packets: up to 8 MiB for each queue, and less
// if there are more than eight queues. Packets that do not fit are lost and counted.
// Engines never wait. The packets of several queues are in the order of their time.
// With the first packet of a connection, Batch.Streams says what the connection's ends
// agreed on before the take-over.
//
// With filter.Flow or filter.QP, the packets of that flow are captured at every port
// where they arrive, unless filter.Device names one. With KernelPort no packets can be
// captured, because the kernel handles them. Capture fails with tap.ErrTooMany or
// ErrClosed.
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

// Captured returns how many packets captures have received since Open, and how many
// packets captures have lost.
func (a *Adapter) Captured() (packets, lost uint64) {
	return a.tapped.packets.Load(), a.tapped.lost.Load()
}

// capture is one running capture. One goroutine owns it.
type capture struct {
	adapter *Adapter
	taps    []*nic.Tap
	queues  []tappedQueue
	known   map[engine.FlowID]report.Stream // streams that f has received
	conns   map[engine.FlowID]report.Stream // streams of the layers' connections that were taken over
	asked   bool                            // conns has been read for this batch
	streams []report.Stream                 // streams that are new in this batch

	newcomers []Connection // connections that are being taken over

	flow     engine.FlowID // flow that the filter selects; 0: all
	nextMove uint64        // number of the first move that f has not received

	epoch   time.Time     // time of day at the instant zero
	zero    clock.Instant // instant of epoch
	handed  clock.Instant // with several queues, the instant up to which all packets were handed over
	records []tap.Record  // memory that batches use again
	lost    uint64        // value of Lost in the last batch
}

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
	c.flow = id
	_, c.nextMove = a.tapped.movesSince(0)
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

// choose returns the ports and the flow that the filter selects. id is 0 if the filter
// names no flow.
func (c *capture) choose(filter report.Filter) (ports []*Port, id engine.FlowID, err error) {
	if c.adapter.cfg.KernelPort {
		return nil, 0, errors.New("the adapter uses the kernel port: its packets are the kernel's, so use tcpdump")
	}
	ports, id = c.adapter.Ports(), engine.FlowID(filter.Flow)
	if filter.Device != "" {
		ports = slices.DeleteFunc(slices.Clone(ports), func(p *Port) bool { return p.name != filter.Device })
		if len(ports) == 0 {
			return nil, 0, fmt.Errorf("no device %s: the adapter has %s", filter.Device, c.adapter.portNames())
		}
	}
	if filter.QP != 0 {
		f, err := c.flowOfQP(filter.QP)
		switch {
		case err != nil:
			return nil, 0, err
		case id != 0 && f.id != id:
			return nil, 0, fmt.Errorf("QP %d has flow %#x, not %#x", filter.QP, uint32(f.id), filter.Flow)
		}
		return ports, f.id, nil
	}
	if id != 0 {
		if !slices.ContainsFunc(c.adapter.Ports(), func(p *Port) bool { return p.nic.HasFlow(id) }) {
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
		ended, failed := c.ended() // read before the queues, because no packet comes after the end
		b := c.batch(ended || failed)
		b.Moves = c.takeMoves()
		switch {
		case ctx.Err() != nil:
			return nil // f has ended the capture and does not want the rest
		case len(b.Packets) != 0 || len(b.Moves) != 0 || b.Lost != c.lost:
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

// ended reports whether no more packets come. closed: the adapter closes. failed: all
// engines of the capture have failed.
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
// than every packet that another queue may still hold back. The packets are therefore
// in the order of time. The last batch contains all remaining packets.
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
