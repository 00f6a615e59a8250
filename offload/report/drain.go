package report

import "net/netip"

// Drain says how far the draining of a port is. After the last connection Done is true.
type Drain struct {
	Device      string `json:"device"`
	Done        bool   `json:"done"`
	Connections int    `json:"connections"` // connections that were at the port
	Moved       int    `json:"moved"`       // connections that have moved to another port
	Ended       int    `json:"ended"`       // connections that have ended meanwhile
	Stayed      int    `json:"stayed"`      // connections that could not move and go on at the port
	Stay        []Stay `json:"stay"`        // the first MaxStay of Stayed
}

// MaxStay limits the length of Drain.Stay.
const MaxStay = 64

// Stay is a connection that could not move, and why.
type Stay struct {
	Flow   FlowID         `json:"flow"`
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	Why    string         `json:"why"`
}
