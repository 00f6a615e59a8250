package pdu_test

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestCheck has a valid header of each opcode, and what makes it invalid.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		want pdu.Fault
		op   pdu.Opcode
		fill func(h *pdu.Header)
	}{
		{"vendor's opcode", pdu.UnknownOpcode, 0x1c, func(h *pdu.Header) {}},
		{"response with AHS", pdu.UnexpectedAHS, pdu.OpResponse, func(h *pdu.Header) { h.SetAHSLength(4) }},
		{"logout with data", pdu.UnexpectedData, pdu.OpLogout, func(h *pdu.Header) { h.SetDataLength(1) }},
		{"SNACK with data", pdu.UnexpectedData, pdu.OpSNACK, func(h *pdu.Header) { h.SetDataLength(1) }},
		{"command without a tag", pdu.BadTag, pdu.OpCommand, func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag) }},
		{"SNACK for status", pdu.OK, pdu.OpSNACK, func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag) }},

		{"command without F and W", pdu.BadFlags, pdu.OpCommand, func(h *pdu.Header) {}},
		{"command without data", pdu.OK, pdu.OpCommand, func(h *pdu.Header) { h.SetFlags(pdu.Final) }},
		{"EDTL without R and W", pdu.BadLength, pdu.OpCommand, func(h *pdu.Header) { h.SetFlags(pdu.Final); h.SetEDTL(1) }},
		{"read", pdu.OK, pdu.OpCommand, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.Read); h.SetEDTL(512) }},
		{"read with data", pdu.UnexpectedData, pdu.OpCommand, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.Read); h.SetEDTL(512); h.SetDataLength(4) }},
		{"write", pdu.OK, pdu.OpCommand, func(h *pdu.Header) { h.SetFlags(pdu.Write); h.SetEDTL(512); h.SetDataLength(512); h.SetAHSLength(20) }},
		{"write with too much data", pdu.BadLength, pdu.OpCommand, func(h *pdu.Header) { h.SetFlags(pdu.Write); h.SetEDTL(512); h.SetDataLength(513) }},

		{"login 0 to 1", pdu.OK, pdu.OpLogin, func(h *pdu.Header) { h.SetFlags(pdu.Transit); h.SetStages(0, 1) }},
		{"login 0 to 3", pdu.OK, pdu.OpLogin, func(h *pdu.Header) { h.SetFlags(pdu.Transit); h.SetStages(0, 3) }},
		{"login 1, NSG reserved", pdu.OK, pdu.OpLogin, func(h *pdu.Header) { h.SetStages(1, 0) }},
		{"login 1, NSG unused", pdu.OK, pdu.OpLogin, func(h *pdu.Header) { h.SetStages(1, 2) }},
		{"login 1 to 1", pdu.BadStage, pdu.OpLogin, func(h *pdu.Header) { h.SetFlags(pdu.Transit); h.SetStages(1, 1) }},
		{"login 1 to 2", pdu.BadStage, pdu.OpLoginResponse, func(h *pdu.Header) { h.SetFlags(pdu.Transit); h.SetStages(1, 2) }},
		{"login 2", pdu.BadStage, pdu.OpLogin, func(h *pdu.Header) { h.SetStages(2, 0) }},
		{"login 3", pdu.BadStage, pdu.OpLogin, func(h *pdu.Header) { h.SetStages(3, 0) }},
		{"login T and C", pdu.BadFlags, pdu.OpLogin, func(h *pdu.Header) { h.SetFlags(pdu.Transit | pdu.Continue); h.SetStages(0, 1) }},

		{"text F and C", pdu.BadFlags, pdu.OpText, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.Continue) }},
		{"text C", pdu.OK, pdu.OpTextResponse, func(h *pdu.Header) { h.SetFlags(pdu.Continue) }},

		{"response O and U", pdu.BadFlags, pdu.OpResponse, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.Overflow | pdu.Underflow) }},
		{"response o and u", pdu.BadFlags, pdu.OpResponse, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.BidiOverflow | pdu.BidiUnderflow) }},
		{"response o and U", pdu.OK, pdu.OpResponse, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.BidiOverflow | pdu.Underflow) }},
		{"Data-In O and U", pdu.BadFlags, pdu.OpDataIn, func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.StatusPresent | pdu.Overflow | pdu.Underflow) }},
		{"Data-In S without F", pdu.BadFlags, pdu.OpDataIn, func(h *pdu.Header) { h.SetFlags(pdu.StatusPresent) }},
		{"Data-In in the middle", pdu.OK, pdu.OpDataIn, func(h *pdu.Header) { h.SetDataLength(8192) }},

		{"R2T", pdu.OK, pdu.OpR2T, func(h *pdu.Header) { h.SetDesiredLength(1) }},
		{"R2T for nothing", pdu.BadLength, pdu.OpR2T, func(h *pdu.Header) {}},
		{"R2T without a tag", pdu.BadTag, pdu.OpR2T, func(h *pdu.Header) { h.SetDesiredLength(1); h.SetTargetTransferTag(pdu.NoTag) }},

		{"NOP-In, answer", pdu.OK, pdu.OpNOPIn, func(h *pdu.Header) { h.SetTargetTransferTag(pdu.NoTag); h.SetDataLength(4) }},
		{"NOP-In, both tags", pdu.BadTag, pdu.OpNOPIn, func(h *pdu.Header) {}},
		{"NOP-In, ping", pdu.OK, pdu.OpNOPIn, func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag) }},
		{"NOP-In, ping with data", pdu.UnexpectedData, pdu.OpNOPIn, func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag); h.SetDataLength(4) }},
		{"NOP-In, numbers only", pdu.OK, pdu.OpNOPIn, func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag); h.SetTargetTransferTag(pdu.NoTag) }},

		{"Reject", pdu.OK, pdu.OpReject, func(h *pdu.Header) { h.SetInitiatorTaskTag(pdu.NoTag); h.SetDataLength(48) }},
		{"Reject of a task", pdu.BadTag, pdu.OpReject, func(h *pdu.Header) {}},
		{"Async of a task", pdu.BadTag, pdu.OpAsync, func(h *pdu.Header) {}},
	} {
		var h pdu.Header
		h.Reset(c.op)
		c.fill(&h)
		if got := h.Check(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if pdu.OK.String() != "no fault" || pdu.BadStage.String() == "" || pdu.Fault(99).String() != "fault 99" {
		t.Error("a fault has no name")
	}
}
