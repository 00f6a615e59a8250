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

// Table is the memory of an adapter's translation and protection table. The memory is a
// BPF array that this process has mapped. Only this process may write to it.
type Table struct {
	array  *ebpf.Map
	memory []byte

	closing sync.Once
	undo    undo.Stack
	closed  error
}

// These are the limits of a table. A smaller array does not fill a page and cannot be
// mapped. An STag has 24 bits of index.
const (
	minEntries = 4096 / bpf.EntryLen
	maxEntries = 1 << 24
)

// NewTable makes the array for a table of entries and maps it. entries must be a power
// of two from 64 to 16777216. If pin is "", the array is freed with the Table or the
// process. Otherwise pin is an instance's directory in a BPF file system, and the array
// stays there when the process ends. NewTable takes over an array that is pinned there
// already. It replaces an array of another size, but with entries 0 it accepts any
// size. NewTable needs CAP_BPF.
//
// Errors: ErrLayout if the pinned array was made with other layouts. ErrTableBusy while
// another process writes to the array. The caller must close the Table.
func NewTable(entries uint32, pin string) (*Table, error) {
	found := entries == 0 && pin != ""
	if !found && (entries < minEntries || entries > maxEntries || bits.OnesCount32(entries) != 1) {
		return nil, fmt.Errorf("table of %d entries: want a power of two, %d to %d", entries, minEntries, maxEntries)
	}
	t := &Table{}
	if err := t.open(entries, pin); err != nil {
		t.undo.Run()
		return nil, err
	}
	return t, nil
}

func (t *Table) open(entries uint32, pin string) (err error) {
	if pin == "" {
		if t.array, err = createTable(entries); err == nil {
			t.undo.Add(t.array.Close)
		}
	} else {
		err = t.openPinned(entries, pin)
	}
	if err != nil {
		return err
	}
	size := uint64(t.array.MaxEntries()) * bpf.EntryLen
	t.memory, err = unix.Mmap(t.array.FD(), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the table of %d octets: %w", size, err)
	}
	t.undo.Add(func() error { return unix.Munmap(t.memory) })
	return nil
}

func createTable(entries uint32) (*ebpf.Map, error) {
	spec, err := bpf.Spec()
	if err != nil {
		return nil, err
	}
	table := spec.Maps[bpf.MapTable]
	table.MaxEntries = entries
	m, err := ebpf.NewMap(table)
	if errors.Is(err, unix.EPERM) {
		return nil, missing(adapterCaps(), "open an adapter on an interface", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make the table of %d entries: %w", entries, err)
	}
	return m, nil
}

// openPinned opens the instance's table and claims it for this process. It makes a
// table if there is none or if the table has another size.
func (t *Table) openPinned(entries uint32, instance string) error {
	lock, err := lockInstance(instance)
	if err != nil {
		return err
	}
	defer lock.Close()
	p := &pinDir{instance: instance}
	t.array, err = p.openTable()
	if errors.Is(err, ErrNotPinned) && entries != 0 {
		t.array, err = p.makeTable(entries)
	}
	if err != nil {
		return err
	}
	t.undo.Add(t.array.Close)
	if err := t.claim(); err != nil {
		return err
	}
	if entries == 0 || entries == t.Entries() {
		return nil
	}
	// No other process uses the old array. Closing it also ends its claim.
	if err := t.undo.Run(); err != nil {
		return err
	}
	if err := os.Remove(p.table()); err != nil {
		return fmt.Errorf("replace the table of %d entries: %w", t.Entries(), err)
	}
	if t.array, err = p.makeTable(entries); err != nil {
		return err
	}
	t.undo.Add(t.array.Close)
	return t.claim()
}

// makeTable makes and pins the instance's table. The caller must have the instance's
// lock.
func (p *pinDir) makeTable(entries uint32) (*ebpf.Map, error) {
	if err := os.MkdirAll(p.instance, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for pins: %w", err)
	}
	if err := p.pinConfig(); err != nil {
		return nil, err
	}
	m, err := createTable(entries)
	if err != nil {
		return nil, err
	}
	if err := m.Pin(p.table()); err != nil {
		m.Close()
		return nil, fmt.Errorf("pin map %s: %w", bpf.MapTable, err)
	}
	return m, nil
}

// openTable opens the instance's table and checks its shape. The error is ErrNotPinned
// if the instance has no table.
func (p *pinDir) openTable() (*ebpf.Map, error) {
	if err := p.checkLayout(); err != nil {
		return nil, err
	}
	m, err := ebpf.LoadPinnedMap(p.table(), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fail(ErrNotPinned, err, "no table is pinned at %s: give the number of entries of a new table", p.instance)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.table(), err)
	}
	if err := p.suits(m); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// suits returns ErrLayout unless m has the shape of a table.
func (p *pinDir) suits(m *ebpf.Map) error {
	n := m.MaxEntries()
	shaped := m.Type() == ebpf.Array && m.Flags()&unix.BPF_F_MMAPABLE != 0 && m.ValueSize() == bpf.EntryLen &&
		n >= minEntries && n <= maxEntries && bits.OnesCount32(n) == 1
	if !shaped {
		return fail(ErrLayout, nil, "what is pinned at %s is no table: remove it, or use another instance", p.table())
	}
	return nil
}

// claim makes this process the only one that writes to a pinned table. The claim's name
// contains the array's number in the kernel, because an array may have several names in
// file systems.
func (t *Table) claim() error {
	path, err := tableClaim(t.array)
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

// Memory returns the table's memory, for tpt.Config. It is page aligned, and valid
// until Close.
func (t *Table) Memory() []byte { return t.memory }

// Entries returns the number of entries that the table has room for.
func (t *Table) Entries() uint32 { return t.array.MaxEntries() }

// FD returns the array's descriptor, which is valid until Close.
func (t *Table) FD() int { return t.array.FD() }

// Close unmaps the table. The caller must not use the memory any more. A pinned array
// stays. Further calls return the result of the first.
func (t *Table) Close() error {
	t.closing.Do(func() { t.closed = t.undo.Run() })
	return t.closed
}
