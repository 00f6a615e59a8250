package unit

// Reservation says who has reserved a unit.
type Reservation struct {
	Type       string // name of the type (SPC-4 table 64), or RESERVE(6); "": nobody has reserved the unit
	Holder     string // name of the holder's nexus; "" if every registered nexus is a holder
	Registered int    // nexuses that are registered for persistent reservations
}

// kindNames are the names of the types of persistent reservations.
var kindNames = map[kind]string{
	writeExclusive:                 "Write Exclusive",
	exclusiveAccess:                "Exclusive Access",
	writeExclusiveRegistrantsOnly:  "Write Exclusive, Registrants Only",
	exclusiveAccessRegistrantsOnly: "Exclusive Access, Registrants Only",
	writeExclusiveAllRegistrants:   "Write Exclusive, All Registrants",
	exclusiveAccessAllRegistrants:  "Exclusive Access, All Registrants",
}

// Reservation returns the present reservation. It is safe at any time.
func (u *Unit) Reservation() Reservation {
	if r := u.told.Load(); r != nil {
		return *r
	}
	return Reservation{}
}

// announce brings what Reservation returns up to date.
func (u *Unit) announce() {
	now := Reservation{Type: kindNames[u.pr.kind], Holder: u.pr.holder, Registered: len(u.pr.keys)}
	if u.reserved != nil {
		now.Type, now.Holder = "RESERVE(6)", u.reserved.name
	}
	if now != u.Reservation() {
		u.told.Store(&now)
	}
}
