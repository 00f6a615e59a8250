package report

import "fmt"

// Port is one port of the adapter as a place between which connections move. The port is
// also a Device.
type Port struct {
	Device    string `json:"device"`
	State     string `json:"state"`           // up, down (no link), lost (for good), or drained; in a group also probing, suspect, failed or settling
	Addresses int    `json:"addresses"`       // number of addresses of the interface
	Flows     int    `json:"flows"`           // number of connections now
	Foreign   int    `json:"foreign_percent"` // how many of the last segments of these connections arrived at other ports

	MovesIn     uint64 `json:"moves_in"`     // connections that came from other ports
	MovesOut    uint64 `json:"moves_out"`    // connections that moved to other ports
	MovesFailed uint64 `json:"moves_failed"` // attempts to move a connection away that failed; the connection stayed

	// Last is the direction of the last move, in or out. It is "" if there was none, and
	// the other fields are not set then.
	Last      string  `json:"last_move,omitempty"`
	LastPort  string  `json:"last_move_port,omitempty"`  // other port of the last move
	LastCause string  `json:"last_move_cause,omitempty"` // asked, route, carrier, lost, drain or failed
	LastAge   *uint64 `json:"last_move_age_seconds,omitempty"`
}

// Columns returns the row of `stag show ports`.
func (p Port) Columns() []string {
	return []string{"port " + p.Device, "state " + p.State, fmt.Sprint("addresses ", p.Addresses), fmt.Sprint("flows ", p.Flows), fmt.Sprintf("foreign %d%%", p.Foreign),
		Words(fmt.Sprint("in ", p.MovesIn), fmt.Sprint("out ", p.MovesOut), Word("failed ", p.MovesFailed)), p.last()}
}

func (p Port) last() string {
	if p.Last == "" {
		return ""
	}
	text := "last from "
	if p.Last == "out" {
		text = "last to "
	}
	text += p.LastPort + " by " + p.LastCause
	if p.LastAge != nil {
		text += fmt.Sprintf(" %ds ago", *p.LastAge)
	}
	return text
}
