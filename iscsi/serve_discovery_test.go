package iscsi

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
)

// TestDiscoveryRejects: a text that a discovery session does not have is rejected, and the
// session goes on.
func TestDiscoveryRejects(t *testing.T) {
	var sent []byte
	g := &greeting{server: &Server{}, params: login.Params{Discovery: true, MaxSendLength: 8192}}
	d := g.discovery(func(octets []byte) error { sent = octets; return nil })
	for _, c := range []struct {
		text string
		want pdu.Opcode
	}{{"SendTargetsPlease=All\x00", pdu.OpReject}, {"SendTargets=\x00", pdu.OpReject}, {"half a pair", pdu.OpReject}, {"SendTargets=All\x00", pdu.OpTextResponse}} {
		var h pdu.Header
		h.Reset(pdu.OpText)
		h.SetImmediate(true)
		h.SetTargetTransferTag(pdu.NoTag)
		over, err := d.serve(&h, []byte(c.text))
		rig.Must(t, err)
		if got := pdu.Header(sent); got.Opcode() != c.want || over {
			t.Errorf("%q: %v, the session ends: %v", c.text, got.Opcode(), over)
		}
	}
}
