package engine

import (
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// flow is one connection at one engine: parked while it is being taken over, live while
// it has a connection, lingering in TIME-WAIT. It implements tcp.Memory and tcp.Output
// for its connection. The token's holder owns it.
type flow struct {
	e   *Engine
	id  FlowID
	key bpf.FlowKey

	conn *tcp.Conn
	told tcp.Stats // the part of conn's counters that is in the engine's totals
	ulp  stream.ULP
	head wire.HeaderTemplate

	parked []port.Frame // arrivals before the connection is installed
	heard  func()       // called when the first of them arrives; nil: already called
	isNews bool         // the first has arrived: f is on e.news until the step is over
	news   *flow        // the next of that list

	lingers bool
	linger  tcp.TimeWait

	slabs   int  // slabs the connection holds
	held    int  // transmit frames the connection holds
	guests  int  // receive frames of other ports that the connection holds
	back    int  // transmit frames that have come back since the flow was served
	quota   int  // how many transmit frames it may take before it waits for its turn
	dirty   bool // is on e.dirty
	stuck   bool // is on e.retry
	waits   bool // is in e.line
	refused bool // a segment found no room when the flow was last served
	wants   bool // Take refused a frame when the flow was last served
	short   bool // no transmit frame was free, or the flow had its share

	unsummed      bool          // the peer's last segment was refused as PartialChecksum, ...
	unsummedSince clock.Instant // ... as was every one since then

	due   clock.Instant // deadline, while place >= 0
	place int           // in the timers' heap; -1: not there
}

// Share implements tcp.Memory.
func (f *flow) Share() int { return f.e.frames.share() }

// opened changes the number of open connections by n, and divides the frames anew.
func (e *Engine) opened(n int) {
	e.open += n
	e.frames.divide(e.open)
}

// Take implements tcp.Memory: it takes one transmit frame for payload. It does so only
// in the flow's turn, within the flow's share of the pool, and if more than the frames
// reserved for acknowledgements are free.
func (f *flow) Take() (port.Frame, bool) {
	e := f.e
	if f.quota == 0 {
		f.wants = true
		return port.Frame{}, false
	}
	if f.held >= e.frames.txShare() || !e.frames.stock(reserve) {
		// A flow that holds frames is served when they are acknowledged. Serving it
		// after a time would keep the processor busy with flows whose peers do not
		// read.
		f.wants = f.wants || f.held == 0
		f.short = true
		e.count.NoTxFrame++
		return port.Frame{}, false
	}
	f.quota--
	f.held++
	e.frames.lent++
	return e.frames.takeSpare(), true
}

// Free implements tcp.Memory.
func (f *flow) Free(fr port.Frame) {
	f.held--
	f.e.frames.lent--
	f.back++
	f.e.frames.freed = append(f.e.frames.freed, fr)
}

// Bytes implements tcp.Memory.
func (f *flow) Bytes(fr port.Frame) []byte { return f.e.port.Bytes(fr) }

// keep notes that the connection keeps a receive frame.
func (f *flow) keep(fr port.Frame) {
	f.e.frames.keep(fr, 1)
	if !f.e.ofOurPort(fr) {
		f.guests++
	}
}

// Guest implements tcp.Guests: a frame of another port is used in place, and not kept
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
