package iscsi_test

import (
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/test/rig"
)

// manyConns is a session over several connections of which the test plays the initiator.
type manyConns struct {
	t     *testing.T
	s     *iscsi.Server
	isid  pdu.ISID
	conns []*bare
	cmdSN seq.Num // of the next command
}

// newManyConns logs in with n connections.
func newManyConns(t *testing.T, s *iscsi.Server, n int) *manyConns {
	t.Helper()
	x := &manyConns{t: t, s: s, isid: pdu.ISID{0x80, 1}, cmdSN: 1}
	for i := range n {
		b, err := x.login(0, uint16(i), i != 0)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		x.conns = append(x.conns, b)
	}
	return x
}

// login logs in with a CID. join says that the connection joins the session; otherwise it
// makes one with this TSIH.
func (x *manyConns) login(tsih, cid uint16, join bool) (*bare, error) {
	x.t.Helper()
	if join && tsih == 0 {
		tsih = x.conns[0].params.TSIH
	}
	c, err := net.Dial("tcp", x.s.Addr().String())
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { c.Close() })
	c.SetDeadline(rig.Deadline())
	m, err := login.NewInitiator(login.InitiatorConfig{
		Name: "iqn.2026-01.test.stag:bare", Target: ownTarget, ISID: x.isid, TSIH: tsih, CID: cid, Tag: 1, CmdSN: x.cmdSN,
		Wishes: login.Wishes{MaxConnections: 8},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	b := &bare{t: x.t, socket: c}
	out := m.Start(nil)
	for done := false; !done; {
		b.write(out)
		h, data := b.read()
		if out, done, err = m.Step(&h, data, nil); err != nil {
			return nil, err
		}
	}
	b.params = m.Params()
	return b, nil
}

// number returns the next CmdSN.
func (x *manyConns) number() seq.Num {
	x.cmdSN++
	return x.cmdSN - 1
}

// send sends a PDU to LUN 1 over connection i.
func (x *manyConns) send(i int, op pdu.Opcode, tag pdu.Tag, sn seq.Num, set func(h *pdu.Header)) {
	x.t.Helper()
	var h pdu.Header
	h.Reset(op)
	h.SetFlags(pdu.Final)
	h.SetLUN(1 << 48)
	h.SetInitiatorTaskTag(tag)
	h.SetCmdSN(sn)
	if set != nil {
		set(&h)
	}
	x.conns[i].write(h[:])
}

// expect reads a PDU of connection i.
func (x *manyConns) expect(i int, op pdu.Opcode, tag pdu.Tag) pdu.Header {
	x.t.Helper()
	h, _ := x.conns[i].read()
	if h.Opcode() != op || h.InitiatorTaskTag() != tag {
		x.t.Fatalf("connection %d: %v with tag %#x, want %v with %#x", i, h.Opcode(), h.InitiatorTaskTag(), op, tag)
	}
	return h
}

// quiet fails if connection i gets something.
func (x *manyConns) quiet(i int) {
	x.t.Helper()
	c := x.conns[i].socket
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var b [48]byte
	if n, err := c.Read(b[:]); err == nil || n != 0 {
		x.t.Fatalf("connection %d gets % x, %v", i, b[:n], err)
	}
	c.SetDeadline(rig.Deadline())
}

// refused fails unless a login is refused with a status.
func (x *manyConns) refused(tsih, cid uint16, want pdu.LoginStatus) {
	x.t.Helper()
	_, err := x.login(tsih, cid, tsih == 0)
	if refused, ok := err.(*login.Refused); !ok || refused.Status != want {
		x.t.Errorf("TSIH %d, CID %d: %v, want status %04x", tsih, cid, err, uint16(want))
	}
}

// closed fails unless the target has closed connection i, and closes it.
func (x *manyConns) closed(i int) {
	x.t.Helper()
	x.conns[i].closed()
	x.conns[i].socket.Close()
}

func write(octets uint32) func(h *pdu.Header) {
	return func(h *pdu.Header) {
		h.SetFlags(pdu.Final | pdu.Write)
		h.SetEDTL(octets)
		h.SetCDB([]byte{0x2a, 0, 0, 0, 0, 0, 0, 0, byte(octets / 512), 0})
	}
}

// TestServeOrder: a request waits until those with smaller numbers have come over the other
// connections.
func TestServeOrder(t *testing.T) {
	x := newManyConns(t, serveOn(t, ram(t, 1<<20), nil), 3)
	first, second, third, fourth := x.number(), x.number(), x.number(), x.number()
	x.send(2, pdu.OpCommand, 14, fourth, nil) // TEST UNIT READY
	x.ping(1, 13, third)
	x.send(0, pdu.OpCommand, 12, second, write(512))
	for i := range x.conns {
		x.quiet(i)
	}
	x.ping(1, 11, first)
	x.expect(1, pdu.OpNOPIn, 11)
	x.expect(1, pdu.OpNOPIn, 13)
	r2t := x.expect(0, pdu.OpR2T, 12)
	x.data(0, &r2t)
	x.expect(0, pdu.OpResponse, 12)
	if h := x.expect(2, pdu.OpResponse, 14); h.ExpCmdSN() != x.cmdSN {
		t.Errorf("ExpCmdSN %d, want %d", h.ExpCmdSN(), x.cmdSN)
	}
}

// ping sends a NOP-Out that is not immediate and wants an answer.
func (x *manyConns) ping(i int, tag pdu.Tag, sn seq.Num) {
	x.t.Helper()
	x.send(i, pdu.OpNOPOut, tag, sn, func(h *pdu.Header) {
		h.SetLUN(0)
		h.SetTargetTransferTag(pdu.NoTag)
	})
}

// TestServeResetOrder: task management for many tasks waits for the requests before it.
func TestServeResetOrder(t *testing.T) {
	x := newManyConns(t, serveOn(t, ram(t, 1<<20), nil), 2)
	first := x.number()
	x.reset(1, 15, pdu.LogicalUnitReset)
	x.quiet(1)
	x.ping(0, 11, first)
	x.expect(0, pdu.OpNOPIn, 11)
	x.expect(1, pdu.OpTaskResponse, 15)
}

// reset sends an immediate task management request for LUN 1.
func (x *manyConns) reset(i int, tag pdu.Tag, f pdu.Function) {
	x.t.Helper()
	x.send(i, pdu.OpTask, tag, x.cmdSN, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetFunction(f)
		h.SetReferencedTaskTag(pdu.NoTag)
	})
}

// TestServeOrdered: an ORDERED command waits until those before it have ended, also those of
// other connections, and those behind it wait for its end.
func TestServeOrdered(t *testing.T) {
	x := newManyConns(t, serveOn(t, ram(t, 1<<20), nil), 3)
	x.send(0, pdu.OpCommand, 11, x.number(), write(512))
	r2t := x.expect(0, pdu.OpR2T, 11)
	x.send(1, pdu.OpCommand, 12, x.number(), func(h *pdu.Header) { h.SetAttribute(pdu.Ordered) })
	x.send(2, pdu.OpCommand, 13, x.number(), nil)
	x.quiet(1)
	x.quiet(2)
	x.data(0, &r2t)
	x.expect(0, pdu.OpResponse, 11)
	x.expect(1, pdu.OpResponse, 12)
	x.expect(2, pdu.OpResponse, 13)
}

// data answers an R2T.
func (x *manyConns) data(i int, r2t *pdu.Header) {
	n := r2t.DesiredLength()
	x.send(i, pdu.OpDataOut, r2t.InitiatorTaskTag(), 0, func(h *pdu.Header) {
		h.SetTargetTransferTag(r2t.TargetTransferTag())
		h.SetDataLength(int(n))
	})
	x.conns[i].write(make([]byte, n))
}

// TestServeResetAll: task management over one connection ends the commands of all.
func TestServeResetAll(t *testing.T) {
	for name, f := range map[string]pdu.Function{"ABORT TASK SET": pdu.AbortTaskSet, "LUN RESET": pdu.LogicalUnitReset, "TARGET WARM RESET": pdu.TargetWarmReset} {
		t.Run(name, func(t *testing.T) {
			x := newManyConns(t, serveOn(t, ram(t, 1<<20), nil), 3)
			for i := range 3 {
				x.send(i, pdu.OpCommand, pdu.Tag(10+i), x.number(), write(512))
				x.expect(i, pdu.OpR2T, pdu.Tag(10+i))
			}
			x.reset(1, 20, f)
			if h := x.expect(1, pdu.OpTaskResponse, 20); h.Response() != pdu.FunctionComplete {
				t.Fatalf("response %d", h.Response())
			}
			for i := range 3 { // what comes next is no response of an aborted command
				x.send(i, pdu.OpCommand, pdu.Tag(30+i), x.number(), nil)
				x.expect(i, pdu.OpResponse, pdu.Tag(30+i))
			}
		})
	}
}

// TestServeJoin: which logins join a session, replace one of its connections, or are
// refused.
func TestServeJoin(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	x := newManyConns(t, s, 4)
	x.refused(0, 4, pdu.TooManyConnections)
	x.refused(x.conns[0].params.TSIH+1, 4, pdu.SessionDoesNotExist)
	other := *x
	other.isid[5] = 1
	other.refused(x.conns[0].params.TSIH, 4, pdu.SessionDoesNotExist)

	x.send(2, pdu.OpCommand, 11, x.number(), write(512)) // ends with its connection
	x.expect(2, pdu.OpR2T, 11)
	old := x.conns[2]
	again, err := x.login(0, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	old.closed()
	x.conns[2] = again
	for i := range x.conns {
		x.send(i, pdu.OpCommand, pdu.Tag(20+i), x.number(), nil)
		if h := x.expect(i, pdu.OpResponse, pdu.Tag(20+i)); h.Status() != 0 {
			t.Errorf("connection %d: status %#x", i, h.Status())
		}
	}
	if n := s.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// logout asks over connection i for a logout, and returns the response.
func (x *manyConns) logout(i int, why pdu.LogoutReason, cid uint16) uint8 {
	x.t.Helper()
	x.send(i, pdu.OpLogout, 99, x.cmdSN, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetLUN(0)
		h.SetLogoutReason(why)
		h.SetCID(cid)
	})
	h := x.expect(i, pdu.OpLogoutResponse, 99)
	return h.Response()
}

// TestServeLogouts: a connection that logs out, or that another one logs out, leaves the
// session to the others. The logout of the session ends all.
func TestServeLogouts(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	x := newManyConns(t, s, 4)
	x.send(3, pdu.OpCommand, 11, x.number(), write(512))
	x.expect(3, pdu.OpR2T, 11)
	if got := x.logout(0, pdu.CloseConnection, 3); got != pdu.LogoutClosed {
		t.Fatalf("logout of another connection: response %d", got)
	}
	x.closed(3)
	if got := x.logout(2, pdu.CloseConnection, 2); got != pdu.LogoutClosed {
		t.Fatalf("logout of a connection: response %d", got)
	}
	x.closed(2)
	x.conns = x.conns[:2]
	if got := x.logout(0, pdu.CloseConnection, 9); got != pdu.LogoutCIDNotFound {
		t.Errorf("logout of no connection: response %d", got)
	}
	for i := range x.conns {
		x.send(i, pdu.OpCommand, pdu.Tag(20+i), x.number(), nil)
		x.expect(i, pdu.OpResponse, pdu.Tag(20+i))
	}
	if got := x.logout(1, pdu.CloseSession, 0); got != pdu.LogoutClosed {
		t.Fatalf("logout: response %d", got)
	}
	x.closed(1)
	x.closed(0)
	rig.Eventually(t, "the session ends", func() bool { return s.Sessions() == 0 })
}

// TestServeLogoutHeld: a connection ends while it holds requests whose turn has not come. The
// requests end without an answer, and their numbers count as received: the session goes on as
// soon as the missing number has come over another connection (RFC 7143 §4.2.2.1, §11.14).
func TestServeLogoutHeld(t *testing.T) {
	closed := func(t *testing.T, got uint8) {
		if got != pdu.LogoutClosed {
			t.Fatalf("logout: response %d", got)
		}
	}
	for name, end := range map[string]func(t *testing.T, x *manyConns){
		"logout": func(t *testing.T, x *manyConns) { closed(t, x.logout(1, pdu.CloseConnection, 1)) },
		"logout over another connection": func(t *testing.T, x *manyConns) {
			x.arrived(1)
			closed(t, x.logout(2, pdu.CloseConnection, 1))
		},
		"the connection is replaced": func(t *testing.T, x *manyConns) {
			x.arrived(1)
			if _, err := x.login(0, 1, true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newManyConns(t, serveOn(t, ram(t, 1<<20), nil), 3)
			first, second, third, fourth, fifth := x.number(), x.number(), x.number(), x.number(), x.number()
			x.ping(1, 12, second)
			x.send(1, pdu.OpCommand, 13, third, func(h *pdu.Header) { h.SetAttribute(pdu.Ordered) })
			x.send(1, pdu.OpCommand, 14, fourth, write(512))
			x.reset(1, 16, pdu.LogicalUnitReset)
			x.send(2, pdu.OpCommand, 15, fifth, nil)
			end(t, x)
			x.closed(1)
			x.quiet(2)
			x.ping(0, 11, first)
			if h := x.expect(0, pdu.OpNOPIn, 11); h.ExpCmdSN().Before(fourth) {
				t.Errorf("ExpCmdSN %d, want %d or more", h.ExpCmdSN(), fourth)
			}
			if h := x.expect(2, pdu.OpResponse, 15); h.ExpCmdSN() != x.cmdSN {
				t.Errorf("ExpCmdSN %d, want %d", h.ExpCmdSN(), x.cmdSN)
			}
		})
	}
}

// TestServeReplacedInProgress: a connection is replaced while an ORDERED command over it is in
// progress, many times. The commands of the others go on, and the window is as large as before.
func TestServeReplacedInProgress(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.Depth = 8 })
	x := newManyConns(t, s, 2)
	for range 20 {
		x.send(1, pdu.OpCommand, 11, x.number(), func(h *pdu.Header) {
			write(512)(h)
			h.SetAttribute(pdu.Ordered)
		})
		x.expect(1, pdu.OpR2T, 11)
		old := x.conns[1]
		again, err := x.login(0, 1, true)
		if err != nil {
			t.Fatal(err)
		}
		old.closed()
		x.conns[1] = again
		x.send(0, pdu.OpCommand, 12, x.number(), nil)
		if h := x.expect(0, pdu.OpResponse, 12); h.MaxCmdSN() != h.ExpCmdSN().Add(7) {
			t.Fatalf("ExpCmdSN %d, MaxCmdSN %d", h.ExpCmdSN(), h.MaxCmdSN())
		}
	}
}

// arrived returns when connection i has taken all that was sent over it: it answers an
// immediate ping.
func (x *manyConns) arrived(i int) {
	x.t.Helper()
	x.send(i, pdu.OpNOPOut, 98, x.cmdSN, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetLUN(0)
		h.SetTargetTransferTag(pdu.NoTag)
	})
	x.expect(i, pdu.OpNOPIn, 98)
}

// TestServeLosesOne: at error recovery level 0 the session ends with any of its connections.
func TestServeLosesOne(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	x := newManyConns(t, s, 3)
	x.conns[1].socket.Close()
	x.conns[0].closed()
	x.conns[2].closed()
	rig.Eventually(t, "the session ends", func() bool { return s.Sessions() == 0 })
}

// TestServeSameNumber: two connections with the same CmdSN end the session, because nothing
// tells which of the two commands is meant.
func TestServeSameNumber(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	x := newManyConns(t, s, 2)
	first, second := x.number(), x.number()
	x.send(0, pdu.OpCommand, 11, second, nil)
	x.send(1, pdu.OpCommand, 12, second, nil)
	x.quiet(0)
	x.ping(0, 13, first)
	x.expect(0, pdu.OpNOPIn, 13)
	x.conns[1].socket.Write(make([]byte, pdu.HeaderLen)) // wakes it, unless it has ended already
	rig.Eventually(t, "the session ends", func() bool { return s.Sessions() == 0 })
}
