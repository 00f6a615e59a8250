package iscsi_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
)

// bare is an initiator that the test plays over a socket.
type bare struct {
	t      *testing.T
	socket net.Conn
	params login.Params
}

// logIn logs in with an ISID.
func logIn(t *testing.T, s *iscsi.Server, isid pdu.ISID) *bare {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(rig.Deadline())
	m, err := login.NewInitiator(login.InitiatorConfig{Name: "iqn.2026-01.test.stag:bare", Target: ownTarget, ISID: isid, Tag: 1, CmdSN: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := &bare{t: t, socket: c}
	out := m.Start(nil)
	for done := false; !done; {
		b.write(out)
		h, data := b.read()
		if out, done, err = m.Step(&h, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.params = m.Params()
	return b
}

func (b *bare) write(p []byte) {
	b.t.Helper()
	if _, err := b.socket.Write(p); err != nil {
		b.t.Fatal(err)
	}
}

// read reads one PDU.
func (b *bare) read() (h pdu.Header, data []byte) {
	b.t.Helper()
	if _, err := io.ReadFull(b.socket, h[:]); err != nil {
		b.t.Fatal(err)
	}
	data = make([]byte, pdu.Padded(h.DataLength()))
	if _, err := io.ReadFull(b.socket, data); err != nil {
		b.t.Fatal(err)
	}
	return h, data[:h.DataLength()]
}

// testUnitReady sends TEST UNIT READY and returns the status and the sense data.
func (b *bare) testUnitReady() (status uint8, sense []byte) {
	b.t.Helper()
	return b.command()
}

// command sends a command without data, and returns the status and the sense data.
func (b *bare) command(cdb ...byte) (status uint8, sense []byte) {
	b.t.Helper()
	var h pdu.Header
	h.Reset(pdu.OpCommand)
	h.SetFlags(pdu.Final)
	h.SetLUN(1 << 48)
	h.SetInitiatorTaskTag(7)
	copy(h[32:], cdb)
	h.SetCmdSN(b.params.CmdSN)
	b.params.CmdSN++
	b.write(h[:])
	answer, data := b.read()
	return answer.Status(), data
}

// closed fails unless the target has closed the connection.
func (b *bare) closed() {
	b.t.Helper()
	if n, err := b.socket.Read(make([]byte, 1)); err == nil || n != 0 {
		b.t.Errorf("the connection is open: read %d octets, %v", n, err)
	}
}

// TestServeReinstatement: a login with the ISID of a session ends that session. The new
// one hears that the nexus was lost (RFC 7143 §6.3.5, SAM-5 §6.3.4). Another ISID is
// another session.
func TestServeReinstatement(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	first := logIn(t, s, pdu.ISID{0x80, 1})
	other := logIn(t, s, pdu.ISID{0x80, 2})
	if status, sense := first.testUnitReady(); status != 0 {
		t.Fatalf("status %#x, sense % x", status, sense)
	}
	second := logIn(t, s, pdu.ISID{0x80, 1})
	first.closed()
	if second.params.TSIH == first.params.TSIH || second.params.TSIH == 0 {
		t.Errorf("TSIH %d after %d", second.params.TSIH, first.params.TSIH)
	}
	if status, sense := second.testUnitReady(); status != 2 || len(sense) < 16 || sense[2+12] != 0x29 || sense[2+13] != 0x07 {
		t.Errorf("the first command: status %#x, sense % x, want a unit attention 29/07", status, sense)
	}
	for _, b := range []*bare{second, other} {
		if status, sense := b.testUnitReady(); status != 0 {
			t.Errorf("status %#x, sense % x", status, sense)
		}
	}
	if n := s.Sessions(); n != 2 {
		t.Errorf("%d sessions", n)
	}
}

// logOut closes the session and waits for the response, not for the end of the connection.
func (b *bare) logOut() {
	b.t.Helper()
	var h pdu.Header
	h.Reset(pdu.OpLogout)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(8)
	h.SetCmdSN(b.params.CmdSN)
	b.write(h[:])
	if answer, _ := b.read(); answer.Opcode() != pdu.OpLogoutResponse {
		b.t.Fatalf("%v", answer.Opcode())
	}
}

// TestServeLogout: what a session leaves at a unit is gone for the session that logs in
// after the Logout Response, or after the initiator has closed the connection.
func TestServeLogout(t *testing.T) {
	for name, leave := range map[string]func(*bare){"logout": (*bare).logOut, "close": func(b *bare) { b.socket.Close() }} {
		t.Run(name, func(t *testing.T) {
			s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) {
				l := c.Targets[0].LUNs[1]
				l.Removable = true
				c.Targets[0].LUNs[1] = l
			})
			for i := range byte(100) {
				b := logIn(t, s, pdu.ISID{0x80, i})
				if status, sense := b.command(0x1b, 0, 0, 0, 2); status != 0 { // START STOP UNIT: unload
					t.Fatalf("unload of session %d: status %#x, sense % x", i, status, sense)
				}
				for _, cdb := range [][]byte{{0x1b, 0, 0, 0, 3}, {0x1e, 0, 0, 0, 1}} { // load; PREVENT ALLOW MEDIUM REMOVAL
					if status, sense := b.command(cdb...); status != 0 {
						t.Fatalf("command %#x: status %#x, sense % x", cdb[0], status, sense)
					}
				}
				leave(b)
			}
		})
	}
}

// TestServeSilent: a peer that does not log in is dropped, and others are served.
func TestServeSilent(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.LoginTimeout = 50 * time.Millisecond })
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(rig.Deadline())
	(&bare{t: t, socket: c}).closed()
	garbage, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	garbage.SetDeadline(rig.Deadline())
	b := &bare{t: t, socket: garbage}
	b.write([]byte("GET / HTTP/1.1\r\nHost: an.example.of.a.browser.that.is.lost\r\n\r\n"))
	b.closed()
}
