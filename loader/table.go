package loader

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/undo"
)

// Table is the memory of an adapter's translation and protection table: one array of
// entries, and one of page lists. Both are BPF arrays that this process has mapped. Only
// this process may write to them.
type Table struct {
	entries, pages array
	claimed        *Claim // the claim on pinned arrays; nil for private ones

	closing sync.Once
	undo    undo.Stack
	closed  error
}

// array is a BPF array and its memory.
type array struct {
	*ebpf.Map
	memory []byte
}

// These are the limits of a table. A smaller array does not fill a page and cannot be
// mapped. An STag has 24 bits of index.
const (
	minEntries = 4096 / bpf.EntryLen
	maxEntries = 1 << 24
	minPages   = 4096 / bpf.PageLen
	maxPages   = 1 << 28
)

// NewTable makes the arrays for a table of entries and for the pages of its page lists,
// and maps them. entries must be a power of two from 64 to 16777216. pages must be 512
// to 268435456. If pin is "", the arrays are freed with the Table or the process.
// Otherwise pin is an instance's directory in a BPF file system, and the arrays stay
// there when the process ends. NewTable takes over arrays that are pinned there already.
// It replaces an array of another size, but with entries 0 it accepts any size. NewTable
// needs CAP_BPF.
//
// Errors: ErrLayout if the pinned arrays were made with other layouts. ErrTableBusy while
// another process writes to the arrays. The caller must close the Table.
func NewTable(entries, pages uint32, pin string) (*Table, error) {
	found := entries == 0 && pin != ""
	if !found && (entries < minEntries || entries > maxEntries || bits.OnesCount32(entries) != 1) {
		return nil, fmt.Errorf("table of %d entries: want a power of two, %d to %d", entries, minEntries, maxEntries)
	}
	if pages < minPages || pages > maxPages {
		return nil, fmt.Errorf("table with room for %d pages: want %d to %d", pages, minPages, maxPages)
	}
	t := &Table{}
	if err := t.open(entries, pages, pin); err != nil {
		t.undo.Run()
		return nil, err
	}
	return t, nil
}

func (t *Table) open(entries, pages uint32, pin string) (err error) {
	if pin == "" {
		err = t.create(entries, pages)
	} else {
		err = t.openPinned(entries, pages, pin)
	}
	if err != nil {
		return err
	}
	for _, a := range []*array{&t.entries, &t.pages} {
		if a.memory, err = mapArray(a.Map, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return err
		}
		t.undo.Add(func() error { return unix.Munmap(a.memory) })
	}
	return nil
}

// mapArray maps all values of an array.
func mapArray(m *ebpf.Map, prot int) ([]byte, error) {
	size := uint64(m.MaxEntries()) * uint64(m.ValueSize())
	memory, err := unix.Mmap(m.FD(), 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table of %d octets: %w", size, err)
	}
	return memory, nil
}

// create makes arrays without pins.
func (t *Table) create(entries, pages uint32) (err error) {
	if t.entries.Map, err = createArray(bpf.MapTable, entries); err != nil {
		return err
	}
	t.undo.Add(t.entries.Close)
	if t.pages.Map, err = createArray(bpf.MapPages, pages); err != nil {
		return err
	}
	t.undo.Add(t.pages.Close)
	return nil
}

func createArray(name string, length uint32) (*ebpf.Map, error) {
	spec, err := bpf.Spec()
	if err != nil {
		return nil, err
	}
	array := spec.Maps[name]
	array.MaxEntries = length
	m, err := ebpf.NewMap(array)
	if errors.Is(err, unix.EPERM) {
		return nil, missing(adapterCaps(), "open an adapter on an interface", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make map %s of %d entries: %w", name, length, err)
	}
	return m, nil
}

// openPinned opens the instance's table and claims it for this process. It makes arrays
// if there are none or if they have another size.
func (t *Table) openPinned(entries, pages uint32, instance string) error {
	lock, err := lockInstance(instance)
	if err != nil {
		return err
	}
	defer lock.Close()
	p := &pinDir{instance: instance}
	t.entries.Map, err = p.openArray(bpf.MapTable)
	if errors.Is(err, ErrNotPinned) && entries != 0 {
		t.entries.Map, err = p.makeArray(bpf.MapTable, entries)
	}
	if err != nil {
		return err
	}
	t.undo.Add(t.entries.Close)
	if err := t.claim(); err != nil {
		return err
	}
	if have := t.Entries(); entries != 0 && entries != have {
		// No other process uses the old array. Closing it also ends its claim.
		if err := t.undo.Run(); err != nil {
			return err
		}
		if t.entries.Map, err = p.replaceArray(bpf.MapTable, entries); err != nil {
			return err
		}
		t.undo.Add(t.entries.Close)
		if err := t.claim(); err != nil {
			return err
		}
	}
	return t.openPages(p, entries != 0, pages)
}

// openPages opens the instance's page lists. The caller must have the claim on the table.
// exact says that an array of another size must be replaced.
func (t *Table) openPages(p *pinDir, exact bool, pages uint32) (err error) {
	t.pages.Map, err = p.openArray(bpf.MapPages)
	switch {
	case errors.Is(err, ErrNotPinned):
		t.pages.Map, err = p.makeArray(bpf.MapPages, pages)
	case err == nil && exact && t.pages.MaxEntries() != pages:
		t.pages.Close()
		t.pages.Map, err = p.replaceArray(bpf.MapPages, pages)
	}
	if err == nil {
		t.undo.Add(t.pages.Close)
	}
	return err
}

// makeArray makes and pins an array of the instance's table. The caller must have the
// instance's lock.
func (p *pinDir) makeArray(name string, length uint32) (*ebpf.Map, error) {
	if err := os.MkdirAll(p.instance, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for pins: %w", err)
	}
	if err := p.pinConfig(); err != nil {
		return nil, err
	}
	m, err := createArray(name, length)
	if err != nil {
		return nil, err
	}
	if err := m.Pin(p.inInstance(name)); err != nil {
		m.Close()
		return nil, fmt.Errorf("pin map %s: %w", name, err)
	}
	return m, nil
}

// replaceArray makes an array of another length. The old array must be closed.
func (p *pinDir) replaceArray(name string, length uint32) (*ebpf.Map, error) {
	if err := os.Remove(p.inInstance(name)); err != nil {
		return nil, fmt.Errorf("replace map %s: %w", name, err)
	}
	return p.makeArray(name, length)
}

// openArray opens an array of the instance's table and checks its shape. The error is
// ErrNotPinned if the instance has no such array.
func (p *pinDir) openArray(name string) (*ebpf.Map, error) {
	if err := p.checkLayout(); err != nil {
		return nil, err
	}
	m, err := ebpf.LoadPinnedMap(p.inInstance(name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fail(ErrNotPinned, err, "no table is pinned at %s: give the number of entries of a new table", p.instance)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.inInstance(name), err)
	}
	if err := p.suits(name, m); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// suits returns ErrLayout unless m has the shape of the array with this name.
func (p *pinDir) suits(name string, m *ebpf.Map) error {
	if !suitsTable(name == bpf.MapTable, m) {
		return fail(ErrLayout, nil, "what is pinned at %s is no table: remove it, or use another instance", p.inInstance(name))
	}
	return nil
}

// suitsTable reports whether an array has the shape of the entries, or of the page lists.
func suitsTable(entries bool, m *ebpf.Map) bool {
	n := m.MaxEntries()
	if m.Type() != ebpf.Array || m.Flags()&unix.BPF_F_MMAPABLE == 0 {
		return false
	}
	if entries {
		return m.ValueSize() == bpf.EntryLen && n >= minEntries && n <= maxEntries && bits.OnesCount32(n) == 1
	}
	return m.ValueSize() == bpf.PageLen && n >= minPages && n <= maxPages
}

// claim makes this process the only one that writes to a pinned table. The claim's name
// contains the array's number in the kernel, because an array may have several names in
// file systems.
func (t *Table) claim() error {
	path, err := tableClaim(t.entries.Map)
	if err != nil {
		return err
	}
	claim, owner, err := claimFile(path, "the table of registered memory")
	if err != nil {
		return err
	}
	if claim == nil {
		return fail(ErrTableBusy, nil, "what is loaded here is in use by %s: %s", owner, oneProcess)
	}
	t.undo.Add(claim.Close)
	t.claimed = claim
	return nil
}

// tableClaim returns the path of the file for the claim on a table. The process that
// writes to the table holds this claim.
func tableClaim(array *ebpf.Map) (string, error) {
	info, err := array.Info()
	if err != nil {
		return "", fmt.Errorf("ask for the number of the table: %w", err)
	}
	id, ok := info.ID()
	if !ok {
		return "", errors.New("the kernel has no number for the table: Linux 4.13 or later has")
	}
	return filepath.Join(RuntimeDir, fmt.Sprintf("table-%d", id)), nil
}

// Memory returns the memory of the entries, for tpt.Config. It is page aligned, and valid
// until Close.
func (t *Table) Memory() []byte { return t.entries.memory }

// PageMemory returns the memory of the page lists, as Memory does.
func (t *Table) PageMemory() []byte { return t.pages.memory }

// Entries returns the number of entries that the table has room for.
func (t *Table) Entries() uint32 { return t.entries.MaxEntries() }

// FD returns the descriptor of the array of entries, which is valid until Close.
func (t *Table) FD() int { return t.entries.FD() }

// Close unmaps the table. The caller must not use the memory any more. Pinned arrays
// stay. Further calls return the result of the first.
func (t *Table) Close() error {
	t.closing.Do(func() { t.closed = t.undo.Run() })
	return t.closed
}
