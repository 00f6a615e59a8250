package unit

import "testing"

// A command that must be atomic waits for writes into lent memory of its blocks, and keeps
// new ones from it.
func TestClaims(t *testing.T) {
	r := newRig(t)
	r.ram.lends = true
	lend := func(lba uint32, n uint16) (*Task, bool) {
		w := r.begin(r.b, cdb10(0x2a, 0, lba, n), int(n)*512)
		return w, r.unit.Lend(w) != nil
	}
	old, ok := lend(128, 8)
	far, ok2 := lend(512, 8)
	if !ok || !ok2 {
		t.Fatal("no memory")
	}
	for _, cdb := range []string{"89 00 00 00 00 00 00 00 00 85 00 00 00 01 00 00", cdb16(0x8b, 0, 0x85, 1), "9c 00 00 00 00 00 00 00 00 85 00 00 00 01 00 00"} {
		task := r.begin(r.a, cdb, 1024)
		c := r.unit.Claim(task)
		if r.unit.Claim(task) != c || c.Free() {
			t.Errorf("%s does not wait for the write", cdb)
		}
		if _, ok := lend(134, 1); ok {
			t.Errorf("%s: another write gets memory", cdb)
		}
		if _, ok := lend(0, 200); ok {
			t.Errorf("%s: a write gets memory that reaches into the claimed blocks", cdb)
		}
		if w, ok := lend(520, 8); !ok || r.unit.Settle(w) {
			t.Errorf("%s keeps a write of other blocks away", cdb)
		}
		if !r.unit.Settle(old) || r.unit.Settle(old) || !c.Free() {
			t.Errorf("%s still waits for the write", cdb)
		}
		task.Data = make([]byte, min(task.Want, task.EDTL))
		if r.unit.Run(task); task.Status != Good {
			t.Errorf("%s: status %v", cdb, task.Status)
		}
		if old, ok = lend(128, 8); !ok {
			t.Errorf("%s: its claim has no end", cdb)
		}
	}
	if r.unit.Settle(old) || r.unit.Settle(far) {
		t.Error("somebody waits")
	}
	for i := range r.unit.loans.regions {
		if n := r.unit.loans.regions[i].Load(); n != 0 {
			t.Fatalf("counter %d is %x", i, n)
		}
	}
}
