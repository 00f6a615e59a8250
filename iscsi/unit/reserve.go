package unit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// reserve6 executes RESERVE(6) (SPC-2 §7.21). The unit refuses it as long as there are
// registrations for persistent reservations (SPC-3 §5.6.3).
func (u *Unit) reserve6(t *Task) Sense {
	if u.reserved != nil && u.reserved != t.Nexus || len(u.pr.keys) != 0 {
		t.Status = ReservationConflict
		return Sense{}
	}
	u.reserved = t.Nexus
	return Sense{}
}

// release6 executes RELEASE(6) (SPC-2 §7.19). A release by another nexus changes
// nothing.
func (u *Unit) release6(t *Task) Sense {
	if len(u.pr.keys) != 0 {
		t.Status = ReservationConflict
		return Sense{}
	}
	if u.reserved == t.Nexus {
		u.reserved = nil
	}
	return Sense{}
}

// conflict reports whether a reservation of another nexus forbids a command with the
// given flags (SPC-4 table 65, SBC-3 table 14).
func (u *Unit) conflict(n *Nexus, f flag) bool {
	if u.reserved != nil && u.reserved != n && f&free6 == 0 {
		return true
	}
	if u.pr.kind == 0 || f&freePR != 0 || u.pr.holds(n.name) {
		return false
	}
	if u.pr.kind.registrants() && u.pr.find(n.name) >= 0 {
		return false
	}
	return !(f&readPR != 0 && u.pr.kind.writeExclusive())
}

// kind is the type of a persistent reservation (SPC-4 table 64). 0: no reservation.
type kind byte

// Types of persistent reservations.
const (
	writeExclusive                 = 1
	exclusiveAccess                = 3
	writeExclusiveRegistrantsOnly  = 5
	exclusiveAccessRegistrantsOnly = 6
	writeExclusiveAllRegistrants   = 7
	exclusiveAccessAllRegistrants  = 8
)

// valid reports whether k is a type.
func (k kind) valid() bool {
	return k == writeExclusive || k == exclusiveAccess || k >= writeExclusiveRegistrantsOnly && k <= exclusiveAccessAllRegistrants
}

// writeExclusive reports whether everybody may read.
func (k kind) writeExclusive() bool { return k&1 != 0 && k != exclusiveAccess }

// registrants reports whether every registered nexus has full access.
func (k kind) registrants() bool { return k >= writeExclusiveRegistrantsOnly }

// allHold reports whether every registered nexus is a holder of the reservation.
func (k kind) allHold() bool { return k >= writeExclusiveAllRegistrants }

// registration is a registered nexus.
type registration struct {
	Name string
	Key  uint64
}

// persist has the persistent reservations of a unit (SPC-4 §5.13).
type persist struct {
	generation uint32
	keys       []registration
	kind       kind
	holder     string // name of the holder; empty if kind.allHold
	aptpl      bool   // the state outlives a loss of power
}

// find returns the index of the registration of a nexus, or -1.
func (p *persist) find(name string) int {
	return slices.IndexFunc(p.keys, func(r registration) bool { return r.Name == name })
}

// holds reports whether the nexus is a holder of the reservation.
func (p *persist) holds(name string) bool {
	if p.kind == 0 {
		return false
	}
	if p.kind.allHold() {
		return p.find(name) >= 0
	}
	return p.holder == name
}

// set makes name the holder of a reservation of type k.
func (p *persist) set(name string, k kind) {
	p.kind, p.holder = k, name
	if k.allHold() {
		p.holder = ""
	}
}

// saved is the state that outlives the process.
type saved struct {
	Generation uint32
	Keys       []registration
	Type       byte
	Holder     string
}

// load takes the state that Save got.
func (p *persist) load(state []byte) error {
	if len(state) == 0 {
		return nil
	}
	var s saved
	if err := json.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("saved reservations: %w: restore the file from a copy, or delete it to begin without reservations", err)
	}
	k := kind(s.Type)
	if k != 0 && !k.valid() {
		return fmt.Errorf("saved reservations: type %d does not exist: restore the file from a copy, or delete it to begin without reservations", k)
	}
	p.keys, p.aptpl = s.Keys, true
	p.generation = 0 // SPC-4 §6.15.2: a power on clears it
	if k != 0 {
		p.set(s.Holder, k)
	}
	return nil
}

// save stores the state if it must outlive a loss of power.
func (u *Unit) save() error {
	if u.conf.Save == nil {
		return nil
	}
	s := saved{Generation: u.pr.generation}
	if u.pr.aptpl {
		s.Keys, s.Type, s.Holder = u.pr.keys, byte(u.pr.kind), u.pr.holder
	}
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return u.conf.Save(state)
}
