package scenario

import (
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// Seen is an upper layer that lets a test read its connection. The world runs on one
// goroutine, and only the goroutine that runs the world may read the connection.
type Seen struct {
	stream.ULP
	Conn *tcp.Conn
}

// Receive implements stream.ULP.
func (s *Seen) Receive(now clock.Instant, c stream.Stream) {
	s.Conn = c.(*tcp.Conn)
	s.ULP.Receive(now, c)
}

// Transmit implements stream.ULP.
func (s *Seen) Transmit(now clock.Instant, c stream.Stream) {
	s.Conn = c.(*tcp.Conn)
	s.ULP.Transmit(now, c)
}

// Watch runs a world with one connection. It checks all the time that the connection
// makes progress as soon as its timers allow, and that it stays within its memory
// limits.
//
// A connection makes progress when either end gets new octets acknowledged, receives
// new octets, or consumes octets. Without progress, the retransmission timer is the
// last resort for unacknowledged octets. It expires, doubles, and expires again only if
// its retransmission or the answer was lost (RFC 6298 §5.5). Two steps of progress are
// therefore at most this far apart:
//
//	3 RTO + RTO·(2 + 4 + … + 2^k) + a round trip + 3 times the longest pause of a reader
//
// Here k is the number of packets harmed since the last progress, and RTO is the value
// at that time. The factor 3 is needed because a fast retransmission of the oldest
// segment restarts the timer, and so does a tail loss probe (RFC 8985 §7.3). A reader
// that pauses closes the window. If the window update is lost, the persist timer finds
// out that the window is open again. That timer may have doubled to the length of the
// pause.
type Watch struct {
	World   *world.World
	Weather *Weather
	Pause   time.Duration // longest time for which a reader does not read
	Ends    [2]*Seen

	looked clock.Instant
	since  clock.Instant // time of the last progress
	last   [2]place
	rto    time.Duration // RTO at the last progress, including its backoff
	harmed uint64        // number of harmed packets at the last progress
}

// place is the progress of one end.
type place struct {
	una, rcv seq.Num
	unread   uint32
	phase    tcp.Phase
}

// period is how often the watch checks the connection: at least twice per shortest RTO.
const period = 100 * time.Millisecond

// Begin must be called when the connection is established.
func (w *Watch) Begin() {
	w.looked = w.World.Now()
	w.restart(w.looked)
}

// restart records progress at time at.
func (w *Watch) restart(at clock.Instant) {
	w.since, w.rto, w.harmed = at, 0, w.harm()
	for _, e := range w.Ends {
		rto := time.Second // RFC 6298 §2.1
		if e.Conn != nil {
			i := e.Conn.Info()
			rto = i.RTO << i.Backoff
		}
		w.rto = min(max(w.rto, rto), w.maxRTO())
	}
}

func (w *Watch) maxRTO() time.Duration {
	if limit := w.Weather.TCP.MaxRTO; limit != 0 {
		return limit
	}
	return 120 * time.Second
}

func (w *Watch) harm() uint64 {
	a, b := w.World.Link.Stats(simnic.A), w.World.Link.Stats(simnic.B)
	return a.Harmed() + b.Harmed()
}

// Run runs the world until done returns true.
func (w *Watch) Run(done func() bool) error {
	const never = 1 << 62
	for !done() {
		if w.World.Step(w.looked.Add(period)) {
			continue
		}
		if err := w.look(max(w.World.Now(), w.looked.Add(period))); err != nil {
			return err
		}
		if done() {
			break
		}
		if !w.World.Step(never) {
			return fmt.Errorf("at %v: not done, and nothing is left that could happen\n%v", w.time(), w)
		}
		w.looked = w.World.Now()
	}
	return w.look(w.World.Now())
}

func (w *Watch) time() time.Duration { return w.World.Now().Sub(1) }

func (w *Watch) look(at clock.Instant) error {
	waits, progress := false, false
	for side, e := range w.Ends {
		if e.Conn == nil {
			continue
		}
		i := e.Conn.Info()
		if err := w.bounded(&i); err != nil {
			return fmt.Errorf("at %v, end %d: %w\n%v", w.time(), side, err, w)
		}
		now := place{i.SndUna, i.RcvNxt, i.Unread, i.Phase}
		progress = progress || now != w.last[side]
		w.last[side] = now
		waits = waits || i.Phase != tcp.Closed && i.Phase != tcp.InTimeWait && (i.SndUna != i.SndNxt || i.Queued > 0)
	}
	if progress || !waits {
		w.restart(at)
		return nil
	}
	if still, most := at.Sub(w.since), w.allowed(); still > most {
		return fmt.Errorf("at %v: nothing has moved for %v; RTO %v then and %d packets harmed since allow %v\n%v",
			w.time(), still, w.rto, w.harm()-w.harmed, most, w)
	}
	return nil
}

// allowed returns the longest permitted time without progress.
func (w *Watch) allowed() time.Duration {
	most, step := 3*w.rto, w.rto
	for range w.harm() - w.harmed {
		step = min(2*step, w.maxRTO())
		most += step
	}
	return most + w.Weather.trip() + 3*w.Pause + 2*period
}

// bounded returns an error if the connection holds more than its limits.
func (w *Watch) bounded(i *tcp.Info) error {
	c := &w.Weather.TCP
	orElse := func(v, other uint32) uint32 {
		if v == 0 {
			return other
		}
		return v
	}
	unit := uint32(1) << w.Weather.Flow.Scale
	for _, b := range []struct {
		what      string
		got, most uint32
	}{
		{"receive frames held", uint32(i.RcvFrames + i.ReorderFrames), min(orElse(c.RcvSegs, 2048), uint32(w.Weather.Link.Frames)/2)},
		{"octets received and unread", i.Unread, max(orElse(c.RcvBuf, 16<<20)+unit, w.Weather.Flow.Window)},
		{"octets sent and kept", i.Queued, orElse(c.SndBuf, 16<<20)},
		{"segments sent and kept", i.SndSegs, 2 * orElse(c.SndSegs, 16384)},
	} {
		if b.got > b.most {
			return fmt.Errorf("%s: %d, more than %d", b.what, b.got, b.most)
		}
	}
	return nil
}

// Returned returns an error unless both engines have returned every receive chunk, all
// slabs, and all transmit chunks except a small stock.
func (w *Watch) Returned() error {
	const stock = 64
	if n := w.World.SlabsLent(); n != [2]int{} {
		return fmt.Errorf("the ends still hold %d slabs", n)
	}
	for _, s := range []simnic.Side{simnic.A, simnic.B} {
		if rx, tx := w.World.Link.Lent(s); rx != 0 || tx > stock {
			return fmt.Errorf("end %v still holds %d receive and %d transmit chunks", s, rx, tx)
		}
	}
	return nil
}

// String describes the state of the connection and of the network.
func (w *Watch) String() (s string) {
	for side, e := range w.Ends {
		if e.Conn != nil {
			s += fmt.Sprintf("end %d: %+v\n%+v\nlink: %+v\n", side, e.Conn.Info(), e.Conn.Stats(), w.World.Link.Stats(simnic.Side(side)))
		}
	}
	return s + w.Weather.String()
}
