package rdmap

// State is the state of a QP. The names are those of the RDMAC verbs. Linux's iWARP
// drivers show Closing as IBV_QPS_SQD and Terminate as IBV_QPS_SQE.
type State uint8

const (
	Idle      State = iota // not connected, or closed in good order
	RTS                    // connected
	Closing                // one or both ends have closed their direction
	Terminate              // an error has ended the connection, usually with a Terminate; the connection is being closed
	Errored                // the connection is gone; all requests are flushed or will be
	Drained                // RTS, but the table has refused a request, and the send queue flushes every request until Resume
)

func (s State) String() string {
	return [...]string{"idle", "RTS", "closing", "terminate", "error", "drained"}[s]
}

// event is an input to the state machine of a QP.
type event uint8

const (
	evConnected event = iota // the QP has its stream
	evClosing                // this end or the peer closes in good order
	evTerminate              // a Terminate was sent or has arrived
	evEnded                  // both directions are closed, in good order
	evLost                   // the stream has ended in any other way, or the QP is destroyed
)

// next returns the state after ev. If ev cannot happen in s, next returns false, and
// the state does not change. The first cause of Terminate and Errored stays, because
// later errors are consequences of the first.
func (s State) next(ev event) (State, bool) {
	switch {
	case ev == evConnected && s == Idle:
		return RTS, true
	case ev == evClosing && s == RTS:
		return Closing, true
	case ev == evTerminate && (s == RTS || s == Closing):
		return Terminate, true
	case ev == evEnded && s == Closing:
		return Idle, true
	case ev == evEnded && (s == RTS || s == Terminate):
		return Errored, true
	case ev == evLost && s != Errored:
		return Errored, true
	}
	return s, false
}
