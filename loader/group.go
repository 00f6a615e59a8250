package loader

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/undo"
)

// GroupRoot is the directory in a BPF file system in which each group of processes has a
// directory of its own name:
//
//	<group>/config  the layouts of the maps
//	<group>/tpt     the table that the processes share
//	<group>/epochs  the epochs of its readers
const GroupRoot = "/sys/fs/bpf/stag-groups"

// mapEpochs is the name of the array of epochs.
const mapEpochs = "epochs"

// GroupTable is the memory of a translation and protection table that a group of processes
// shares: an array of entries and an array of epochs, both pinned. A BPF array cannot
// become shorter, so no process can take the memory from another.
type GroupTable struct {
	entries, epochs array
	undo            undo.Stack
}

// OpenGroupTable opens the table of the group in a directory below GroupRoot and maps it.
// If there is none, it makes one of that many entries, a power of two from 64 to 16777216,
// and of epochs octets of epochs, a multiple of 4096. The caller must hold the group's
// lock, and must close the table. OpenGroupTable needs CAP_BPF.
//
// Errors: ErrLayout if the arrays have other layouts or sizes. ErrPermission if the
// directory is another user's. ErrNoBPFFS.
func OpenGroupTable(name string, entries uint32, epochs int) (*GroupTable, error) {
	if entries < minEntries || entries > maxEntries || bits.OnesCount32(entries) != 1 {
		return nil, fmt.Errorf("table of %d entries: want a power of two, %d to %d", entries, minEntries, maxEntries)
	}
	dir := filepath.Join(GroupRoot, name)
	if err := CheckBPFFS(dir); err != nil {
		return nil, err
	}
	for _, d := range []string{GroupRoot, dir} {
		if err := OwnDir(d); err != nil {
			return nil, err
		}
	}
	g := &GroupTable{}
	if err := g.open(&pinDir{instance: dir}, entries, epochs); err != nil {
		return nil, errors.Join(err, g.undo.Run())
	}
	return g, nil
}

func (g *GroupTable) open(p *pinDir, entries uint32, epochs int) (err error) {
	g.entries.Map, err = p.openArray(bpf.MapTable)
	if errors.Is(err, ErrNotPinned) {
		g.entries.Map, err = p.makeArray(bpf.MapTable, entries)
	}
	if err != nil {
		return err
	}
	g.undo.Add(g.entries.Close)
	if have := g.entries.MaxEntries(); have != entries {
		return fail(ErrLayout, nil, "the table pinned at %s has %d entries, this process wants %d: give all processes of the group the same MaxRegions", p.instance, have, entries)
	}
	if g.epochs.Map, err = p.openEpochs(epochs); err != nil {
		return err
	}
	g.undo.Add(g.epochs.Close)
	for _, a := range []*array{&g.entries, &g.epochs} {
		if a.memory, err = mapArray(a.Map, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return err
		}
		g.undo.Add(func() error { return unix.Munmap(a.memory) })
	}
	return nil
}

// epochLen is the size of a value of the array of epochs, in octets.
const epochLen = 64

// openEpochs opens the group's array of epochs, or makes and pins one.
func (p *pinDir) openEpochs(size int) (*ebpf.Map, error) {
	path, n := p.inInstance(mapEpochs), uint32(size/epochLen)
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err == nil {
		if m.Type() == ebpf.Array && m.Flags()&unix.BPF_F_MMAPABLE != 0 && m.ValueSize() == epochLen && m.MaxEntries() == n {
			return m, nil
		}
		m.Close()
		return nil, fail(ErrLayout, nil, "the epochs pinned at %s are not of this version of stag: end all processes of the group, and remove %s", path, p.instance)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	m, err = ebpf.NewMap(&ebpf.MapSpec{Name: mapEpochs, Type: ebpf.Array, KeySize: 4, ValueSize: epochLen, MaxEntries: n, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("make map %s of %d entries: %w", mapEpochs, n, err)
	}
	if err := m.Pin(path); err != nil {
		m.Close()
		return nil, fmt.Errorf("pin map %s: %w", mapEpochs, err)
	}
	return m, nil
}

// OwnDir makes a directory that only this user may use. The error is ErrPermission if the
// directory is another user's, or if others may write to it.
func OwnDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of a group: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fail(ErrPermission, nil, "%s is not a directory of user %d alone (mode %#o, user %d): remove it, or choose another group", dir, os.Geteuid(), st.Mode&0o7777, st.Uid)
	}
	return nil
}

// Memory returns the memory of the entries, for tpt.Config. It is valid until Close.
func (g *GroupTable) Memory() []byte { return g.entries.memory }

// Epochs returns the memory of the epochs, for tpt.Group. It is valid until Close.
func (g *GroupTable) Epochs() []byte { return g.epochs.memory }

// Close unmaps the table. The arrays stay pinned. The caller must not use the memory any
// more. Further calls do nothing.
func (g *GroupTable) Close() error { return g.undo.Run() }

// RemoveGroupTable removes the pins of a group. The caller must hold the group's lock, and
// no process may be in the group.
func RemoveGroupTable(name string) error {
	dir := filepath.Join(GroupRoot, name)
	for _, pin := range []string{bpf.MapTable, mapEpochs, bpf.MapConfig, ""} {
		if err := os.Remove(filepath.Join(dir, pin)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the table of group %s: %w", name, err)
		}
	}
	return nil
}
