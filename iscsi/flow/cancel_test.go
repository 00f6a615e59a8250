package flow

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestCancelRead: after the completion no octet of the target reaches the buffer, and the
// PDUs for it are only counted.
func TestCancelRead(t *testing.T) {
	e := begin(t, usual(), 2)
	g := guardedBuf(300)
	want := pattern(300, 2)
	p := e.post(Command{ID: 1, LUN: 9, CDB: read10, In: [][]byte{g.buf}})[0]
	tag := p.h.InitiatorTaskTag()
	half := e.dataIn(tag, 0, 0, 0, want[:150])
	rest := slices.Concat(half[100:], e.dataIn(tag, 1, 150, pdu.Final|pdu.StatusPresent, want[150:]))
	e.hears(half[:100])
	if e.q.Cancel(2) {
		t.Error("canceled what is not there")
	}
	if !e.q.Cancel(1) {
		t.Fatal("nothing to cancel")
	}
	e.sent()
	if c := e.done(); c.ID != 1 || c.Why != Canceled || !c.Sent {
		t.Errorf("%+v", c)
	}
	v, ok := e.event()
	if h := v.Header; !ok || v.Why != Canceled || h.Opcode() != pdu.OpTask || h.Function() != pdu.AbortTask || h.ReferencedTaskTag() != tag || h.RefCmdSN() != p.h.CmdSN() || h.LUN() != 9 || !h.Immediate() {
		t.Errorf("%v %+v", ok, v)
	}
	before := bytes.Clone(g.all)
	e.hears(rest)
	if !bytes.Equal(before, g.all) {
		t.Error("octets were placed after the completion")
	}
	e.hears(e.dataIn(tag, 2, 0, 0, want[:10]))
	if _, ok := e.event(); ok || e.f.stats.StaleRefused != 3 || e.w.aborted {
		t.Errorf("event %v, %d stale PDUs, aborted %v", ok, e.f.stats.StaleRefused, e.w.aborted)
	}
	tag = e.post(Command{ID: 3, CDB: read10, In: [][]byte{g.buf}})[0].h.InitiatorTaskTag()
	e.hears(e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, want))
	if c := e.done(); c.ID != 3 || c.Why != OK || !bytes.Equal(g.buf, want) {
		t.Errorf("%+v", c)
	}
}

// TestCancelWrite: the PDU that is leaving leaves whole and right, though the buffer is the
// application's again.
func TestCancelWrite(t *testing.T) {
	for _, p := range []struct{ immediate, initial bool }{{true, true}, {true, false}, {false, false}} {
		par := usual()
		par.ImmediateData, par.InitialR2T = p.immediate, p.initial
		for room := 1; room < 8192; room += 611 {
			e := begin(t, par, 2)
			data := pattern(20000, 7)
			if _, err := e.q.Post(Command{ID: 1, CDB: write10, Out: [][]byte{data[:5000], data[5000:]}}); err != nil {
				t.Fatal(err)
			}
			e.w.room, e.w.max = room, 500
			e.f.Transmit(1, e.w)
			e.q.Cancel(1)
			e.w.room = 0
			e.f.Transmit(1, e.w)
			if c := e.done(); c.Why != Canceled {
				t.Fatalf("%+v", c)
			}
			for i := range data {
				data[i] = 0xff
			}
			e.w.room = -1
			got := e.sent()
			want := pattern(20000, 7)
			for i, x := range got {
				if off := int(x.h.BufferOffset()); x.h.Opcode() == pdu.OpDataOut && !bytes.Equal(x.data, want[off:off+len(x.data)]) || i == 0 && p.immediate && !bytes.Equal(x.data, want[:8192]) {
					t.Fatalf("room %d: PDU %d has octets of another owner", room, i)
				}
			}
			if len(got) > 2 {
				t.Errorf("room %d: %d PDUs left", room, len(got))
			}
		}
	}
}

// TestCancelBefore: a command that waits for the window, or has not been seen, completes
// without having left.
func TestCancelBefore(t *testing.T) {
	p := usual()
	p.MaxCmdSN = p.CmdSN
	e := begin(t, p, 3)
	c := Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 8)}}
	e.post(c)
	c.ID = 2
	e.post(c)
	e.q.Cancel(2)
	e.sent()
	if d := e.done(); d.ID != 2 || d.Why != Canceled || d.Sent {
		t.Errorf("%+v", d)
	}
	c.ID = 3
	e.q.Post(c)
	e.q.Cancel(3)
	e.sent()
	if d := e.done(); d.ID != 3 || d.Why != Canceled || d.Sent {
		t.Errorf("%+v", d)
	}
	if _, ok := e.event(); ok {
		t.Error("an event asks to abort what has not left")
	}
}

// TestCancelAgainstDataIn cancels at every moment of Data-In, again and again: no octet is
// placed after the completion, and each command completes once. With STAG_LONG=1 it does so
// 100,000 times.
func TestCancelAgainstDataIn(t *testing.T) {
	rounds := 20_000
	switch {
	case os.Getenv("STAG_LONG") == "1":
		rounds = 100_000
	case testing.Short():
		rounds = 1000
	}
	p := usual()
	p.Digests = pdu.Digests{Data: true}
	p.MaxCmdSN = p.CmdSN + 1<<30
	e := begin(t, p, 4)
	luck := rand.New(rand.NewPCG(1, 2))
	g := guardedBuf(64)
	want := pattern(64, 1)
	canceled := 0
	for i := range rounds {
		clear(g.buf)
		tag := e.post(Command{ID: uint64(i), CDB: read10, In: [][]byte{g.buf}})[0].h.InitiatorTaskTag()
		octets := slices.Concat(e.dataIn(tag, 0, 0, 0, want[:32]), e.dataIn(tag, 1, 32, pdu.Final|pdu.StatusPresent, want[32:]))
		cut := luck.IntN(len(octets) + 1)
		if cut != 0 {
			e.hears(octets[:cut])
		}
		e.q.Cancel(uint64(i))
		e.sent()
		c := e.done()
		before := bytes.Clone(g.all)
		if cut != len(octets) {
			e.hears(octets[cut:])
		}
		if c.Why == Canceled {
			canceled++
			e.event()
		} else if cut != len(octets) || !bytes.Equal(g.buf, want) {
			t.Fatalf("round %d: %v", i, c.Why)
		}
		if !bytes.Equal(before, g.all) {
			t.Fatalf("round %d: octets were placed after the completion", i)
		}
		e.none()
		if _, ok := e.event(); ok {
			t.Fatalf("round %d: an event", i)
		}
	}
	if canceled < rounds/2 {
		t.Errorf("%d of %d canceled", canceled, rounds)
	}
}
