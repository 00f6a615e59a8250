package tpt

import (
	"fmt"
	"strings"
)

// STag names an entry to peers and in work requests. The upper 24 bits are the entry's
// index. The lower 8 bits are a key, which distinguishes successive users of one entry.
type STag uint32

// NewSTag combines the low 24 bits of index with a key.
func NewSTag(index uint32, key uint8) STag { return STag(index<<8 | uint32(key)) }

// Index returns the index of the entry in the table.
func (s STag) Index() uint32 { return uint32(s) >> 8 }

// Key returns the key, which must be equal to the entry's key.
func (s STag) Key() uint8 { return uint8(s) }

func (s STag) String() string { return fmt.Sprintf("0x%08x", uint32(s)) }

// PD is the number of a protection domain (RFC 5042). A queue pair can use only STags
// of its own protection domain. 0 means none.
type PD uint32

// Rights are the permitted accesses to an entry's octets. Every region permits local
// read.
type Rights uint8

// These are the rights (enum stag_entry_access).
const (
	LocalRead Rights = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	RemoteAtomic
	Bind             // windows may be bound to the region
	RemoteInvalidate // any peer of the protection domain may invalidate the entry

	remote    = RemoteRead | RemoteWrite | RemoteAtomic
	changing  = RemoteWrite | RemoteAtomic
	allRights = LocalRead | LocalWrite | remote | Bind | RemoteInvalidate
)

var rightNames = [...]string{"local read", "local write", "remote read", "remote write", "remote atomic", "bind", "remote invalidate"}

// String lists the rights: "local read, remote write".
func (r Rights) String() string {
	if r == 0 {
		return "none"
	}
	var names []string
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if r&^allRights != 0 {
		names = append(names, fmt.Sprintf("unknown %#x", uint8(r&^allRights)))
	}
	return strings.Join(names, ", ")
}

// Fault is the reason for refusing an access. The protocol decides which error code the
// peer gets.
type Fault uint8

// The faults are in the order of the checks. The first check that fails decides.
const (
	OK          Fault = iota
	BadSTag           // wrong index or key, an entry that is not valid, or an entry of the wrong type
	WrongPD           // wrong protection domain, or the entry is bound to another queue pair
	NoRight           // the entry does not give the right
	Wrap              // the access would go past offset 2^64-1
	OutOfBounds       // the access is not wholly within the entry
	Bound             // windows are bound to the region, the window is bound, or the region is registered already
	NoSpace           // less memory is mapped to the entry than a work request registers
	Unresolved        // the memory is another process's, which has ended, does not know the STag, or does not share the memory

	Faults // number of faults, including OK
)

var faultNames = [Faults]string{
	OK:          "allowed",
	BadSTag:     "no such STag",
	WrongPD:     "the STag is another protection domain's or queue pair's",
	NoRight:     "the STag does not give that right",
	Wrap:        "the access wraps around the largest offset",
	OutOfBounds: "the access reaches outside of the region",
	Bound:       "windows are bound to the region, the window is bound, or the region is registered already",
	NoSpace:     "less memory is mapped to the STag than the request registers",
	Unresolved:  "the STag is another process's, and its memory is not there",
}

func (f Fault) String() string {
	if f < Faults {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Access describes an access that Check decides about.
type Access struct {
	STag  STag
	PD    PD     // protection domain of the queue pair
	QP    uint32 // the queue pair's number
	Right Rights // the right that the access needs
	TO    uint64 // tagged offset of the first octet
	Len   uint32 // octets
}
