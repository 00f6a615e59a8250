package tpt

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestView checks that a View of the table that is mapped read-only shows the same as
// the table. In memory that is not a table, NewView and Entry find nothing.
func TestView(t *testing.T) {
	const entries = 64
	fd, err := unix.MemfdCreate("table", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, entries*EntryLen); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, entries*EntryLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	seen, err := unix.Mmap(fd, 0, entries*EntryLen, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(seen)

	table, err := New(Config{Entries: entries, Memory: mem, Owner: 7})
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewView(seen)
	if err != nil || v.Len() != entries {
		t.Fatalf("a view of %d entries, %v", v.Len(), err)
	}
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	stag, err := table.Register(Region{PD: pd, Memory: make([]byte, 100), Rights: RemoteRead})
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for i := range v.Len() {
		info, ok := v.Entry(i)
		want, there := table.Entry(i)
		if ok != there || info != want {
			t.Errorf("entry %d: %+v, %v; the owner sees %+v, %v", i, info, ok, want, there)
		}
		if ok {
			used++
			if info.STag != stag || info.Length != 100 || info.Owner != 7 {
				t.Errorf("entry %d: %+v", i, info)
			}
		}
	}
	if used != 1 {
		t.Errorf("%d entries are used, want 1", used)
	}
	if _, ok := v.Entry(entries); ok {
		t.Error("an entry behind the last")
	}
	if _, err := NewView(mem[:EntryLen+1]); err == nil {
		t.Error("part of an entry was taken")
	}
}
