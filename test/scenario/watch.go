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

// Seen is an upper layer whose connection can be looked at. The world runs
// everything on one goroutine, so whoever runs the world may look.
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

// Watch runs a world with one connection and demands all the while that the
// connection does not stand still longer than its timers allow, and that it
// keeps within its memory.
//
// A connection makes progress when either end has something new acknowledged,
// receives something new, or consumes. Where octets wait to be acknowledged and
// nothing of that happens, the retransmission timer is the last resort: it
// expires, doubles, and expires again only if what it sent was lost, or the
// answer to that (RFC 6298 §5.5). So between two steps of progress lie at most
//
//	3 RTO + RTO·(2 + 4 + … + 2^k) + a round trip + the longest pause of a reader
//
// where k counts packets harmed since the last progress, and RTO is what it was
// then. Three, not one: a fast retransmission of the oldest segment starts the
// timer anew, and so does a tail loss probe (RFC 8985 §7.3). A reader that
// pauses closes the window: the persist timer, which may have doubled to the
// length of the pause, is what finds out that it is open again if the news are
// lost.
type Watch struct {
	World   *world.World
	Weather *Weather
	Pause   time.Duration // longest that a reader does not read
	Ends    [2]*Seen

	looked clock.Instant
	since  clock.Instant // progress
	last   [2]place
	rto    time.Duration // then, with its backoff
	harmed uint64        // then
}

// place is how far one end has come.
type place struct {
	una, rcv seq.Num
	unread   uint32
	phase    tcp.Phase
}

// period is how often the watch looks: at least twice before the shortest RTO.
const period = 100 * time.Millisecond

// Begin must be called when the connection is there.
func (w *Watch) Begin() {
	w.looked = w.World.Now()
	w.restart(w.looked)
}

// restart says that there is progress at time at.
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

// Run lets the world go on until done says so.
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

// allowed is how long the connection may stand still.
func (w *Watch) allowed() time.Duration {
	most, step := 3*w.rto, w.rto
	for range w.harm() - w.harmed {
		step = min(2*step, w.maxRTO())
		most += step
	}
	return most + w.Weather.trip() + 3*w.Pause + 2*period
}

// bounded demands that a connection holds no more than it may.
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

// Returned demands that the ends' engines have given back every receive chunk,
// all slabs, and all but their small stock of transmit chunks.
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

// String is all that is known of the connection.
func (w *Watch) String() (s string) {
	for side, e := range w.Ends {
		if e.Conn != nil {
			s += fmt.Sprintf("end %d: %+v\n%+v\nlink: %+v\n", side, e.Conn.Info(), e.Conn.Stats(), w.World.Link.Stats(simnic.Side(side)))
		}
	}
	return s + w.Weather.String()
}
