package iscsi_test

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
)

// TestServePings: a target ends the session of an initiator that does not answer its pings,
// and keeps that of one that does.
func TestServePings(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.Ping = 100 * time.Millisecond })
	d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{RecoveryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { rig.Check(t, d.Close()) }()
	dead := logIn(t, s, pdu.ISID{0x80, 1})
	for {
		h, _ := dead.read()
		if h.Opcode() == pdu.OpNOPIn && h.InitiatorTaskTag() == pdu.NoTag {
			break
		}
	}
	dead.closed()
	rig.Eventually(t, "one session is left", func() bool { return s.Sessions() == 1 })
	if _, err := d.ReadAt(make([]byte, 512), 0); err != nil {
		t.Errorf("the initiator that answers: %v", err)
	}
}
