package rdma

import "sync/atomic"

// tellStages reports the events CommEst and SQDrained.
func (qp *QP) tellStages() {
	if qp.machine.Established() {
		qp.tell(&qp.heard, CommEst)
	}
	if qp.machine.SendsDrained() {
		qp.tell(&qp.empty, SQDrained)
	}
}

// tell reports an event of the QP, unless state says that it has been reported.
func (qp *QP) tell(state *atomic.Uint32, event EventType) {
	if state.CompareAndSwap(untold, telling) {
		qp.adapter.events.add(Event{Type: event, QP: qp})
		state.Store(told)
	}
}

// reporting reports whether a goroutine is reporting an event of the QP at the moment.
func (qp *QP) reporting() bool {
	for _, state := range [...]*atomic.Uint32{&qp.fatal, &qp.last, &qp.heard, &qp.empty} {
		if state.Load() == telling {
			return true
		}
	}
	return false
}
