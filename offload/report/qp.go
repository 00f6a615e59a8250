package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// QP is a queue pair.
type QP struct {
	Number     uint32          `json:"qp"`
	State      string          `json:"state"`            // name of the state in the RDMAC verbs: Idle, RTS, Closing, Terminate, Error, and Drained
	Device     string          `json:"device,omitempty"` // name of the device; "" if the QP is not connected
	Flow       FlowID          `json:"flow,omitempty"`   // ID of the QP's Flow
	PD         uint32          `json:"pd"`
	SendCQ     uint32          `json:"send_cq"`
	RecvCQ     uint32          `json:"recv_cq"`
	SRQ        uint32          `json:"srq,omitempty"` // number of the shared receive queue; 0 if the QP has a receive queue of its own
	SendDepth  int             `json:"send_depth"`    // work requests that the send queue holds
	RecvDepth  int             `json:"recv_depth"`
	MaxSGE     int             `json:"max_sge"`
	MaxInline  int             `json:"max_inline"`
	Local      *netip.AddrPort `json:"local,omitempty"` // address of this end; nil if the QP is not connected
	Remote     *netip.AddrPort `json:"remote,omitempty"`
	Initiator  bool            `json:"initiator"`
	Revision   int             `json:"mpa_revision"` // revision of MPA; 0 if the QP is not connected
	CRC        bool            `json:"crc"`
	Markers    string          `json:"markers"` // direction of Markers: none, sent, received, both
	IRD        int             `json:"ird"`
	ORD        int             `json:"ord"`
	Rate       uint64          `json:"rate,omitempty"`       // limit of the transmission in octets of payload per second; 0: no limit
	Extensions []string        `json:"extensions,omitempty"` // extensions of the protocols that the ends use: aligned_fpdus, rfc7306, immediate, long_fpdus
	Holding    uint64          `json:"holding_ms,omitempty"` // time for which a message of the peer has been waiting for a receive; 0: none waits
	Error      string          `json:"error,omitempty"`      // error that ended the connection; "" if there was none
	Counters   []Counter       `json:"counters"`             // counters of layer rdmap
}

// Columns returns the row of `stag show qps`, in the words of `rdma resource show qp`.
func (q QP) Columns() []string {
	return []string{"link " + cmp.Or(q.Device, "-"), fmt.Sprint("lqpn ", q.Number), "type RC", "state " + strings.ToUpper(q.State), fmt.Sprint("pdn ", q.PD),
		fmt.Sprint("scqn ", q.SendCQ), fmt.Sprint("rcqn ", q.RecvCQ), fmt.Sprint("sq ", q.SendDepth), fmt.Sprint("rq ", q.RecvDepth),
		Word("srqn ", q.SRQ), Word("rate ", q.Rate), Word("holding_ms ", q.Holding)}
}

// Connection returns the facts about the QP's connection, or "" while there is none.
func (q QP) Connection() string {
	if q.Local == nil || q.Remote == nil {
		return ""
	}
	flow := ""
	if q.Flow != 0 {
		flow = "flow " + q.Flow.String()
	}
	return Words("src "+q.Local.String(), "dst "+q.Remote.String(), flow, "role "+either(q.Initiator, "initiator", "responder"), fmt.Sprint("mpa ", q.Revision),
		"crc "+either(q.CRC, "on", "off"), "markers "+q.Markers, fmt.Sprint("ird ", q.IRD), fmt.Sprint("ord ", q.ORD), Word("ext ", strings.Join(q.Extensions, ",")))
}

// Limits returns the limits of the QP's work requests.
func (q QP) Limits() string {
	return Words(fmt.Sprint("max_sge ", q.MaxSGE), fmt.Sprint("max_inline ", q.MaxInline))
}
