package flow

import (
	"slices"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/tpt"
)

// memoryPatience is how long a Target waits before it looks for memory again that other
// connections have given back.
const memoryPatience = time.Millisecond

// askFor asks for the next sequence of Data-Out. A command has one sequence outstanding at
// a time.
func (t *Target) askFor(j *Job) {
	j.from = j.got
	j.upto = min(j.want(), j.got+t.params.MaxBurstLength)
	t.mover.fetch(j)
}

// dataOut finds the place of Data-Out (US 7,299,266, FIG. 17B).
func (t *Target) dataOut(h *pdu.Header) Reason {
	j, why := t.owner(h)
	if why != OK {
		return why
	}
	t.present = j
	if !t.inSequence(j, h) {
		if !j.done { // otherwise the PDU was refused before
			t.drop(DataSNGap)
		}
		j.fail(unit.AbortedCommand, scsi.ProtocolServiceCRCError)
	}
	j.inbound = true
	t.receive(j, h.BufferOffset(), h.DataLength())
	return OK
}

// owner returns the job of a Data-Out.
func (t *Target) owner(h *pdu.Header) (*Job, Reason) {
	tag := h.TargetTransferTag()
	if tag == pdu.NoTag || t.cfg.Tags == nil {
		for _, j := range t.unasked {
			if j.header.InitiatorTaskTag() == h.InitiatorTaskTag() {
				return j, OK
			}
		}
		return nil, t.refuseFor(h, pdu.RejectProtocolError, NoTask)
	}
	slot, fault := t.cfg.Tags.Check(tpt.STag(tag), tpt.RemoteWrite, h.BufferOffset(), uint32(h.DataLength()))
	if fault == tpt.OK {
		j := t.jobs[slot]
		if j.header.InitiatorTaskTag() == h.InitiatorTaskTag() {
			return j, OK
		}
		return nil, t.refuseFor(h, pdu.RejectInvalidField, NoTask)
	}
	if slot, mine := t.cfg.Tags.Slot(tpt.STag(tag)); mine {
		if j := t.jobs[slot]; fault == tpt.OutOfBounds && j != nil && j.bound {
			t.drop(OutOfBounds)
			j.fail(unit.AbortedCommand, scsi.NotEnoughUnsolicitedData)
			t.present = j
			return j, OK
		}
		return nil, t.drop(Stale)
	}
	return nil, t.refuseFor(h, pdu.RejectInvalidField, NoTask)
}

// inSequence reports whether a Data-Out is the next one of its sequence (RFC 7143
// §11.7).
func (t *Target) inSequence(j *Job, h *pdu.Header) bool {
	n := uint32(h.DataLength())
	limit := j.upto
	if j.unasked {
		limit = t.unsolicited(j)
	}
	end := j.got + n
	switch {
	case h.DataSN() != j.dataSN, h.BufferOffset() != j.got, n > limit || end > limit:
		return false
	case h.Final():
		return end == limit || j.unasked
	}
	return end < limit
}

// dataOutDone goes on when the data segment of a Data-Out is there.
func (t *Target) dataOutDone(h *pdu.Header, why Reason) Reason {
	j := t.present
	j.got += uint32(h.DataLength())
	j.dataSN++
	j.inbound = false
	t.spoil(j, h, why)
	switch {
	case j.aborted:
		t.advance(j)
		return OK
	case !h.Final():
		return OK
	}
	if j.unasked {
		j.unasked = false
		i := slices.Index(t.unasked, j)
		t.unasked = slices.Delete(t.unasked, i, i+1)
		t.askAgain(j)
	} else {
		t.askAgain(j)
		t.cfg.Tags.Revoke(j.slot)
		j.bound, j.place = false, nowhere
	}
	if j.place == nowhere {
		t.advance(j)
	}
	return OK
}
