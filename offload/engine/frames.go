package engine

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/port"
)

// frames counts the frames that the connections of one engine hold. frames decides how
// many one flow may hold. Each lane has a pool of its own. A flow may hold receive
// frames of any pool, because a segment arrives at the queue that the NIC chooses.
// Every engine therefore keeps two counts of its pool's frames: those that its own
// connections hold, and those that connections of other engines hold. The holder of the
// engine's token owns all fields except the two counts at the end.
type frames struct {
	port   port.Port
	limits port.Limits
	lane   port.Lane
	all    []*frames // frames of all joined engines, by lane; empty for an adapter with one lane

	kept    int          // frames of this pool that this engine's connections hold
	foreign int          // frames of other pools that this engine's connections hold
	lenders []lender     // by lane, as far as lanes have lent frames
	owed    []port.Lane  // lanes whose pool has lent frames, and some that have just got all frames back
	strain  int          // lower limit of out; the lender with the largest part of its pool held determines it
	parked  int          // receive frames that wait for their flow's connection
	rxShare int          // limit for one flow while there are enough receive frames
	spent   []port.Frame // receive frames to give back after this step

	lent   int          // transmit frames that connections hold
	txFair int          // transmit frames that one flow may always hold while there are enough
	spare  []port.Frame // transmit frames taken from the port and not in use
	freed  []port.Frame // transmit frames to give back after this step

	// The token's holders of all joined engines read and write these fields.
	away     atomic.Int32 // frames of this pool that other engines' connections hold
	keptHere atomic.Int32 // value of kept after the last step
}

// lender is what an engine knows of the pool of another lane.
type lender struct {
	n    int32 // frames of the pool that this engine's connections hold
	owed bool  // the lane is in owed
}

// minShare and maxShare are the smallest and the largest number of receive frames that
// a flow may hold. Half of the pool is divided among the open flows. Octets of a window
// beyond the share are kept in slabs.
//
// leastShare is the limit when frames are short. A window of fewer frames, rounded to
// the unit of the window field, would be less than a segment. The peer would then send
// only when the peer's timer expires.
const (
	minShare   = 32
	maxShare   = 512
	leastShare = 2
)

func newFrames(p port.Port, l port.Limits) frames {
	return frames{
		port: p, limits: l, lane: l.Lane,
		spent: make([]port.Frame, 0, l.RxFrames),
		spare: make([]port.Frame, 0, 2*reserve),
		freed: make([]port.Frame, 0, l.TxFrames),
	}
}

// divide sets the shares of the open flows. Shares are read several times for each
// packet, so that they are computed only when the number of flows changes.
func (p *frames) divide(flows int) {
	p.rxShare = min(max(p.receive()/2/max(1, flows), minShare), maxShare)
	p.txFair = max(8, pool(p.limits)/max(1, flows))
}

// receive returns the number of receive frames for this engine's flows.
func (p *frames) receive() int { return int(p.limits.RxFrames) }

// pool returns the number of transmit frames for payload.
func pool(l port.Limits) int { return int(l.TxFrames) - 2*reserve }

// share returns how many receive frames one flow may hold now. If flows whose upper
// layers do not read hold a quarter of the pool, a flow may hold no more than a
// sixteenth of the rest. There are therefore always frames for flows that read, however
// long the others hold theirs.
func (p *frames) share() int {
	if out := p.out(); out >= p.receive()/4 {
		return min(max((p.receive()-out)/16, leastShare), maxShare)
	}
	return p.rxShare
}

// scarce reports whether three quarters of the receive frames are held. Flows then keep
// no received frame after the step in which the frame came. Flows copy what they still
// need into memory of their own (tcp.Conn.Unburden).
func (p *frames) scarce() bool { return p.out() >= p.receive()-p.receive()/4 }

// keep adds n to the count of frames of fr's pool that connections of this engine hold.
// n may be negative.
func (p *frames) keep(fr port.Frame, n int) {
	if fr.Home == p.lane {
		p.kept += n
		return
	}
	p.foreign += n
	p.lenders = upTo(p.lenders, int(fr.Home))
	l := &p.lenders[fr.Home]
	l.n += int32(n)
	if !l.owed {
		l.owed, p.owed = true, append(p.owed, fr.Home)
	}
	p.all[fr.Home].away.Add(int32(n))
}

// out returns how many frames of this engine's pool are held. If this engine's
// connections also hold frames of another pool, and a larger part of that pool is held,
// out returns the same part of this engine's pool.
func (p *frames) out() int { return max(p.kept+int(p.away.Load()), p.strain) }

// publish lets other engines read how many frames of this pool the connections of this
// engine hold.
func (p *frames) publish() { p.keptHere.Store(int32(p.kept)) }

// compare sets strain from the lender of which the largest part of the pool is held. It
// looks only at lanes that have lent frames, however many lanes the adapter has.
func (p *frames) compare() {
	p.strain = 0
	still := p.owed[:0]
	for _, lane := range p.owed {
		if p.lenders[lane].n == 0 {
			p.lenders[lane].owed = false
			continue
		}
		still = append(still, lane)
		lender := p.all[lane]
		held := int(lender.keptHere.Load() + lender.away.Load())
		p.strain = max(p.strain, held*p.receive()/lender.receive())
	}
	p.owed = still
}

// txShare returns how many transmit frames one flow may hold: a sixteenth of the frames
// that are not lent. Many flows can therefore each send a burst, one after the other.
// As long as fewer than three quarters of the pool are lent, a flow may always hold
// txFair frames. The flows that hold lent frames for long are those whose peers do not
// read.
func (p *frames) txShare() int {
	all := pool(p.limits)
	share := (all - p.lent) / 16
	if p.lent < all-all/4 {
		return max(share, p.txFair)
	}
	return max(share, 1)
}

// stock takes frames from the port until more than above transmit frames are spare.
// stock reports whether it could.
func (p *frames) stock(above int) bool {
	if len(p.spare) <= above {
		n := len(p.spare)
		p.spare = p.spare[:n+p.port.Take(p.spare[n:cap(p.spare)])]
	}
	return len(p.spare) > above
}

// takeSpare takes one of the spare frames. stock must have returned true before.
func (p *frames) takeSpare() port.Frame {
	n := len(p.spare) - 1
	fr := p.spare[n]
	p.spare = p.spare[:n]
	return fr
}

// giveBack returns the frames that this step has finished with to the port.
func (p *frames) giveBack() {
	if len(p.spent) != 0 {
		p.port.Recycle(p.spent)
		p.spent = p.spent[:0]
	}
	if len(p.freed) != 0 {
		p.port.Free(p.freed)
		p.freed = p.freed[:0]
	}
}
