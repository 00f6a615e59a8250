package captures_test

import (
	"bytes"
	"iter"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/captures"
)

// TestRead checks that every capture has connections, complete from their first octet
// on. Every connection with data begins with an MPA frame. It is a Request, except in
// captures of hand-written peers.
func TestRead(t *testing.T) {
	names, err := captures.Names()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 15 {
		t.Errorf("only %d captures: %q", len(names), names)
	}
	for _, name := range names {
		conns, err := captures.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(conns) == 0 {
			t.Errorf("%s has no connection", name)
		}
		for i, c := range conns {
			if c.Client.Gap || c.Server.Gap {
				t.Errorf("%s: connection %d has a gap", name, i)
			}
			if b := c.Client.Bytes(); len(b) > 0 && !bytes.HasPrefix(b, []byte("MPA ID Re")) {
				t.Errorf("%s: connection %d begins with % x", name, i, b[:min(len(b), 16)])
			}
		}
	}
}

// TestLoss checks that retransmitted octets are in the stream only once.
func TestLoss(t *testing.T) {
	again := func(name string) (n int) {
		conns, err := captures.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conns {
			n += c.Client.Again + c.Server.Again
		}
		return n
	}
	if n := again("ib_read_bw-loss-head"); n == 0 {
		t.Error("nothing was sent again in the capture with loss")
	}
	if n := again("rping-siw-siw"); n != 0 {
		t.Errorf("%d segments were sent again in a capture without loss", n)
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	if _, err := captures.Read("nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere.pcap") {
		t.Errorf("no capture: %v", err)
	}
}

// TestISCSI checks that every capture of iSCSI and iSER has connections without a gap,
// and that the initiator speaks first.
func TestISCSI(t *testing.T) {
	names := map[string]bool{}
	for _, all := range []iter.Seq2[string, captures.Conn]{captures.ISCSI(t), captures.ISER(t)} {
		for name, c := range all {
			names[name] = true
			if c.Client.Gap || c.Server.Gap || len(c.Client.Segments) == 0 || c.Port != 3260 && c.Port != 3262 {
				t.Errorf("%s: a connection to port %d has a gap or no octets", name, c.Port)
			}
		}
	}
	if len(names) < 13 {
		t.Errorf("only %d captures have connections: %v", len(names), names)
	}
}
