package flow

import (
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
)

// keepAlive finds out whether a silent initiator is there (RFC 7143 §11.19). The step owns
// it. The end of a stream that the kernel does not run may never be seen: a peer that is
// dead would keep its session, and its reservations.
type keepAlive struct {
	every time.Duration // silence before a ping, and after it before the end; 0: no pings
	heard clock.Instant // time of the last octets of the initiator; 0: not known yet
	asked clock.Instant // time of the ping that has no answer; Never: there is none
	due   bool          // a ping is to leave
	open  bool          // a ping is leaving
}

func (k *keepAlive) init(every time.Duration) { k.every, k.asked = every, clock.Never }

// hear takes note of octets of the initiator.
func (k *keepAlive) hear(now clock.Instant) { k.heard, k.asked, k.due = now, clock.Never, false }

// check asks for a ping if it is time, and reports whether the initiator is there.
func (k *keepAlive) check(now clock.Instant) bool {
	switch {
	case k.every == 0:
	case k.heard == 0:
		k.heard = now
	case k.asked != clock.Never:
		return !k.asked.Add(k.every).Due(now)
	case k.heard.Add(k.every).Due(now):
		k.asked, k.due = now, true
	}
	return true
}

// deadline returns when check is due.
func (k *keepAlive) deadline() clock.Instant {
	switch {
	case k.every == 0:
		return clock.Never
	case k.heard == 0:
		return 1 // long ago
	case k.asked != clock.Never:
		return k.asked.Add(k.every)
	}
	return k.heard.Add(k.every)
}

// pingTag is the Target Transfer Tag of pings. No entry of the table has its index.
const pingTag pdu.Tag = 1

// makePing makes a NOP-In that wants an answer.
func (t *Target) makePing() {
	t.alive.due, t.alive.open = false, true
	h := t.tx.header(pdu.OpNOPIn)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(pdu.NoTag)
	h.SetTargetTransferTag(pingTag)
	h.SetStatSN(t.sn.statSN)
	t.acknowledge(h, false)
	t.tx.begin(nil, 0, 0)
}
