package health

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// Load is what the engines of a port report.
type Load struct {
	Flows    int           // open flows
	InRTO    int           // flows whose retransmission timer has expired since their last acknowledgement
	Received uint64        // frames received by the port; it only grows
	Waiting  clock.Instant // when the oldest frame without a completion was handed to the port; Never if there is none
}

// port is the state of one port.
type port struct {
	state   State
	opened  bool
	carrier bool
	drained bool

	// lost says that the port has lost its carrier or its interface since it was
	// opened, or since it last settled. The port must settle before it is used.
	lost bool

	load      Load
	received  clock.Instant // when Load.Received last changed
	suspected clock.Instant // when the port became Suspect
	seen      [signs]bool   // signs that have led to Suspect, and have not gone since
	hops      int           // next hops whose neighbour entries have failed

	probed   bool          // the port was part of the last round
	answered clock.Instant // when the last answered probe was sent, or when probing began
	unheard  int           // rounds in a row without an answer, which have lasted a whole interval
	heard    bool          // the last round has an answer
	begun    bool          // any round since the port was opened, or got its carrier, has an answer
	since    clock.Instant // Settling, Probing: when the answers began; Never if the last rounds are silent
	targets  [MaxTargets]reach
}

// reach is what a port knows of one target.
type reach struct {
	before bool // the target has answered through the port
	now    bool // the target has answered the last round
}

// The signs of a fault that are enough to suspect a port.
const (
	signRTO = iota
	signStuck
	signNeighbour
	signs
)

var signCauses = [signs]Cause{signRTO: MassRTO, signStuck: Stuck, signNeighbour: NeighbourFailed}

// many reports whether so many flows are in RTO at once that the port may be the cause.
func (p *port) many(c *Config) bool {
	return p.load.InRTO >= c.MassRTO || p.load.InRTO > 0 && 2*p.load.InRTO >= p.load.Flows
}

// sign returns which signs the port shows at time now.
func (p *port) sign(c *Config, now clock.Instant) (shown [signs]bool) {
	shown[signRTO] = p.many(c) && now.Sub(p.received) >= silentReceive*c.Interval
	shown[signStuck] = p.load.Waiting != clock.Never && now.Sub(p.load.Waiting) > c.Stuck
	shown[signNeighbour] = p.hops > 0
	return shown
}

// ails reports whether the port shows any sign, of which one is enough together with
// silent probes.
func (p *port) ails(c *Config, now clock.Instant) bool {
	return p.load.InRTO > 0 || p.sign(c, now) != [signs]bool{}
}

// silent reports whether no probe was answered for n intervals, and at least n-1 probes
// had a whole interval for an answer. Counting probes as well as time keeps a caller
// that was late from failing a port.
func (p *port) silent(c *Config, now clock.Instant, n int) bool {
	return p.unheard >= n-1 && now.Sub(p.answered) >= time.Duration(n)*c.Interval
}

// restart forgets the answers of the time before the port lost its carrier.
func (p *port) restart(now clock.Instant) {
	p.answered, p.unheard, p.heard, p.begun, p.probed = now, 0, false, false, false
	p.since = clock.Never
	p.seen = [signs]bool{}
	for i := range p.targets {
		p.targets[i] = reach{}
	}
}
