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

// Engine is one adapter of one process at one moment. Parts of it may be some
// milliseconds apart. A list is nil if it was not asked for.
type Engine struct {
	Schema  int       `json:"schema"`
	PID     int       `json:"pid"`
	Program string    `json:"program"` // its name, without the directory
	Adapter int       `json:"adapter"` // tells the adapters of a process apart, from 1
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

// Counts has the lengths of the lists, by state or kind.
type Counts struct {
	Flows      map[string]map[string]int `json:"flows"`    // by device and state
	Diverted   map[string]int            `json:"diverted"` // flows, by device
	QPs        map[string]int            `json:"qps"`      // by state
	CQs        int                       `json:"cqs"`
	Overrun    int                       `json:"cqs_overrun"` // of the CQs
	MRs        map[string]int            `json:"mrs"`         // by kind
	Registered uint64                    `json:"registered_bytes"`
}

// FlowID is the number of a flow, which is hexadecimal in text and in JSON.
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

// Device is one port of the adapter. The kernel port is a Device, too.
type Device struct {
	Name      string         `json:"name"`           // of the interface; KernelDevice
	State     string         `json:"state"`          // as ibv_devinfo has it: PORT_ACTIVE, PORT_DOWN
	Ifindex   int            `json:"ifindex"`        // 0 for the kernel's
	MAC       string         `json:"mac,omitempty"`  // "" for the kernel's
	VLAN      uint16         `json:"vlan,omitempty"` // id; 0: none
	MTU       int            `json:"mtu"`            // of the IP packet; 0 for the kernel's
	Addresses []netip.Prefix `json:"addresses"`      // of the interface
	Path      string         `json:"path"`           // how packets get to the engines, one line
	Driver    string         `json:"driver,omitempty"`
	XDP       string         `json:"xdp,omitempty"`                   // native, generic
	ZeroCopy  bool           `json:"zero_copy"`                       // the kernel does not copy
	Instance  string         `json:"instance,omitempty"`              // directory of the pins, when the program was loaded to stay
	Program   uint32         `json:"program_id,omitempty"`            // number of the steering program in the kernel
	Queues    int            `json:"queues"`                          // with an engine
	Flows     int            `json:"flows"`                           // connections now
	MaxFlows  int            `json:"max_flows"`                       // that the adapter takes; 0 for the kernel's, and without an engine
	FlowTable int            `json:"flow_table"`                      // entries of the steering program's map; 0 for the kernel's
	HeapSize  uint64         `json:"heap_size"`                       // of the adapter's region heap
	HeapFree  uint64         `json:"heap_free"`                       // of the adapter's region heap, free
	MaxMRs    int            `json:"max_mrs"`                         // of the adapter
	Speed     uint64         `json:"speed_bits_per_second,omitempty"` // of the link; 0: unknown
}

// Flow is a connection that was taken over from the kernel.
type Flow struct {
	Device string         `json:"device"`
	Queue  int            `json:"queue"` // whose engine owns it; -1: none yet
	ID     FlowID         `json:"id"`    // as in the flow entry, and in captures
	Kind   string         `json:"kind"`  // rdma, bytes
	State  string         `json:"state"` // park, live, orphan: of the entry in the map
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	VLAN   uint16         `json:"vlan,omitempty"`
	QP     uint32         `json:"qp,omitempty"` // 0: none
	Age    uint64         `json:"age_seconds"`  // since it was taken over
	// NextHop is the address on the link to which the flow's packets go, and NextHopMAC
	// is its Ethernet address. Both are "" if no engine runs the flow.
	NextHop    string `json:"next_hop,omitempty"`
	NextHopMAC string `json:"next_hop_mac,omitempty"`
	// Diverted says why the kernel would send the flow's packets another way now. The
	// connection continues as before. It is "" if the kernel would send them the same
	// way.
	Diverted string `json:"diverted,omitempty"`
	TCP      *TCP   `json:"tcp,omitempty"` // nil when no engine runs it, and when its connection is gone
}

// TCP is the state of one connection: the values that `ss -tin` shows for the kernel's
// connections.
type TCP struct {
	State      string    `json:"state"`                // ESTABLISHED, FIN-WAIT-1, ...
	ECN        bool      `json:"ecn"`                  // both ends agreed on it
	Congestion string    `json:"congestion"`           // cubic, reno
	Followed   string    `json:"congestion_of_kernel"` // until the take-over: any name of the kernel's
	Cwnd       uint32    `json:"cwnd_bytes"`
	Ssthresh   *uint32   `json:"ssthresh_bytes,omitempty"` // nil: none yet
	SndWnd     uint32    `json:"snd_wnd"`
	RcvWnd     uint32    `json:"rcv_wnd"`
	MSS        uint32    `json:"mss"`
	PMTU       uint32    `json:"pmtu"`
	SRTT       uint64    `json:"srtt_us"`
	RTTVar     uint64    `json:"rttvar_us"`
	RTO        uint64    `json:"rto_us"` // without backoff
	Backoff    uint8     `json:"backoff"`
	Recovering bool      `json:"recovering"`
	InFlight   uint32    `json:"in_flight"`
	Unacked    uint32    `json:"unacked"` // emitted and not acknowledged
	Unread     uint32    `json:"unread"`  // received and not consumed
	SndSegs    uint32    `json:"retransmission_queue_segments"`
	Reordered  int       `json:"reorder_queue_frames"`
	Held       int       `json:"receive_frames_held"`
	Counters   []Counter `json:"counters"` // layer tcp
}

// QP is a queue pair.
type QP struct {
	Number    uint32          `json:"qp"`
	State     string          `json:"state"`            // of the RDMAC verbs: Idle, RTS, Closing, Terminate, Error
	Device    string          `json:"device,omitempty"` // "" when it is not connected
	Flow      FlowID          `json:"flow,omitempty"`   // its Flow's ID
	PD        uint32          `json:"pd"`
	SendCQ    uint32          `json:"send_cq"`
	RecvCQ    uint32          `json:"recv_cq"`
	SendDepth int             `json:"send_depth"` // work requests
	RecvDepth int             `json:"recv_depth"`
	MaxSGE    int             `json:"max_sge"`
	MaxInline int             `json:"max_inline"`
	Local     *netip.AddrPort `json:"local,omitempty"` // nil when it is not connected
	Remote    *netip.AddrPort `json:"remote,omitempty"`
	Initiator bool            `json:"initiator"`
	Revision  int             `json:"mpa_revision"` // 0 when it is not connected
	CRC       bool            `json:"crc"`
	Markers   string          `json:"markers"` // none, sent, received, both
	IRD       int             `json:"ird"`
	ORD       int             `json:"ord"`
	Error     string          `json:"error,omitempty"` // why it ended in bad order
	Counters  []Counter       `json:"counters"`        // layer rdmap: what it has moved
}

// CQ is a completion queue.
type CQ struct {
	Number  uint32 `json:"cq"`
	Depth   int    `json:"depth"` // completions it holds
	Ready   int    `json:"ready"` // completions that wait to be polled
	QPs     int    `json:"qps"`   // that use it
	Overrun bool   `json:"overrun"`
}

// MR is an entry of the translation and protection table.
type MR struct {
	STag    string   `json:"stag"` // 0x and eight hexadecimal digits
	Kind    string   `json:"kind"` // region, window, iscsi
	Valid   bool     `json:"valid"`
	PD      uint32   `json:"pd"`
	QP      uint32   `json:"qp,omitempty"` // the only one that may use it; 0: all of the PD
	Start   uint64   `json:"start"`        // tagged offset of the first octet
	Length  uint64   `json:"length"`
	Rights  []string `json:"rights"`            // such as local_read, remote_write
	Heap    bool     `json:"heap"`              // in the region heap, otherwise the application's memory
	Parent  uint32   `json:"parent,omitempty"`  // index of a window's region
	Windows uint32   `json:"windows,omitempty"` // bound to it
}

// STag formats an STag for reports.
func STag(stag uint32) string { return fmt.Sprintf("0x%08x", stag) }

// Rights splits a list such as "local read, remote write", or "none", and makes each
// right one word.
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
	Mode      string    `json:"mode"` // copy, zero-copy
	FrameSize uint32    `json:"frame_size"`
	RxFrames  uint32    `json:"rx_frames"`
	TxFrames  uint32    `json:"tx_frames"`
	Flows     int       `json:"flows"`
	Asleep    bool      `json:"asleep"`   // the engine waits in poll
	Counters  []Counter `json:"counters"` // layers engine, wire, tcp, xsk, xsk_kernel
}
