package tpt

import (
	"fmt"
	"strings"
)

// STag names an entry to peers and in work requests: the entry's index in the
// upper 24 bits, and a key, which tells users of the same entry apart, in the
// lower 8.
type STag uint32

// NewSTag joins an index, of which the low 24 bits count, and a key.
func NewSTag(index uint32, key uint8) STag { return STag(index<<8 | uint32(key)) }

// Index returns the entry's place in the table.
func (s STag) Index() uint32 { return uint32(s) >> 8 }

// Key must be equal to the entry's.
func (s STag) Key() uint8 { return uint8(s) }

func (s STag) String() string { return fmt.Sprintf("0x%08x", uint32(s)) }

// PD is a protection domain: queue pairs and STags of different ones have
// nothing to do with each other (RFC 5042). 0 is none.
type PD uint32

// Rights say what may be done with an entry's octets. Local read is always
// given.
type Rights uint8

// Rights, as enum stag_rights has them.
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

// Fault is the reason for refusing an access. The protocol decides which error code
// the peer gets.
type Fault uint8

// Faults, in the order of the checks: the first that fails decides.
const (
	OK          Fault = iota
	BadSTag           // index, key, not valid, or a type that is not for this use
	WrongPD           // another protection domain, or another QP than the one it is bound to
	NoRight           // the entry does not give the right
	Wrap              // the access would go on past offset 2^64-1
	OutOfBounds       // not wholly within the entry

	Faults // the number of faults, OK included
)

var faultNames = [Faults]string{
	OK:          "allowed",
	BadSTag:     "no such STag",
	WrongPD:     "the STag is another protection domain's or queue pair's",
	NoRight:     "the STag does not give that right",
	Wrap:        "the access wraps around the largest offset",
	OutOfBounds: "the access reaches outside of the region",
}

func (f Fault) String() string {
	if f < Faults {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Access describes an access for Check to decide about.
type Access struct {
	STag  STag
	PD    PD     // of the queue pair
	QP    uint32 // the queue pair's number
	Right Rights // the one that is needed
	TO    uint64 // tagged offset of the first octet
	Len   uint32 // octets
}
