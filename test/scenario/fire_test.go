package scenario

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// These tests check the memory limits of flows that are attacked, or whose peers do not
// read. Such a flow holds no more than its limit, and another flow still transfers its
// octets.

// deaf is an end that does not read.
type deaf struct{ *octets.Transfer }

func (deaf) Receive(clock.Instant, stream.Stream) {}

// fire is a world with useless flows and one useful flow.
type fire struct {
	*testing.T
	w    *world.World
	bad  []*Seen // useless flows of both ends
	hole func(from simnic.Side, packet []byte) bool

	judged bool // the next flows are useful
}

const (
	fireFrames = 2048 // chunks in each pool of an end
	fireVolume = 4 << 20
)

func newFire(t *testing.T, flows int) *fire {
	t.Helper()
	f := &fire{T: t}
	link := simnic.Config{Seed: 1, Latency: 50 * time.Microsecond, Rate: 10e9, Frames: fireFrames}
	link.Drop = func(from simnic.Side, packet []byte) bool { return f.hole != nil && f.hole(from, packet) }
	var err error
	if f.w, err = world.New(world.Config{Link: link, Engine: engine.Config{}, Flows: flows + 8}); err != nil {
		t.Fatal(err)
	}
	return f
}

// connect makes a useless flow.
func (f *fire) connect(flow world.Flow, a, b stream.ULP) world.Conn {
	f.Helper()
	ends := []*Seen{{ULP: a}, {ULP: b}}
	id, err := f.w.Connect(flow, ends[0], ends[1])
	if err != nil {
		f.Fatal(err)
	}
	f.bad = append(f.bad, ends...)
	return id
}

// useful transfers octets in both directions over a new flow. It returns the rate in
// Mb/s of virtual time.
func (f *fire) useful() float64 {
	f.Helper()
	a := octets.NewTransfer(octets.Plan{Send: fireVolume, Seed: 1, Expect: fireVolume, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: fireVolume, Seed: 2, Expect: fireVolume, PeerSeed: 1})
	if _, err := f.w.Connect(world.Flow{}, a, b); err != nil {
		f.Fatal(err)
	}
	begin := f.w.Now()
	if err := f.w.Run(10*time.Minute, func() bool { return over(a) && over(b) }); err != nil {
		f.Fatalf("the flow beside them: %v; %d and %d octets have come", err, a.Received(), b.Received())
	}
	if a.Err() != nil || b.Err() != nil {
		f.Fatalf("the flow beside them: %v, %v", a.Err(), b.Err())
	}
	return 2 * fireVolume * 8 / f.w.Now().Sub(begin).Seconds() / 1e6
}

// waits returns how often a flow of end A needed a transmit frame and got none.
func (f *fire) waits() uint64 {
	f.Helper()
	var g engine.Glance
	err := f.w.Do(0, func(ctx context.Context) (err error) {
		g, err = f.w.Engines[0].Look(ctx, nil, nil, nil)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return g.Counters.NoTxFrame
}

// holding is what the useless flows hold.
type holding struct {
	flows, received, reordered, most int // flows alive, frames received, frames out of order, most frames of one flow
	unread, queued                   uint32
}

func (f *fire) holding() (h holding) {
	for _, e := range f.bad {
		if e.Conn == nil {
			continue
		}
		i := e.Conn.Info()
		h.flows++
		h.received += i.RcvFrames
		h.reordered += i.ReorderFrames
		h.most = max(h.most, i.RcvFrames+i.ReorderFrames)
		h.unread = max(h.unread, i.Unread)
		h.queued = max(h.queued, i.Queued)
	}
	return h
}

// share is the smallest permitted rate of the useful flow, relative to its rate alone.
// The link has 10 Gb/s and a round trip of 100 µs. Alone the flow has some hundred
// frames in flight. Beside the useless flows it gets a sixteenth of the remaining
// frames.
const share = 0.1

// judge checks that each useless flow holds at most most receive frames, and that some
// frames of both pools are free. It also checks the rate of a useful flow, and prints
// the numbers.
func (f *fire) judge(most int) {
	f.Helper()
	f.judged = true
	before := f.waits()
	f.w.Pass(time.Second)
	if n, some := f.waits()-before, uint64(10*len(f.bad)); n > some {
		f.Errorf("in a second the engine has asked %d times for frames: it is busy with flows that cannot send", n)
	}
	alone := newFire(f.T, 0).useful()
	h := f.holding()
	for _, s := range []simnic.Side{simnic.A, simnic.B} {
		rx, tx := f.w.Link.Lent(s)
		f.Logf("end %v has lent %d of %d receive frames, %d of %d transmit frames", s, rx, fireFrames, tx, fireFrames)
		if rx > fireFrames*7/8 || tx > fireFrames*15/16 {
			f.Errorf("end %v has lent %d receive and %d transmit frames of %d each", s, rx, tx, fireFrames)
		}
	}
	rate := f.useful()
	f.Logf("%d ends: %d frames in order, %d out of order; of one at most %d frames, %d octets unread, %d octets to send; the flow beside them %.0f Mb/s, alone %.0f",
		h.flows, h.received, h.reordered, h.most, h.unread, h.queued, rate, alone)
	if h.most > most || h.most == 0 && h.queued == 0 {
		f.Errorf("an end holds %d receive frames, want 1 to %d", h.most, most)
	}
	if rate < share*alone {
		f.Errorf("the flow beside them has %.0f Mb/s, less than %v of the %.0f that it has alone", rate, share, alone)
	}
}

// Octets arrive after a hole that is never filled. The peer sends as much as the window
// allows, and the missing segment is lost each time.
func TestMemoryOutOfOrder(t *testing.T) {
	f := newFire(t, 64)
	f.hole = f.loseFirst()
	for range 64 {
		f.connect(world.Flow{}, octets.NewSource(1<<20, 1), octets.NewSink(1<<20, 1))
	}
	f.w.Pass(5 * time.Second)
	if h := f.holding(); h.reordered < 64 {
		t.Fatalf("only %d frames are held out of order: the attack is none", h.reordered)
	}
	f.judge(64)
}

// A peer never reads, while the other end has much to send to it. The other end does
// not read either.
func TestMemoryPeerNeverReads(t *testing.T) {
	f := newFire(t, 64)
	for range 64 {
		plan := octets.Plan{Send: 64 << 20, Seed: 1, Hold: true}
		f.connect(world.Flow{}, deaf{octets.NewTransfer(plan)}, deaf{octets.NewTransfer(plan)})
	}
	f.w.Pass(5 * time.Second)
	f.judge(64)
}

// A thousand applications do not read what their peers send. The smallest share of each
// would together be all frames. The received octets are not lost when the applications
// read at last.
func TestMemoryThousandNeverRead(t *testing.T) {
	const flows = 1000
	f := newFire(t, flows)
	late, ids := make([]*sleeper, flows), make([]engine.FlowID, flows)
	for i := range late {
		late[i] = &sleeper{Transfer: octets.NewSink(fireLate, 1)}
		ids[i] = f.connect(world.Flow{}, octets.NewSource(fireLate, 1), late[i]).ID[1]
	}
	f.w.Pass(5 * time.Second)
	f.judge(224)
	for i, s := range late {
		s.awake = true
		f.w.Engines[1].Ring(ids[i])
	}
	if err := f.w.Run(time.Hour, func() bool {
		for _, s := range late {
			if !over(s.Transfer) {
				return false
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for i, s := range late {
		if s.Err() != nil || s.Received() != fireLate {
			t.Fatalf("flow %d: %d of %d octets have come, %v", i, s.Received(), fireLate, s.Err())
		}
	}
}

// fireLate is the number of octets for each sleeper: three segments.
const fireLate = 4000

// sleeper is an end that does not read until the test wakes it.
type sleeper struct {
	*octets.Transfer
	awake bool
}

func (s *sleeper) Receive(now clock.Instant, st stream.Stream) {
	if s.awake {
		s.Transfer.Receive(now, st)
	}
}

// Transmit runs after a doorbell and after each segment.
func (s *sleeper) Transmit(now clock.Instant, st stream.Stream) {
	s.Receive(now, st)
	s.Transfer.Transmit(now, st)
}

// A thousand peers have closed their windows. They hold transmit frames and are probed
// without end.
func TestMemoryZeroWindows(t *testing.T) {
	const peers = 1000
	f := newFire(t, peers)
	f.hole = f.closeWindows()
	for range peers {
		source := octets.NewTransfer(octets.Plan{Send: 1 << 20, Seed: 1, Hold: true})
		flow := world.Flow{Edit: func(side int, st *tcp.State) {
			if side == 0 {
				st.SndWnd, st.MaxWnd = 0, 64<<10
			}
		}}
		f.connect(flow, source, deaf{octets.NewTransfer(octets.Plan{Hold: true})})
	}
	f.w.Pass(5 * time.Second)
	f.judge(32)
	alive := 0
	for _, e := range f.bad {
		if e.Conn != nil && e.Conn.Phase() == tcp.Established {
			alive++
		}
	}
	if alive != 2*peers {
		t.Errorf("%d of %d ends are still connected", alive, 2*peers)
	}
}

// loseFirst loses the first data segment of each useless flow, each time that the
// segment is sent.
func (f *fire) loseFirst() func(simnic.Side, []byte) bool {
	first := map[uint16]seq.Num{} // by the port of the sender
	return func(from simnic.Side, packet []byte) bool {
		var p wire.Packet
		if from != simnic.A || wire.ParsePacket(packet, &p) != wire.OK || p.Payload == p.End {
			return false
		}
		at, known := first[p.TCP.SrcPort]
		if !known && !f.judged {
			at, known = p.TCP.Seq, true
			first[p.TCP.SrcPort] = at
		}
		return known && p.TCP.Seq == at
	}
}

// closeWindows sets the window to 0 in all segments that end B sends for useless flows.
func (f *fire) closeWindows() func(simnic.Side, []byte) bool {
	ports := map[uint16]bool{}
	return func(from simnic.Side, packet []byte) bool {
		var p wire.Packet
		if wire.ParsePacket(packet, &p) != wire.OK {
			return false
		}
		if from == simnic.A {
			ports[p.TCP.SrcPort] = ports[p.TCP.SrcPort] || !f.judged
			return false
		}
		if ports[p.TCP.DstPort] && p.TCP.Window != 0 {
			window, sum := packet[p.L4+14:p.L4+16], packet[p.L4+16:p.L4+18]
			put, get := binary.BigEndian.PutUint16, binary.BigEndian.Uint16
			// RFC 1624 §3, with a new value of 0.
			put(sum, wire.Sum(0).Add16(^get(sum)).Add16(^get(window)).Checksum())
			put(window, 0)
		}
		return false
	}
}
