package tcp

// Phase is the state of a connection. A Phase is one of those states of RFC 9293
// §3.3.2 that an established connection can have, or Closed.
type Phase uint8

const (
	Established Phase = iota
	FinWait1
	FinWait2
	Closing
	InTimeWait
	CloseWait
	LastAck
	Closed

	phases
)

var phaseNames = [phases]string{"ESTABLISHED", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSING",
	"TIME-WAIT", "CLOSE-WAIT", "LAST-ACK", "CLOSED"}

func (p Phase) String() string {
	if p < phases {
		return phaseNames[p]
	}
	return "?"
}

// event is a cause for a change of phase.
type event uint8

const (
	evClose    event = iota // the application closes its direction
	evFinAcked              // the peer has acknowledged the FIN of this end
	evPeerFin               // the peer's FIN is next in order
	evExpire                // 2 MSL have passed in TIME-WAIT
	evReset                 // the connection ends at once: an RST was received or sent, a timer expired, or the application closed it

	events
)

// next returns the phase after ev by the state diagram of RFC 9293 §3.3.2, from
// ESTABLISHED on. If ev cannot happen in s or has no effect there, next returns s, and
// allowed is false.
func (s Phase) next(ev event) (_ Phase, allowed bool) {
	switch {
	case s == Closed:
		return s, false
	case ev == evReset:
		return Closed, true
	case s == Established && ev == evClose:
		return FinWait1, true
	case s == Established && ev == evPeerFin:
		return CloseWait, true
	case s == FinWait1 && ev == evFinAcked:
		return FinWait2, true
	case s == FinWait1 && ev == evPeerFin:
		return Closing, true
	case s == FinWait2 && ev == evPeerFin:
		return InTimeWait, true
	case s == Closing && ev == evFinAcked:
		return InTimeWait, true
	case s == CloseWait && ev == evClose:
		return LastAck, true
	case s == LastAck && ev == evFinAcked:
		return Closed, true
	case s == InTimeWait && ev == evExpire:
		return Closed, true
	}
	return s, false
}
