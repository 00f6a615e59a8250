package rdma

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/wire"
)

// listener is a running capture and the packets that it has received.
type listener struct {
	r    *rig
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	packets []report.Packet
	streams []report.Stream
	lost    uint64
}

// capture starts a capture that ends with the test.
func (r *rig) capture(a *Adapter, f report.Filter) *listener {
	r.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{r: r, stop: stop, done: make(chan error, 1)}
	begun := make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) })
	go func() {
		l.done <- a.Capture(ctx, f, func(b report.Batch) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.packets, l.lost = append(l.packets, b.Packets...), b.Lost
			l.streams = append(l.streams, b.Streams...)
			first()
			return nil
		})
		first()
	}()
	<-begun
	r.Cleanup(func() { stop() })
	return l
}

// ended waits for the end of the capture and returns its error.
func (l *listener) ended() error {
	l.r.Helper()
	select {
	case err := <-l.done:
		return err
	case <-time.After(patience):
		l.r.Fatal("the capture does not end")
	}
	return nil
}

// seen returns the packets received so far, and the number of lost ones.
func (l *listener) seen() ([]report.Packet, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.packets, l.lost
}

// settled returns what seen does, as soon as no packet has come for a while.
func (l *listener) settled() ([]report.Packet, uint64) {
	l.r.Helper()
	last, since := -1, time.Now()
	l.r.Eventually("the capture is quiet", func() bool {
		all, lost := l.seen()
		if n := len(all) + int(lost); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return l.seen()
}

// octetsSent counts the octets of TCP payload in one direction, each octet once.
func octetsSent(r *rig, packets []report.Packet, out bool) int {
	r.Helper()
	seen := map[uint32]int{}
	for _, p := range packets {
		var v wire.Packet
		if why := wire.ParsePacket(p.Data, &v); why != wire.OK || v.VerifyChecksum(p.Data, false) != wire.OK {
			r.Errorf("a packet is not whole: %v", why)
			continue
		}
		if p.Out == out {
			seen[uint32(v.TCP.Seq)] = max(seen[uint32(v.TCP.Seq)], len(v.Data(p.Data)))
		}
	}
	total := 0
	for _, n := range seen {
		total += n
	}
	return total
}

// withPayload reports whether p carries payload of a transfer. An acknowledgement can
// come after one capture has begun and before another has.
func withPayload(p report.Packet) bool { return p.Length > 100 }

func TestCapture(t *testing.T) {
	r := newHosts(t, pairConfig)
	x, y := r.connect(wants{heap: 1 << 20})
	u, v := r.connect(wants{})
	l := r.capture(r.a, report.Filter{})
	alone := r.capture(r.a, report.Filter{QP: x.qp.Number(), SnapLen: 60})
	flow := r.capture(r.b, report.Filter{Flow: uint32(y.qp.conn.Load().Flow()), Device: r.pair.Ends[pair.B].Name})
	const n = 500000
	x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, n)}, RKey: y.mr.RKey(), Flags: Signaled})
	r.ok(x.sent(1))
	x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, n)}, RKey: y.mr.RKey(), Flags: Signaled})
	r.ok(x.sent(1))
	u.post(SendWR{Op: WRWrite, SGL: []SGE{u.mr.SGE(0, 1)}, RKey: v.mr.RKey(), Flags: Signaled})
	r.ok(u.sent(1))

	all, lost := l.settled()
	one, lostOne := alone.settled()
	far, lostFar := flow.settled()
	if lost != 0 || lostOne != 0 || lostFar != 0 {
		t.Errorf("lost %d, %d and %d", lost, lostOne, lostFar)
	}
	for _, out := range []bool{true, false} {
		if got := octetsSent(r, all, out); got < n || got > n+n/10 {
			t.Errorf("out %v: %d octets of payload, want a little more than %d", out, got, n)
		}
	}
	ofX := 0
	began := time.Now().Add(-patience)
	for i, p := range all {
		if p.Device != r.pair.Ends[pair.A].Name || p.Queue != 0 || p.Flow == 0 || p.Length != len(p.Data) {
			t.Fatalf("packet %d: %+v", i, p)
		}
		if p.QP == x.qp.Number() && withPayload(p) {
			ofX++
		} else if p.QP != x.qp.Number() && p.QP != u.qp.Number() {
			t.Errorf("packet %d is of QP %d", i, p.QP)
		}
		if p.At.Before(began) || p.At.After(time.Now()) {
			t.Errorf("packet %d is of %v, after one of %v", i, p.At, began)
		}
		began = p.At
	}
	oneX := 0
	for _, p := range one {
		if withPayload(p) {
			oneX++
		}
	}
	if oneX != ofX || ofX == 0 {
		t.Errorf("%d packets of the QP, want %d of %d", oneX, ofX, len(all))
	}
	for i, p := range one {
		if p.QP != x.qp.Number() || len(p.Data) != 60 || p.Length < 60 {
			t.Fatalf("packet %d of the QP: %+v", i, p)
		}
	}
	if got := octetsSent(r, far, true); got < n || len(far) < ofX*9/10 {
		t.Errorf("the far end: %d packets, %d octets sent", len(far), got)
	}
	for _, l := range []*listener{l, alone, flow} {
		l.stop()
		r.Check(l.ended())
	}
}

// TestCaptureStreams: every packet has its QP, even if it comes while the connection is
// taken over, and every connection is described once.
func TestCaptureStreams(t *testing.T) {
	r := newHosts(t, pairConfig)
	for _, snap := range []int{0, 100} {
		l, far := r.capture(r.a, report.Filter{SnapLen: snap}), r.capture(r.b, report.Filter{SnapLen: snap})
		want := map[uint32]report.Stream{}
		for i := range 20 {
			w := wants{dial: ConnParams{NoCRC: i%2 == 0}, accept: ConnParams{NoCRC: i%2 == 0, Markers: i%3 == 0}}
			x, y := r.connect(w)
			x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 5000)}, RKey: y.mr.RKey(), Flags: Signaled})
			r.ok(x.sent(1))
			want[x.qp.Number()] = report.Stream{
				Device: r.pair.Ends[pair.A].Name, Flow: uint32(x.qp.conn.Load().Flow()), QP: x.qp.Number(),
				Initiator: true, Revision: 2, CRC: i%2 != 0, SendMarkers: i%3 == 0,
			}
		}
		for _, l := range []*listener{l, far} {
			all, _ := l.settled()
			for i, p := range all {
				if p.QP == 0 {
					t.Errorf("packet %d has no QP: %+v", i, p)
				}
			}
			l.stop()
			r.Check(l.ended())
		}
		for _, s := range l.streams {
			if w, ok := want[s.QP]; !ok || s != w {
				t.Errorf("told of %+v, want %+v", s, w)
			}
			delete(want, s.QP)
		}
		if len(want) != 0 || len(far.streams) != 20 {
			t.Errorf("not told of %v; the far end told of %d", want, len(far.streams))
		}
		for _, s := range far.streams {
			if s.Initiator || s.SendMarkers {
				t.Errorf("the far end told of %+v", s)
			}
		}
	}
}

// TestCaptureLate: packets that are delivered after their QP is closed still have its
// number.
func TestCaptureLate(t *testing.T) {
	r := newHosts(t, pairConfig)
	held, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	var packets []report.Packet
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		done <- r.a.Capture(ctx, report.Filter{}, func(b report.Batch) error {
			if packets == nil {
				packets = []report.Packet{}
				close(held)
				<-release
			}
			packets = append(packets, b.Packets...)
			return nil
		})
	}()
	<-held
	x, y := r.connect(wants{})
	x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 100)}, RKey: y.mr.RKey(), Flags: Signaled})
	r.ok(x.sent(1))
	r.Must(x.qp.Close())
	close(release)
	r.Must(r.a.Close())
	r.Check(<-done)
	if len(packets) == 0 {
		t.Error("no packets")
	}
	for i, p := range packets {
		if p.Flow != 0 && p.QP != x.qp.Number() { // the peer may answer a reset connection
			t.Errorf("packet %d is of QP %d: %+v", i, p.QP, p)
		}
	}
}

// TestCaptureSlow: a capture that does not take its packets loses and counts them, and
// the transfer does not wait for it.
func TestCaptureSlow(t *testing.T) {
	r := newHosts(t, pairConfig)
	x, y := r.connect(wants{heap: 1 << 20})
	held, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	var got, lost uint64
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		calls := 0
		done <- r.a.Capture(ctx, report.Filter{}, func(b report.Batch) error {
			if calls++; calls == 2 {
				close(held)
				<-release
			}
			got, lost = got+uint64(len(b.Packets)), b.Lost
			return nil
		})
	}()
	fill(x.mr.Bytes(), 1)
	write := func() {
		x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 1<<20)}, RKey: y.mr.RKey(), Flags: Signaled})
		r.ok(x.sent(1))
	}
	write()
	<-held
	for range 40 { // more than the ring holds
		write()
	}
	x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 0)}, RKey: y.mr.RKey(), Flags: Signaled})
	r.ok(x.sent(1))
	if string(x.mr.Bytes()) != string(y.mr.Bytes()) {
		t.Error("what has arrived is not what was sent")
	}
	close(release)
	r.Eventually("what was lost is told", func() bool { _, lost := r.a.device.Captured(); return lost != 0 })
	r.Check(r.a.Close()) // Close hands over the rest
	r.Check(<-done)
	t.Logf("%d captured, %d lost", got, lost)
	packets, dropped := r.a.device.Captured()
	if lost == 0 || got == 0 || got+lost < 41<<20/1460 || packets != got || dropped != lost {
		t.Errorf("%d packets and %d lost, of at least %d; the adapter says %d and %d", got, lost, 41<<20/1460, packets, dropped)
	}
}

// TestCaptureClose: Close ends a capture without an error, and the last packets are
// the resets of the connections.
func TestCaptureClose(t *testing.T) {
	r := newHosts(t, pairConfig)
	x, _ := r.connect(wants{})
	l := r.capture(r.a, report.Filter{})
	number := x.qp.Number()
	r.Must(r.a.Close())
	r.Check(l.ended())
	all, _ := l.seen()
	if len(all) == 0 {
		t.Fatal("no packets")
	}
	var v wire.Packet
	for len(all) > 1 && !all[len(all)-1].Out { // the peer may still send packets
		all = all[:len(all)-1]
	}
	last := all[len(all)-1]
	if wire.ParsePacket(last.Data, &v) != wire.OK || v.TCP.Flags&wire.RST == 0 || !last.Out || last.QP != number {
		t.Errorf("the last packet is %+v", last)
	}
	r.Says(r.a.Capture(r.Ctx(), report.Filter{}, nil), ErrClosed)
}

// TestCaptureClosedSlowly: Close does not wait for a receiver that takes nothing.
func TestCaptureClosedSlowly(t *testing.T) {
	r := newHosts(t, pairConfig)
	held, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- r.a.Capture(context.Background(), report.Filter{}, func(report.Batch) error {
			close(held)
			<-release
			return errors.New("late")
		})
	}()
	<-held
	r.Must(r.a.Close())
	close(release)
	r.Says(<-done, nil, "late")
}

// TestCaptureLinkGone: when the interface is removed, the capture returns an error that
// says so.
func TestCaptureLinkGone(t *testing.T) {
	r := newHosts(t, pairConfig)
	l := r.capture(r.a, report.Filter{})
	r.Must(r.pair.Do(pair.A, func() error {
		link, err := netlink.LinkByName(r.pair.Ends[pair.A].Name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	}))
	r.Says(l.ended(), nil, "the interface is gone")
}

// TestCaptureQueues: the packets of two queues come in the order of their times, each
// once, with the queue at which the packet arrived.
func TestCaptureQueues(t *testing.T) {
	r := newHosts(t, pair.Config{Queues: 2})
	l := r.capture(r.b, report.Filter{})
	var ends []*end
	for range 8 {
		x, y := r.connect(wants{heap: 1 << 18})
		x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 1<<18)}, RKey: y.mr.RKey(), Flags: Signaled})
		y.post(SendWR{Op: WRWrite, Flags: Signaled}) // a silent peer causes more packets later
		ends = append(ends, x, y)
	}
	for _, x := range ends {
		r.ok(x.sent(1))
	}
	all, lost := l.settled()
	if got := octetsSent(r, all, false); lost != 0 || got < 8<<18 || got > 9<<18 {
		t.Errorf("%d octets, %d packets lost", got, lost)
	}
	queues := map[uint16]int{}
	for i, p := range all {
		queues[p.Queue]++
		if i > 0 && p.At.Before(all[i-1].At) {
			t.Errorf("packet %d is earlier than the one before", i)
		}
	}
	var counted uint64
	for _, e := range r.b.device.Ports()[0].NIC().Engines() {
		c, err := e.Counters(r.Ctx())
		r.Must(err)
		counted += c.RxPackets + c.TxPackets
	}
	if counted != uint64(len(all)) {
		t.Errorf("%d packets (%v), the engines count %d", len(all), queues, counted)
	}
	t.Logf("by queue: %v", queues)
}

// TestCaptureRefused: a capture that is not possible returns the reason.
func TestCaptureRefused(t *testing.T) {
	refused := func(r *rig, f report.Filter, words ...string) {
		t.Helper()
		r.Says(r.a.Capture(r.Ctx(), f, func(report.Batch) error { return errors.New("it has begun") }), nil, append(words, "capture: ")...)
	}
	t.Run("kernel port", func(t *testing.T) {
		r := newLoopback(t)
		refused(r, report.Filter{}, "tcpdump", "kernel port")
	})
	t.Run("offloaded", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		x, _ := r.connect(wants{})
		name := r.pair.Ends[pair.A].Name
		refused(r, report.Filter{Device: "eth77"}, "no device eth77", name)
		refused(r, report.Filter{Flow: 0x7ff00000}, "no flow 0x7ff00000", "stag show flows")
		refused(r, report.Filter{QP: 12345}, "no QP 12345", "stag show qps")
		refused(r, report.Filter{QP: x.qp.Number(), Flow: 77}, "not 0x4d")
		idle := r.newEnd(r.a, wants{})
		refused(r, report.Filter{QP: idle.qp.Number()}, "no connection yet")
		refused(r, report.Filter{SnapLen: -1}, "snap length")

		for range tap.MaxRings {
			r.capture(r.a, report.Filter{})
		}
		r.Says(r.a.Capture(r.Ctx(), report.Filter{}, nil), tap.ErrTooMany, "end one first")
	})
	t.Run("receiver", func(t *testing.T) {
		r := newHosts(t, pairConfig)
		full := errors.New("no room")
		r.Says(r.a.Capture(r.Ctx(), report.Filter{}, func(report.Batch) error { return full }), full)
		for range tap.MaxRings { // captures that have ended take no place
			r.capture(r.a, report.Filter{})
		}
	})
}
