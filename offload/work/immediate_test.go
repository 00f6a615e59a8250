package work

import (
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
)

// Immediate Data and the operands of atomic operations lie at the documented offsets,
// seen through another mapping, and come out as they were posted.
func TestPostedImmediateAndOperands(t *testing.T) {
	const slot, elements, inline = 96, 3, 40
	one, other := twice(t, SendRingLen(8, elements, inline))
	ring, err := NewSendRing(one, 8, elements, inline)
	if err != nil {
		t.Fatal(err)
	}
	var q SendQueue
	q.Init(ring, 8, elements, inline)
	all := []SendWR{
		{ID: 1, Op: WRWriteImm, RemoteAddr: 9, RKey: 10, SGL: []SGE{{1, 2, 3}, {4, 5, 6}}, Imm: 0x1122334455667788},
		{ID: 2, Op: WRWriteImm, Inline: []byte("inline data"), Imm: 0x99},
		{ID: 3, Op: WRSendImm, Imm: 1<<64 - 1},
		{ID: 4, Op: WRMaskedCompareSwap, SGL: []SGE{{1, 8, 3}}, CompareAdd: 11, Swap: 12, CompareAddMask: 13, SwapMask: 14},
		{ID: 5, Op: WRFetchAdd, SGL: []SGE{{1, 8, 3}}, CompareAdd: 15},
	}
	if n := q.Post(all); n != len(all) {
		t.Fatalf("%d were posted", n)
	}
	u32 := func(i, at int) uint32 { return ne.Uint32(other[192+i*slot+at:]) }
	u64 := func(i, at int) uint64 { return ne.Uint64(other[192+i*slot+at:]) }
	if u32(0, 20) != 0x55667788 || u32(0, 24) != 0x11223344 || u32(0, 36) != 0 || u64(0, 32) != 1 {
		t.Error("a Write with Immediate lies elsewhere")
	}
	if u32(1, 20) != 0x99 || u32(1, 24) != 0 || u32(1, 28) != 1|11<<16|1<<24 || string(other[192+slot+32:][:11]) != "inline data" {
		t.Errorf("an inline Write with Immediate lies elsewhere: %#x", u32(1, 28))
	}
	if got := []uint64{u64(3, 48), u64(3, 56), u64(3, 64), u64(3, 72)}; !slices.Equal(got, []uint64{11, 12, 13, 14}) {
		t.Errorf("operands: %v", got)
	}
	for i, wr := range all {
		w := q.Next()
		if n := uint32(len(wr.Inline)); n != 0 && (w.Length != n || !w.Inline || w.SGEs != 0 || w.Excess) {
			t.Errorf("%v inline: %+v", wr.Op, w)
		}
		pos := q.Begin()
		want := Operands{wr.CompareAdd, wr.Swap, wr.CompareAddMask, wr.SwapMask}
		if wr.Op.immediate() && q.Immediate(pos) != wr.Imm {
			t.Errorf("request %d: Immediate Data %#x", i, q.Immediate(pos))
		}
		if wr.Op.operands() != 0 && q.Operands(pos, wr.Op) != want {
			t.Errorf("request %d: operands %+v", i, q.Operands(pos, wr.Op))
		}
	}
}

// A slot is as long as without atomic operations. An operation that does not fit writes
// nothing into the next slot.
func TestOperandsWithoutRoom(t *testing.T) {
	for _, c := range []struct {
		elements, inline int
		plain, masked    bool
	}{{1, 0, true, false}, {2, 32, true, false}, {3, 0, true, true}, {1, 33, true, true}, {4, 64, true, true}, {0, 0, false, false}} {
		if plain, masked := Room(WRFetchAdd, c.elements, c.inline), Room(WRMaskedFetchAdd, c.elements, c.inline); plain != c.plain || masked != c.masked {
			t.Errorf("%d elements, %d octets inline: room %v, masked %v", c.elements, c.inline, plain, masked)
		}
	}
	if !Room(WRWriteImm, 0, 0) || !Room(WRRead, 0, 0) {
		t.Error("other operations need more than their list")
	}
	var q SendQueue
	q.Init(nil, 2, 1, 0)
	q.Post([]SendWR{{}})
	q.Begin()
	q.GiveBack(0, 1)
	q.Post([]SendWR{{ID: 1, Op: WRMaskedFetchAdd, SGL: []SGE{{1, 8, 3}}, CompareAddMask: 1<<64 - 1, SwapMask: 1<<64 - 1}})
	if s := q.ring.slots.send(2); s.id != 0 {
		t.Errorf("the next slot has ID %#x", s.id)
	}
}

// Immediate Data of more than 32 bits takes the place of two fields of a cell. Shorter
// Immediate Data takes the place of one, and the length stays.
func TestCompletionWithImmediate(t *testing.T) {
	mem, other := twice(t, CQRingLen(4))
	c, err := NewCQIn(mem, 4, new(signal.Board))
	if err != nil {
		t.Fatal(err)
	}
	c.News.Fire = func() {}
	want := []Completion{
		{ID: 1, Op: WCRecvImm, Solicited: true, QP: 7, WithImm: true, Imm: 0x1122334455667788},
		{ID: 2, Op: WCRecv, QP: 7, Invalidated: 5, Length: 6},
		{ID: 3, Op: WCRecvImm, QP: 7, WithImm: true},
		{ID: 4, Op: WCRecv, QP: 7, WithImm: true, Imm: 1<<32 - 1, Length: 1<<32 - 2},
	}
	for _, w := range want {
		c.Push(new(Places), w, false)
	}
	for i, cell := range [][3]uint32{{1, 0x55667788, 0x11223344}, {0, 5, 6}, {2, 0, 0}, {2, 1<<32 - 1, 1<<32 - 2}} {
		at := other[192+32*i:]
		if got := [3]uint32{uint32(at[19]), ne.Uint32(at[20:]), ne.Uint32(at[24:])}; got != cell {
			t.Errorf("cell %d has %x, want %x", i, got, cell)
		}
	}
	got := make([]Completion, 4)
	if got = got[:c.Poll(got)]; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
