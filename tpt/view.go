package tpt

// View reads a table that another process writes to. It only reads the memory and
// returns copies. It is safe for concurrent use.
type View struct {
	entries []entry
}

// NewView returns a View of the memory of a table. The memory must be page aligned, a
// whole number of entries long, and readable as long as the View is used.
func NewView(memory []byte) (*View, error) {
	entries, err := entriesAt(memory)
	if err != nil {
		return nil, err
	}
	return &View{entries}, nil
}

// Len returns the number of entries of the table, including entry 0.
func (v *View) Len() uint32 { return uint32(len(v.entries)) }

// Entry reads one entry, as Table.Entry does.
func (v *View) Entry(index uint32) (info Info, ok bool) {
	if index >= v.Len() {
		return Info{}, false
	}
	return v.entries[index].read(index)
}
