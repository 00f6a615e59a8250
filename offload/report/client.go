package report

import "fmt"

// Client is a process that uses the adapter of a daemon (package rdma/daemon).
type Client struct {
	Number      uint32 `json:"client"`
	PID         int    `json:"client_pid"`     // 0 if the process is in another PID namespace
	UID         uint32 `json:"client_uid"`     // user of the process
	Program     string `json:"client_program"` // name of the program; "" if the process is in another PID namespace
	Personality string `json:"personality"`    // kind of device that the program sees: iwarp or roce
	Age         uint64 `json:"age"`            // seconds since the process came

	QPs      int    `json:"qps"`
	CQs      int    `json:"cqs"`
	SRQs     int    `json:"srqs"`
	MRs      int    `json:"mrs"` // regions, without windows
	MWs      int    `json:"mws"`
	PDs      int    `json:"pds"`
	IDs      int    `json:"ids"`              // identifiers of the connection manager
	Rings    uint64 `json:"ring_bytes"`       // length of all rings
	Mapped   uint64 `json:"registered_bytes"` // length of all regions
	Refused  uint64 `json:"refused"`          // requests that were refused because of a quota
	LastWord string `json:"refused_quota"`    // name of the quota that was met last; "" for none
}

// Columns returns the row of `stag show clients`.
func (c Client) Columns() []string {
	return []string{fmt.Sprint("client ", c.Number), fmt.Sprint("pid ", c.PID), fmt.Sprint("uid ", c.UID), "comm " + c.Program, c.Personality,
		fmt.Sprint("qps ", c.QPs), fmt.Sprint("cqs ", c.CQs), Word("srqs ", c.SRQs), fmt.Sprint("mrs ", c.MRs), Word("mws ", c.MWs), fmt.Sprint("ids ", c.IDs),
		fmt.Sprint("registered ", c.Mapped), fmt.Sprint("rings ", c.Rings), fmt.Sprintf("age %ds", c.Age)}
}

// Refusals returns what the daemon has refused, or "".
func (c Client) Refusals() string {
	if c.Refused == 0 {
		return ""
	}
	return fmt.Sprintf("refused %d, last for the quota %s", c.Refused, c.LastWord)
}
