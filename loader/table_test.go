package loader_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

func mustTable(t *testing.T, entries uint32, pin string) *loader.Table {
	t.Helper()
	need.Root(t)
	table, err := loader.NewTable(entries, 512, pin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// TestTableIsTheMap checks that readers of the map see what is written to the memory.
func TestTableIsTheMap(t *testing.T) {
	for _, entries := range []uint32{64, 1 << 16} {
		table := mustTable(t, entries, "")
		mem := table.Memory()
		if table.Entries() != entries || len(mem) != int(entries)*bpf.EntryLen || len(table.PageMemory()) != 512*bpf.PageLen {
			t.Fatalf("%d entries in %d octets, pages in %d; want %d and 512", table.Entries(), len(mem), len(table.PageMemory()), entries)
		}
		last := entries - 1
		mem[last*bpf.EntryLen+7] = 0xa5
		fd, err := unix.FcntlInt(uintptr(table.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ebpf.NewMapFromFD(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var value [bpf.EntryLen]byte
		if err := m.Lookup(last, &value); err != nil || value[7] != 0xa5 {
			t.Errorf("entry %d: % x, %v", last, value, err)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		if err := table.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	}
}

func TestTableSizes(t *testing.T) {
	need.Root(t)
	for _, entries := range []uint32{0, 1, 32, 65, 100, 1<<24 + 1, 1 << 25} {
		if table, err := loader.NewTable(entries, 512, ""); err == nil {
			table.Close()
			t.Errorf("a table of %d entries was made", entries)
		}
	}
	for _, pages := range []uint32{0, 511, 1<<28 + 1} {
		table, err := loader.NewTable(64, pages, "")
		if rig.Says(t, err, nil, "512 to 268435456"); err == nil {
			table.Close()
		}
	}
}

func TestPinnedTable(t *testing.T) {
	need.Root(t)
	t.Cleanup(func() { os.RemoveAll(instance) })
	_, err := loader.NewTable(0, 512, instance)
	rig.Says(t, err, loader.ErrNotPinned, instance)

	table := mustTable(t, 128, instance)
	table.Memory()[64] = 7
	_, err = loader.NewTable(128, 512, instance)
	rig.Says(t, err, loader.ErrTableBusy, fmt.Sprintf("pid %d", os.Getpid()))
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	for _, entries := range []uint32{0, 128} {
		again := mustTable(t, entries, instance)
		if again.Entries() != 128 || again.Memory()[64] != 7 {
			t.Errorf("asked for %d: %d entries, octet 64 is %d", entries, again.Entries(), again.Memory()[64])
		}
		again.Close()
	}
	larger := mustTable(t, 256, instance) // no process uses the old table
	if larger.Entries() != 256 || larger.Memory()[64] != 0 {
		t.Errorf("%d entries, octet 64 is %d", larger.Entries(), larger.Memory()[64])
	}
	_, err = loader.NewTable(128, 512, instance)
	rig.Says(t, err, loader.ErrTableBusy, fmt.Sprintf("pid %d", os.Getpid()))
	rig.Says(t, unload(), loader.ErrQueueBusy, fmt.Sprintf("pid %d", os.Getpid()))
	larger.Close()
	if err := unload(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(instance); !os.IsNotExist(err) {
		t.Errorf("unloaded, and still there: %v", err)
	}
}

// TestPinnedPages checks that the page lists of an instance stay, and that an array of
// another size is replaced.
func TestPinnedPages(t *testing.T) {
	t.Cleanup(func() { os.RemoveAll(instance) })
	table := mustTable(t, 128, instance)
	table.PageMemory()[8] = 7
	table.Close()
	for _, c := range []struct {
		entries, pages uint32
		octets         int
		want           byte
	}{{128, 512, 4096, 7}, {0, 1024, 4096, 7}, {128, 1000, 8000, 0}, {256, 1000, 8000, 0}} {
		again, err := loader.NewTable(c.entries, c.pages, instance)
		if err != nil {
			t.Fatal(err)
		}
		if mem := again.PageMemory(); len(mem) != c.octets || mem[8] != c.want {
			t.Errorf("%+v: %d octets, and octet 8 is %d", c, len(mem), mem[8])
		}
		again.Close()
	}
	if err := os.Remove(instance + "/att"); err != nil {
		t.Fatal(err)
	}
	if mem := mustTable(t, 0, instance).PageMemory(); len(mem) != 4096 {
		t.Errorf("an instance that has lost its page lists: %d octets", len(mem))
	}
}

// TestPinnedTableOfAnotherLayout checks that a table of another version is refused.
func TestPinnedTableOfAnotherLayout(t *testing.T) {
	need.Root(t)
	t.Cleanup(func() { os.RemoveAll(instance) })
	mustTable(t, 64, instance).Close()
	m, err := ebpf.LoadPinnedMap(instance+"/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	other := bpf.Layout()
	other.Version = 77
	if err := m.Put(uint32(0), other); err != nil {
		t.Fatal(err)
	}
	_, err = loader.NewTable(64, 512, instance)
	rig.Says(t, err, loader.ErrLayout, "version 77", fmt.Sprintf("version %d", bpf.Version))
}

// TestPinnedTableIsATable checks that NewTable does not write to another object under
// the table's name.
func TestPinnedTableIsATable(t *testing.T) {
	need.Root(t)
	for name, c := range map[string]struct {
		of   string
		spec ebpf.MapSpec
	}{
		"not to be mapped":        {"tpt", ebpf.MapSpec{Type: ebpf.Array, ValueSize: bpf.EntryLen, MaxEntries: 64}},
		"small values":            {"tpt", ebpf.MapSpec{Type: ebpf.Array, ValueSize: 32, MaxEntries: 64, Flags: unix.BPF_F_MMAPABLE}},
		"odd length":              {"tpt", ebpf.MapSpec{Type: ebpf.Array, ValueSize: bpf.EntryLen, MaxEntries: 65, Flags: unix.BPF_F_MMAPABLE}},
		"hash":                    {"tpt", ebpf.MapSpec{Type: ebpf.Hash, ValueSize: bpf.EntryLen, MaxEntries: 64}},
		"pages not to be mapped":  {"att", ebpf.MapSpec{Type: ebpf.Array, ValueSize: bpf.PageLen, MaxEntries: 512}},
		"entries of another size": {"att", ebpf.MapSpec{Type: ebpf.Array, ValueSize: 16, MaxEntries: 512, Flags: unix.BPF_F_MMAPABLE}},
		"few pages":               {"att", ebpf.MapSpec{Type: ebpf.Array, ValueSize: bpf.PageLen, MaxEntries: 511, Flags: unix.BPF_F_MMAPABLE}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { os.RemoveAll(instance) })
			mustTable(t, 64, instance).Close()
			if err := os.Remove(instance + "/" + c.of); err != nil {
				t.Fatal(err)
			}
			c.spec.KeySize = 4
			m, err := ebpf.NewMap(&c.spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Pin(instance + "/" + c.of); err != nil {
				t.Fatal(err)
			}
			_, err = loader.NewTable(0, 512, instance)
			rig.Says(t, err, loader.ErrLayout, instance+"/"+c.of)
		})
	}
}

// TestTableNotInABPFFS checks the error for a directory outside a BPF file system.
func TestTableNotInABPFFS(t *testing.T) {
	need.Root(t)
	_, err := loader.NewTable(64, 512, t.TempDir()+"/x")
	rig.Says(t, err, loader.ErrNoBPFFS)
}

// TestLoadMakesNoTable checks that a load makes no table. The adapter makes one for all
// interfaces.
func TestLoadMakesNoTable(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{})
	for _, name := range mapsOpen(t) {
		if name == bpf.MapTable || name == bpf.MapPages {
			t.Errorf("a map %s was made", name)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// mapsOpen returns the names of the maps that this process has open.
func mapsOpen(t *testing.T) (names []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		text, err := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
		if err != nil {
			continue // the directory's own descriptor, which is closed now
		}
		_, rest, found := strings.Cut(string(text), "map_id:")
		if !found {
			continue
		}
		var id ebpf.MapID
		if _, err := fmt.Sscan(rest, &id); err != nil {
			t.Fatal(err)
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		m.Close()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if len(names) < 3 {
		t.Fatalf("this process has maps %q: want flows, xsks and stats at least", names)
	}
	return names
}
