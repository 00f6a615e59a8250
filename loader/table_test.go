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
	table, err := loader.NewTable(entries, pin)
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
		if table.Entries() != entries || len(mem) != int(entries)*bpf.EntryLen {
			t.Fatalf("%d entries in %d octets, want %d", table.Entries(), len(mem), entries)
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
		if table, err := loader.NewTable(entries, ""); err == nil {
			table.Close()
			t.Errorf("a table of %d entries was made", entries)
		}
	}
}

func TestPinnedTable(t *testing.T) {
	need.Root(t)
	t.Cleanup(func() { os.RemoveAll(instance) })
	_, err := loader.NewTable(0, instance)
	rig.Says(t, err, loader.ErrNotPinned, instance)

	table := mustTable(t, 128, instance)
	table.Memory()[64] = 7
	_, err = loader.NewTable(128, instance)
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
	_, err = loader.NewTable(128, instance)
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
	_, err = loader.NewTable(64, instance)
	rig.Says(t, err, loader.ErrLayout, "version 77", fmt.Sprintf("version %d", bpf.Version))
}

// TestPinnedTableIsATable checks that NewTable does not write to another object under
// the table's name.
func TestPinnedTableIsATable(t *testing.T) {
	need.Root(t)
	for name, spec := range map[string]ebpf.MapSpec{
		"not to be mapped": {Type: ebpf.Array, ValueSize: bpf.EntryLen, MaxEntries: 64},
		"small values":     {Type: ebpf.Array, ValueSize: 32, MaxEntries: 64, Flags: unix.BPF_F_MMAPABLE},
		"odd length":       {Type: ebpf.Array, ValueSize: bpf.EntryLen, MaxEntries: 65, Flags: unix.BPF_F_MMAPABLE},
		"hash":             {Type: ebpf.Hash, ValueSize: bpf.EntryLen, MaxEntries: 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { os.RemoveAll(instance) })
			mustTable(t, 64, instance).Close()
			if err := os.Remove(instance + "/tpt"); err != nil {
				t.Fatal(err)
			}
			spec.KeySize = 4
			m, err := ebpf.NewMap(&spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Pin(instance + "/tpt"); err != nil {
				t.Fatal(err)
			}
			_, err = loader.NewTable(0, instance)
			rig.Says(t, err, loader.ErrLayout, instance+"/tpt")
		})
	}
}

// TestTableNotInABPFFS checks the error for a directory outside a BPF file system.
func TestTableNotInABPFFS(t *testing.T) {
	need.Root(t)
	_, err := loader.NewTable(64, t.TempDir()+"/x")
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
