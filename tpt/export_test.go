package tpt

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/pack"
)

const movedHeap = 1 << 16

// movable makes a table with regions, windows and free entries of all kinds.
func movable(t *testing.T) (table *Table, pd, other PD, list []STag) {
	t.Helper()
	table, err := New(Config{Entries: 64, Heap: make([]byte, movedHeap), Seed: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	luck := rand.New(rand.NewPCG(1, 1))
	for i := range table.heap {
		table.heap[i] = byte(luck.Uint32())
	}
	must := func(s STag, err error) STag {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
		return s
	}
	pd, _ = table.NewPD()
	gone, _ := table.NewPD()
	other, _ = table.NewPD()
	if err := table.FreePD(gone); err != nil {
		t.Fatal(err)
	}
	const all = LocalRead | LocalWrite | RemoteRead | RemoteWrite | Bind | RemoteInvalidate
	a := must(table.Register(Region{PD: pd, Memory: table.heap[100:300], Start: 7000, Rights: all}))
	must(table.Register(Region{PD: other, Memory: table.heap[movedHeap-50:], Rights: LocalWrite, OneTouch: true, QP: 9}))
	w := must(table.AllocWindow(pd, Type2A))
	if _, f := table.Bind(&Binding{STag: w, Region: a, PD: pd, QP: 5, TO: 7010, Len: 20, Rights: RemoteRead}); f != OK {
		t.Fatal(f)
	}
	must(table.AllocWindow(pd, Type1))
	revoked := must(table.Register(Region{PD: pd, Memory: table.heap[:1], Rights: all}))
	if err := table.Invalidate(revoked, pd); err != nil {
		t.Fatal(err)
	}
	freed := must(table.Register(Region{PD: pd, Memory: table.heap[:1], Rights: all}))
	if err := table.Deregister(freed, pd); err != nil {
		t.Fatal(err)
	}
	return table, pd, other, list
}

// carried gives the contents of a table to one of another process. With keep, the new table
// has the memory of the old one.
func carried(t *testing.T, from *Table, entries uint32, keep bool) *Table {
	t.Helper()
	state, err := from.Export()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Entries: entries, Heap: slices.Clone(from.heap), Seed: [32]byte{2}, Keep: keep}
	to, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if keep {
		to.entries, to.own, to.slots.entries = from.entries, from.own, from.entries
	}
	before := slices.Clone(words(to))
	if err := to.Restore(state); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Register(Region{PD: from.lastPD, Memory: to.heap[:1]}); !errors.Is(err, ErrTableFull) {
		t.Errorf("registered before Continue: %v", err)
	}
	if keep && !slices.Equal(before, words(to)) {
		t.Error("Restore has written to the memory of the other process")
	}
	to.Continue()
	return to
}

// words returns everything that is in the memory of a table.
func words(t *Table) (all []entryFields) {
	for i := range t.entries {
		f := t.entries[i].contents()
		f.sequence ^= uint64(t.entries[i].load()) << 1
		all = append(all, f)
	}
	return all
}

// TestTableMoves: every STag has the same meaning in the new table, over the same offsets
// of the heap, and the new table goes on.
func TestTableMoves(t *testing.T) {
	for _, how := range []struct {
		entries uint32
		keep    bool
	}{{64, false}, {256, false}, {64, true}} {
		from, pd, other, list := movable(t)
		to := carried(t, from, how.entries, how.keep)
		for i := range uint32(64) {
			a, okA := from.Entry(i)
			b, okB := to.Entry(i)
			if a != b || okA != okB {
				t.Fatalf("entry %d: %+v, want %+v", i, b, a)
			}
		}
		for i, s := range list {
			for _, x := range []Access{
				{STag: s, PD: pd, Right: RemoteRead, TO: 7012, Len: 5, QP: 5}, {STag: s, PD: other, Right: LocalWrite, TO: 0, Len: 50, QP: 9},
				{STag: s, PD: pd, Right: RemoteWrite, TO: 7000, Len: 200}, {STag: s + 1, PD: pd, Right: LocalRead, TO: 7000, Len: 1},
			} {
				had, f := from.Check(x)
				got, g := to.Check(x)
				if f != g || !slices.Equal(had, got) {
					t.Errorf("STag %d, %+v: %v, want %v", i, x, g, f)
				}
			}
		}
		if err := to.FreePD(other); !errors.Is(err, ErrPDBusy) {
			t.Errorf("a protection domain with a region was freed: %v", err)
		}
		if pd, err := to.NewPD(); err != nil || pd <= other {
			t.Errorf("next protection domain %d: %v", pd, err)
		}
		if err := to.Deregister(list[0], pd); !errors.Is(err, ErrBound) {
			t.Errorf("a region with a window was deregistered: %v", err)
		}
	}
}

// TestRestoredTableIsUsedUp: the new table hands out every free entry once, those that
// were never used first, and no STag that was valid before.
func TestRestoredTableIsUsedUp(t *testing.T) {
	from, pd, _, list := movable(t)
	to := carried(t, from, 64, true)
	seen := map[uint32]bool{}
	for n := 63 - 5; n > 0; n-- { // 5 of the STags are in use
		s, err := to.Register(Region{PD: pd, Memory: to.heap[:1], Rights: LocalWrite})
		if err != nil {
			t.Fatal(err)
		}
		if seen[s.Index()] || slices.Contains(list, s) {
			t.Fatalf("STag %v is not new", s)
		}
		if last := list[5].Index(); (s.Index() == last) != (n == 1) && n > 8 {
			t.Fatalf("the entry that was freed last is used again, and %d others are free", n)
		}
		seen[s.Index()] = true
	}
	if _, err := to.Register(Region{PD: pd, Memory: to.heap[:1], Rights: LocalWrite}); !errors.Is(err, ErrTableFull) {
		t.Errorf("one entry too many: %v", err)
	}
}

// TestTableStays: memory that another process cannot have is refused by name.
func TestTableStays(t *testing.T) {
	for name, region := range map[string]func(*Table) Region{
		"memory of the program": func(*Table) Region { return Region{Memory: make([]byte, 10)} },
		"a page list": func(t *Table) Region {
			return Region{Pages: [][]byte{t.heap[:4096], t.heap[8192:12288]}, PageSize: 4096}
		},
	} {
		table, pd, _, _ := movable(t)
		r := region(table)
		r.PD, r.Rights = pd, LocalWrite
		s, err := table.Register(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.CanExport(); !errors.Is(err, ErrStays) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := table.Export(); !errors.Is(err, ErrStays) {
			t.Errorf("%s: %v", name, err)
		}
		if err := table.Deregister(s, pd); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Export(); err != nil {
			t.Errorf("%s, deregistered: %v", name, err)
		}
	}
	table, _, _, _ := movable(t)
	state, _ := table.Export()
	for name, c := range map[string]Config{"fewer entries": {Entries: 32, Heap: table.heap}, "another heap": {Entries: 64, Heap: table.heap[:4096]}} {
		to, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Restore(state); err == nil {
			t.Errorf("restored with %s", name)
		}
	}
}

// TestDamagedTable changes octets of an encoded table: it is refused, or its regions lie
// within the heap.
func TestDamagedTable(t *testing.T) {
	from, pd, other, _ := movable(t)
	good, err := from.Export()
	if err != nil {
		t.Fatal(err)
	}
	luck := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for range 3000 {
		b := slices.Clone(good)
		for range 1 + luck.IntN(3) {
			b[12+luck.IntN(len(b)-12)] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(luck.Uint32())}[luck.IntN(6)]
		}
		to, err := New(Config{Entries: 64, Heap: from.heap, Seed: [32]byte{2}})
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Restore(b); err != nil {
			refused++
			continue
		}
		for i := range uint32(64) {
			if info, ok := to.Entry(i); ok {
				for _, pd := range []PD{pd, other} {
					to.Check(Access{STag: info.STag, PD: pd, QP: info.QP, Right: LocalRead, TO: info.Start, Len: uint32(min(info.Length, 1<<32-1))})
				}
			}
		}
		to.Continue()
		for _, err = to.NewPD(); err == nil && luck.IntN(3) != 0; _, err = to.NewPD() {
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
	to, err := New(Config{Entries: 64, Heap: from.heap})
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Restore(good[:len(good)-1]); !errors.Is(err, pack.ErrCorrupt) {
		t.Errorf("cut: %v", err)
	}
}
