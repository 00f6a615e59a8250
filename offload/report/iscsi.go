package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Roles of a Session.
const (
	Initiator = "initiator"
	Target    = "target"
)

// CommandAges are the bounds between the classes of Session.CommandAges.
var CommandAges = [...]time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

// Session is an iSCSI session of an initiator or of a target.
type Session struct {
	Number    uint32 `json:"session"` // number that tells the sessions of the adapter apart
	Role      string `json:"role"`    // role of this end: initiator or target
	State     string `json:"state"`   // login, up, held (an initiator waits for the next login), down or lost
	Initiator string `json:"initiator"`
	Target    string `json:"target"`
	ISID      string `json:"isid"` // 12 hexadecimal digits
	TSIH      uint16 `json:"tsih"`
	CID       uint16 `json:"cid"`            // of the connection; several connections of one session have the same TSIH
	User      string `json:"user,omitempty"` // user of CHAP; "" without CHAP

	Device  string          `json:"device,omitempty"` // name of the device; "" while there is no connection
	Carrier string          `json:"carrier"`          // tcp or iser
	Flow    FlowID          `json:"flow,omitempty"`   // ID of the connection's Flow
	Local   *netip.AddrPort `json:"local,omitempty"`  // address of this end; nil while there is no connection
	Remote  *netip.AddrPort `json:"remote,omitempty"`

	HeaderDigest bool     `json:"header_digest"`
	DataDigest   bool     `json:"data_digest"`
	Age          uint64   `json:"age_seconds"` // time since the first login
	Depth        int      `json:"depth"`       // commands that may be in progress
	LUNs         []uint16 `json:"luns"`        // logical units that an initiator has opened, or that a target's initiator may use

	InProgress  int    `json:"commands_in_progress"`
	CommandAges []int  `json:"command_ages"`      // commands in progress by age: below 1 ms, 10 ms, 100 ms, 1 s, 10 s, and older
	Oldest      uint64 `json:"oldest_command_us"` // age of the oldest command in progress
	Recoveries  uint64 `json:"recoveries"`        // logins after the first
	Error       string `json:"error,omitempty"`   // error that ended the last connection; "" if there was none

	Counters []Counter `json:"counters"` // counters of the session, with the layers of its role
}

// LUN is a logical unit of an iSCSI target.
type LUN struct {
	Role        string `json:"role"` // target: this process serves the unit; initiator: it uses the unit
	Target      string `json:"target"`
	LUN         uint16 `json:"lun"`
	Session     uint32 `json:"session,omitempty"` // number of the initiator's Session; 0 for a unit that is served
	Octets      uint64 `json:"octets"`
	BlockSize   int    `json:"block_size"`
	ReadOnly    bool   `json:"read_only"`
	Backend     string `json:"backend,omitempty"` // medium of a unit that is served, or vendor and product of one that is used
	Serial      string `json:"serial,omitempty"`
	Sessions    int    `json:"sessions"`              // sessions that may use the unit
	Reservation string `json:"reservation,omitempty"` // type and holder of the reservation; "" if there is none, or if this end cannot know
	Registered  int    `json:"registered"`            // nexuses that are registered for persistent reservations
}

// Columns returns the row of `stag show iscsi`.
func (s Session) Columns() []string {
	return []string{fmt.Sprint("session ", s.Number), "role " + s.Role, "state " + strings.ToUpper(s.State), "link " + cmp.Or(s.Device, "-"), "carrier " + s.Carrier,
		fmt.Sprintf("cmds %d/%d", s.InProgress, s.Depth), fmt.Sprintf("age %ds", s.Age), Word("recoveries ", s.Recoveries)}
}

// Names returns the names of the two ends.
func (s Session) Names() string {
	return Words("initiator "+s.Initiator, "target "+s.Target, "isid "+s.ISID, fmt.Sprintf("tsih %#x", s.TSIH), Word("cid ", s.CID), Word("user ", s.User))
}

// Connection returns the facts about the connection, or "" while there is none.
func (s Session) Connection() string {
	if s.Local == nil || s.Remote == nil {
		return ""
	}
	flow := ""
	if s.Flow != 0 {
		flow = "flow " + s.Flow.String()
	}
	return Words("src "+s.Local.String(), "dst "+s.Remote.String(), flow,
		"header_digest "+either(s.HeaderDigest, "on", "off"), "data_digest "+either(s.DataDigest, "on", "off"), "luns "+cmp.Or(list(s.LUNs), "none"))
}

// Ages returns the commands in progress by age, or "" if there are none.
func (s Session) Ages() string {
	if s.InProgress == 0 {
		return ""
	}
	words := []string{"oldest " + (time.Duration(s.Oldest) * time.Microsecond).String()}
	for i, n := range s.CommandAges {
		name := "older "
		if i < len(CommandAges) {
			name = fmt.Sprintf("below_%v ", CommandAges[i])
		}
		words = append(words, Word(name, n))
	}
	return Words(words...)
}

// Columns returns the row of `stag show luns`.
func (l LUN) Columns() []string {
	return []string{"target " + l.Target, fmt.Sprint("lun ", l.LUN), either(l.Role == Target, "served", "used"), fmt.Sprint("octets ", l.Octets), fmt.Sprint("block ", l.BlockSize),
		when(l.ReadOnly, "ro"), Word("session ", l.Session), fmt.Sprint("sessions ", l.Sessions), Word("registered ", l.Registered)}
}

// Details returns the line below the row.
func (l LUN) Details() string {
	return Words(Word("backend ", l.Backend), Word("serial ", l.Serial), "reservation "+cmp.Or(l.Reservation, "none"))
}

// list returns numbers with commas between them.
func list(numbers []uint16) string {
	var b strings.Builder
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}
