package rdmap

import (
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// planned is a request of the model.
type planned struct {
	id     uint64
	flags  work.SendFlags
	does   action
	op     work.WCOp
	length uint32
	status work.Status
	done   bool
	waits  bool // done when the other engine has ended its step
}

// action is what a request does when it begins. If it returns a fault, the table refuses
// the request.
type action func(*queueModel, *planned) tpt.Fault

// queueModel is a plain model of a send queue with reactive error semantics, and of one
// region that work requests register.
type queueModel struct {
	open   []planned // requests without a completion, in the order of posting
	begun  int       // how many of them have begun, or were flushed
	leaves func()    // what happens when the current message leaves; nil: there is no message

	halted  bool
	fault   tpt.Fault
	posted  uint64 // ID of the last request
	resumed uint64 // requests up to this ID are flushed
	reads   int    // outstanding Reads
	sent    int    // Sends that have left
	held    bool   // an invalidation of an earlier step waits for the other engine, and so do the requests behind it

	slot          tpt.STag // present STag of the region
	valid, mapped bool     // the region is registered; it has memory for a registration

	engineBusy bool // the other engine is within a step
	noRoom     bool // the stream has no room
}

func (m *queueModel) post(p planned) {
	m.open = append(m.open, p)
	m.posted = p.id
}

// resume reports whether the queue was drained.
func (m *queueModel) resume() bool {
	was := m.halted
	if was {
		m.halted, m.resumed = false, m.posted
	}
	return was
}

// run does what a step of the QP does.
func (m *queueModel) run() {
	m.settle()
	for {
		if m.leaves != nil {
			if m.noRoom {
				return
			}
			m.leaves()
			m.leaves = nil
		}
		if m.begun == len(m.open) || !m.begin(&m.open[m.begun]) {
			return
		}
	}
}

// settle ends the requests that wait for the other engine, if it has ended its step.
func (m *queueModel) settle() {
	m.held = false
	for i := range m.open[:m.begun] {
		p := &m.open[i]
		if p.waits && m.engineBusy {
			m.held = true
		} else if p.waits {
			p.waits, p.done = false, true
		}
	}
}

// begin begins the next request, or flushes it. It returns false if the request must wait.
func (m *queueModel) begin(p *planned) bool {
	flush := m.halted || p.id <= m.resumed
	switch {
	case flush:
	case p.flags&work.Fence != 0 && m.reads > 0, m.held, p.op == work.WCRead && m.reads == 4:
		return false
	}
	m.begun++
	if flush {
		p.status, p.done = work.Flushed, true
		return true
	}
	if f := p.does(m, p); f != tpt.OK {
		p.status, p.done = work.TableErr, true
		m.halted, m.fault = true, f
	}
	return true
}

func (m *queueModel) register(s tpt.STag, n uint32, p *planned) tpt.Fault {
	switch {
	case s != m.slot:
		return tpt.BadSTag
	case m.valid:
		return tpt.Bound
	case !m.mapped || n > courseLen:
		return tpt.NoSpace
	}
	m.valid, m.mapped, p.done = true, false, true
	return tpt.OK
}

func (m *queueModel) invalidate(s tpt.STag, p *planned) tpt.Fault {
	if s != m.slot {
		return tpt.BadSTag
	}
	m.valid = false
	p.done, p.waits = !m.engineBusy, m.engineBusy
	return tpt.OK
}

// done ends the request of an ID.
func (m *queueModel) done(id uint64) {
	for i := range m.open {
		if p := &m.open[i]; p.id == id {
			p.done = true
		}
	}
}

// answered ends the oldest Read.
func (m *queueModel) answered() {
	for i := range m.open {
		if p := &m.open[i]; p.op == work.WCRead && !p.done {
			m.reads--
			p.done = true
			return
		}
	}
}

// completions removes the requests that have completed, and returns the completions that
// the CQ must have.
func (m *queueModel) completions() (list []work.Completion) {
	for len(m.open) != 0 && m.open[0].done {
		p := m.open[0]
		m.open, m.begun = m.open[1:], m.begun-1
		if p.status != work.Success {
			p.length = 0
		}
		if p.status != work.Success || p.flags&work.Signaled != 0 {
			list = append(list, work.Completion{ID: p.id, Op: p.op, Status: p.status, Length: p.length})
		}
	}
	return list
}
