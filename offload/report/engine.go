package report

import "time"

// Schema is the version of everything in this package.
const Schema = 2

// Engine is one adapter of one process at one moment. The parts may be read some
// milliseconds apart. A list is nil if the tool did not ask for it.
type Engine struct {
	Schema  int       `json:"schema"`
	PID     int       `json:"pid"`
	Program string    `json:"program"` // name of the program, without the directory
	Adapter int       `json:"adapter"` // number that tells the adapters of a process apart, from 1
	Started time.Time `json:"started"` // time when the adapter was opened
	Netns   uint64    `json:"netns"`   // cookie of the network namespace

	Counts   *Counts   `json:"counts,omitzero"`
	Devices  []Device  `json:"devices,omitzero"`
	Ports    []Port    `json:"ports,omitzero"`
	Flows    []Flow    `json:"flows,omitzero"`
	QPs      []QP      `json:"qps,omitzero"`
	CQs      []CQ      `json:"cqs,omitzero"`
	SRQs     []SRQ     `json:"srqs,omitzero"`
	ISCSI    []Session `json:"iscsi,omitzero"`
	LUNs     []LUN     `json:"luns,omitzero"`
	Clients  []Client  `json:"clients,omitzero"`
	Queues   []Queue   `json:"queues,omitzero"`
	Counters []Counter `json:"counters,omitzero"`
	MRs      []MR      `json:"mrs,omitzero"`
}

// Counts contains the lengths of the lists, by state or kind.
type Counts struct {
	Flows      map[string]map[string]int `json:"flows"`    // number of flows by device and state
	Diverted   map[string]int            `json:"diverted"` // number of diverted flows by device
	QPs        map[string]int            `json:"qps"`      // number of QPs by state
	CQs        int                       `json:"cqs"`
	Overrun    int                       `json:"cqs_overrun"` // number of CQs that are overrun
	MRs        map[string]int            `json:"mrs"`         // number of entries by kind
	Registered uint64                    `json:"registered_bytes"`
	// ISCSI counts the iSCSI sessions by role and state; nil if no session was opened.
	ISCSI map[string]map[string]int `json:"iscsi,omitempty"`
	// Commands counts the commands of iSCSI sessions that are in progress, by role.
	Commands map[string]int `json:"iscsi_commands,omitempty"`
}
