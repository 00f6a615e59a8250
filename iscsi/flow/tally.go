package flow

import (
	"math"
	"math/bits"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// LatencyBuckets is the number of classes of latencies in a Tally.
const LatencyBuckets = 20

// leastLatency is the exponent of the first class: it ends at 2^leastLatency µs.
const leastLatency = 5

// LatencyBound returns the end of class i of a Tally. The last class has no end, and
// LatencyBound returns 0 for it.
func LatencyBound(i int) time.Duration {
	if i == LatencyBuckets-1 {
		return 0
	}
	return time.Microsecond << (leastLatency + i)
}

// Tally counts the reasons of an end of a connection, and how long commands take. A
// command takes the time from the step that sees it first to its completion.
type Tally struct {
	Failed  uint64                 // commands that ended without GOOD
	reasons [lastReason + 1]uint32 // by Reason.index
	Took    [LatencyBuckets]uint64 // completed commands by latency, see LatencyBound
	TookSum uint64                 // sum of these latencies in nanoseconds
}

// lastReason is the index of the last reason.
const lastReason = int(Repeated) + int(Closed-HeaderDigest) + 1 + int(reasons-Lost)

// index returns the place of the reason in a list without gaps. A session has such a list,
// and sessions must be small.
func (r Reason) index() int {
	switch {
	case r >= Lost:
		return int(r-Lost) + int(Closed-HeaderDigest) + 1 + int(Repeated) + 1
	case r >= HeaderDigest:
		return int(r-HeaderDigest) + int(Repeated) + 1
	}
	return int(r)
}

// count counts a reason. The count stays at its greatest value.
func (t *Tally) count(why Reason) {
	if n := &t.reasons[why.index()]; why != OK && *n != math.MaxUint32 {
		*n++
	}
}

// Reason returns how often a reason was counted.
func (t *Tally) Reason(why Reason) uint64 { return uint64(t.reasons[why.index()]) }

// took counts a completed command.
func (t *Tally) took(d time.Duration) {
	d = max(0, d)
	t.TookSum += uint64(d)
	t.Took[min(max(0, bits.Len64(uint64(d/time.Microsecond))-leastLatency), LatencyBuckets-1)]++
}

// Glance is the state of a connection between two steps, for reports.
type Glance struct {
	PDUsIn, PDUsOut uint64
	Commands        uint64 // SCSI commands and other requests that have left or arrived
	Placed, Sent    uint64 // octets of data that were placed by tag, and that were sent
	Refused         uint64 // PDUs that were refused
	DigestErrors    uint64
	Repaired        uint64 // PDUs and sequences of data that came whole at a later try, or were sent again
	Tally

	// Begun says since when the commands in progress are there. Look keeps to the
	// capacity.
	Begun []clock.Instant
}

// begin adds a command in progress.
func (g *Glance) begin(at clock.Instant) {
	if len(g.Begun) < cap(g.Begun) {
		g.Begun = append(g.Begun, at)
	}
}

// Look fills in g. Only the holder of the step may call it, or the owner after Over.
func (f *Initiator) Look(g *Glance) {
	s := &f.stats
	g.PDUsIn, g.PDUsOut, g.Commands, g.Placed, g.Sent, g.Refused, g.DigestErrors = s.PDUsIn, s.PDUsOut, s.Commands, s.Placed, s.Sent, s.Refused, s.DigestErrors
	g.Repaired = s.Repaired
	g.Tally, g.Begun = f.tally, g.Begun[:0]
	for slot, st := range f.states {
		if st != idle && f.tasks[slot].Load().isTask() {
			g.begin(f.tasks[slot].Load().begun)
		}
	}
}

// isTask reports whether the task is not of a control queue.
func (t *task) isTask() bool { return !t.queue.control }

// tallyEnd counts the end of a command or request.
func (f *Initiator) tallyEnd(t *task) {
	f.tally.count(t.why)
	if !t.isTask() {
		return
	}
	if t.why != OK || !good(&t.header) {
		f.tally.Failed++
	}
	if t.why == OK {
		f.tally.took(f.now.Sub(t.begun))
	}
}

// Look fills in g. Only the holder of the step may call it, or the owner after Ended.
func (t *Target) Look(g *Glance) {
	s := &t.stats
	g.PDUsIn, g.PDUsOut, g.Commands, g.Placed, g.Sent, g.Refused, g.DigestErrors = s.PDUsIn, s.PDUsOut, s.Commands, s.Placed, s.Sent, s.Refused, s.DigestErrors
	g.Repaired = s.AskedAgain + s.Resent
	g.Tally, g.Begun = t.tally, g.Begun[:0]
	for _, j := range t.jobs {
		if j != nil && j.begun != 0 {
			g.begin(j.begun)
		}
	}
}

// tallyEnd counts the end of a command.
func (t *Target) tallyEnd(j *Job) {
	if j.begun == 0 {
		return
	}
	if !j.aborted {
		t.tally.took(t.now.Sub(j.begun))
	}
	if j.aborted || j.Task.Status != 0 {
		t.tally.Failed++
	}
	j.begun = 0
}
