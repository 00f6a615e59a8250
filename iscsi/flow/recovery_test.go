package flow

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// keeping makes an end whose commands survive the connection.
func keeping(t *testing.T, p login.Params, slots int) (e *end, control *Queue) {
	t.Helper()
	e = begin(t, p, slots)
	tags, err := e.table.ReserveTags(e.pd, slots+3)
	if err != nil {
		t.Fatal(err)
	}
	e.f = NewInitiator(Config{Params: p, Tags: tags, Board: e.f.board, Keep: true})
	e.f.News.Fire = func() {}
	e.q = e.f.NewQueue(0, slots)
	e.q.News().Fire = func() {}
	control = e.f.NewControlQueue(slots, 3)
	control.News().Fire = func() {}
	return e, control
}

// again begins another connection.
func (e *end) again(p login.Params) {
	e.p, e.statSN, e.w, e.heard = p, p.StatSN, newWire(), newCatcher(p.Digests)
	e.f.Restart(p)
}

// ping is a request for a control queue.
func ping() Command {
	var h pdu.Header
	h.Reset(pdu.OpNOPOut)
	h.SetImmediate(true)
	h.SetFlags(pdu.Final)
	h.SetTargetTransferTag(pdu.NoTag)
	return Command{Request: &h}
}

// TestKept: a write that has left half of its data, a read, and commands that have not left
// go to the next connection. They wait for the owner, and then leave in their old order, each
// as if for the first time. A tag of the old connection is refused.
func TestKept(t *testing.T) {
	p := usual()
	p.MaxCmdSN = p.CmdSN + 1
	e, control := keeping(t, p, 5)
	in, out := make([]byte, 64), pattern(20000, 3)
	old := e.post(Command{ID: 1, CDB: write10, Out: [][]byte{out}}, Command{ID: 2, CDB: read10, In: [][]byte{in}}, Command{ID: 3, CDB: read10, In: [][]byte{in}})
	if len(old) != 2 {
		t.Fatalf("%d PDUs", len(old))
	}
	e.hears(e.pdu(pdu.OpR2T, pdu.Tag(old[0].h.InitiatorTaskTag()), func(h *pdu.Header) { h.SetBufferOffset(8192); h.SetDesiredLength(8192) }, nil))
	e.sent()
	control.Post(ping())
	e.q.Post(Command{ID: 4, CDB: read10, In: [][]byte{in}})
	e.f.Fault(1, nil)

	var got [8]Completion
	if n := control.Poll(got[:]); n != 1 || got[0].Why != Lost || e.q.Ready() {
		t.Fatalf("%d requests ended, %v; the queue has completions: %v", n, got[0].Why, e.q.Ready())
	}
	if _, err := control.Post(ping()); err != ErrEnded {
		t.Errorf("a request without a connection: %v", err)
	}
	kept := e.f.Kept()
	if len(kept) != 2 || kept[0].CDB[0] != write10[0] || kept[1].CDB[0] != read10[0] || len(e.f.Kept()) != 0 {
		t.Fatalf("kept %+v", kept)
	}
	e.q.Post(Command{ID: 5, CDB: read10, In: [][]byte{in}})
	e.again(usual())
	if left := e.sent(); len(left) != 0 {
		t.Fatalf("%d PDUs leave before the owner says so", len(left))
	}
	control.Post(ping())
	if left := e.sent(); len(left) != 1 || left[0].h.Opcode() != pdu.OpNOPOut {
		t.Fatalf("the ping: %v", left)
	}
	for _, k := range kept {
		e.f.Release(k.Slot, OK)
	}
	left := e.sent()
	if len(left) != 2 || !bytes.Equal(left[0].data, out[:8192]) || left[0].h.CmdSN() != usual().CmdSN || left[0].h.InitiatorTaskTag() == old[0].h.InitiatorTaskTag() {
		t.Fatalf("released: %d PDUs", len(left))
	}
	e.f.Admit()
	left = append(left, e.sent()...)
	if len(left) != 5 {
		t.Fatalf("%d PDUs", len(left))
	}
	e.hears(e.dataIn(old[1].h.InitiatorTaskTag(), 0, 0, pdu.Final, pattern(64, 9)))
	if bytes.Equal(in, pattern(64, 9)) {
		t.Error("data for a tag of the old connection was placed")
	}
	for _, x := range left[1:] {
		e.hears(e.dataIn(x.h.InitiatorTaskTag(), 0, 0, pdu.Final|pdu.StatusPresent, pattern(64, 4)))
	}
	n := e.q.Poll(got[:])
	for i, c := range got[:n] {
		if c.ID != uint64(i+2) || c.Why != OK || c.Length != 64 {
			t.Errorf("completion %d: ID %d, %v, %d octets", i, c.ID, c.Why, c.Length)
		}
	}
	if n != 4 || !bytes.Equal(in, pattern(64, 4)) {
		t.Errorf("%d completions", n)
	}
}

// TestKeptEnds: without a connection, the owner ends kept commands, the application cancels
// those that have not left, and Finish ends the rest. Each completes once.
func TestKeptEnds(t *testing.T) {
	p := usual()
	p.MaxCmdSN = p.CmdSN
	e, _ := keeping(t, p, 4)
	c := Command{CDB: read10, In: [][]byte{make([]byte, 8)}}
	for id := range uint64(4) {
		c.ID = id
		e.q.Post(c)
		if id < 3 {
			e.sent()
		}
	}
	e.f.Fault(1, nil)
	kept := e.f.Kept()
	if len(kept) != 1 {
		t.Fatalf("kept %+v", kept)
	}
	if e.f.Canceled(kept[0].Slot) || !e.q.Cancel(0) || !e.f.Canceled(kept[0].Slot) {
		t.Error("the owner does not see the cancel")
	}
	e.q.Cancel(2)
	e.f.Release(kept[0].Slot, Uncertain)
	e.f.Settle(e.f.now)
	var got [8]Completion
	if n := e.q.Poll(got[:]); n != 2 || got[0].ID != 0 || got[0].Why != Uncertain || got[1].ID != 2 || got[1].Why != Canceled {
		t.Fatalf("%d completions: %+v", n, got[:n])
	}
	e.f.Finish()
	if n := e.q.Poll(got[:]); n != 2 || got[0].Why != Lost || got[1].Why != Lost || e.q.Room() != 4 {
		t.Fatalf("%d completions: %+v", n, got[:n])
	}
	if _, err := e.q.Post(c); err != ErrEnded {
		t.Errorf("a post after Finish: %v", err)
	}
}
