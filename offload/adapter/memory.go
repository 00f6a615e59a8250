package adapter

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/portable"
)

// Kinds of the objects with which the memory of an adapter goes to another process: the
// file of the region heap and the arrays of the table, before the new adapter is opened, and
// what the heap and the table know beside that, when no connection runs.
const (
	heapKind   = "adapter.heap/1"
	tableKind  = "adapter.table/1"
	memoryKind = "adapter.memory/1"
)

// openHeap makes the region heap. The heap of an adapter that can be upgraded is a file in
// memory. An adapter that continues another one has the heap of that one.
func (a *Adapter) openHeap() (err error) {
	switch f := a.inheritedHeap(); {
	case f != nil:
		a.heap, err = heap.Inherit(f)
	case a.cfg.Upgrade != nil:
		a.heap, err = heap.NewShared(a.cfg.RegionHeap)
	default:
		a.heap, err = heap.New(a.cfg.RegionHeap)
	}
	if err == nil {
		a.undo.Add(a.heap.Close)
	}
	return err
}

// inheritedHeap returns the file of the heap of the process that the adapter continues, or
// nil. The caller owns it.
func (a *Adapter) inheritedHeap() *os.File {
	if o := a.earlyObject(heapKind); o != nil && len(o.Files) == 1 {
		return o.Files[0]
	}
	return nil
}

// earlyObject returns the object of this kind from the process that the adapter continues,
// or nil.
func (a *Adapter) earlyObject(kind string) *portable.Object {
	if a.from == nil {
		return nil
	}
	early := a.from.Early()
	for i := range early {
		if early[i].Kind == kind {
			return &early[i]
		}
	}
	return nil
}

// inheritsTable reports whether the table is in the arrays of another process.
func (a *Adapter) inheritsTable() bool { return a.earlyObject(tableKind) != nil }

// openArrays makes the memory of the table. If a port is loaded, the arrays are pinned with
// it. An adapter that continues another one has the arrays of that one, which may be
// pinned.
func (a *Adapter) openArrays() (*loader.Table, error) {
	if o := a.earlyObject(tableKind); o != nil {
		var h loader.HandedTable
		if err := json.Unmarshal(o.Data, &h); err != nil {
			return nil, fmt.Errorf("the table of the other process: %w", err)
		}
		return loader.InheritTable(h, o.Files)
	}
	pin := ""
	if a.from == nil { // otherwise a pinned table is the other process's
		var err error
		if pin, err = a.tablePin(); err != nil {
			return nil, err
		}
	}
	return loader.NewTable(a.cfg.entries(), a.cfg.pages(), pin)
}

// earlyObjects returns the file of the heap and the arrays of the table, if other processes
// can map the heap. The adapter owns the files until closeLent.
func (a *Adapter) earlyObjects() ([]portable.Object, error) {
	f := a.heap.File()
	if f == nil {
		if n := a.table.Stats().Used; n != 0 {
			return nil, fmt.Errorf("%w, because %d regions are in memory of the process: set Upgrade when you open the adapter", ErrNotUpgradable, n)
		}
		return nil, nil
	}
	h, files, err := a.arrays.Hand()
	if err != nil {
		return nil, err
	}
	a.lent = files
	data, err := json.Marshal(h)
	return []portable.Object{{Kind: heapKind, Files: []*os.File{f}}, {Kind: tableKind, Data: data, Files: files}}, err
}

// closeLent closes the files of earlyObjects.
func (a *Adapter) closeLent() {
	for _, f := range a.lent {
		f.Close()
	}
	a.lent = nil
}

// memory is the contents of the heap and of the table.
type memory struct{ table, heap []byte }

var memoryFormat = pack.Format{Name: "memory of an adapter", Kind: 0x4d454d, Version: 1}

func (m *memory) code(c *pack.Coder) {
	c.Octets(&m.table, portable.MaxData)
	c.Octets(&m.heap, portable.MaxData)
}

// exportMemory returns the contents of heap and table. ok is false if there are none.
func (a *Adapter) exportMemory() (o portable.Object, ok bool, err error) {
	if a.heap.File() == nil {
		return o, false, nil
	}
	var m memory
	if m.heap, err = a.heap.Export(); err != nil {
		return o, false, err
	}
	if m.table, err = a.table.Export(); err != nil {
		return o, false, err
	}
	data, err := memoryFormat.Encode(nil, m.code)
	return portable.Object{Kind: memoryKind, Data: data}, err == nil, err
}

// importMemory gives heap and table their contents.
func (a *Adapter) importMemory(o portable.Object) error {
	var m memory
	if err := memoryFormat.Decode(o.Data, m.code); err != nil {
		return err
	}
	if err := a.heap.Restore(m.heap); err != nil {
		return err
	}
	return a.table.Restore(m.table)
}
