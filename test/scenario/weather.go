package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// Weather is a link with faults and the parameters of a connection over it.
type Weather struct {
	Link simnic.Config
	Flow world.Flow
	TCP  tcp.Config // the configuration of both ends

	edited string // description of what Flow.Edit does
}

func (w *Weather) String() string {
	f := w.Flow
	f.Edit = nil
	return fmt.Sprintf("link %+v\nflow %+v, %s\nTCP %+v", w.Link, f, w.edited, w.TCP)
}

// drawer draws random parameters.
type drawer struct{ *rand.Rand }

// between returns a random number from lo to hi. Its logarithm is uniformly
// distributed, so small numbers are as frequent as large ones.
func (d drawer) between(lo, hi float64) float64 {
	return lo * math.Exp(d.Float64()*math.Log(hi/lo))
}

// sometimes returns a number between lo and hi in one of n calls, else 0.
func (d drawer) sometimes(n int, lo, hi float64) float64 {
	if v := d.between(lo, hi); d.IntN(n) == 0 {
		return v
	}
	return 0
}

func (d drawer) duration(lo, hi time.Duration) time.Duration {
	return time.Duration(d.between(float64(lo), float64(hi)))
}

func one[T any](d drawer, of ...T) T { return of[d.IntN(len(of))] }

// frames is the number of chunks of each end. It is small, so that a world is cheap,
// but enough for an engine.
const frames = 192

// maxRTO is well below the length of TIME-WAIT. With a longer RTO, the end in TIME-WAIT
// could be gone before the other end retransmits. The kernel would then answer with a
// reset. RFC 9293 §3.4.2 has four minutes for TIME-WAIT, Linux has one.
const maxRTO = 20 * time.Second

// Draw draws a Weather from r. The delay is 0.1 to 200 ms. Some of the faults are
// active, each with a strength from almost none to almost unbearable.
func Draw(r *rand.Rand) *Weather {
	d := drawer{r}
	w := &Weather{
		Link: simnic.Config{
			Seed: r.Uint64(), Latency: d.duration(100*time.Microsecond, 200*time.Millisecond), Frames: frames,
			Loss:      d.sometimes(3, 0.001, 0.1),
			LossAcks:  d.sometimes(4, 0.01, 0.3),
			Duplicate: d.sometimes(4, 0.001, 0.1),
			Reorder:   d.sometimes(4, 0.001, 0.3),
			Corrupt:   d.sometimes(5, 0.001, 0.05),
			Overtaken: d.sometimes(4, 0.001, 0.1), OvertakenBy: 1 + r.IntN(50),
			Split: d.sometimes(5, 0.01, 1), Merge: d.sometimes(5, 0.01, 1),
			Mark:  d.sometimes(3, 0.001, 0.3),
			Check: r.IntN(8) == 0,
		},
		TCP: tcp.Config{
			RcvBuf:  one(d, 0, uint32(d.between(2<<10, 16<<10)), uint32(d.between(2<<10, 1<<20))),
			RcvSegs: one(d, uint32(4), 16, 64, 0),
			SndBuf:  one(d, 0, uint32(d.between(4<<10, 1<<20))),
			SndSegs: one(d, uint32(8), 64, 0),
			MaxRTO:  maxRTO,
			Seed:    r.Uint64(),
		},
	}
	w.Link.ReorderBy = d.duration(w.Link.Latency/10, 2*w.Link.Latency)
	if enter := d.sometimes(4, 0.0005, 0.02); enter > 0 {
		w.Link.Burst = simnic.Burst{Enter: enter, Leave: d.between(0.05, 0.5), Loss: d.between(0.3, 1), For: 150 * time.Millisecond}
	}
	if r.IntN(2) == 0 {
		w.Link.Rate = uint64(d.between(2e6, 10e9))
		w.Link.QueueLen = 4 + r.IntN(100)
	}
	w.flow(d)
	w.Link.Driver = driver(d)
	return w
}

// driver draws a driver. Every second one is in copy mode. The others may keep a third of the
// transmit chunks, and a third of the receive chunks may be too few for them.
func driver(d drawer) simnic.Driver {
	const most = frames / 3
	if d.IntN(2) == 0 {
		return simnic.Driver{}
	}
	return simnic.Driver{
		Hold: d.IntN(most), HoldFor: one(d, 0, d.duration(10*time.Microsecond, 50*time.Millisecond)),
		Batch: 1 + d.IntN(most), Shuffle: d.IntN(2) == 0, Fill: d.IntN(most),
	}
}

// flow draws the parameters of the connection.
func (w *Weather) flow(d drawer) {
	w.Flow = world.Flow{
		V6: d.IntN(4) == 0, NoSACK: d.IntN(4) == 0, NoTimestamps: d.IntN(3) == 0,
		Scale:  one(d, uint8(1), 7, 7, 14),
		ISN:    [2]uint32{d.isn(), d.isn()},
		Window: one(d, uint32(4000), 64<<10),
		MSS:    one(d, uint16(0), 0, 536, 1000),
	}
	if d.IntN(8) == 0 {
		w.Link.PathMTU = 600 + d.Uint32N(900)
		if w.Flow.V6 {
			w.Link.PathMTU = 1280 + d.Uint32N(220)
		}
	}
	noDelay, ecn := d.IntN(2) == 0, d.IntN(2) == 0
	control := [2]string{one(d, "reno", "cubic"), one(d, "reno", "cubic")}
	w.edited = fmt.Sprintf("NoDelay %v, ECN %v, congestion control %v", noDelay, ecn, control)
	w.Flow.Edit = func(side int, st *tcp.State) {
		st.NoDelay, st.ECN, st.Congestion = noDelay, ecn, control[side]
	}
}

// isn returns an initial sequence number, which often wraps soon.
func (d drawer) isn() uint32 {
	return one(d, d.Uint32(), 0-d.Uint32N(100_000), 1<<31-d.Uint32N(100_000))
}

// trip returns the longest time for a segment and its answer, including the delay of a
// delayed ACK.
func (w *Weather) trip() time.Duration {
	l := &w.Link
	way := l.Latency + 2*l.ReorderBy + time.Millisecond
	if l.Rate != 0 {
		const longest = 1500 + 18
		way += time.Duration(float64(l.QueueLen+1) * longest * 8 / float64(l.Rate) * float64(time.Second))
	}
	return 2*way + 40*time.Millisecond
}
