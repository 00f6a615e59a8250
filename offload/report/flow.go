package report

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// FlowID is the number of a flow. A FlowID is hexadecimal in text and in JSON.
type FlowID uint32

func (f FlowID) String() string { return fmt.Sprintf("%#x", uint32(f)) }

// MarshalText implements encoding.TextMarshaler.
func (f FlowID) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#x", uint32(f)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *FlowID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 0, 32)
	*f = FlowID(n)
	return err
}

// Flow is a connection that was taken over from the kernel.
type Flow struct {
	Device string         `json:"device"`
	Queue  int            `json:"queue"` // queue of the engine that owns the flow; -1: none yet
	ID     FlowID         `json:"id"`    // number of the flow in the flow entry and in captures
	Kind   string         `json:"kind"`  // kind of the flow: rdma, iscsi or bytes
	State  string         `json:"state"` // state of the entry in the map: park, live or orphan
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	VLAN   uint16         `json:"vlan,omitempty"`
	QP     uint32         `json:"qp,omitempty"` // number of the QP; 0: none
	Age    uint64         `json:"age_seconds"`  // time since the connection was taken over
	// NextHop is the address on the link to which the flow's packets go. NextHopMAC is
	// the Ethernet address of NextHop. Both are "" if no engine runs the flow.
	NextHop    string `json:"next_hop,omitempty"`
	NextHopMAC string `json:"next_hop_mac,omitempty"`
	// Diverted says why the kernel would send the flow's packets another way now. The
	// connection itself does not change. Diverted is "" if the kernel would send the
	// packets the same way.
	Diverted string `json:"diverted,omitempty"`
	// Arrives is the other port of the adapter at which segments of the flow arrive, if
	// they do. ArrivesPercent is how many of the last 1024 segments did, in percent.
	Arrives        string `json:"arrives,omitempty"`
	ArrivesPercent int    `json:"arrives_percent,omitempty"`
	TCP            *TCP   `json:"tcp,omitempty"` // state of the connection; nil if no engine runs the flow, and after the connection has ended
}

// Columns returns the row of `stag show flows` without its process, in the words of
// `ss -tin`.
func (f Flow) Columns() []string {
	unread, unacked := "-", "-"
	if f.TCP != nil {
		unread, unacked = fmt.Sprint(f.TCP.Unread), fmt.Sprint(f.TCP.Unacked)
	}
	return []string{f.Device, f.state(), unread, unacked, f.Local.String(), f.Remote.String()}
}

// state returns the state of the connection, or the state of the flow entry if there is no
// connection yet.
func (f Flow) state() string {
	switch {
	case f.TCP == nil:
		return strings.ToUpper(f.State)
	case f.TCP.State == "ESTABLISHED":
		return "ESTAB"
	}
	return f.TCP.State
}

// Line returns the line below the row: the facts of the connection, and those of the flow
// entry.
func (f Flow) Line() string {
	return Words(f.TCP.line(), f.Kind, "id:"+f.ID.String(), f.queue(), Word("vlan:", f.VLAN), Word("via:", f.NextHop), f.arrives(), fmt.Sprintf("age:%ds", f.Age))
}

// arrives returns where segments arrive, if some arrive at another port.
func (f Flow) arrives() string {
	if f.Arrives == "" {
		return ""
	}
	return fmt.Sprintf("arrives %s %d%%", f.Arrives, f.ArrivesPercent)
}

// queue returns the queue whose engine owns the flow. A new flow has no owner for a moment.
func (f Flow) queue() string {
	if f.Queue < 0 {
		return ""
	}
	return fmt.Sprint("queue:", f.Queue)
}
