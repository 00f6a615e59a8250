package flow

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
)

// TestTargetPings: a target asks a silent initiator whether it is there. An answer, or any
// other octets, begin the time anew. Without an answer the connection ends.
func TestTargetPings(t *testing.T) {
	s := serve(t, usualTarget(), true)
	s.tgt.alive.init(10 * time.Second)
	const second = clock.Instant(time.Second)
	at := func(now clock.Instant) []caught {
		s.ulp.Transmit(now*second, s.w)
		return s.heard.hear(t, s.w)
	}
	if d := s.ulp.Deadline(); d != 1 || len(at(100)) != 0 || s.ulp.Deadline() != 110*second || len(at(109)) != 0 {
		t.Fatalf("before the first ping: deadlines %v and %v", d, s.ulp.Deadline())
	}
	statSN := s.tgt.sn.statSN
	left := at(110)
	if len(left) != 1 || left[0].h.Opcode() != pdu.OpNOPIn || left[0].h.InitiatorTaskTag() != pdu.NoTag || left[0].h.TargetTransferTag() == pdu.NoTag {
		t.Fatalf("the ping: %v", left)
	}
	if left[0].h.StatSN() != statSN || s.tgt.sn.statSN != statSN {
		t.Errorf("StatSN %d, then %d, want %d", left[0].h.StatSN(), s.tgt.sn.statSN, statSN)
	}
	var h pdu.Header
	h.Reset(pdu.OpNOPOut)
	h.SetImmediate(true)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(pdu.NoTag)
	h.SetTargetTransferTag(left[0].h.TargetTransferTag())
	h.SetCmdSN(s.cmdSN)
	s.w.in = [][]byte{encode(none, h, nil, nil)}
	s.ulp.Receive(115*second, s.w)
	if len(at(124)) != 0 || s.w.aborted || s.tgt.stats.Refused != 0 {
		t.Fatal("the answer does not count")
	}
	if len(at(125)) != 1 || len(at(134)) != 0 || s.w.aborted || s.ulp.Deadline() != 135*second {
		t.Fatal("the second ping")
	}
	if at(135); !s.w.aborted || s.tgt.broken != Silent || s.ulp.Deadline() != clock.Never {
		t.Errorf("aborted %v, why %v, deadline %v", s.w.aborted, s.tgt.broken, s.ulp.Deadline())
	}
}
