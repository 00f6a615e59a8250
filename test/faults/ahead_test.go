package faults

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// TestRDMAAhead lets both ends write 64 MiB with the faults of weather, with Markers or with the agreement on aligned
// FPDUs. Payload behind a lost segment is placed at once. It is not copied again when the lost segment has arrived:
// octets that the test changes in between stay changed.
func TestRDMAAhead(t *testing.T) {
	for name, p := range map[string]rdma.ConnParams{
		"markers": {Markers: true}, "aligned FPDUs": {Extensions: rdma.ExtAlignedFPDUs},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Seed: 18})
			a, b := r.newWriters(volume, false, p)
			stamps := []*stamper{newStamper(a, b), newStamper(b, a)}
			r.both(weather)
			errA, errB := exchange(a, b)
			r.Must(errors.Join(errA, errB))
			for side, s := range stamps {
				close(s.stop)
				<-s.done
				t := r.tally(pair.Side(side))
				early := s.to.placedEarly()
				r.Logf("%v; %d octets placed out of order, %d of them changed", t, early, len(s.stamped))
				if min(t.Dropped, t.Late) < enough || early < enough*1000 || len(s.stamped) < enough {
					r.Errorf("side %v: want %d faults, %d octets placed out of order and %d changed ones, or more", pair.Side(side), enough, enough*1000, enough)
				}
			}
			a.part(b)
			for _, s := range stamps {
				s.judge()
			}
		})
	}
}

// placedEarly returns how many octets an end's adapter has placed out of order.
func (w *writer) placedEarly() (n uint64) {
	w.Helper()
	got, err := w.adapter.Report(w.Ctx())
	w.Must(err)
	for _, c := range got.Counters {
		if c.Layer == "rdmap" && c.Name == "out_of_order_octets_in" {
			n += c.Value
		}
	}
	return n
}

// grain is the distance of the octets that a stamper looks at. Each segment has at least one of them.
const grain = 512

// stamper changes octets of an end's memory that were placed while octets in front of them were missing.
type stamper struct {
	from, to   *writer
	want       []byte // what from writes
	stamped    []int  // places of the changed octets
	stop, done chan struct{}
}

func newStamper(from, to *writer) *stamper {
	s := &stamper{from: from, to: to, want: from.src.Bytes(), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *stamper) run() {
	defer close(s.done)
	for low, n := 0, len(s.want); low < n; {
		select {
		case <-s.stop:
			return
		default:
		}
		if s.want[low] == 0 || s.changed(low) || s.placed(low) {
			low += grain
			continue
		}
		var early []int
		for at := low + grain; at < min(n, low+(1<<20)); at += grain {
			if s.placed(at) {
				early = append(early, at)
			}
		}
		if len(early) == 0 {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		time.Sleep(50 * time.Microsecond) // the copy of the segment has ended
		if s.placed(low) {
			continue
		}
		for _, at := range early {
			if s.placed(at) {
				s.to.dst.Bytes()[at] = ^s.want[at]
				s.stamped = append(s.stamped, at)
			}
		}
	}
}

// changed reports whether the octet is a changed one.
func (s *stamper) changed(at int) bool { return s.to.dst.Bytes()[at] == ^s.want[at] }

// placed reports whether an octet has arrived. Octets with the value 0 are not told from missing ones.
func (s *stamper) placed(at int) bool {
	got := s.to.dst.Bytes()[at]
	return got == s.want[at] && got != 0
}

// judge checks that the changed octets are as they were changed, and all others are those that the other end wrote.
func (s *stamper) judge() {
	s.to.Helper()
	mem := s.to.dst.Bytes()
	for _, at := range s.stamped {
		if mem[at] != ^s.want[at] {
			s.to.Errorf("octet %d was copied twice", at)
		}
		mem[at] = s.want[at]
	}
	if sha256.Sum256(mem) != sha256.Sum256(s.want) {
		s.to.Error("octets that were written are wrong")
	}
}
