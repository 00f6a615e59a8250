package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/tpt"
)

// targetStream is a Target whose PDUs are in a stream. An R2T carries the STag of the
// slot's entry as Target Transfer Tag, so that the data of the initiator is placed within
// the step.
type targetStream struct{ *Target }

// Stream makes a stream the datamover of the Target.
func (t *Target) Stream() stream.ULP {
	s := targetStream{t}
	t.mover = s
	return s
}

// Receive implements stream.ULP.
func (t targetStream) Receive(now clock.Instant, s stream.Stream) {
	t.alive.hear(now)
	t.now = now
	if t.broken == OK {
		if end := t.rx.run(s); end != OK {
			t.abort(s, end)
		}
	}
	if s.EOF() {
		s.CloseWrite()
	}
}

// Transmit implements stream.ULP.
func (t targetStream) Transmit(now clock.Instant, s stream.Stream) {
	was := t.broken
	if end := t.serve(now); end != OK {
		if was == OK {
			t.abort(s, end)
		}
		return
	}
	for t.sending != nil || t.alive.open || t.begin() {
		left, ok := t.tx.emit(s)
		if !ok {
			t.abort(s, Unreadable)
			return
		}
		if !left {
			return
		}
		t.stats.PDUsOut++
		t.left()
	}
	if t.goodbye {
		s.CloseWrite()
	}
}

// abort ends the connection.
func (t targetStream) abort(s stream.Stream, why Reason) {
	t.broken = why
	s.Abort()
}

// Deadline implements stream.ULP.
func (t targetStream) Deadline() clock.Instant { return t.deadline() }

// Fault implements stream.ULP.
func (t targetStream) Fault(_ clock.Instant, err error) { t.fault(err) }

// enter implements targetMover.
func (t targetStream) enter(*Job) {}

// fetch implements targetMover: it queues an R2T.
func (t targetStream) fetch(j *Job) {
	j.dataSN = 0
	j.place = inUrgent
	t.urgent.push(j, len(t.jobs))
}

// deliver implements targetMover.
func (t targetStream) deliver(j *Job) {
	j.dataSN = 0
	j.place = inStream
	t.stream.push(j, len(t.jobs))
}

// begin makes the next PDU. Pings, responses and R2Ts go before data, and the commands with data
// take turns.
func (t targetStream) begin() bool {
	if t.alive.due {
		t.makePing()
		return true
	}
	for {
		j := t.urgent.pop()
		if j == nil {
			j = t.stream.pop()
		}
		if j == nil {
			return false
		}
		if t.drops(j) {
			continue
		}
		if j.op == pdu.OpSNACK {
			if !t.makeAgain(j) {
				t.release(j)
				continue
			}
			t.stats.Resent++
		} else {
			t.make(j)
		}
		j.place = inTx
		t.sending = j
		return true
	}
}

// make makes the next PDU of a job.
func (t targetStream) make(j *Job) {
	command := j.isCommand() && j.op != pdu.OpReject
	switch {
	case command && !j.done:
		t.makeR2T(j)
	case command && j.sent < j.total():
		t.makeDataIn(j)
	default:
		t.makeStatus(j)
	}
}

// makeR2T makes an R2T, under a new Target Transfer Tag.
func (t targetStream) makeR2T(j *Job) {
	j.ttt = pdu.Tag(t.cfg.Tags.Bind(j.slot, j.want(), tpt.RemoteWrite))
	j.bound = true
	j.r2tSN++
	t.fillR2T(j)
}

// fillR2T makes the PDU of the youngest R2T of a job.
func (t targetStream) fillR2T(j *Job) {
	h := t.tx.header(pdu.OpR2T)
	h.SetFlags(pdu.Final)
	h.SetLUN(j.header.LUN())
	h.SetInitiatorTaskTag(j.header.InitiatorTaskTag())
	h.SetTargetTransferTag(j.ttt)
	h.SetStatSN(t.sn.statSN)
	t.acknowledge(h, false)
	h.SetR2TSN(j.r2tSN - 1)
	h.SetBufferOffset(j.from)
	h.SetDesiredLength(j.upto - j.from)
	t.tx.begin(nil, 0, 0)
}

// makeDataIn makes the next Data-In. The last one carries the status, unless an R-Data SNACK
// wants a SCSI Response.
func (t targetStream) makeDataIn(j *Job) {
	total := j.total()
	burst := t.params.MaxBurstLength - j.sent%t.params.MaxBurstLength
	n := min(total-j.sent, uint32(t.most), burst)
	t.fillDataIn(j, j, dataPDU{sn: j.dataSN, off: j.sent, n: n, burst: burst, status: j.sent+n == total && j.snackTag == 0})
	j.dataSN++
	j.sent += n
	t.stats.Sent += uint64(n)
}

// dataPDU is a Data-In.
type dataPDU struct {
	sn     uint32 // DataSN
	off, n uint32 // Buffer Offset and octets
	burst  uint32 // octets from off on to the end of a sequence of the greatest length
	status bool   // it carries the status
}

// fillDataIn makes a Data-In of a command. by is the job that leaves.
func (t targetStream) fillDataIn(by, command *Job, d dataPDU) {
	var h *pdu.Header
	if d.status {
		h = t.reply(command, pdu.OpDataIn)
		h.SetStatus(uint8(command.Task.Status))
		h.SetFlags(pdu.Final | pdu.StatusPresent | t.residual(command, h))
	} else {
		h = t.tx.header(pdu.OpDataIn)
		h.SetInitiatorTaskTag(command.header.InitiatorTaskTag())
		t.acknowledge(h, false)
		if d.n == d.burst || d.off+d.n == command.total() {
			h.SetFlags(pdu.Final)
		}
	}
	h.SetTargetTransferTag(pdu.NoTag)
	h.SetDataSN(d.sn)
	h.SetBufferOffset(d.off)
	by.pieces[0] = command.pieces[0]
	t.tx.begin(by.pieces[:], int(d.off), int(d.n))
}

// left goes on when a PDU has left.
func (t targetStream) left() {
	if t.alive.open {
		t.alive.open = false
		return
	}
	j := t.sending
	t.sending = nil
	j.place = nowhere
	switch {
	case j.op == pdu.OpSNACK:
		t.adopt()
		j.place = inStream
		t.stream.push(j, len(t.jobs))
	case j.aborted || !j.isCommand() || j.op == pdu.OpReject:
		t.gone(j)
	case !j.done: // an R2T
		j.place = forData
	case j.sent < j.total():
		j.place = inStream
		t.stream.push(j, len(t.jobs))
	case !j.numbered: // its data was cut anew, and the status goes in a SCSI Response
		t.answer(j)
	default:
		t.part(j)
	}
}
