package tpt

// Info is a snapshot of an entry, for tools.
type Info struct {
	STag       STag
	Kind       Kind
	Valid      bool
	Owner      uint16
	Generation uint32
	PD         PD
	Start      uint64 // tagged offset of the first octet
	Length     uint64 // octets
	Rights     Rights
	OneTouch   bool // the entry is invalidated after one use
	Touched    bool
	Sequence   uint64 // DDP sequence number stored for one touch
	External   bool   // the memory is outside of the region heap
	Offset     uint64 // octets from the start of the heap, or of the external memory; 0 if the memory is scattered
	PageSize   uint64 // octets; 0 if the entry is not a page list
	Pages      uint64 // number of pages of a page list
	Scattered  bool   // the entry has a page list in att, and no offset
	Shared     uint32 // number of regions over the same translation, if there are several; a View does not know it
	QP         uint32 // the only queue pair that may use the entry; 0 means all of PD
	Window     WindowType
	Parent     uint32 // index of the region that a window is bound to, or 0
	Windows    uint32 // number of windows that are bound to this region
	Slot       uint32 // number of the slot of an iSCSI entry in its connection
}

// Entry reads one entry. ok is false if nothing is registered, or if a writer is
// changing the entry.
func (t *Table) Entry(index uint32) (info Info, ok bool) {
	if index >= uint32(len(t.entries)) {
		return Info{}, false
	}
	if info, ok = t.entries[index].read(index); ok {
		info.Shared = t.sharing(index)
	}
	return info, ok
}

// read copies a consistent snapshot of the entry.
func (e *entry) read(index uint32) (info Info, ok bool) {
	for {
		w := e.load()
		if w.kind() == KindFree || w.busy() {
			return Info{}, false
		}
		if info = e.info(index, w); e.unchanged(w) {
			return info, true
		}
	}
}

func (e *entry) info(index uint32, w word) Info {
	access, where := e.access.Load(), e.from(0)
	info := Info{
		STag: NewSTag(index, w.key()), Kind: w.kind(), Valid: w.valid(),
		Owner: e.owner(), Generation: w.generation(),
		PD: PD(e.pd.Load()), Start: e.start.Load(), Length: e.length.Load(),
		Rights: e.rights(), OneTouch: access&accessOneTouch != 0, Touched: w.touched(),
		Sequence: e.sequence.Load(),
		QP:       e.qp.Load(), Window: e.window(), Windows: w.windows(),
	}
	if w.kind() == KindISCSI {
		info.Slot = uint32(where.base)
		return info
	}
	info.External, info.Offset, info.PageSize, info.Pages = where.extent(info.Length)
	info.Scattered = where.kind != translationDirect
	if w.valid() {
		info.Parent = e.parent.Load()
	} else if info.Kind == KindWindow {
		info.QP = 0
	}
	return info
}

// Stats describes how full the table is.
type Stats struct {
	First   uint32 // the usable entries have the indexes First+1 to First+Entries
	Entries uint32 // usable entries of this process: all except the first one
	Used    uint32
	PDs     int
	Readers int // number of Readers: engines, and connections that step by themselves
}

// Stats returns the present numbers.
func (t *Table) Stats() Stats {
	t.epochs.joining.Lock()
	readers := t.epochs.joined
	t.epochs.joining.Unlock()
	t.settle()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	all := uint32(len(t.own)) - 1
	return Stats{First: t.first, Entries: all, Used: all - t.slots.free, PDs: len(t.pds), Readers: readers}
}

// Refusals returns how many accesses and invalidations were refused, by Fault.
func (t *Table) Refusals() (n [Faults]uint64) {
	for f := range n {
		n[f] = t.refusals[f].Load()
	}
	return n
}
