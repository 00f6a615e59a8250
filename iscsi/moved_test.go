package iscsi_test

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
)

// signpost is a portal that sends every initiator elsewhere.
func signpost(t *testing.T, to string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			sendOn(c, to)
		}
	}()
	return l.Addr().String()
}

// sendOn answers a login with another address (RFC 7143 §11.13.5, §13.8).
func sendOn(c net.Conn, to string) {
	defer c.Close()
	c.SetDeadline(rig.Deadline())
	var request, h pdu.Header
	if _, err := io.ReadFull(c, request[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(pdu.Padded(request.DataLength()))); err != nil {
		return
	}
	text := []byte("TargetAddress=" + to + "\x00")
	h.Reset(pdu.OpLoginResponse)
	h.SetISID(request.ISID())
	h.SetInitiatorTaskTag(request.InitiatorTaskTag())
	h.SetExpCmdSN(request.CmdSN())
	h.SetMaxCmdSN(request.CmdSN())
	h.SetLoginStatus(pdu.TargetMovedTemporarily)
	h.SetDataLength(len(text))
	c.Write(append(h[:], append(text, make([]byte, pdu.Pad(len(text)))...)...))
	io.Copy(io.Discard, c)
}

// TestTargetMoves: the login after a loss is sent to another portal. When that portal is
// lost too, the session asks at the portal of its URL again.
func TestTargetMoves(t *testing.T) {
	b := ram(t, 1<<20)
	first, second := serveOn(t, b, nil), serveOn(t, b, nil)
	r := newRelay(t, first.Addr().String())
	away := newRelay(t, second.Addr().String())
	d, err := iscsi.Dial(context.Background(), "iscsi://"+r.l.Addr().String()+"/"+ownTarget+"/1", iscsi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { rig.Check(t, d.Close()) }()
	want, got := random(4096, 5), make([]byte, 4096)
	post := signpost(t, away.l.Addr().String())
	r.to.Store(&post)
	r.cut()
	if _, err := d.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if p := d.Session().Portal(); p != away.l.Addr().String() || second.Sessions() != 1 {
		t.Errorf("portal %s, %d sessions", p, second.Sessions())
	}
	back := first.Addr().String()
	r.to.Store(&back)
	away.l.Close()
	away.cut()
	if _, err := d.ReadAt(got, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("a read: %v, equal %v", err, slices.Equal(got, want))
	}
	if p := d.Session().Portal(); p != r.l.Addr().String() {
		t.Errorf("portal %s", p)
	}
}
