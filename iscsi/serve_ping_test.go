package iscsi_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
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

// TestServePingsOverXDP: the kernel does not run the connections of a target over AF_XDP.
// The target ends the session of an initiator that acknowledges its pings and does not
// answer them, and that of one whose cable is gone.
func TestServePingsOverXDP(t *testing.T) {
	r := rig.On(t)
	p := netns.XDPPair(t, pair.Config{})
	var a *rdma.Adapter
	netns.In(t, p, theirs, func() (err error) {
		a, err = rdma.Open(rdma.Config{Ports: []string{p.Ends[theirs].Name}, NoControl: true})
		return err
	})
	t.Cleanup(func() { r.Check(a.Close()) })
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) {
		c.Adapter, c.Ping = a, 100*time.Millisecond
		c.Address = netip.AddrPortFrom(p.Ends[theirs].V4.Addr(), 3260).String()
	})
	var silent *bare
	netns.In(t, p, ours, func() error {
		silent = logIn(t, s, pdu.ISID{0x80, 1})
		return nil
	})
	for {
		h, _ := silent.read()
		if h.Opcode() == pdu.OpNOPIn && h.InitiatorTaskTag() == pdu.NoTag {
			break
		}
	}
	silent.closed()
	rig.Eventually(t, "no session is left", func() bool { return s.Sessions() == 0 })
	netns.In(t, p, ours, func() error {
		logIn(t, s, pdu.ISID{0x80, 2})
		return netns.SetLink(p.Ends[ours].Name, false)
	})
	rig.Eventually(t, "no session is left", func() bool { return s.Sessions() == 0 })
}
