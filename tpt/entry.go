package tpt

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// EntryLen is the size of an entry in octets.
const EntryLen = 64

// entry is struct stag_entry. The number at the left of a field is its offset in
// octets. A test compares this type with the C structure.
//
//	 0  state: key, kind, valid, busy, touched, windows, generation (see word)
//	 8  start                              tagged offset of the first octet
//	16  length                             octets
//	24  base                               space and offset, or translation index
//	32  pd              36  qp             the only queue pair that may use the entry
//	40  parent          44  first          a window's region; offset in the first page
//	48  sequence                           stored for one touch
//	56  access          60  translation    rights, one touch; kind, page size, owner
type entry struct {
	state       atomic.Uint64
	start       atomic.Uint64
	length      atomic.Uint64
	base        atomic.Uint64
	pd          atomic.Uint32
	qp          atomic.Uint32
	parent      atomic.Uint32
	first       atomic.Uint32
	sequence    atomic.Uint64
	access      atomic.Uint32
	translation atomic.Uint32
}

// Kind is the kind of object that an entry describes (enum stag_entry_kind).
type Kind uint8

const (
	KindFree   Kind = 0 // the entry is free
	KindRegion Kind = 1
	KindWindow Kind = 2
	KindISCSI  Kind = 3 // the command in a slot of an iSCSI connection (Tags)
)

func (k Kind) String() string {
	switch k {
	case KindFree:
		return "free"
	case KindRegion:
		return "region"
	case KindWindow:
		return "window"
	case KindISCSI:
		return "iscsi"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// word is an entry's state (enum stag_entry_state). At most one of valid and busy is
// set.
//
//	0     8      12      13     14        15  16        32          64
//	| key | kind | valid | busy | touched |   | windows | generation |
type word uint64

const (
	wordKey     word = 1<<8 - 1
	wordKind         = 8
	wordValid   word = 1 << 12
	wordBusy    word = 1 << 13
	wordTouched word = 1 << 14 // the entry has been used, and is invalidated when the stream reaches the stored sequence
	wordWindows      = 16
	wordGen          = 32

	maxWindows = 1<<(wordGen-wordWindows) - 1
)

func (w word) key() uint8         { return uint8(w) }
func (w word) kind() Kind         { return Kind(w >> wordKind & 0xf) }
func (w word) valid() bool        { return w&(wordValid|wordBusy) == wordValid }
func (w word) busy() bool         { return w&wordBusy != 0 }
func (w word) touched() bool      { return w&wordTouched != 0 }
func (w word) windows() uint32    { return uint32(w >> wordWindows & maxWindows) }
func (w word) generation() uint32 { return uint32(w >> wordGen) }

// fresh reports whether the entry has never been used.
func (w word) fresh() bool { return w.generation() == 0 }

// known reports whether s names the region or window of the entry, and no writer is
// changing the entry. The entry may be valid or not. The entries of an iSCSI connection are
// known to its Tags only.
func (w word) known(s STag) bool {
	k := w.kind()
	return (k == KindRegion || k == KindWindow) && !w.busy() && w.key() == s.Key()
}

// next returns the word of the next generation with the given contents. It keeps the
// number of windows, because a window remains bound to a region whose memory is gone.
// It skips generation 0, which means that the entry was never used.
func (w word) next(key uint8, k Kind, flags word) word {
	g := w.generation() + 1
	if g == 0 {
		g = 1
	}
	return word(g)<<wordGen | word(w.windows())<<wordWindows | flags | word(k)<<wordKind | word(key)
}

// taken returns the word of an entry that a writer has locked.
func (w word) taken() word { return w.next(w.key(), w.kind(), wordBusy) }

// revoked returns the word of an entry that is no longer valid.
func (w word) revoked() word { return w.next(w.key(), w.kind(), 0) }

// freed returns the word of a free entry. It keeps the key, so that the next user can
// get another key.
func (w word) freed() word {
	return w.next(w.key(), KindFree, 0) &^ (maxWindows << wordWindows)
}

// The next methods access the state as a word, and parts of fields.
func (e *entry) load() word                { return word(e.state.Load()) }
func (e *entry) swap(old, next word) bool  { return e.state.CompareAndSwap(uint64(old), uint64(next)) }
func (e *entry) publish(w word)            { e.state.Store(uint64(w)) }
func (e *entry) unchanged(since word) bool { return e.load() == since }
func (e *entry) rights() Rights            { return Rights(e.access.Load() & accessRights) }
func (e *entry) window() WindowType        { return WindowType(e.access.Load() >> accessWindow & 3) }
func (e *entry) owner() uint16             { return uint16(e.translation.Load() >> translationOwner) }

// place splits the base of a direct entry into space and offset.
func place(base uint64) (space uint16, off uint64) {
	return uint16(base >> spaceShift), base & (1<<spaceShift - 1)
}

// These are the bits of the field access (enum stag_entry_access): rights, one touch,
// and the type of a window.
const (
	accessRights   = 0xff
	accessOneTouch = 1 << 8 // the entry is invalidated after one use
	accessWindow   = 9      // first of 2 bits: WindowType
)

// These are the values of the field translation (enum stag_entry_translation): the kind
// of base, and above it the binary logarithm of the page size, and the number of the
// process that wrote the entry.
const (
	translationKind    = 0x3
	translationDirect  = 0      // base is a space and an offset
	translationFirst   = 1      // base is an index of att; the entries of att are pages
	translationSecond  = 2      // base is an index of att; the entries of att are indexes of pages
	translationOutside = 1 << 2 // pages are in external memory
	translationPage    = 8
	translationOwner   = 16
)

// These are the spaces. A space is the origin of the offset in base. The upper 16 bits
// of base are the space.
const (
	spaceShift    = 48
	spaceHeap     = 0 // the adapter's region heap
	spaceExternal = 1 // a slice that the process keeps for the entry
)

// fields are the contents of an entry without its state.
type fields struct {
	start, length uint64
	base          uint64
	first         uint32
	kind          uint32 // translationDirect, translationFirst or translationSecond
	outside       bool   // pages are in external memory
	pageSize      uint64 // octets; 0: the entry has no page size
	owner         uint16
	pd            PD
	qp            uint32
	parent        uint32
	rights        Rights
	oneTouch      bool
	window        WindowType
}

// access returns the field access of the entry.
func (f *fields) access() uint32 {
	a := uint32(f.rights) | uint32(f.window)<<accessWindow
	if f.oneTouch {
		a |= accessOneTouch
	}
	return a
}

// permit writes the rights and the one touch of a locked region.
func (e *entry) permit(r Rights, oneTouch bool) {
	f := fields{rights: r | LocalRead, oneTouch: oneTouch}
	e.access.Store(f.access())
}

// translation returns the field translation of the entry.
func (f *fields) translation() uint32 {
	v := f.kind | uint32(f.owner)<<translationOwner
	if f.outside {
		v |= translationOutside
	}
	if f.pageSize != 0 {
		v |= uint32(bits.TrailingZeros64(f.pageSize)) << translationPage
	}
	return v
}

// fill writes every field. The caller must have locked the entry (see taken).
func (e *entry) fill(f fields) {
	e.start.Store(f.start)
	e.length.Store(f.length)
	e.base.Store(f.base)
	e.pd.Store(uint32(f.pd))
	e.qp.Store(f.qp)
	e.parent.Store(f.parent)
	e.first.Store(f.first)
	e.sequence.Store(0)
	e.access.Store(f.access())
	e.translation.Store(f.translation())
}
