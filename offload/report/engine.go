package report

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Schema is the version of everything in this package.
const Schema = 2

// Engine is one adapter of one process at one moment. The parts may be read some
// milliseconds apart. A list is nil if the tool did not ask for it.
type Engine struct {
	Schema  int       `json:"schema"`
	PID     int       `json:"pid"`
	Program string    `json:"program"` // name of the program, without the directory
	Adapter int       `json:"adapter"` // number that tells the adapters of a process apart, from 1
	Started time.Time `json:"started"` // when the adapter was opened
	Netns   uint64    `json:"netns"`   // cookie of the network namespace

	Counts   *Counts   `json:"counts,omitzero"`
	Devices  []Device  `json:"devices,omitzero"`
	Flows    []Flow    `json:"flows,omitzero"`
	QPs      []QP      `json:"qps,omitzero"`
	CQs      []CQ      `json:"cqs,omitzero"`
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
}

// FlowID is the number of a flow. It is hexadecimal in text and in JSON.
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

// KernelDevice is the Name of the device of connections over the kernel's TCP.
const KernelDevice = "kernel"

// Device is one port of the adapter. The kernel port is also a Device.
type Device struct {
	Name      string         `json:"name"`           // name of the interface, or KernelDevice
	State     string         `json:"state"`          // name of the state as in ibv_devinfo: PORT_ACTIVE or PORT_DOWN
	Ifindex   int            `json:"ifindex"`        // interface index; 0 for the kernel port
	MAC       string         `json:"mac,omitempty"`  // Ethernet address; "" for the kernel port
	VLAN      uint16         `json:"vlan,omitempty"` // VLAN id; 0: none
	MTU       int            `json:"mtu"`            // MTU for IP packets in octets; 0 for the kernel port
	Addresses []netip.Prefix `json:"addresses"`      // addresses of the interface
	Path      string         `json:"path"`           // how packets reach the engines, in one line
	Driver    string         `json:"driver,omitempty"`
	XDP       string         `json:"xdp,omitempty"`                   // mode of XDP: native or generic
	ZeroCopy  bool           `json:"zero_copy"`                       // the driver uses zero copy
	Instance  string         `json:"instance,omitempty"`              // directory of the pins, if the program was loaded to stay
	Program   uint32         `json:"program_id,omitempty"`            // number of the steering program in the kernel
	Queues    int            `json:"queues"`                          // number of queues with an engine
	Flows     int            `json:"flows"`                           // number of connections now
	MaxFlows  int            `json:"max_flows"`                       // largest number of connections; 0 for the kernel port and without an engine
	FlowTable int            `json:"flow_table"`                      // entries of the steering program's map; 0 for the kernel port
	HeapSize  uint64         `json:"heap_size"`                       // size in octets of the adapter's region heap
	HeapFree  uint64         `json:"heap_free"`                       // free octets of the adapter's region heap
	MaxMRs    int            `json:"max_mrs"`                         // largest number of regions of the adapter
	Speed     uint64         `json:"speed_bits_per_second,omitempty"` // speed of the link; 0: unknown
}

// Flow is a connection that was taken over from the kernel.
type Flow struct {
	Device string         `json:"device"`
	Queue  int            `json:"queue"` // queue of the engine that owns the flow; -1: none yet
	ID     FlowID         `json:"id"`    // number of the flow in the flow entry and in captures
	Kind   string         `json:"kind"`  // kind of the flow: rdma or bytes
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
	TCP      *TCP   `json:"tcp,omitempty"` // nil if no engine runs the flow, and after the connection has ended
}

// TCP is the state of one connection: the values that `ss -tin` shows for the kernel's
// connections.
type TCP struct {
	State      string    `json:"state"`                // ESTABLISHED, FIN-WAIT-1, ...
	ECN        bool      `json:"ecn"`                  // both ends agreed on ECN
	Congestion string    `json:"congestion"`           // congestion control: cubic or reno
	Followed   string    `json:"congestion_of_kernel"` // congestion control before the take-over, by the kernel's name
	Cwnd       uint32    `json:"cwnd_bytes"`
	Ssthresh   *uint32   `json:"ssthresh_bytes,omitempty"` // slow start threshold; nil: none yet
	SndWnd     uint32    `json:"snd_wnd"`
	RcvWnd     uint32    `json:"rcv_wnd"`
	MSS        uint32    `json:"mss"`
	PMTU       uint32    `json:"pmtu"`
	SRTT       uint64    `json:"srtt_us"`
	RTTVar     uint64    `json:"rttvar_us"`
	RTO        uint64    `json:"rto_us"` // retransmission timeout without backoff
	Backoff    uint8     `json:"backoff"`
	Recovering bool      `json:"recovering"`
	InFlight   uint32    `json:"in_flight"`
	Unacked    uint32    `json:"unacked"` // octets that were emitted and are not acknowledged
	Unread     uint32    `json:"unread"`  // octets that were received and are not consumed
	SndSegs    uint32    `json:"retransmission_queue_segments"`
	Reordered  int       `json:"reorder_queue_frames"`
	Held       int       `json:"receive_frames_held"`
	Counters   []Counter `json:"counters"` // counters of layer tcp
}

// QP is a queue pair.
type QP struct {
	Number    uint32          `json:"qp"`
	State     string          `json:"state"`            // name of the state in the RDMAC verbs: Idle, RTS, Closing, Terminate, Error
	Device    string          `json:"device,omitempty"` // name of the device; "" if the QP is not connected
	Flow      FlowID          `json:"flow,omitempty"`   // ID of the QP's Flow
	PD        uint32          `json:"pd"`
	SendCQ    uint32          `json:"send_cq"`
	RecvCQ    uint32          `json:"recv_cq"`
	SendDepth int             `json:"send_depth"` // work requests that the send queue holds
	RecvDepth int             `json:"recv_depth"`
	MaxSGE    int             `json:"max_sge"`
	MaxInline int             `json:"max_inline"`
	Local     *netip.AddrPort `json:"local,omitempty"` // address of this end; nil if the QP is not connected
	Remote    *netip.AddrPort `json:"remote,omitempty"`
	Initiator bool            `json:"initiator"`
	Revision  int             `json:"mpa_revision"` // revision of MPA; 0 if the QP is not connected
	CRC       bool            `json:"crc"`
	Markers   string          `json:"markers"` // direction of Markers: none, sent, received, both
	IRD       int             `json:"ird"`
	ORD       int             `json:"ord"`
	Error     string          `json:"error,omitempty"` // error that ended the connection; "" if there was none
	Counters  []Counter       `json:"counters"`        // counters of layer rdmap
}

// CQ is a completion queue.
type CQ struct {
	Number  uint32 `json:"cq"`
	Depth   int    `json:"depth"` // completions that the CQ holds
	Ready   int    `json:"ready"` // completions that wait to be polled
	QPs     int    `json:"qps"`   // number of QPs that use the CQ
	Overrun bool   `json:"overrun"`
}

// MR is an entry of the translation and protection table.
type MR struct {
	STag    string   `json:"stag"` // STag as 0x and eight hexadecimal digits
	Kind    string   `json:"kind"` // kind of the entry: region, window or iscsi
	Valid   bool     `json:"valid"`
	PD      uint32   `json:"pd"`
	QP      uint32   `json:"qp,omitempty"` // the only QP that may use the entry; 0: all QPs of the PD
	Start   uint64   `json:"start"`        // tagged offset of the first octet
	Length  uint64   `json:"length"`
	Rights  []string `json:"rights"`            // names of the rights, such as local_read and remote_write
	Heap    bool     `json:"heap"`              // the memory is in the region heap; otherwise the application has allocated it
	Parent  uint32   `json:"parent,omitempty"`  // index of a window's region
	Windows uint32   `json:"windows,omitempty"` // number of windows that are bound to the region
}

// STag formats an STag for reports.
func STag(stag uint32) string { return fmt.Sprintf("0x%08x", stag) }

// Rights splits a list such as "local read, remote write", or "none". Each right
// becomes one word.
func Rights(list string) []string {
	if list == "none" {
		return []string{}
	}
	return strings.Split(strings.ReplaceAll(strings.ReplaceAll(list, ", ", ","), " ", "_"), ",")
}

// Queue is one AF_XDP queue of a device with its engine.
type Queue struct {
	Device    string    `json:"device"`
	Queue     int       `json:"queue"`
	Mode      string    `json:"mode"` // mode of the socket: copy or zero-copy
	FrameSize uint32    `json:"frame_size"`
	RxFrames  uint32    `json:"rx_frames"`
	TxFrames  uint32    `json:"tx_frames"`
	Flows     int       `json:"flows"`
	Asleep    bool      `json:"asleep"`   // the engine waits in poll
	Counters  []Counter `json:"counters"` // counters of layers engine, wire, tcp, xsk, xsk_kernel
}
