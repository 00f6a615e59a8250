package engine

import (
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// flow is one connection at one engine. flow is parked while it is being taken over,
// live while it has a connection, and then perhaps in TIME-WAIT. flow implements
// tcp.Memory and tcp.Output for its connection. The token's holder owns it.
type flow struct {
	e   *Engine
	id  FlowID
	key bpf.FlowKey

	conn *tcp.Conn
	told tcp.Stats // part of conn's counters that the engine's totals contain
	ulp  stream.ULP
	head wire.HeaderTemplate

	parked []port.Frame // frames that arrived before the connection is installed
	heard  func()       // function to call when the first segment arrives; nil: it was called already
	isNews bool         // the first segment has arrived, and f is on e.news until the end of the step
	news   *flow        // the next flow on e.news

	lingers bool
	linger  *tcp.TimeWait // nil until the connection is in TIME-WAIT

	arrivals arrivals

	slabs   int    // number of slabs that the connection holds
	held    int    // number of transmit frames that the connection holds
	guests  int    // number of receive frames of other ports that the connection holds
	back    int    // number of transmit frames that have come back since the flow was served
	quota   int    // number of transmit frames that the flow may take before it waits for its turn
	dirty   bool   // the flow is on e.dirty
	stuck   bool   // the flow is on e.retry
	waits   bool   // the flow is in e.line
	behind  *flow  // the next flow of the same client in e.line
	group   *group // flows of the same client; nil: of no client
	refused bool   // a segment found no room when the flow was last served
	wants   bool   // Take refused a frame when the flow was last served
	short   bool   // no transmit frame was free, or the flow had used up its share

	unsummed      bool          // the peer's last segment was refused as PartialChecksum
	unsummedSince clock.Instant // time since which every segment of the peer was refused as PartialChecksum

	due   clock.Instant // deadline, valid while place >= 0
	place int           // index in the heap of timers; -1: the flow is not in the heap
}

// Share implements tcp.Memory.
func (f *flow) Share() int { return f.e.frames.share() }

// opened changes the number of open connections by n, and divides the frames again.
func (e *Engine) opened(n int) {
	e.open += n
	e.frames.divide(e.open)
}

// Take implements tcp.Memory. Take takes one transmit frame for payload in the flow's
// turn only, within the flow's share of the pool. Take leaves the frames that are
// reserved for acknowledgements.
func (f *flow) Take() (port.Frame, bool) {
	e := f.e
	if f.quota == 0 {
		f.wants = true
		return port.Frame{}, false
	}
	if f.held >= e.frames.txShare() || f.group != nil && e.line.full(f.group) || !e.frames.stock(reserve) {
		// A flow that holds frames is served when the octets in these frames are
		// acknowledged. Serving the flow earlier would keep the processor busy with
		// flows whose peers do not read.
		f.wants = f.wants || f.held == 0
		f.short = true
		e.count.NoTxFrame++
		return port.Frame{}, false
	}
	f.quota--
	f.held++
	e.frames.lent++
	if f.group != nil {
		f.group.lent++
	}
	return e.frames.takeSpare(), true
}

// Free implements tcp.Memory.
func (f *flow) Free(fr port.Frame) {
	f.held--
	f.e.frames.lent--
	if f.group != nil {
		f.group.lent--
	}
	f.back++
	f.e.frames.freed = append(f.e.frames.freed, fr)
}

// Bytes implements tcp.Memory.
func (f *flow) Bytes(fr port.Frame) []byte { return f.e.port.Bytes(fr) }

// keep records that the connection keeps a receive frame.
func (f *flow) keep(fr port.Frame) {
	f.e.frames.keep(fr, 1)
	if !f.e.ofOurPort(fr) {
		f.guests++
	}
}

// Guest implements tcp.Guests. A frame of another port is used in place, and not kept
// beyond the step. Otherwise the shares of a port's frames would shrink with each
// further port.
func (f *flow) Guest(fr port.Frame) bool { return !f.e.ofOurPort(fr) }

// Release implements tcp.Memory for a receive frame that the connection kept.
func (f *flow) Release(fr port.Frame) {
	f.e.frames.keep(fr, -1)
	if !f.e.ofOurPort(fr) {
		f.guests--
	}
	f.e.release(fr)
}
