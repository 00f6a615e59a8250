package e2e

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/wire"
)

// fire is a series of take-overs of connections whose peer sends and reads without pause.
type fire struct {
	r       *rig
	way     way
	n       int    // number of take-overs
	at      int    // number of concurrent take-overs
	each    uint64 // octets in each direction of a connection
	idle    time.Duration
	control string // congestion control of the peer; empty: its default
}

// burnt is the result of one take-over.
type burnt struct {
	flow  *nic.Flow
	ulp   *octets.Transfer
	peer  *talk
	stall time.Duration
}

// TestFireDial takes over 500 dialled connections, four at a time. In the 20 s of silence afterwards, the kernel sends
// nothing for any of them.
func TestFireDial(t *testing.T) {
	t.Parallel()
	f := fire{r: newRig(t, setup{}), n: 500, at: 4, each: 256 << 10, idle: 20 * time.Second}
	f.run()
}

// TestFireAccept does the same as TestFireDial with accepted connections, and without the silence at the end.
func TestFireAccept(t *testing.T) {
	t.Parallel()
	f := fire{r: newRig(t, setup{}), way: way{accept: true}, n: 500, at: 4, each: 256 << 10}
	f.run()
}

// TestFireAllAtOnce takes 200 connections over at the same time.
func TestFireAllAtOnce(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			f := fire{r: newRig(t, setup{}), way: w, n: 200, at: 200, each: 64 << 10}
			f.run()
		})
	}
}

// TestFireKinds takes over connections of every address family, MTU and set of options, with every congestion control
// of the peer's kernel.
func TestFireKinds(t *testing.T) {
	t.Parallel()
	type kind struct {
		name    string
		mtu     int
		sysctl  map[string]string
		control string
	}
	kinds := []kind{
		{"mtu 3506", 3506, nil, ""},
		{"no SACK", 1500, map[string]string{"ipv4/tcp_sack": "0"}, ""},
		{"no timestamps", 1500, map[string]string{"ipv4/tcp_timestamps": "0"}, ""},
		{"no SACK, no timestamps", 1500, map[string]string{"ipv4/tcp_sack": "0", "ipv4/tcp_timestamps": "0"}, ""},
		{"no scaling", 1500, map[string]string{"ipv4/tcp_window_scaling": "0"}, ""},
	}
	for _, cc := range congestionControls(t) {
		kinds = append(kinds, kind{"peer uses " + cc, 1500, nil, cc})
	}
	for _, k := range kinds {
		for _, w := range ways {
			t.Run(k.name+"/"+w.String(), func(t *testing.T) {
				s := setup{pair: pair.Config{MTU: k.mtu}, sysctl: k.sysctl}
				f := fire{r: newRig(t, s), way: w, n: 20, at: 4, each: 512 << 10, control: k.control}
				f.run()
			})
		}
	}
}

// run takes over f.n connections and checks each to its end.
func (f fire) run() {
	f.r.Helper()
	var done []burnt
	var mu sync.Mutex
	var failed atomic.Bool
	work := make(chan int)
	var wg sync.WaitGroup
	barrier := f.barrier()
	for range f.at {
		wg.Go(func() {
			for i := range work {
				b, err := f.one(barrier)
				if err != nil {
					failed.Store(true)
					f.r.Errorf("connection %d: %v", i, err)
					continue
				}
				mu.Lock()
				done = append(done, b)
				mu.Unlock()
			}
		})
	}
	for i := 0; i < f.n && !failed.Load(); i++ {
		work <- i
	}
	close(work)
	wg.Wait()
	if failed.Load() {
		f.r.FailNow()
	}
	f.silence()
	f.finish(done)
	f.report(done)
}

// barrier makes the take-overs of an all-at-once run start together.
func (f fire) barrier() func() {
	if f.at < f.n {
		return func() {}
	}
	var ready sync.WaitGroup
	ready.Add(f.n)
	return func() { ready.Done(); ready.Wait() }
}

// one connects, lets both sides send, and takes the local end over during the transfer. It waits until all octets have
// arrived on both sides. The connection stays open.
func (f fire) one(barrier func()) (b burnt, err error) {
	our, peer, err := f.r.tryConnect(f.way)
	if err != nil {
		return b, err
	}
	if err := f.setControl(peer); err != nil {
		return b, err
	}
	total := 2 * f.each
	b.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: total}).start()
	// Up to a quarter of the octets go through the kernel. Then the local side stops in the middle of the transfer,
	// together with the others of an all-at-once run.
	before := &talk{conn: our, out: seedOurs, in: seedTheirs, send: total - f.each/4}
	if err := before.upTo(f.each / 8); err != nil {
		return b, fmt.Errorf("before the take-over: %w", err)
	}
	barrier()
	if err := before.upTo(f.each / 4); err != nil {
		return b, fmt.Errorf("before the take-over: %w", err)
	}
	time.Sleep(time.Millisecond) // the peer continues to send and fills the local receive queue
	b.peer.gap.Store(0)
	b.ulp = octets.NewTransfer(octets.Plan{
		Send: total, Seed: seedOurs, Expect: total, PeerSeed: seedTheirs, Hold: true,
		Sent: before.sent.Load(), Received: before.received.Load(),
	})
	if b.flow, err = f.r.nic.Take(f.r.Ctx(), our, b.ulp, nic.DefaultOptions); err != nil {
		return b, err
	}
	for end := time.Now().Add(20 * time.Second); b.peer.received.Load() < total || b.ulp.Received() < total; {
		select {
		case err := <-b.peer.read:
			return b, fmt.Errorf("peer: %w", err)
		case <-b.ulp.Done():
			return b, fmt.Errorf("our side: %w", b.ulp.Err())
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			info, err := b.flow.Info(f.r.Ctx())
			return b, fmt.Errorf("not within 20 s: peer has %d, we %d of %d octets; %+v %v; engine %+v",
				b.peer.received.Load(), b.ulp.Received(), total, info, err, f.r.counters())
		}
	}
	b.stall = time.Duration(b.peer.gap.Load())
	return b, b.flow.Placeholder().Err()
}

// silence captures the packets that the local kernel sends on the cable during f.idle.
func (f fire) silence() {
	if f.idle == 0 {
		return
	}
	before := f.r.counters()
	c := f.r.listenIn(ours, func(*wire.Packet, bool) bool { return true })
	time.Sleep(f.idle)
	if n := c.segments.Load(); n != 0 {
		f.r.Errorf("the kernel sent or got %d segments in %v of silence", n, f.idle)
	}
	after := f.r.counters()
	if after.TxPackets == before.TxPackets {
		f.r.Errorf("the engine sent no keepalive probe in %v: the sockets' settings were not inherited", f.idle)
	}
	f.r.Logf("%v idle: 0 segments by the kernel, %d by the engine", f.idle, after.TxPackets-before.TxPackets)
}

// finish closes every connection from both sides, in order.
func (f fire) finish(done []burnt) {
	for i, b := range done {
		if err := b.flow.Placeholder().Err(); err != nil {
			f.r.Errorf("connection %d: %v", i, err)
		}
		b.ulp.Release()
		b.flow.Ring()
		f.r.Check(b.peer.conn.CloseWrite())
		f.r.Wait(b.ulp.Done(), "the end of our side")
		f.r.Check(b.ulp.Err())
		f.r.Check(<-b.peer.read)
		f.r.Check(b.peer.conn.Close())
	}
}

// report prints the state that the take-overs found, and checks that it was not empty.
func (f fire) report(done []burnt) {
	f.r.Helper()
	unread, unacked, either := 0, 0, 0
	var stalls, held []time.Duration
	for _, b := range done {
		in := b.flow.Inherited()
		if in.Unread > 0 {
			unread++
		}
		if in.Unacked > 0 {
			unacked++
		}
		if in.Unread > 0 || in.Unacked > 0 {
			either++
		}
		stalls, held = append(stalls, b.stall), append(held, b.flow.Held())
	}
	if either*10 < len(done)*9 {
		f.r.Errorf("only %d of %d take-overs found octets in the kernel's queues: the fire was too low", either, len(done))
	}
	f.r.Logf("%d take-overs: %d with unread, %d with unacknowledged octets; held %v median, %v p99; peer stalled %v median, %v p99",
		len(done), unread, unacked, quantile(held, 50), quantile(held, 99), quantile(stalls, 50), quantile(stalls, 99))
}

func quantile(d []time.Duration, percent int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min(len(s)-1, len(s)*percent/100)].Round(10 * time.Microsecond)
}

func (f fire) setControl(c *net.TCPConn) error {
	if f.control == "" {
		return nil
	}
	return setCongestion(c, f.control)
}
