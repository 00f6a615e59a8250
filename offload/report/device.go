package report

import (
	"fmt"
	"net/netip"
	"strings"
)

// KernelDevice is the Name of the device of connections over the kernel's TCP.
const KernelDevice = "kernel"

// Device is one port of the adapter. The kernel port is also a Device.
type Device struct {
	Name      string         `json:"name"`                  // name of the interface, or KernelDevice
	State     string         `json:"state"`                 // name of the state as in ibv_devinfo: PORT_ACTIVE or PORT_DOWN
	Ifindex   int            `json:"ifindex"`               // interface index; 0 for the kernel port
	MAC       string         `json:"mac,omitempty"`         // Ethernet address; "" for the kernel port
	VLAN      uint16         `json:"vlan,omitempty"`        // VLAN id; 0: none
	MTU       int            `json:"mtu"`                   // MTU for IP packets in octets; 0 for the kernel port
	Addresses []netip.Prefix `json:"addresses"`             // addresses of the interface
	Path      string         `json:"path"`                  // how packets reach the engines, in one line
	Carrier   string         `json:"carrier,omitempty"`     // what carries connections: afxdp or kernel; "" without an engine
	Why       string         `json:"carrier_why,omitempty"` // why the engine uses this carrier
	Driver    string         `json:"driver,omitempty"`
	XDP       string         `json:"xdp,omitempty"`                   // mode of XDP: native or generic
	ZeroCopy  bool           `json:"zero_copy"`                       // the driver uses zero copy
	Sums      bool           `json:"checksums_left"`                  // TCP checksums of packets to send are left to the driver or the kernel
	Instance  string         `json:"instance,omitempty"`              // directory of the pins, if the program was loaded to stay
	Program   uint32         `json:"program_id,omitempty"`            // number of the steering program in the kernel
	Queues    int            `json:"queues"`                          // number of queues with an engine
	Flows     int            `json:"flows"`                           // number of connections now
	MaxFlows  int            `json:"max_flows"`                       // largest number of connections; 0 for the kernel port and without an engine
	FlowTable int            `json:"flow_table"`                      // entries of the steering program's map; 0 for the kernel port
	HeapSize  uint64         `json:"heap_size"`                       // size in octets of the adapter's region heap
	HeapFree  uint64         `json:"heap_free"`                       // free octets of the adapter's region heap
	MaxMRs    int            `json:"max_mrs"`                         // largest number of regions of the adapter
	Drained   bool           `json:"drained,omitempty"`               // no connection moves to the port
	Speed     uint64         `json:"speed_bits_per_second,omitempty"` // speed of the link; 0: unknown
}

// Columns returns the row of `stag show devices`, in the words of `rdma link`.
func (d Device) Columns() []string {
	return []string{"link " + d.Name, "state " + strings.TrimPrefix(d.State, "PORT_"), Word("mtu ", d.MTU), Word("mode ", d.mode()), Word("queues ", d.Queues), d.room()}
}

// mode returns the mode of XDP and, if an engine has the queues, the mode of its sockets.
func (d Device) mode() string {
	switch {
	case d.XDP == "" || d.Queues == 0:
		return d.XDP
	case d.ZeroCopy:
		return d.XDP + ",zero-copy"
	}
	return d.XDP + ",copy"
}

// sums says who computes the TCP checksums of packets to send, if an engine has the queues.
func (d Device) sums() string {
	switch {
	case d.XDP == "" || d.Queues == 0:
		return ""
	case d.Sums:
		return "left to driver " + d.Driver
	}
	return "computed by stag"
}

// room returns the number of connections, the limit of the engine, and the size of the
// program's table.
func (d Device) room() string {
	flows := fmt.Sprint("flows ", d.Flows)
	if d.MaxFlows != 0 {
		flows += fmt.Sprint("/", d.MaxFlows)
	}
	return Words(flows, Word("table ", d.FlowTable))
}

// Line returns the line below the row of `stag show devices`: the carrier, and why the
// engine uses it. Without an engine it is "".
func (d Device) Line() string {
	if d.Carrier == "" {
		return ""
	}
	return "carrier " + d.Carrier + ": " + d.Why
}

// Details returns the lines of `stag show devices -v`, each a name and a value, in the
// words of ibv_devinfo. A line without a value is not printed.
func (d Device) Details() [][2]string {
	var addresses []string
	for _, a := range d.Addresses {
		addresses = append(addresses, a.String())
	}
	return [][2]string{
		{"path", d.Path},
		{"carrier", d.Carrier},
		{"carrier_why", d.Why},
		{"state", d.State},
		{"drained", when(d.Drained, "yes")},
		{"ifindex", Word("", d.Ifindex)},
		{"mac", d.MAC},
		{"vlan", Word("", d.VLAN)},
		{"active_mtu", Word("", d.MTU)},
		{"addresses", strings.Join(addresses, " ")},
		{"driver", d.Driver},
		{"speed_bits_per_second", Word("", d.Speed)},
		{"xdp", d.mode()},
		{"checksums_to_send", d.sums()},
		{"instance", d.Instance},
		{"program_id", Word("", d.Program)},
		{"queues", Word("", d.Queues)},
		{"flows", fmt.Sprint(d.Flows)},
		{"max_flows", Word("", d.MaxFlows)},
		{"flow_table", Word("", d.FlowTable)},
		{"max_mr", Word("", d.MaxMRs)},
		{"heap_size", Word("", d.HeapSize)},
		{"heap_free", Word("", d.HeapFree)},
	}
}
