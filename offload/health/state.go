package health

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/clock"
)

// State is the state of a port.
type State uint8

const (
	Down     State = iota // not opened, drained, or without a carrier since it was opened
	Probing               // has a carrier; no probe is answered yet
	Up                    // in use, or ready for use
	Suspect               // shows a sign of a fault
	Failed                // must not be used
	Settling              // works again, but not yet for as long as Config.Settle
)

var stateNames = [...]string{"down", "probing", "up", "suspect", "failed", "settling"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Cause is the cause of a transition.
type Cause uint8

const (
	NoCause         Cause = iota
	CarrierLost           // the interface is down or has no carrier
	CarrierFound          // the interface has a carrier
	Gone                  // the interface or its sockets are gone
	MassRTO               // many flows are in RTO at once, and no frame arrives
	Stuck                 // a transmitted frame waits too long for its completion
	NeighbourFailed       // the kernel's neighbour entry of a next hop has failed
	Silent                // probes are not answered, and there is a sign of a fault
	LocalFault            // a target is silent here and answers through another port
	Answered              // a probe is answered
	Unproven              // the signs are gone, or there is nothing to probe
	Settled               // probes were answered for Config.Settle
	Drained               // the administrator took the port out of use
)

var causeNames = [...]string{
	"", "carrier lost", "carrier found", "gone", "mass RTO", "completions stuck", "neighbour failed",
	"probes unanswered", "local fault", "probe answered", "signs gone", "settled", "drained",
}

func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return "unknown"
}

// Transition is a change of a port's state.
type Transition struct {
	Port     int
	From, To State
	Cause    Cause
	At       clock.Instant
	Target   netip.Addr // with LocalFault: the target that proves it
	Other    int        // with LocalFault: the port through which the target answers
}

// Probe is a question that the caller must send through a port.
type Probe struct {
	Port   int
	Target netip.Addr
}
