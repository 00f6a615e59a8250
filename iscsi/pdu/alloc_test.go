package pdu_test

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestNoAllocations: what the data path does for each PDU allocates nothing.
func TestNoAllocations(t *testing.T) {
	var h pdu.Header
	data, out := make([]byte, 4097), make([]byte, 0, 8192)
	d := pdu.Digests{Header: true, Data: true}
	if n := testing.AllocsPerRun(100, func() {
		h.Reset(pdu.OpDataOut)
		h.SetFlags(pdu.Final)
		h.SetInitiatorTaskTag(7)
		h.SetTargetTransferTag(9)
		h.SetBufferOffset(4096)
		out = pdu.Append(out[:0], d, &h, nil, data)
		p, _, ok := pdu.Parse(d, out)
		if head, tail := p.Intact(); !ok || !head || !tail || p.Header().Check() != pdu.OK || len(p.Data()) != len(data) {
			t.Fatal("a PDU that was made is not one that is read")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
