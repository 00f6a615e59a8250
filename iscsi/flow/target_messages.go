package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/tpt"
)

// Messages is the datamover of a Target whose PDUs are messages, and whose data moves by
// RDMA: iSER (RFC 7145). R2T and Data-In do not exist there. The owner's loop, with the
// names that RFC 5047 has for it:
//
//	m.Receive(…)                    for each message: Control_Notify
//	m.Moved(job)                    for each transfer that has ended: Data_Completion_Notify
//	m.Due(now)
//	for m.Next(&transfer, …) { … }  Get_Data; Put_Data and Send_Control
//
// The calls belong to one goroutine at a time.
type Messages struct {
	*Target
	reads   jobFIFO          // jobs that want to read from the initiator
	buffers []pdu.ISERFields // by slot: memory that the initiator has advertised
	came    pdu.ISERFields   // of the message that is arriving
}

// Messages makes messages the datamover of the Target.
func (t *Target) Messages() *Messages {
	m := &Messages{Target: t, buffers: make([]pdu.ISERFields, len(t.jobs))}
	t.mover = m
	return m
}

// Transfer is what a Target wants to be moved. The memory of Data is the owner's until it
// calls Moved.
type Transfer struct {
	Job *Job // nil: a ping, for which the owner does not call Moved

	// Data is memory of the Pool, or that a unit has lent. An RDMA Read fills it from the
	// initiator's memory (STag, TO) if Read is set. Otherwise an RDMA Write takes it there.
	// Without octets there is nothing to do.
	Read bool
	Data []byte
	STag tpt.STag
	TO   uint64

	// PDU says that a PDU follows the Write: Messages.Header, Length and Fill have it until
	// the next call of Next. Invalidate is the STag of the command that the PDU ends, or 0.
	PDU        bool
	Invalidate tpt.STag
}

// Receive takes a message. ahs are additional header segments. The octets are free when
// Receive returns. Receive returns a reason that ends the connection, or OK.
func (m *Messages) Receive(now clock.Instant, i pdu.ISER, h *pdu.Header, ahs, data []byte) Reason {
	m.alive.hear(now)
	m.now = now
	if m.broken == OK {
		m.came.WriteSTag, m.came.WriteBase, m.came.HasWrite = i.Write()
		m.came.ReadSTag, m.came.ReadBase, m.came.HasRead = i.Read()
		m.broken = m.rx.message(h, ahs, data)
	}
	return m.broken
}

// message takes a whole PDU that has no digests.
func (r *receiver) message(h *pdu.Header, ahs, data []byte) Reason {
	if len(ahs) > maxAHS {
		return AHSTooLong
	}
	*r.header() = *h
	copy(r.head[pdu.HeaderLen:], ahs)
	end := r.verify()
	if end == OK && r.stage == inData {
		r.data(data)
		end = r.finish()
	}
	return end
}

// enter implements targetMover. The data of a command needs memory that the initiator
// advertises in the same message (RFC 7145 §7.3.1).
func (m *Messages) enter(j *Job) {
	h := &j.header
	m.buffers[j.slot] = m.came
	if h.EDTL() != 0 && (h.Has(pdu.Write) && !m.came.HasWrite || h.Has(pdu.Read) && !m.came.HasRead) {
		j.fail(unit.IllegalRequest, scsi.InvalidFieldInInformationUnit)
	}
}

// fetch implements targetMover.
func (m *Messages) fetch(j *Job) {
	j.place = inUrgent
	m.reads.push(j, len(m.jobs))
}

// deliver implements targetMover.
func (m *Messages) deliver(j *Job) {
	j.place = inStream
	m.stream.push(j, len(m.jobs))
}

// Due does what is due. Due returns a reason that ends the connection, or OK.
func (m *Messages) Due(now clock.Instant) Reason {
	m.broken = m.serve(now)
	return m.broken
}

// Deadline returns when the owner calls Due at the latest.
func (m *Messages) Deadline() clock.Instant { return m.deadline() }

// Fault takes note of the end of the connection. Nothing moves any more.
func (m *Messages) Fault(err error) { m.fault(err) }

// Farewell reports whether the Logout Response has left.
func (m *Messages) Farewell() bool { return m.goodbye }

// Next returns the next transfer. Pings, responses and Reads go before data, and the
// commands with data take turns. reads says whether the owner can do a Read.
func (m *Messages) Next(x *Transfer, reads bool) bool {
	*x = Transfer{}
	if m.broken != OK {
		return false
	}
	if m.alive.due {
		m.makePing()
		m.alive.open = false
		m.stats.PDUsOut++
		x.PDU = true
		return true
	}
	for {
		j := m.urgent.pop()
		if j == nil && reads {
			j = m.reads.pop()
		}
		if j == nil {
			j = m.stream.pop()
		}
		if j == nil {
			return false
		}
		if m.drops(j) {
			continue
		}
		j.place = inTx
		m.plan(x, j)
		return true
	}
}

// plan fills a transfer.
func (m *Messages) plan(x *Transfer, j *Job) {
	x.Job = j
	b := &m.buffers[j.slot]
	if j.asks() {
		x.Read, x.STag, x.TO = true, b.WriteSTag, b.WriteBase+uint64(j.got)
		x.Data = j.pieces[0][j.got:j.upto]
		return
	}
	if n := min(j.rest(), largestDataIn); n != 0 {
		x.STag, x.TO = b.ReadSTag, b.ReadBase+uint64(j.sent)
		x.Data = j.pieces[0][j.sent:][:n]
		j.sent += n
		m.stats.Sent += uint64(n)
	}
	if j.rest() == 0 {
		m.conclude(x, j, b)
	}
}

// conclude makes the PDU that ends a job. It says that the job's place in the command
// window is free, which comes true here: the slot takes longer.
func (m *Messages) conclude(x *Transfer, j *Job, b *pdu.ISERFields) {
	x.PDU = true
	m.stats.PDUsOut++
	m.makeStatus(j)
	if j.counts() {
		m.leave(j)
		j.parted = true
	}
	switch {
	case !j.isCommand() || j.op == pdu.OpReject:
	case b.HasRead:
		x.Invalidate = b.ReadSTag
	case b.HasWrite:
		x.Invalidate = b.WriteSTag
	}
}

// asks reports whether the job wants data of the initiator.
func (j *Job) asks() bool { return j.isCommand() && j.op != pdu.OpReject && !j.done }

// rest returns how many octets of Data-In have not begun to move.
func (j *Job) rest() uint32 {
	if !j.isCommand() || j.op == pdu.OpReject {
		return 0
	}
	return j.total() - j.sent
}

// Header returns the header of the PDU. The owner sets its lengths.
func (m *Messages) Header() *pdu.Header { return (*pdu.Header)(m.tx.head[:pdu.HeaderLen]) }

// Length returns the length of the data segment of the PDU in octets.
func (m *Messages) Length() int { return m.tx.data }

// Fill copies the data segment of the PDU to b, which has its length. Fill returns false if
// memory cannot be read.
func (m *Messages) Fill(b []byte) bool { return m.tx.from.get(b) }

// Moved says that a transfer has succeeded. Its memory is the Target's again.
func (m *Messages) Moved(j *Job) {
	j.place = nowhere
	switch {
	case j.asks():
		m.stats.Placed += uint64(j.upto - j.got)
		j.got = j.upto
		m.advance(j)
	case j.rest() != 0:
		m.deliver(j)
	default:
		m.gone(j)
	}
}
