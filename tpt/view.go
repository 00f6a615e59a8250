package tpt

// View reads a table that another process writes to. It only reads the memory and
// returns copies. It is safe for concurrent use.
type View struct {
	entries []entry
}

// NewView reads memory that a table lies in: page aligned, whole entries, and
// mapped, to read at least, as long as the View is used.
func NewView(memory []byte) (*View, error) {
	entries, err := entriesAt(memory)
	if err != nil {
		return nil, err
	}
	return &View{entries}, nil
}

// Len returns how many entries the table has, entry 0 included.
func (v *View) Len() uint32 { return uint32(len(v.entries)) }

// Entry reads one entry, as Table.Entry does.
func (v *View) Entry(index uint32) (info Info, ok bool) {
	if index >= v.Len() {
		return Info{}, false
	}
	return v.entries[index].read(index)
}
